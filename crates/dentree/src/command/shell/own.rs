//! The commands that only a shell has.

use super::Shell;
use crate::args::{Command, CpArgs, LineCommand};
use crate::command;
use crate::host::{OsStrExt, os_string};
use crate::image::{Session, from_directory};
use crate::output::Output;
use crate::report::{Problem, Stop};
use dentree_vfs::{Error, WalkOptions};
use std::env;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::PathBuf;

impl Shell {
    pub(super) fn run_own(&mut self, session: &Session, command: LineCommand) -> Result<(), Stop> {
        match command {
            LineCommand::Cd { directory } => self.cd(session, &directory).map_err(Stop::from),
            LineCommand::Pwd => print(&self.directory),
            LineCommand::Lcd { directory } => lcd(directory).map_err(Stop::from),
            LineCommand::Lpwd => {
                let directory = env::current_dir().map_err(|error| Problem::local(b".", &error))?;
                print(directory.as_os_str().as_bytes())
            }
            LineCommand::Get { file, local } => copy(session, self.at(&file), local),
            LineCommand::Put { local, path } => copy(session, local, self.at(&path)),
            LineCommand::Quit | LineCommand::Dentree(_) => Ok(()),
        }
    }

    fn cd(&mut self, session: &Session, directory: &OsStr) -> Result<(), Problem> {
        let at = session.locate(directory)?;
        if !at.walk(WalkOptions::FOLLOW)?.is_dir() {
            return Err(at.problem(&Error::NotADirectory));
        }
        self.directory = at.path;
        Ok(())
    }

    /// A path of the image as on the command line.
    fn at(&self, path: &OsStr) -> OsString {
        let path = from_directory(&self.directory, path.as_bytes());
        os_string([self.file.as_bytes(), b":", &path].concat())
    }
}

fn lcd(directory: Option<PathBuf>) -> Result<(), Problem> {
    let home = || env::var_os("HOME").map(PathBuf::from);
    let no_home = || Problem::usage("lcd", "no HOME is set: name a directory");
    let directory = directory.or_else(home).ok_or_else(no_home)?;
    env::set_current_dir(&directory).map_err(|error| Problem::local(directory.as_os_str().as_bytes(), &error))
}

fn copy(session: &Session, from: OsString, to: OsString) -> Result<(), Stop> {
    command::run(session, &Command::Cp(CpArgs::of(from, to)))
}

fn print(path: &[u8]) -> Result<(), Stop> {
    let mut out = Output::new();
    let name = out.names().show(path);
    out.write_all(&[&name, &b"\n"[..]].concat())?;
    Ok(out.flush()?)
}
