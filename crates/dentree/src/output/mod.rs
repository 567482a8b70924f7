//! Standard output.

pub(crate) mod attributes;
pub(crate) mod escape;
pub(crate) mod json;

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
        let columns = || rustix::termios::tcgetwinsize(self.to.get_ref()).map_or(80, |size| size.ws_col);
        self.terminal.then(|| usize::from(columns()).max(1))
    }

    pub(crate) fn names(&self) -> Names {
        Names { escaped: self.terminal }
    }
}

impl Write for Output {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
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
    const UNITS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => bytes.to_string(),
        _ if value < 9.95 => format!("{value:.1}{}", UNITS[unit]),
        _ => format!("{value:.0}{}", UNITS[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short_and_never_overflow() {
        let shown = [0, 999, 1024, 10 << 10, 1 << 30, u64::MAX].map(human);
        assert_eq!(shown, ["0", "999", "1.0K", "10K", "1.0G", "16E"]);
    }
}
