//! Words of actions.

use super::action::{Action, Execute, Format, Line, Long};
use super::compile::Compiler;
use super::sink::LocalFile;
use crate::host::OsStrExt;
use crate::output::attributes::Clock;
use crate::report::Problem;
use dentree_find::{Owners, Words, Wrong};
use std::sync::Arc;

impl Compiler<'_> {
    pub(super) fn of_words(&mut self, name: &str, words: &mut Words<'_>) -> Result<Option<Action>, Problem> {
        Ok(Some(match name {
            "-print" => Action::Print(Line::Path(b'\n'), None),
            "-print0" => Action::Print(Line::Path(0), None),
            "-printf" => Action::Print(self.format(name, words)?, None),
            "-ls" => Action::Print(self.long(), None),
            "-fprint" => {
                let file = self.file(name, words)?;
                Action::Print(Line::Path(b'\n'), file)
            }
            "-fprint0" => {
                let file = self.file(name, words)?;
                Action::Print(Line::Path(0), file)
            }
            "-fprintf" => {
                let file = self.file(name, words)?;
                Action::Print(self.format(name, words)?, file)
            }
            "-fls" => {
                let file = self.file(name, words)?;
                Action::Print(self.long(), file)
            }
            "-exec" | "-execdir" | "-ok" | "-okdir" => Action::Execute(command(name, words)?),
            "-delete" => {
                self.deletes = true;
                Action::Delete
            }
            "-prune" => Action::Prune,
            "-quit" => Action::Quit,
            _ => return Ok(None),
        }))
    }

    fn format(&mut self, name: &str, words: &mut Words<'_>) -> Result<Line, Problem> {
        let text = words.argument(name)?;
        Ok(Line::Format(Format::parse(text.as_bytes(), self.names()).map_err(Wrong::new)?))
    }

    /// Names of owners; none without an image.
    fn names(&self) -> Arc<Owners> {
        self.owners.clone().unwrap_or_default()
    }

    fn long(&self) -> Line {
        Line::Long(Long { owners: self.names(), clock: Clock::local(), now: self.context.now })
    }

    fn file(&mut self, name: &str, words: &mut Words<'_>) -> Result<Option<Arc<LocalFile>>, Problem> {
        let file = words.argument(name)?;
        self.context.files.open(file)
    }
}

/// The command up to its `;` or its `{} +`.
fn command(name: &str, words: &mut Words<'_>) -> Result<Execute, Wrong> {
    let left = words.left();
    let asks = name.starts_with("-ok");
    let ends = |at: &usize| match left[*at].as_bytes() {
        b";" => true,
        b"+" => !asks && *at > 0 && left[*at - 1] == "{}",
        _ => false,
    };
    let end = (0..left.len()).find(ends);
    let end =
        end.ok_or_else(|| Wrong::new(format!("the command of {name} lacks the ';' or '{{}} +' at its end")))?;
    let (command, behind) = left.split_at(end);
    let gathers = behind[0] == "+";
    words.skip(end + 1);
    if command.is_empty() || gathers && command.len() == 1 {
        return Err(Wrong::new(format!("{name} lacks its command")));
    }
    let places = command.iter().filter(|word| word.as_bytes().windows(2).any(|two| two == b"{}")).count();
    if gathers && places > 1 {
        return Err(Wrong::new(format!("'{{}}' stands once, before the '+', in the command of {name}")));
    }
    Ok(Execute {
        words: command.to_vec(),
        in_directory: name.ends_with("dir"),
        asks,
        batch: gathers.then(Default::default),
    })
}
