//! `-perm`: `MODE` exactly, `-MODE` all of its bits, `/MODE` any of them.

use crate::mode::ModeChange;
use dentree_vfs::Attr;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Match {
    Exactly,
    All,
    Any,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Permissions {
    by: Match,
    file: u16,
    /// `X` is a bit of directories alone.
    directory: u16,
}

impl Permissions {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (by, mode) = match text.as_bytes().first()? {
            b'-' => (Match::All, &text[1..]),
            b'/' => (Match::Any, &text[1..]),
            _ => (Match::Exactly, text),
        };
        let mode = ModeChange::parse(mode, 0)?;
        Some(Permissions { by, file: mode.of(0, false), directory: mode.of(0, true) })
    }

    pub(crate) fn holds(self, attr: &Attr) -> bool {
        let (bits, wanted) = (attr.permissions, if attr.is_dir() { self.directory } else { self.file });
        match self.by {
            Match::Exactly => bits == wanted,
            Match::All => bits & wanted == wanted,
            Match::Any => wanted == 0 || bits & wanted != 0,
        }
    }
}
