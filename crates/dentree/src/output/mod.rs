//! Standard output.

pub(crate) mod attributes;
pub(crate) mod color;
pub(crate) mod dates;
pub(crate) mod escape;
pub(crate) mod json;
pub(crate) mod quote;
pub(crate) mod size;

use crate::host;
use crate::interrupt;
use std::borrow::Cow;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};

/// Buffered standard output. Names are raw in pipes and files, escaped on a terminal.
pub(crate) struct Output {
    to: BufWriter<Stdout>,
    terminal: bool,
}

impl Output {
    pub(crate) fn new() -> Self {
        let stdout = io::stdout();
        let terminal = stdout.is_terminal();
        Output { to: BufWriter::with_capacity(128 << 10, stdout), terminal }
    }

    /// Width of the terminal; `None` if it is none.
    pub(crate) fn terminal_width(&self) -> Option<usize> {
        let columns = || host::columns(self.to.get_ref()).unwrap_or(80);
        self.terminal.then(|| usize::from(columns()).max(1))
    }

    pub(crate) fn names(&self) -> Names {
        Names { escaped: self.terminal }
    }
}

impl Write for Output {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if interrupt::has_come() {
            return Err(io::Error::other("interrupted"));
        }
        self.to.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Names {
    escaped: bool,
}

impl Names {
    /// Unescaped, for programs.
    pub(crate) const RAW: Names = Names { escaped: false };
    /// For a terminal.
    pub(crate) const ESCAPED: Names = Names { escaped: true };

    pub(crate) fn is_raw(self) -> bool {
        !self.escaped
    }

    pub(crate) fn show(self, name: &[u8]) -> Cow<'_, [u8]> {
        if !self.escaped {
            return Cow::Borrowed(name);
        }
        match escape::terminal(name) {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        }
    }
}

/// A human-readable number of bytes: `1.2K`, `34M`.
pub(crate) fn human(bytes: u64) -> String {
    size::Scale::HUMAN.show(bytes)
}
