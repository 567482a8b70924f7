//! `dentree salvage`: what can be read of a badly damaged image, into a directory.

mod write;

use crate::args::SalvageArgs;
use crate::host::OsStrExt;
use crate::image::{Session, open_damaged};
use crate::output::{Output, escape, json};
use crate::report::{self, Problem, Status, Stop};
use dentree_blockdev::RescueMap;
use dentree_ext4::{Missing, Salvage, SalvageOptions};
use serde::Serialize;
use std::fs;
use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;
use write::Writer;

const CACHE_BYTES: usize = 32 << 20;
/// Missing ranges that are printed of a file.
const SHOWN_RANGES: usize = 16;

pub(crate) fn run(session: &Session, args: &SalvageArgs) -> Result<(), Stop> {
    let label = escape::terminal(args.image.as_bytes()).into_owned();
    let map = args.map.as_deref().map(read_map).transpose()?;
    let device = open_damaged(&args.image, &session.options, map)?;
    make_empty(&args.directory)?;
    session.catch_interrupts()?;
    let progress = session.progress(None, false);
    let options = SalvageOptions {
        cache_bytes: CACHE_BYTES,
        goes_on: &|_, _| {
            progress.add(0, 0);
            !crate::interrupt::has_come()
        },
    };
    let salvage = Salvage::open(device, &options)
        .map_err(|error| Problem::inside(&*label, &error.into()).with_status(Status::Damaged))?;
    for notice in salvage.notices() {
        report::print(format_args!("dentree: {label}: {notice}"));
    }
    let mut list = List { out: Output::new(), json: args.json, counts: Counts::default() };
    let mut writer = Writer::new(session, &salvage, &args.directory, &progress)?;
    writer.everything(&mut list)?;
    writer.report_losses();
    drop(progress);
    list.finish(&args.directory)?;
    let Counts { whole, partial, lost } = list.counts;
    if whole + partial == 0 {
        return Err(Problem::new(label, Status::Damaged, "no file could be read").into());
    }
    if partial + lost > 0 {
        session.report.remember(Status::Differs);
    }
    Ok(())
}

fn read_map(file: &Path) -> Result<RescueMap, Problem> {
    let name = file.as_os_str().as_bytes();
    let text = fs::read_to_string(file).map_err(|error| Problem::local(name, &error))?;
    RescueMap::parse(&text).map_err(|error| Problem::usage(escape::terminal(name), error.to_string()))
}

/// Makes the directory, or checks that it is empty: nothing in it is written over.
fn make_empty(directory: &Path) -> Result<(), Problem> {
    let name = directory.as_os_str().as_bytes();
    let local = |error| Problem::local(name, &error);
    match fs::create_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made.map_err(local),
    }
    match fs::read_dir(directory).map_err(local)?.next() {
        None => Ok(()),
        Some(_) => Err(Problem::usage(escape::terminal(name), "is not empty; name a new directory")),
    }
}

/// What became of a file.
enum State {
    Whole,
    Partial(Missing),
    /// Why nothing of it is there.
    Lost(String),
}

#[derive(Clone, Copy, Default, Serialize)]
struct Counts {
    whole: u64,
    partial: u64,
    lost: u64,
}

/// The list of what became of the files.
struct List {
    out: Output,
    json: bool,
    counts: Counts,
}

/// A file as JSON. Ranges are in bytes, ends not included.
#[derive(Serialize)]
struct Line<'a> {
    state: &'static str,
    #[serde(flatten)]
    path: json::Path<'a>,
    inode: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing: Vec<(u64, u64)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    because: Option<&'a str>,
}

const DOUBTFUL: &str = "a checksum of its inode or its block map is wrong";
const ENTRIES: &str = "entries are missing";

impl List {
    fn add(&mut self, path: &[u8], inode: u32, is_dir: bool, state: &State) -> io::Result<()> {
        let (word, count) = match state {
            State::Whole => ("whole", &mut self.counts.whole),
            State::Partial(_) => ("partial", &mut self.counts.partial),
            State::Lost(_) => ("lost", &mut self.counts.lost),
        };
        *count += 1;
        let (missing, because) = match state {
            State::Whole => (&[][..], None),
            State::Partial(missing) if is_dir => (&missing.ranges[..], Some(ENTRIES)),
            State::Partial(missing) => (&missing.ranges[..], missing.is_doubtful.then_some(DOUBTFUL)),
            State::Lost(because) => (&[][..], Some(&**because)),
        };
        if self.json {
            let missing = missing.iter().map(|range| (range.start, range.end)).collect();
            let path = json::Path::new(path);
            return json::line(&mut self.out, &Line { state: word, path, inode, missing, because });
        }
        if matches!(state, State::Whole) {
            return Ok(());
        }
        write!(self.out, "{word}\t")?;
        let shown = self.out.names().show(path).into_owned();
        self.out.write_all(&shown)?;
        let parts = [ranges(missing), because.map(str::to_owned)];
        writeln!(self.out, "\t{}", parts.into_iter().flatten().collect::<Vec<_>>().join("; "))
    }

    fn finish(&mut self, directory: &Path) -> io::Result<()> {
        if self.json {
            json::line(&mut self.out, &self.counts)?;
        } else {
            let Counts { whole, partial, lost } = self.counts;
            let directory = escape::terminal(directory.as_os_str().as_bytes());
            writeln!(self.out, "{whole} whole, {partial} partial, {lost} lost; below {directory}")?;
        }
        self.out.flush()
    }
}

/// The missing bytes of a file, the first and the last of each range.
fn ranges(missing: &[Range<u64>]) -> Option<String> {
    if missing.is_empty() {
        return None;
    }
    let shown = missing.iter().take(SHOWN_RANGES).map(|range| format!("{}-{}", range.start, range.end - 1));
    let rest = missing.len().saturating_sub(SHOWN_RANGES);
    let more = if rest > 0 { format!(" and {rest} more ranges") } else { String::new() };
    Some(format!("bytes {}{more} missing", shown.collect::<Vec<_>>().join(", ")))
}
