//! Lines that are typed: editing, completion, and a history of all sessions.

use super::completion::Completion;
use crate::host::OsStrExt;
use crate::image::Image;
use crate::output::escape;
use crate::report::Problem;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{CompletionType, Config, Editor};
use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) struct Terminal {
    editor: Editor<Completion, FileHistory>,
    /// The name of the image file, for the prompt.
    name: String,
    /// The history's file; without one it ends with the shell.
    history: Option<PathBuf>,
}

impl Terminal {
    pub(super) fn new(image: &Arc<Image>) -> Result<Self, Problem> {
        let config = Config::builder().completion_type(CompletionType::List).build();
        let mut editor = Editor::with_config(config).map_err(|error| problem(&error))?;
        editor.set_helper(Some(Completion::new(image.clone())));
        let history = history();
        if let Some(file) = &history {
            // The first session has none.
            let _ = editor.load_history(file);
        }
        let name = Path::new(image.name()).file_name().unwrap_or(image.name());
        Ok(Terminal { editor, name: escape::terminal(name.as_bytes()).into_owned(), history })
    }

    /// The next line; `None` after Ctrl-D. Ctrl-C begins another one.
    pub(super) fn line(&mut self, directory: &[u8]) -> Result<Option<String>, Problem> {
        if let Some(completion) = self.editor.helper_mut() {
            completion.directory = directory.to_vec();
        }
        let prompt = format!("{}:{}> ", self.name, escape::terminal(directory));
        loop {
            match self.editor.readline(&prompt) {
                Ok(line) => {
                    let is_new = self.editor.add_history_entry(&*line).unwrap_or(false);
                    if let Some(file) = self.history.as_ref().filter(|_| is_new) {
                        // A directory that cannot be written to keeps no history.
                        let _ = self.editor.append_history(file);
                    }
                    return Ok(Some(line));
                }
                Err(ReadlineError::Interrupted) => {}
                Err(ReadlineError::Eof) => return Ok(None),
                Err(error) => return Err(problem(&error)),
            }
        }
    }
}

fn problem(error: &ReadlineError) -> Problem {
    Problem::local(b"terminal", &io::Error::other(error.to_string()))
}

/// `dentree/history` in the directory for state of the XDG base directories, which is made.
fn history() -> Option<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    let directory = state.join("dentree");
    fs::create_dir_all(&directory).ok()?;
    Some(directory.join("history"))
}
