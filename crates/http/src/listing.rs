//! A directory as an HTML page.
//!
//! It works without scripts; one script filters as the user types. The content security policy
//! allows only this style and script, by digest, so that a name which escapes as HTML does nothing.
//! Memory holds a page of entries at a time. Sorting by size or time reads every inode and is
//! refused beyond [`SORTED`] entries.

use crate::site::{Site, WHO};
use crate::sort::{By, Key, Sort};
use crate::target::{Target, encode, form_field};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use dentree_vfs::{Attr, DirEntry, FileSystem, FileType, Ino, Inode, ReaddirStart, Result, Timestamp};
use jiff::tz::TimeZone;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::ControlFlow;
use std::sync::LazyLock;

/// Per page.
const ROWS: usize = 1000;
/// Most entries sorted by size or time.
const SORTED: u64 = 100_000;
/// Characters of a link's target.
const TARGET_SHOWN: usize = 120;
/// Most bytes of a page: a row has 255 characters of name, escaped up to five times, and the name
/// again in its link.
pub(crate) const PAGE_BYTES: usize = 4 << 20;

const STYLE: &str = include_str!("../assets/page.css");
const SCRIPT: &str = include_str!("../assets/page.js");
const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Cpath \
                    fill='%233b82f6' d='M1 3h5l2 2h7v9H1z'/%3E%3C/svg%3E";

pub(crate) struct View {
    /// Substring of names, case ignored.
    pub(crate) filter: String,
    pub(crate) sort: Sort,
    /// Rows after this one.
    pub(crate) after: Option<Key>,
}

impl View {
    pub(crate) fn of(query: &str) -> Self {
        let text =
            |field| form_field(query, field).map(|value| String::from_utf8_lossy(&value).trim().to_owned());
        let rank = || text("rank").and_then(|rank| rank.parse().ok()).unwrap_or_default();
        View {
            filter: text("filter").unwrap_or_default(),
            sort: Sort::of(query),
            after: form_field(query, "after").map(|name| (rank(), name)),
        }
    }

    /// Same filter, with this order and start.
    fn address(&self, sort: Sort, after: Option<&Key>) -> String {
        let mut fields: Vec<(&str, String)> =
            sort.fields().map(|(field, value)| (field, value.to_owned())).collect();
        if !self.filter.is_empty() {
            fields.push(("filter", encode(self.filter.as_bytes())));
        }
        if let Some((rank, name)) = after {
            if sort.by != By::Name {
                fields.push(("rank", rank.to_string()));
            }
            fields.push(("after", encode(name)));
        }
        let fields: Vec<String> = fields.iter().map(|(field, value)| format!("{field}={value}")).collect();
        format!("?{}", fields.join("&amp;"))
    }
}

/// Content security policy: own style and script, and a form to this server.
pub(crate) fn policy() -> &'static str {
    static POLICY: LazyLock<String> = LazyLock::new(|| {
        let digest = |text: &str| BASE64_STANDARD.encode(Sha256::digest(text));
        format!(
            "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; img-src data:; form-action 'self'; \
             base-uri 'none'; frame-ancestors 'none'",
            digest(STYLE),
            digest(SCRIPT)
        )
    });
    &POLICY
}

#[derive(Default)]
struct Listing {
    rows: BTreeMap<Key, (Ino, Option<FileType>)>,
    sort: Sort,
    /// All entries.
    total: u64,
    /// Entries that pass the filter.
    matching: u64,
    /// More follow.
    more: bool,
}

impl Listing {
    /// By name if there are too many entries.
    fn read<F: FileSystem>(site: &Site<F>, dir: &Inode<F>, view: &View) -> Result<Self> {
        let listing = Listing::read_sorted(site, dir, view, view.sort, view.after.as_ref())?;
        if listing.sort.by == By::Name || listing.total <= SORTED {
            return Ok(listing);
        }
        let after = view.after.as_ref().map(|(_, name)| (0, name.clone()));
        Listing::read_sorted(site, dir, view, Sort::default(), after.as_ref())
    }

    fn read_sorted<F: FileSystem>(
        site: &Site<F>,
        dir: &Inode<F>,
        view: &View,
        sort: Sort,
        after: Option<&Key>,
    ) -> Result<Self> {
        let mut listing = Listing { sort, ..Listing::default() };
        let wanted = view.filter.to_lowercase();
        site.vfs.readdir(WHO, dir, ReaddirStart::First, &mut |entry| {
            listing.total += 1;
            if sort.by != By::Name && listing.total > SORTED {
                return ControlFlow::Break(());
            }
            if wanted.is_empty() || String::from_utf8_lossy(entry.name).to_lowercase().contains(&wanted) {
                listing.matching += 1;
                let attr = if sort.by == By::Name { None } else { site.vfs.attr(entry.ino).ok() };
                listing.keep(&entry, sort.by.rank(attr.as_ref()), after);
            }
            ControlFlow::Continue(())
        })?;
        Ok(listing)
    }

    /// Keeps the least rows after `after`.
    fn keep(&mut self, entry: &DirEntry<'_>, rank: i128, after: Option<&Key>) {
        let key = (rank, entry.name.to_vec());
        if after.is_some_and(|after| !self.sort.is_before(after, &key)) {
            return;
        }
        if self.rows.len() == ROWS {
            self.more = true;
            if self.last().is_some_and(|last| self.sort.is_before(last, &key)) {
                return;
            }
        }
        self.rows.insert(key, (entry.ino, entry.kind));
        if self.rows.len() > ROWS {
            if self.sort.is_descending {
                self.rows.pop_first()
            } else {
                self.rows.pop_last()
            };
        }
    }

    fn last(&self) -> Option<&Key> {
        let last =
            if self.sort.is_descending { self.rows.first_key_value() } else { self.rows.last_key_value() };
        last.map(|(key, _)| key)
    }
}

/// `target` leads to `dir`.
pub(crate) fn page<F: FileSystem>(
    site: &Site<F>,
    target: &Target,
    dir: &Inode<F>,
    view: &View,
) -> Result<String> {
    let listing = Listing::read(site, dir, view)?;
    let mut html = String::with_capacity(16 << 10);
    top(&mut html, site, target);
    filter(&mut html, &listing, view);
    html.push_str("<p class=\"ways\">");
    if !target.names.is_empty() {
        html.push_str("<a href=\"../\">↑ Parent directory</a> ");
    }
    if site.archives.is_some() {
        html.push_str("<a href=\"?archive=tar\" rel=\"nofollow\" download>↓ Download as tar</a>");
    }
    html.push_str("</p>\n");
    head(&mut html, &listing, view);
    let mut rows: Vec<_> = listing.rows.iter().collect();
    if listing.sort.is_descending {
        rows.reverse();
    }
    for ((_, name), (ino, kind)) in rows {
        row(&mut html, site, name, *ino, *kind);
    }
    html.push_str("</tbody></table>\n");
    pages(&mut html, &listing, view);
    let _ = writeln!(html, "</main><script>{SCRIPT}</script></body></html>");
    Ok(html)
}

fn top<F: FileSystem>(html: &mut String, site: &Site<F>, target: &Target) {
    let shown: Vec<String> = target.names.iter().map(|name| text(name)).collect();
    let title = text(site.title.as_bytes());
    let _ = write!(
        html,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}: /{}</title>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\"><link rel=\"icon\" href=\"{ICON}\">\n\
         <style>{STYLE}</style></head>\n<body><main>\n<nav aria-label=\"Path\">",
        shown.join("/")
    );
    for (depth, name) in std::iter::once(&title).chain(&shown).enumerate() {
        if depth > 0 {
            html.push_str("<span class=\"sep\">/</span>");
        }
        if depth == shown.len() {
            let _ = write!(html, "<bdi aria-current=\"page\">{name}</bdi>");
        } else {
            let _ = write!(html, "<a href=\"{}\"><bdi>{name}</bdi></a>", target.directory_url(depth));
        }
    }
    html.push_str("</nav>\n");
}

fn filter(html: &mut String, listing: &Listing, view: &View) {
    let complete = view.filter.is_empty() && view.after.is_none() && !listing.more;
    let complete = if complete { " data-complete=\"1\"" } else { "" };
    let focus = if view.filter.is_empty() { "" } else { " autofocus" };
    let order: String = (listing.sort.fields())
        .map(|(field, value)| format!("<input type=\"hidden\" name=\"{field}\" value=\"{value}\">"))
        .collect();
    let total = plural(listing.total);
    let count =
        if view.filter.is_empty() { total.clone() } else { format!("{} of {total}", listing.matching) };
    let _ = write!(
        html,
        "<form{complete}><input type=\"search\" name=\"filter\" value=\"{}\" placeholder=\"Filter names\" \
         aria-label=\"Filter names\" autocomplete=\"off\"{focus}>{order}<button>Filter</button></form>\n\
         <p id=\"count\" aria-live=\"polite\" data-total=\"{total}\">{count}</p>\n",
        text(view.filter.as_bytes())
    );
}

fn head(html: &mut String, listing: &Listing, view: &View) {
    html.push_str("<table><thead><tr>");
    for (by, title) in By::ALL.into_iter().zip(["Name", "Size", "Changed"]) {
        let _ = write!(html, "<th class=\"{}\"", by.word());
        if by == listing.sort.by {
            let order = if listing.sort.is_descending { "descending" } else { "ascending" };
            let _ = write!(html, " aria-sort=\"{order}\"");
        }
        if by == By::Name || listing.total <= SORTED {
            let address = view.address(listing.sort.click(by), None);
            let _ = write!(html, "><a href=\"{address}\">{title}</a>");
        } else {
            let _ = write!(html, " title=\"more than {SORTED} entries are sorted by name only\">{title}");
        }
    }
    html.push_str("</thead>\n<tbody>\n");
}

fn plural(entries: u64) -> String {
    if entries == 1 { "1 entry".into() } else { format!("{entries} entries") }
}

fn row<F: FileSystem>(html: &mut String, site: &Site<F>, name: &[u8], ino: Ino, kind: Option<FileType>) {
    // A row without size and time is still useful.
    let inode = site.vfs.inode(ino).ok();
    let kind = inode.as_ref().map(|inode| inode.attr().kind).or(kind);
    let shown = text(name);
    let (class, slash) = if kind == Some(FileType::Directory) { ("dir", "/") } else { ("file", "") };
    let _ = write!(html, "<tr class=\"{class}\" data-name=\"{shown}\"><td class=\"name\">");
    match kind {
        Some(FileType::Regular | FileType::Directory | FileType::Symlink) | None => {
            let _ = write!(html, "<a href=\"{}{slash}\"><bdi>{shown}</bdi>{slash}</a>", encode(name));
        }
        Some(other) => {
            let _ = write!(html, "<bdi>{shown}</bdi> <span class=\"to\">{}</span>", word(other));
        }
    }
    let mut attr = None;
    if let Some(inode) = &inode {
        attr = Some(inode.attr());
        if kind == Some(FileType::Symlink)
            && let Ok(to) = site.vfs.readlink(inode)
        {
            let _ = write!(html, " <span class=\"to\">→ <bdi>{}</bdi></span>", text(shorten(&to)));
        }
    }
    html.push_str("<td class=\"size\">");
    if let Some(Attr { size, kind: FileType::Regular, .. }) = attr {
        let _ = write!(html, "<data value=\"{size}\" title=\"{size} bytes\">{}</data>", human(size));
    }
    html.push_str("<td class=\"time\">");
    if let Some(attr) = attr {
        time(html, attr.mtime, &site.zone);
    }
    html.push('\n');
}

fn time(html: &mut String, time: Timestamp, zone: &TimeZone) {
    if let Ok(instant) = jiff::Timestamp::from_second(time.seconds) {
        let local = instant.to_zoned(zone.clone());
        let _ = write!(html, "<time datetime=\"{instant}\">{}</time>", local.strftime("%Y-%m-%d %H:%M"));
    }
}

fn pages(html: &mut String, listing: &Listing, view: &View) {
    html.push_str("<p class=\"pages\">");
    if view.after.is_some() {
        let _ = write!(html, "<a href=\"{}\">First page</a> ", view.address(listing.sort, None));
    }
    if listing.more {
        let next = view.address(listing.sort, listing.last());
        let _ = write!(html, "<a href=\"{next}\" rel=\"next\">Next {ROWS} →</a>");
    }
    html.push_str("</p>\n");
}

fn shorten(target: &[u8]) -> &[u8] {
    &target[..target.len().min(TARGET_SHOWN)]
}

fn word(kind: FileType) -> &'static str {
    match kind {
        FileType::CharDevice => "character device",
        FileType::BlockDevice => "block device",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        FileType::Regular | FileType::Directory | FileType::Symlink => "",
    }
}

/// Escaped; invalid UTF-8 becomes replacement characters.
fn text(name: &[u8]) -> String {
    let mut out = String::with_capacity(name.len());
    for c in String::from_utf8_lossy(name).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

fn human(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = bytes as f64;
    let mut unit = None;
    for name in UNITS.into_iter().take_while(|_| bytes >= 1024) {
        if unit.is_some() && value < 1000.0 {
            break;
        }
        value /= 1024.0;
        unit = Some(name);
    }
    match unit {
        None => format!("{bytes} B"),
        Some(unit) if value < 9.95 => format!("{value:.1} {unit}"),
        Some(unit) => format!("{value:.0} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_leave_its_place() {
        assert_eq!(text(b"<a href='x' title=\"y\">&"), "&lt;a href=&#39;x&#39; title=&#34;y&#34;&gt;&amp;");
        assert_eq!(text(b"a\xffb"), "a\u{fffd}b");
    }

    #[test]
    fn sizes_are_short() {
        let shown = [0, 1023, 1024, 10 << 10, 1_023_999, 1_048_575, 1 << 30, u64::MAX].map(human);
        assert_eq!(shown, ["0 B", "1023 B", "1.0 KiB", "10 KiB", "1000 KiB", "1.0 MiB", "1.0 GiB", "16 EiB"]);
    }

    #[test]
    fn a_page_keeps_the_first_names_whatever_their_order() {
        for is_descending in [false, true] {
            let mut listing = Listing { sort: Sort { by: By::Name, is_descending }, ..Listing::default() };
            let name = |number: usize| format!("{number:05}").into_bytes();
            let after = if is_descending { 3 * ROWS - 10 } else { 9 };
            for number in (0..3 * ROWS).rev() {
                let entry = DirEntry { name: &name(number), ino: Ino(1), kind: None, cookie: 0 };
                listing.keep(&entry, 0, Some(&(0, name(after))));
            }
            assert!(listing.more && listing.rows.len() == ROWS);
            let first = if is_descending { after - ROWS } else { after + 1 };
            assert!(
                listing
                    .rows
                    .keys()
                    .map(|key| &key.1)
                    .eq(&(first..first + ROWS).map(name).collect::<Vec<_>>())
            );
        }
    }
}
