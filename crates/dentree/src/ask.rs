//! Questions on standard error, answered on standard input.

use std::fmt::Display;
use std::io::{self, BufRead, Write};

/// Whether the answer begins with `y` or `Y`; no answer is a no.
pub(crate) fn confirms(question: impl Display) -> bool {
    // Not `eprint`, which panics where the terminal is gone.
    let _ = io::stderr().write_all(format!("dentree: {question}? ").as_bytes());
    let mut answer = Vec::new();
    let _ = io::stdin().lock().read_until(b'\n', &mut answer);
    matches!(answer.first(), Some(b'y' | b'Y'))
}
