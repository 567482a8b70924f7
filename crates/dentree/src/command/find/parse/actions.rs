//! Words of actions.

use super::super::action::{Action, Execute, Format, Line, Long};
use super::super::sink::LocalFile;
use super::{Parser, wrong};
use crate::output::attributes::Clock;
use crate::report::Problem;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

impl<'w> Parser<'w, '_> {
    pub(super) fn action(&mut self, name: &'w str) -> Result<Option<Action>, Problem> {
        Ok(Some(match name {
            "-print" => Action::Print(Line::Path(b'\n'), None),
            "-print0" => Action::Print(Line::Path(0), None),
            "-printf" => Action::Print(self.format(name)?, None),
            "-ls" => Action::Print(self.long(), None),
            "-fprint" => {
                let file = self.file(name)?;
                Action::Print(Line::Path(b'\n'), file)
            }
            "-fprint0" => {
                let file = self.file(name)?;
                Action::Print(Line::Path(0), file)
            }
            "-fprintf" => {
                let file = self.file(name)?;
                Action::Print(self.format(name)?, file)
            }
            "-fls" => {
                let file = self.file(name)?;
                Action::Print(self.long(), file)
            }
            "-exec" | "-execdir" | "-ok" | "-okdir" => Action::Execute(self.command(name)?),
            "-delete" => {
                self.settings.contents_first = true;
                self.settings.deletes = true;
                Action::Delete
            }
            "-prune" => Action::Prune,
            "-quit" => Action::Quit,
            _ => return Ok(None),
        }))
    }

    fn format(&mut self, name: &str) -> Result<Line, Problem> {
        let text = self.argument(name)?;
        Ok(Line::Format(Format::parse(text.as_bytes(), self.context.owners.clone()).map_err(wrong)?))
    }

    fn long(&self) -> Line {
        Line::Long(Long { owners: self.context.owners.clone(), clock: Clock::local(), now: self.context.now })
    }

    fn file(&mut self, name: &str) -> Result<Option<Arc<LocalFile>>, Problem> {
        let file = self.argument(name)?;
        self.context.files.open(file)
    }

    /// The command up to its `;` or its `{} +`.
    fn command(&mut self, name: &str) -> Result<Execute, Problem> {
        let asks = name.starts_with("-ok");
        let ends = |at: &usize| match self.rest[*at].as_bytes() {
            b";" => true,
            b"+" => !asks && *at > 0 && self.rest[*at - 1] == "{}",
            _ => false,
        };
        let end = (0..self.rest.len()).find(ends);
        let end =
            end.ok_or_else(|| wrong(format!("the command of {name} lacks the ';' or '{{}} +' at its end")))?;
        let (words, behind) = self.rest.split_at(end);
        let gathers = behind[0] == "+";
        self.rest = &behind[1..];
        if words.is_empty() || gathers && words.len() == 1 {
            return Err(wrong(format!("{name} lacks its command")));
        }
        let places = words.iter().filter(|word| word.as_bytes().windows(2).any(|two| two == b"{}")).count();
        if gathers && places > 1 {
            return Err(wrong(format!("'{{}}' stands once, before the '+', in the command of {name}")));
        }
        Ok(Execute {
            words: words.to_vec(),
            in_directory: name.ends_with("dir"),
            asks,
            batch: gathers.then(Default::default),
        })
    }
}
