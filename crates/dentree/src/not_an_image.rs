//! What an argument may name that is no image: a piece of a split one. Formats by their content are
//! recognised in `blockdev`.

use crate::host::{OsStrExt, os_str};
use crate::output::escape;
use crate::report::{Problem, Status};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The problem of opening `file`, which failed with `problem`.
pub(crate) fn explain(file: &OsStr, problem: Problem) -> Problem {
    match problem.status() {
        Status::Unsupported | Status::Damaged => piece(file).unwrap_or(problem),
        _ => problem,
    }
}

/// The problem of opening a piece of a split image, if `file` is one.
pub(crate) fn piece(file: &OsStr) -> Option<Problem> {
    next_piece(Path::new(file)).filter(|next| next.exists())?;
    let stem = Path::new(file).with_extension("");
    let stem = escape::terminal(stem.as_os_str().as_bytes());
    let message = format!("a piece of a split image: `cat {stem}.* > disk.img` joins them");
    Some(Problem::new(escape::terminal(file.as_bytes()), Status::Unsupported, message))
}

/// The piece behind `disk.001`, `disk.00` or `disk.aa`, as split(1) and imaging tools name them.
fn next_piece(file: &Path) -> Option<PathBuf> {
    let mut name = file.extension()?.as_bytes().to_vec();
    let is_number = name.iter().all(u8::is_ascii_digit);
    let is_letters = name.iter().all(u8::is_ascii_lowercase);
    if !(2..=3).contains(&name.len()) || !(is_number || is_letters) {
        return None;
    }
    let (first, last) = if is_number { (b'0', b'9') } else { (b'a', b'z') };
    for digit in name.iter_mut().rev() {
        if *digit < last {
            *digit += 1;
            return Some(file.with_extension(os_str(&name)));
        }
        *digit = first;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_counted_as_split_does() {
        for (piece, next) in [
            ("d.img.001", Some("d.img.002")),
            ("d.009", Some("d.010")),
            ("d.aa", Some("d.ab")),
            ("d.az", Some("d.ba")),
            ("d.zz", None),
            ("d.img1", None),
            ("d", None),
        ] {
            assert_eq!(next_piece(Path::new(piece)), next.map(PathBuf::from), "{piece}");
        }
    }
}
