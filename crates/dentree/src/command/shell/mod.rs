//! `dentree shell`: commands on one open image, typed or from a script.
//!
//! - `own`: the commands that only a shell has: cd, get, put and the like.
//! - `terminal`: lines that are typed; `completion` of their words.
//! - `words`: the words of a line.

mod completion;
mod own;
mod terminal;
mod words;

use crate::args::{Global, Line, LineCommand, ShellArgs, is_outside, takes_image};
use crate::host::{self, OsStrExt, os_string};
use crate::image::{Held, Image, Session, address};
use crate::interrupt;
use crate::report::{self, Problem, Status, Stop};
use std::ffi::OsString;
use std::io::{self, BufRead, IsTerminal};
use std::path::{self, Path};
use std::sync::Arc;
use terminal::Terminal;
use words::Words;

pub(super) fn run(session: &Session, args: &ShellArgs) -> Result<(), Stop> {
    session.catch_interrupts()?;
    let at =
        if args.write { session.locate_for_writing(&args.image)? } else { session.locate(&args.image)? };
    let name = at.image.name();
    let file = match address(name) {
        Some(_) => name.into(),
        None => path::absolute(name).map_err(|error| Problem::local(name.as_bytes(), &error))?,
    };
    // Of the whole session, at its end.
    let options = Global { stats: false, ..session.options.clone() };
    let mut shell = Shell { options, file: file.into(), image: at.image, directory: b"/".to_vec() };
    if io::stdin().is_terminal() {
        return Ok(shell.converse()?);
    }
    session.report.remember(shell.script()?);
    Ok(())
}

/// An open image, and where its user is.
struct Shell {
    options: Global,
    image: Arc<Image>,
    /// The absolute path of the image file, or its address.
    file: OsString,
    directory: Vec<u8>,
}

/// What comes after a line.
enum Next {
    Line(Status),
    End,
}

impl Shell {
    /// Runs what is typed, whether it fails or not.
    fn converse(&mut self) -> Result<(), Problem> {
        let mut terminal = Terminal::new(&self.image)?;
        while let Some(line) = terminal.line(&self.directory)? {
            // Of a signal while no command was running.
            interrupt::take();
            if let Next::End = self.line(line.trim_ascii().as_bytes()) {
                break;
            }
        }
        Ok(())
    }

    /// Runs the lines of standard input until one fails whose status counts, which is returned.
    fn script(&mut self) -> Result<Status, Problem> {
        for number in 1.. {
            let mut line = Vec::new();
            // Not locked for longer: commands read it, too.
            let read = io::stdin().lock().read_until(b'\n', &mut line);
            if read.map_err(|error| Problem::local(b"standard input", &error))? == 0 {
                break;
            }
            let line = line.trim_ascii();
            let (may_fail, line) = line.strip_prefix(b"-").map_or((false, line), |rest| (true, rest));
            match self.line(line) {
                Next::End => break,
                Next::Line(status) if status != Status::Done && !may_fail => {
                    report::print(format_args!("dentree: line {number} failed; what follows it is not run"));
                    return Ok(status);
                }
                Next::Line(_) => {}
            }
        }
        Ok(Status::Done)
    }

    fn line(&mut self, line: &[u8]) -> Next {
        if let Some(command) = line.strip_prefix(b"!") {
            return Next::Line(run_local(command));
        }
        let line = Words::of(line);
        let usage = |at: &str, message: &str| {
            report::print_problem(&Problem::usage(at, message));
            Next::Line(Status::Usage)
        };
        if line.is_unclosed() {
            return usage("shell", "a quote is not closed");
        }
        let mut words: Vec<OsString> = line.words.into_iter().map(|word| os_string(word.text)).collect();
        let Some(name) = words.first().and_then(|name| name.to_str()).map(str::to_owned) else {
            return Next::Line(Status::Done);
        };
        if is_outside(&name) {
            return usage(&name, "does not run on an open image; run it outside of this shell");
        }
        let is_file = |word: &OsString| Path::new(word).metadata().is_ok_and(|found| !found.is_dir());
        if takes_image(&name) && !words[1..].iter().any(is_file) {
            words.insert(1, self.file.clone());
        }
        match Line::read(words) {
            Ok(LineCommand::Quit) => Next::End,
            Ok(command) => Next::Line(self.run(command)),
            Err(error) => {
                // As for the program's own arguments.
                let _ = error.print();
                Next::Line(if error.use_stderr() { Status::Usage } else { Status::Done })
            }
        }
    }

    fn run(&mut self, command: LineCommand) -> Status {
        let session =
            |directory| Session::on(Held { image: self.image.clone(), directory }, self.options.clone());
        // `get` and `put` are `cp` with the image named, as are others on the command line.
        let session = match &command {
            LineCommand::Get { .. } | LineCommand::Put { .. } => session(None),
            LineCommand::Dentree(command) if !command.has_paths() => session(None),
            _ => session(Some(self.directory.clone())),
        };
        let done = match command {
            LineCommand::Dentree(command) => super::run(&session, &command),
            own => self.run_own(&session, own),
        };
        super::end(&session, done);
        let status = session.report.status();
        if interrupt::take() { status.max(Status::Failed) } else { status }
    }
}

/// Runs a command of this machine.
fn run_local(command: &[u8]) -> Status {
    match host::shell(command).status() {
        Ok(status) if status.success() => Status::Done,
        Ok(_) => Status::Failed,
        Err(error) => {
            report::print_problem(&Problem::local(b"sh", &error));
            Status::Failed
        }
    }
}
