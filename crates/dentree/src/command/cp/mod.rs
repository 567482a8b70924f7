//! `dentree cp`: copies between an image and the local file system, in either direction.

mod attributes;
mod into;
mod into_listed;
mod out;
mod out_listed;
mod target_dir;

use crate::args::CpArgs;
use crate::image::{Session, names_image};
use crate::output::human;
use crate::report::{Problem, Status, Stop};
use indicatif::{ProgressBar, ProgressStyle};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

pub(crate) fn run(session: &Session, args: &CpArgs) -> Result<(), Stop> {
    let images = args.sources.iter().filter(|source| names_image(source)).count();
    match (images == args.sources.len(), images > 0, names_image(&args.target)) {
        (true, _, false) => match &args.listed.files_from {
            Some(file) => out_listed::run(session, args, file),
            None => out::run(session, args),
        },
        (_, false, true) => match &args.listed.files_from {
            Some(file) => into_listed::run(session, args, file),
            None => into::run(session, args),
        },
        (_, false, false) => {
            let message = "neither side is in an image: write IMAGE:PATH, or IMAGE:/ for all of it";
            Err(Problem::usage("cp", message).into())
        }
        (_, _, true) => {
            let message = "both sides are in images: copy it out of the one, and then into the other";
            Err(Problem::usage("cp", message).into())
        }
        (false, true, false) => {
            let message = "some sources are in an image and some are not";
            Err(Problem::usage("cp", message).into())
        }
    }
}

/// Why an existing entry is not written to.
const DANGLING: &str = "is a dangling symbolic link, which is not written through";
const IN_THE_WAY: &str = "exists and is not a regular file; --remove-destination replaces it";
/// State of an existing file after an interruption.
const CUT_SHORT: &str = "interrupted: its content is incomplete";
/// Two operands have one name: the second neither overwrites nor follows what the first made.
const JUST_MADE: &str = "not copied: this command has just made a file of this name";

const LEADS_OUT: &str = "not copied: a listed path may not contain `..`";

/// Fails where the copy was interrupted.
fn check_interrupted(interrupted: &AtomicBool) -> Result<(), Stop> {
    if interrupted.load(Ordering::Relaxed) {
        let message = "interrupted; new files under their names are complete";
        return Err(Problem::new("cp", Status::Failed, message).into());
    }
    Ok(())
}

fn local_problem(path: &Path, error: &io::Error) -> Problem {
    Problem::local(path.as_os_str().as_bytes(), error)
}

struct Progress {
    bar: ProgressBar,
    files: AtomicU64,
    bytes: AtomicU64,
}

impl Progress {
    fn new() -> Self {
        let bar = ProgressBar::new_spinner();
        bar.set_style(ProgressStyle::default_spinner());
        if !bar.is_hidden() {
            bar.enable_steady_tick(Duration::from_millis(100));
        }
        Progress { bar, files: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    fn add(&self, files: u64, bytes: u64) {
        let files = self.files.fetch_add(files, Ordering::Relaxed) + files;
        let bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if !self.bar.is_hidden() {
            self.bar.set_message(format!("{files} files, {}", human(bytes)));
        }
    }
}
