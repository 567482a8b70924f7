//! Rows as text: a line each, columns, or a list with commas.

use super::rows::Row;
use super::style::Style;
use crate::args::ls::{Format, Indicator};
use crate::output::attributes::mode;
use crate::output::quote::{Quoting, hidden};
use crate::output::{Names, json};
use dentree_vfs::{Attr, FileType};

/// The text of rows, with the sum of their space if they are those of a directory.
pub(super) fn text(style: &Style<'_>, rows: &[Row], is_directory: bool) -> Vec<u8> {
    let mut out = Vec::new();
    if style.format == Format::Json {
        for row in rows {
            if let Some(attr) = &row.attr {
                let target = row.target.as_ref().map(|(text, _)| &**text);
                // Writing to memory does not fail.
                let _ = json::line(&mut out, &json::File::new(&row.path, attr, target));
            }
        }
        return out;
    }
    if is_directory && (style.is_long() || style.args.columns.size) {
        let blocks = rows.iter().filter_map(|row| row.attr).map(|attr| attr.blocks);
        let sum = blocks.fold(0_u64, u64::saturating_add).saturating_mul(512);
        out.extend_from_slice(format!("total {}", style.blocks.show(sum)).as_bytes());
        out.push(style.end);
    }
    let cells = cells(style, rows);
    match style.format {
        Format::Vertical | Format::Across => columns(style, &cells, &mut out),
        Format::Commas => commas(style, &cells, &mut out),
        _ => cells.into_iter().for_each(|cell| {
            out.extend(cell.text);
            out.push(style.end);
        }),
    }
    out
}

/// A row without its end.
struct Cell {
    text: Vec<u8>,
    /// In characters.
    width: usize,
}

/// A field before the name.
type Field = (String, Align);

#[derive(Clone, Copy)]
enum Align {
    Left,
    Right,
    /// Not padded.
    No,
}

fn cells(style: &Style<'_>, rows: &[Row]) -> Vec<Cell> {
    let fields: Vec<Vec<Field>> = rows.iter().map(|row| fields(style, rows, row)).collect();
    let count = fields.first().map_or(0, Vec::len);
    let is_padded = style.format != Format::Commas;
    let widest = |i: usize| fields.iter().map(|fields| fields[i].0.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count).map(|i| if is_padded { widest(i) } else { 0 }).collect();
    let indents = style.quoting.is_some_and(Quoting::varies)
        && matches!(style.format, Format::Long | Format::Vertical | Format::Across)
        && rows.iter().any(|row| shown(style, &row.name).len() != row.name.len());
    let cell = |(row, fields): (&Row, Vec<Field>)| {
        let mut line = String::new();
        for ((text, align), width) in fields.into_iter().zip(&widths) {
            line += &match align {
                Align::Left => format!("{text:<width$} "),
                Align::Right => format!("{text:>width$} "),
                Align::No => format!("{text} "),
            };
        }
        let name = shown(style, &row.name);
        if indents && name == row.name {
            line.push(' ');
        }
        let mark = mark(style, row.kind, row.attr.as_ref());
        let mark = if style.is_long() && row.kind == FileType::Symlink { "" } else { mark };
        let width = line.chars().count() + width(&name) + mark.len();
        let mut text = line.into_bytes();
        paint(style, &row.name, &name, row.kind, row.attr.as_ref(), &mut text);
        text.extend_from_slice(mark.as_bytes());
        if let Some((target, end)) = row.target.as_ref().filter(|_| style.is_long()) {
            text.extend_from_slice(b" -> ");
            text.extend_from_slice(&shown(style, target));
            text.extend_from_slice(end.map_or("", |end| self::mark(style, end.kind, Some(&end))).as_bytes());
        }
        Cell { text, width }
    };
    rows.iter().zip(fields).map(cell).collect()
}

/// What stands before the name; `?` where the inode cannot be read.
fn fields(style: &Style<'_>, rows: &[Row], row: &Row) -> Vec<Field> {
    use Align::{Left, No, Right};
    let columns = &style.args.columns;
    let mut fields: Vec<Field> = Vec::new();
    if columns.inode {
        fields.push((row.ino.to_string(), Right));
    }
    let mut add = |is_shown: bool, known: Align, unknown: Align, text: &dyn Fn(&Attr) -> String| {
        if is_shown {
            fields.push(
                row.attr.as_ref().map_or_else(|| ("?".to_owned(), unknown), |attr| (text(attr), known)),
            );
        }
    };
    add(columns.size, Right, Right, &|attr| style.blocks.show(attr.blocks.saturating_mul(512)));
    if style.is_long() {
        let name = |id: u32, name: &Option<Box<str>>| name.as_deref().map_or(id.to_string(), str::to_owned);
        let align = |name: &Option<Box<str>>| if name.is_some() { Left } else { Right };
        add(true, Left, Left, &|attr| mode(&Attr { has_acl: false, ..*attr }));
        add(true, Right, Right, &|attr| attr.nlink.to_string());
        let owner = |attr: &Attr| name(attr.uid, &row.owner);
        add(style.show_owner, align(&row.owner), Left, &owner);
        add(style.show_group, align(&row.group), Left, &|attr| name(attr.gid, &row.group));
        add(columns.author, align(&row.owner), Left, &owner);
        add(columns.context, Left, Left, &|_| context(row));
        let minors = rows.iter().filter_map(|row| row.attr).filter(is_device);
        let minors = minors.map(|attr| attr.rdev_minor.to_string().len()).max().unwrap_or(0);
        add(true, Right, Right, &|attr| size(style, attr, minors));
        let unknown = || "?".to_owned();
        add(true, No, Right, &|attr| style.time_of(attr).map_or_else(unknown, |time| style.dates.show(time)));
        let at = usize::from(columns.inode) + usize::from(columns.size);
        let has_acls = rows.iter().any(|row| row.has_acl);
        complete_mode(row, has_acls, &mut fields[at].0);
    } else {
        add(columns.context, Left, Left, &|_| context(row));
    }
    fields
}

/// Marks access control lists where any row of the listing has one, and what is not known.
fn complete_mode(row: &Row, has_acls: bool, mode: &mut String) {
    if row.attr.is_none() {
        let letter = if row.kind == FileType::Regular { '-' } else { row.kind.letter() };
        *mode = format!("{letter}?????????");
    }
    if has_acls {
        mode.push(match (row.has_acl, row.attr) {
            (true, _) => '+',
            (false, Some(_)) => ' ',
            (false, None) => '?',
        });
    }
}

fn is_device(attr: &Attr) -> bool {
    matches!(attr.kind, FileType::BlockDevice | FileType::CharDevice)
}

fn size(style: &Style<'_>, attr: &Attr, minors: usize) -> String {
    if is_device(attr) {
        format!("{}, {:>minors$}", attr.rdev_major, attr.rdev_minor)
    } else {
        style.sizes.show(attr.size)
    }
}

fn context(row: &Row) -> String {
    let bytes = row.context.as_deref().unwrap_or(b"?");
    String::from_utf8_lossy(&hidden(bytes.strip_suffix(b"\0").unwrap_or(bytes))).into_owned()
}

/// A name as it is shown, without colours.
pub(super) fn shown(style: &Style<'_>, name: &[u8]) -> Vec<u8> {
    match style.quoting {
        None => Names::ESCAPED.show(name).into_owned(),
        Some(quoting) => {
            let quoted = quoting.quote(name);
            if style.hide_control_chars { hidden(&quoted) } else { quoted.into_owned() }
        }
    }
}

/// In characters; control characters take no place.
pub(super) fn width(name: &[u8]) -> usize {
    String::from_utf8_lossy(name).chars().filter(|c| !c.is_control()).count()
}

fn paint(
    style: &Style<'_>,
    name: &[u8],
    shown: &[u8],
    kind: FileType,
    attr: Option<&Attr>,
    out: &mut Vec<u8>,
) {
    match style.colors.as_ref().and_then(|colors| colors.code(name, kind, attr)) {
        Some(code) => {
            out.extend_from_slice(format!("\x1b[{code}m").as_bytes());
            out.extend_from_slice(shown);
            out.extend_from_slice(b"\x1b[0m");
        }
        None => out.extend_from_slice(shown),
    }
}

/// What is appended to a name.
fn mark(style: &Style<'_>, kind: FileType, attr: Option<&Attr>) -> &'static str {
    let at_least = |indicator| style.indicator >= indicator;
    match kind {
        FileType::Directory if at_least(Indicator::Slash) => "/",
        FileType::Symlink if at_least(Indicator::FileType) => "@",
        FileType::Fifo if at_least(Indicator::FileType) => "|",
        FileType::Socket if at_least(Indicator::FileType) => "=",
        FileType::Regular
            if at_least(Indicator::Classify) && attr.is_some_and(|attr| attr.permissions & 0o111 != 0) =>
        {
            "*"
        }
        _ => "",
    }
}

/// As many columns as fit.
fn columns(style: &Style<'_>, cells: &[Cell], out: &mut Vec<u8>) {
    let most = if style.width == 0 { cells.len() } else { (style.width / 3).min(cells.len()) }.max(1);
    let place = |index: usize, across: usize| match style.format {
        Format::Across => (index / across, index % across),
        _ => {
            let down = cells.len().div_ceil(across);
            (index % down, index / down)
        }
    };
    let widths = |across: usize| {
        let mut widths = vec![3; across];
        for (index, cell) in cells.iter().enumerate() {
            let column = place(index, across).1;
            let gap = if column + 1 < across { 2 } else { 0 };
            widths[column] = widths[column].max(cell.width + gap);
        }
        widths
    };
    let fits = |across: &usize| style.width == 0 || widths(*across).iter().sum::<usize>() < style.width;
    let across = if style.width == 0 { most } else { (1..=most).rev().find(fits).unwrap_or(1) };
    let widths = widths(across);
    let lines = cells.len().div_ceil(across);
    let mut grid: Vec<Vec<&Cell>> = vec![Vec::new(); lines];
    for (index, cell) in cells.iter().enumerate() {
        grid[place(index, across).0].push(cell);
    }
    for line in grid {
        let mut start = 0;
        for (column, cell) in line.iter().enumerate() {
            out.extend_from_slice(&cell.text);
            if column + 1 < line.len() {
                indent(style, start + cell.width, start + widths[column], out);
                start += widths[column];
            }
        }
        out.push(style.end);
    }
}

/// Spaces from one column to another, with tabs where a space would leave a tab stop to pass.
fn indent(style: &Style<'_>, mut from: usize, to: usize, out: &mut Vec<u8>) {
    let tab = if style.width == 0 { 0 } else { style.args.layout.tabsize.unwrap_or(8) };
    while from < to {
        if tab != 0 && to / tab > (from + 1) / tab {
            out.push(b'\t');
            from += tab - from % tab;
        } else {
            out.push(b' ');
            from += 1;
        }
    }
}

fn commas(style: &Style<'_>, cells: &[Cell], out: &mut Vec<u8>) {
    let mut column = 0;
    for (index, cell) in cells.iter().enumerate() {
        if index > 0 {
            let fits = style.width == 0 || column + cell.width + 2 < style.width;
            column = if fits { column + 2 } else { 0 };
            out.extend_from_slice(if fits { b", " } else { b",\n" });
        }
        out.extend_from_slice(&cell.text);
        column += cell.width;
    }
    if !cells.is_empty() {
        out.push(style.end);
    }
}
