//! A command's operations on names, as text.
//!
//! ```text
//! dentree names 1
//! # make, of a small C project
//! 0 usr
//! 1 include
//! 2 stdio.h
//!
//! s1 S3 o3 c7 u7 r5,6
//! ```
//! Above the empty line there is one path per line: its parent's number and its name; the root is
//! 0, the first line 1. Below it are the operations in order, by path: `s` stat, `o` open, `c`
//! create, `u` unlink, `r` rename; capitals if the name did not exist.

use std::collections::HashMap;
use std::fmt::Write;

/// A path, by number.
pub type PathId = usize;

/// The root directory's number.
pub const ROOT: PathId = 0;

const HEADING: &str = "dentree names 1";
const LINE: usize = 100;
const NAME_MAX: usize = 255;
/// Directories of programs and headers: shared by all clients of a replay, and never changed.
const SYSTEM: [&[u8]; 9] = [b"bin", b"dev", b"etc", b"lib", b"lib64", b"proc", b"sbin", b"sys", b"usr"];

/// An operation on a name, and its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// `stat(2)`, `access(2)`, `readlink(2)`, `chdir(2)`: whether the name exists.
    Stat(PathId, bool),
    /// `open(2)`, `execve(2)`: whether the name exists.
    Open(PathId, bool),
    /// `open(2)` with `O_CREAT`, `mkdir(2)`, `link(2)`, `symlink(2)`.
    Create(PathId),
    /// `unlink(2)`, `rmdir(2)`.
    Remove(PathId),
    /// `rename(2)`.
    Rename(PathId, PathId),
}

/// Why a text is not a recording.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {0} is not a recording's; make one with `dentree-lab record`")]
pub struct Malformed(pub usize);

/// A command's operations on names.
#[derive(Clone, Debug)]
pub struct Recording {
    paths: Vec<(PathId, Vec<u8>)>,
    numbers: HashMap<(PathId, Vec<u8>), PathId>,
    operations: Vec<Operation>,
}

impl Default for Recording {
    fn default() -> Self {
        Self { paths: vec![(ROOT, Vec::new())], numbers: HashMap::new(), operations: Vec::new() }
    }
}

impl Recording {
    /// The number of a name in a directory.
    pub fn path(&mut self, parent: PathId, name: &[u8]) -> PathId {
        let next = self.paths.len();
        let number = *self.numbers.entry((parent, name.to_vec())).or_insert(next);
        if number == next {
            self.paths.push((parent, name.to_vec()));
        }
        number
    }

    /// Adds an operation.
    pub fn push(&mut self, operation: Operation) {
        self.operations.push(operation);
    }

    /// The operations, in order.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// The number of paths, with the root.
    pub fn paths(&self) -> usize {
        self.paths.len()
    }

    /// The parent directory; the root's is the root. A directory's number is less than those of its
    /// entries.
    pub fn parent(&self, path: PathId) -> PathId {
        self.paths[path].0
    }

    /// The last component of a path.
    pub fn name(&self, path: PathId) -> &[u8] {
        &self.paths[path].1
    }

    /// Whether the path is the system's, not the project's: never changed.
    pub fn is_system(&self, path: PathId) -> bool {
        let mut at = path;
        while self.parent(at) != ROOT {
            at = self.parent(at);
        }
        at == ROOT || SYSTEM.contains(&self.name(at))
    }

    /// The recording as text; `title` describes it.
    pub fn text(&self, title: &str) -> String {
        let mut text = format!("{HEADING}\n# {}\n", title.replace('\n', " "));
        for (parent, name) in &self.paths[1..] {
            // Infallible for a string.
            let _ = writeln!(text, "{parent} {}", String::from_utf8_lossy(name));
        }
        let mut line = String::new();
        for operation in &self.operations {
            let word = match *operation {
                Operation::Stat(path, found) => format!("{}{path}", if found { 's' } else { 'S' }),
                Operation::Open(path, found) => format!("{}{path}", if found { 'o' } else { 'O' }),
                Operation::Create(path) => format!("c{path}"),
                Operation::Remove(path) => format!("u{path}"),
                Operation::Rename(from, to) => format!("r{from},{to}"),
            };
            if line.len() + 1 + word.len() > LINE || line.is_empty() {
                text.push_str(&line);
                text.push('\n');
                line.clear();
            } else {
                line.push(' ');
            }
            line.push_str(&word);
        }
        text + &line + "\n"
    }

    /// Parses a recording.
    ///
    /// # Errors
    /// If a line has another format.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let mut lines = text.lines().zip(1..).filter(|(line, _)| !line.starts_with('#'));
        if lines.next().map(|(line, _)| line) != Some(HEADING) {
            return Err(Malformed(1));
        }
        let mut recording = Self::default();
        for (line, number) in lines.by_ref().take_while(|(line, _)| !line.is_empty()) {
            recording.take_path(line).ok_or(Malformed(number))?;
        }
        for (line, number) in lines {
            for word in line.split(' ') {
                let operation = recording.operation(word).ok_or(Malformed(number))?;
                recording.push(operation);
            }
        }
        Ok(recording)
    }

    fn take_path(&mut self, line: &str) -> Option<()> {
        let (parent, name) = line.split_once(' ')?;
        let (parent, next) = (self.number(parent)?, self.paths.len());
        let valid = (1..=NAME_MAX).contains(&name.len())
            && !name.contains(['/', '\0'])
            && name != "."
            && name != "..";
        (valid && self.path(parent, name.as_bytes()) == next).then_some(())
    }

    fn operation(&self, word: &str) -> Option<Operation> {
        let what = word.chars().next()?;
        let rest = &word[what.len_utf8()..];
        let path = || self.number(rest);
        Some(match what {
            's' | 'S' => Operation::Stat(path()?, what == 's'),
            'o' | 'O' => Operation::Open(path()?, what == 'o'),
            'c' => Operation::Create(path()?),
            'u' => Operation::Remove(path()?),
            'r' => {
                let (from, to) = rest.split_once(',')?;
                Operation::Rename(self.number(from)?, self.number(to)?)
            }
            _ => return None,
        })
    }

    fn number(&self, text: &str) -> Option<PathId> {
        text.parse().ok().filter(|number| *number < self.paths.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_survives_being_written() {
        let mut recording = Recording::default();
        let (usr, src) = (recording.path(ROOT, b"usr"), recording.path(ROOT, b"src"));
        let header = recording.path(usr, b"a b.h");
        assert_eq!(recording.path(usr, b"a b.h"), header);
        let object = recording.path(src, b"a.o");
        let operations = [
            Operation::Stat(usr, true),
            Operation::Open(header, false),
            Operation::Create(object),
            Operation::Rename(object, src),
            Operation::Remove(object),
        ];
        (0..50).for_each(|_| operations.iter().for_each(|operation| recording.push(*operation)));
        let text = recording.text("a title\nof two lines");
        assert!(text.lines().all(|line| line.len() <= LINE), "{text}");
        let again = Recording::parse(&text).unwrap();
        assert_eq!(
            (again.paths.clone(), &again.operations),
            (recording.paths.clone(), &recording.operations)
        );
        assert!(again.is_system(header) && !again.is_system(object));
    }

    #[test]
    fn what_is_no_recording_is_refused() {
        for (text, line) in [
            ("", 1),
            ("dentree names 2\n", 1),
            ("dentree names 1\n0 usr\n2 x\n", 3),
            ("dentree names 1\n0 ..\n", 2),
            ("dentree names 1\n0 a/b\n", 2),
            ("dentree names 1\n0 a\n0 a\n", 3),
            ("dentree names 1\n0 a\n\ns2\n", 4),
            ("dentree names 1\n0 a\n\ns1  s1\n", 4),
            ("dentree names 1\n0 a\n\nx1\n", 4),
            ("dentree names 1\n0 a\n\nr1\n", 4),
        ] {
            assert_eq!(Recording::parse(text).err(), Some(Malformed(line)), "{text:?}");
        }
    }
}
