//! What the options of one run come to.

use crate::args::LsArgs;
use crate::args::ls::{Format, Indicator, Sort, Time};
use crate::host::OsStrExt;
use crate::output::Output;
use crate::output::color::{Colors, When};
use crate::output::dates::Dates;
use crate::output::quote::Quoting;
use crate::output::size::Scale;
use crate::report::Problem;
use dentree_find::glob;
use dentree_vfs::{Attr, Timestamp};
use regex::bytes::Regex;
use std::ffi::OsString;

pub(super) struct Style<'a> {
    pub(super) args: &'a LsArgs,
    pub(super) format: Format,
    pub(super) sort: Sort,
    pub(super) time: Time,
    pub(super) dates: Dates,
    /// Of sizes, and of allocated space.
    pub(super) sizes: Scale,
    pub(super) blocks: Scale,
    pub(super) show_owner: bool,
    pub(super) show_group: bool,
    pub(super) indicator: Indicator,
    pub(super) colors: Option<Colors>,
    /// `None`: escaped for a terminal.
    pub(super) quoting: Option<Quoting>,
    pub(super) hide_control_chars: bool,
    pub(super) width: usize,
    pub(super) end: u8,
    ignored: Vec<Regex>,
}

impl<'a> Style<'a> {
    pub(super) fn new(args: &'a LsArgs, out: &Output) -> Result<Self, Problem> {
        let terminal = out.terminal_width();
        let is_terminal = terminal.is_some();
        let format = format(args, is_terminal);
        let time_style = match &args.columns.time_style {
            _ if args.columns.full_time => Some("full-iso".to_owned()),
            None => std::env::var("TIME_STYLE").ok(),
            style => style.clone(),
        };
        let (names, layout) = (&args.names, &args.layout);
        let classify = names.classify.is_some_and(|when| when.holds(is_terminal));
        let chosen = [
            (classify, Indicator::Classify),
            (names.file_type, Indicator::FileType),
            (names.slash, Indicator::Slash),
        ];
        let chosen = chosen.into_iter().find_map(|(is_set, indicator)| is_set.then_some(indicator));
        let colored = names.color.is_some_and(|when: When| when.holds(is_terminal)) && !layout.null;
        let columns = || std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
        Ok(Style {
            args,
            format,
            sort: sort(args, format),
            time: time(args).unwrap_or(Time::Mtime),
            dates: dates(time_style.as_deref().unwrap_or("locale"))?,
            sizes: sizes(args).unwrap_or(Scale::unit(1)),
            blocks: if args.columns.kibibytes { None } else { sizes(args) }.unwrap_or(Scale::unit(1024)),
            show_owner: !args.columns.no_owner,
            show_group: !args.columns.no_group && !args.columns.no_group_long,
            indicator: names.indicator_style.or(chosen).unwrap_or(Indicator::None),
            colors: colored.then(Colors::from_environment),
            quoting: quoting(args, is_terminal),
            hide_control_chars: names.hide_control_chars,
            width: layout.width.or_else(columns).or(terminal).unwrap_or(80),
            end: if layout.null { 0 } else { b'\n' },
            ignored: ignored(args)?,
        })
    }

    pub(super) fn is_long(&self) -> bool {
        self.format == Format::Long
    }

    /// Whether rows need their inodes, not only names, types and numbers.
    pub(super) fn needs_attributes(&self) -> bool {
        matches!(self.format, Format::Long | Format::Json)
            || matches!(self.sort, Sort::Size | Sort::Time)
            || self.args.order.group_directories_first
            || self.args.columns.size
            || self.args.columns.context
            || self.args.select.dereference
            || self.indicator == Indicator::Classify
            || self.colors.is_some()
    }

    pub(super) fn shows_dots(&self) -> bool {
        self.args.select.all || self.args.order.raw
    }

    /// Whether an entry of a directory is listed.
    pub(super) fn lists(&self, name: &[u8]) -> bool {
        let select = &self.args.select;
        let is_hidden = name.starts_with(b".") && !self.shows_dots() && !select.almost_all;
        let is_backup = select.ignore_backups && name.ends_with(b"~");
        !is_hidden && !is_backup && !self.ignored.iter().any(|pattern| pattern.is_match(name))
    }

    /// The time to show and to sort by.
    pub(super) fn time_of(&self, attr: &Attr) -> Option<Timestamp> {
        self.time.of(attr)
    }
}

fn dates(style: &str) -> Result<Dates, Problem> {
    Dates::new(style).map_err(|why| Problem::usage(style, why))
}

fn format(args: &LsArgs, is_terminal: bool) -> Format {
    let (layout, columns) = (&args.layout, &args.columns);
    let long =
        layout.long || columns.numeric || columns.no_owner || columns.no_group_long || columns.full_time;
    let chosen = [
        (layout.json, Format::Json),
        (layout.vertical, Format::Vertical),
        (layout.across, Format::Across),
        (layout.commas, Format::Commas),
        (long, Format::Long),
        (layout.single || layout.null || !is_terminal, Format::SingleColumn),
    ];
    let found = chosen.into_iter().find_map(|(is_set, format)| is_set.then_some(format));
    layout.format.filter(|_| !layout.json && !long).or(found).unwrap_or(Format::Vertical)
}

fn time(args: &LsArgs) -> Option<Time> {
    let order = &args.order;
    order.time.or(order.ctime.then_some(Time::Ctime)).or(order.atime.then_some(Time::Atime))
}

fn sort(args: &LsArgs, format: Format) -> Sort {
    let order = &args.order;
    let chosen = [
        (order.by_time, Sort::Time),
        (order.by_size, Sort::Size),
        (order.by_extension, Sort::Extension),
        (order.by_version, Sort::Version),
        (order.unsorted || order.raw, Sort::None),
        (time(args).is_some() && format != Format::Long, Sort::Time),
    ];
    let found = chosen.into_iter().find_map(|(is_set, sort)| is_set.then_some(sort));
    order.sort.or(found).unwrap_or(Sort::Name)
}

fn sizes(args: &LsArgs) -> Option<Scale> {
    let columns = &args.columns;
    let human = columns.human_readable.then_some(Scale::HUMAN);
    human.or(columns.si.then_some(Scale::SI)).or(columns.block_size)
}

fn quoting(args: &LsArgs, is_terminal: bool) -> Option<Quoting> {
    let names = &args.names;
    let chosen = [
        (names.literal, Quoting::Literal),
        (names.quote_name, Quoting::C),
        (names.escape, Quoting::Escape),
        (!is_terminal || args.layout.null || names.hide_control_chars, Quoting::Literal),
    ];
    names.quoting_style.or(chosen.into_iter().find_map(|(is_set, style)| is_set.then_some(style)))
}

fn ignored(args: &LsArgs) -> Result<Vec<Regex>, Problem> {
    let select = &args.select;
    let hide: &[OsString] = if select.all || select.almost_all { &[] } else { &select.hide };
    let compile = |pattern: &OsString| {
        // `*` and `?` leave a leading dot to patterns that have one.
        let bytes = pattern.as_bytes();
        glob::compile(bytes, false).map_err(|why| Problem::usage(pattern.display().to_string(), why))
    };
    select.ignore.iter().chain(hide).map(compile).collect()
}
