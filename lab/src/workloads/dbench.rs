//! dbench's own load, as a name cache sees it.
//!
//! dbench replays a Windows client's part of a NetBench run, line by line from a loadfile
//! (`client.txt`); the study's tables are of this load. Here a line becomes its operations on the
//! name cache:
//!
//! | line | here |
//! |---|---|
//! | `NTCreateX`, found | open: a walk, whose end is held until `Close`; a new file is created |
//! | `NTCreateX`, not found; `QUERY_PATH_INFORMATION` | `stat` |
//! | `FIND_FIRST` | `stat` of the directory |
//! | `Mkdir`, `Rename`, `Unlink`, `Deltree`, `Close` | the same |
//! | reads, writes, locks, flushes, queries of an open file | nothing: no name |
//!
//! Names are compared without case, as by the recorded clients. Each client works in its own
//! directory. The lines before determine the result of every operation, and it is checked.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::path::{Path as FilePath, PathBuf};

use super::{Client, Components, Front, Workload};
use crate::schemes::{Config, Dentry, Inode, Path};
use crate::unavailable::Unavailable;

/// The loadfile of Debian's package `dbench`, and of dbench's own tree.
const PLACES: [&str; 3] =
    ["/usr/share/dbench/client.txt", "/usr/local/share/client.txt", "/usr/share/dbench/loadfiles/client.txt"];

/// The most names of one client at a time, with negative ones: twice the need of Debian's loadfile.
const NAMES_PER_CLIENT: usize = 512;

/// The directory of the clients in the loadfile's paths: `\clients\client1`.
const TOP: &[u8] = b"clients";

/// A loadfile, parsed.
#[derive(Debug)]
pub struct Dbench {
    operations: Vec<Operation>,
    paths: Paths,
    handles: usize,
}

/// A path, by number.
type PathId = usize;

#[derive(Clone, Copy, Debug)]
enum Operation {
    Open { path: PathId, handle: usize },
    Close { handle: usize },
    Stat { path: PathId },
    Mkdir { path: PathId },
    Rename { from: PathId, to: PathId },
    Unlink { path: PathId },
    Deltree { path: PathId },
}

/// All paths of a loadfile below the client's directory, which is path 0, with their parents.
#[derive(Debug, Default)]
struct Paths {
    numbers: HashMap<Vec<u8>, PathId>,
    /// Parent and name.
    entries: Vec<(PathId, Vec<u8>)>,
    children: Vec<Vec<PathId>>,
}

impl Paths {
    fn new() -> Self {
        Self {
            numbers: HashMap::from([(Vec::new(), 0)]),
            entries: vec![(0, Vec::new())],
            children: vec![Vec::new()],
        }
    }

    /// The number of a path as written in loadfiles; `None` outside the clients' directory.
    fn number(&mut self, written: &str) -> Option<PathId> {
        let lower = written.to_ascii_lowercase().into_bytes();
        let mut components =
            lower.split(|byte| *byte == b'\\' || *byte == b'/').filter(|part| !part.is_empty());
        (components.next() == Some(TOP)).then_some(())?;
        components.next()?;
        let mut at = 0;
        let mut whole = Vec::new();
        for name in components {
            whole.push(b'/');
            whole.extend_from_slice(name);
            at = match self.numbers.get(&whole) {
                Some(known) => *known,
                None => self.add(at, name, whole.clone()),
            };
        }
        Some(at)
    }

    fn add(&mut self, parent: PathId, name: &[u8], whole: Vec<u8>) -> PathId {
        let number = self.entries.len();
        self.entries.push((parent, name.to_vec()));
        self.children.push(Vec::new());
        self.children[parent].push(number);
        self.numbers.insert(whole, number);
        number
    }
}

/// Why a loadfile cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It is unreadable.
    #[error("{0}: {1}")]
    Read(PathBuf, std::io::Error),
    /// A line has another format.
    #[error("{0}, line {1}: not a line of a dbench loadfile; Debian's package dbench has one")]
    Line(PathBuf, usize),
    /// No line concerns names.
    #[error("{0}: no operation on a name in it")]
    Empty(PathBuf),
}

impl Dbench {
    /// The loadfile of dbench's package.
    ///
    /// # Errors
    /// If the package is not installed.
    pub fn installed() -> Result<PathBuf, Unavailable> {
        let found = PLACES.iter().map(PathBuf::from).find(|place| place.exists());
        let why = "no loadfile: install Debian's package dbench, or name one with --loadfile";
        found.ok_or_else(|| Unavailable::because("dbench", why))
    }

    /// Reads a loadfile.
    ///
    /// # Errors
    /// If the file is unreadable or no loadfile.
    pub fn read(file: &FilePath) -> Result<Self, LoadError> {
        let text = std::fs::read(file).map_err(|why| LoadError::Read(file.to_owned(), why))?;
        let load = Self::parse(&String::from_utf8_lossy(&text));
        let load = load.map_err(|line| LoadError::Line(file.to_owned(), line))?;
        if load.operations.is_empty() { Err(LoadError::Empty(file.to_owned())) } else { Ok(load) }
    }

    /// The operations of a loadfile, or the number of the first malformed line. A truncated last
    /// line is skipped, as in dbench.
    fn parse(text: &str) -> Result<Self, usize> {
        let mut load = Self { operations: Vec::new(), paths: Paths::new(), handles: 0 };
        let mut handles = HashMap::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if !line.is_empty() && !line.starts_with('#') {
                load.line(line, &mut handles).ok_or(number + 1)?;
            }
        }
        load.handles = handles.len();
        Ok(load)
    }

    /// Parses a line; `None` if it is malformed.
    fn line(&mut self, line: &str, handles: &mut HashMap<String, usize>) -> Option<()> {
        let words = words(line);
        let (what, rest) = words.split_first()?;
        let (status, arguments) = rest.split_last()?;
        let found = *status == "NT_STATUS_OK";
        let mut handle = |name: &str| {
            let fresh = handles.len();
            *handles.entry(name.to_owned()).or_insert(fresh)
        };
        let mut path = |at: usize| self.paths.number(arguments.get(at)?);
        let operation = match *what {
            "NTCreateX" if found => Operation::Open { path: path(0)?, handle: handle(arguments.last()?) },
            "NTCreateX" | "QUERY_PATH_INFORMATION" => Operation::Stat { path: path(0)? },
            "FIND_FIRST" => {
                let pattern = path(0)?;
                Operation::Stat { path: self.paths.entries[pattern].0 }
            }
            "Close" => Operation::Close { handle: handle(arguments.first()?) },
            "Mkdir" => {
                // The clients' common directory exists before the replay.
                let Some(path) = path(0) else { return Some(()) };
                Operation::Mkdir { path }
            }
            "Rename" if found => Operation::Rename { from: path(0)?, to: path(1)? },
            "Unlink" if found => Operation::Unlink { path: path(0)? },
            "Deltree" => Operation::Deltree { path: path(0)? },
            "ReadX"
            | "WriteX"
            | "Flush"
            | "LockX"
            | "UnlockX"
            | "Rename"
            | "Unlink"
            | "QUERY_FILE_INFORMATION"
            | "SET_FILE_INFORMATION"
            | "QUERY_FS_INFORMATION" => return Some(()),
            _ => return None,
        };
        self.operations.push(operation);
        Some(())
    }

    /// Operations on names, until the load begins again.
    pub fn operations(&self) -> usize {
        self.operations.len()
    }
}

/// The words of a line; a quoted one may hold spaces.
fn words(line: &str) -> Vec<&str> {
    let quoted = line.split('"').enumerate();
    quoted
        .flat_map(|(at, part)| match at % 2 {
            1 => vec![part],
            _ => part.split_whitespace().collect(),
        })
        .collect()
}

impl Workload for Dbench {
    fn name(&self) -> &'static str {
        "dbench"
    }

    fn config(&self, clients: usize) -> Config {
        let entries = (clients * NAMES_PER_CLIENT.max(self.paths.entries.len() + 2)).max(4096);
        Config { entries, heads: entries, prefetch: false }
    }

    fn prepare(&self, front: &Front, _clients: usize) {
        let made = front.create(Dentry::ROOT, TOP, inode(0, 0));
        front.close(made);
    }

    fn client(&self, number: usize, _clients: usize) -> Box<dyn Client + '_> {
        let mut replay = Replay {
            load: self,
            number,
            top: format!("client{number}").into_bytes(),
            next: 0,
            made: 0,
            truth: vec![None; self.paths.entries.len()],
            texts: Vec::new(),
            open: vec![None; self.handles],
        };
        replay.texts =
            (0..self.paths.entries.len()).map(|path| replay.resolve(path).names().join(&b'/')).collect();
        Box::new(replay)
    }
}

/// An inode number that is unique among clients.
fn inode(client: usize, made: u64) -> Inode {
    Inode(NonZeroU64::new((client as u64 + 1) << 40 | made).unwrap_or(NonZeroU64::MIN))
}

/// A client's position in the loadfile.
struct Replay<'w> {
    load: &'w Dbench,
    number: usize,
    top: Vec<u8>,
    next: usize,
    made: u64,
    truth: Vec<Option<Inode>>,
    /// The text of each path, from the clients' directory.
    texts: Vec<Vec<u8>>,
    open: Vec<Option<Dentry>>,
}

impl Replay<'_> {
    fn resolve(&self, path: PathId) -> Components<'_> {
        let entries = &self.load.paths.entries;
        let above = std::iter::successors(Some(path), |at| Some(entries[*at].0)).take_while(|at| *at != 0);
        let below = above.map(|at| (&entries[at].1[..], at));
        Components::from_leaf(below.chain([(&self.top[..], 0), (TOP, 0)]))
    }

    /// The file system's result for the first `depth` components.
    fn ask(&self, resolved: &Components<'_>, depth: usize) -> Option<Inode> {
        if depth < 2 { Some(inode(0, 0)) } else { self.truth[resolved.numbers[depth - 1]] }
    }

    fn hold(&self, front: &Front, path: PathId) -> Option<Dentry> {
        let resolved = self.resolve(path);
        front.open(Path::new(resolved.names(), &self.texts[path]), |depth| self.ask(&resolved, depth))
    }

    /// The directory of a path, held; created if it is missing.
    fn hold_parent(&mut self, front: &Front, path: PathId) -> Dentry {
        if path == 0 {
            return front.open(Path::new(&[TOP], TOP), |_| None).expect("the clients' directory stays");
        }
        let parent = self.load.paths.entries[path].0;
        self.make(front, parent)
    }

    /// The entry of a path, held; created if it is missing.
    fn make(&mut self, front: &Front, path: PathId) -> Dentry {
        if self.truth[path].is_some() {
            let found = self.hold(front, path);
            return found.unwrap_or_else(|| panic!("path {path} was not found"));
        }
        let parent = self.hold_parent(front, path);
        self.made += 1;
        let is_file = self.load.paths.children[path].is_empty();
        let made = inode(self.number, self.made | if is_file { Inode::FILE } else { 0 });
        let dentry = front.create(parent, self.name(path), made);
        assert_eq!(front.cache().inode(dentry), Some(made), "path {path} had been deleted, and was found");
        front.close(parent);
        self.truth[path] = Some(made);
        dentry
    }

    fn name(&self, path: PathId) -> &[u8] {
        if path == 0 { &self.top } else { &self.load.paths.entries[path].1 }
    }

    fn stat(&self, front: &Front, path: PathId) {
        let resolved = self.resolve(path);
        let found =
            front.stat(Path::new(resolved.names(), &self.texts[path]), |depth| self.ask(&resolved, depth));
        assert_eq!(found, self.truth[path], "path {path}");
    }

    fn unlink(&mut self, front: &Front, path: PathId) {
        if self.truth[path].take().is_some() {
            let parent = self.hold_parent(front, path);
            front.unlink(parent, self.name(path));
            front.close(parent);
        }
    }

    fn deltree(&mut self, front: &Front, path: PathId) {
        let load = self.load;
        load.paths.children[path].iter().for_each(|child| self.deltree(front, *child));
        self.unlink(front, path);
    }

    fn rename(&mut self, front: &Front, from: PathId, to: PathId) {
        if self.truth[from].is_none() || from == to {
            return;
        }
        let (from_parent, to_parent) = (self.hold_parent(front, from), self.hold_parent(front, to));
        // A rename looks the name up first; held, it stays cached.
        let held = self.hold(front, from);
        front.rename((from_parent, self.name(from)), (to_parent, self.name(to)));
        self.truth[to] = self.truth[from].take();
        [from_parent, to_parent].into_iter().chain(held).for_each(|dentry| front.close(dentry));
    }

    fn close(&mut self, front: &Front, handle: usize) {
        self.open[handle].take().into_iter().for_each(|dentry| front.close(dentry));
    }
}

impl Client for Replay<'_> {
    fn step(&mut self, front: &Front) {
        let operation = self.load.operations[self.next];
        self.next = (self.next + 1) % self.load.operations.len();
        match operation {
            Operation::Open { path, handle } => {
                self.close(front, handle);
                self.open[handle] = Some(self.make(front, path));
            }
            Operation::Close { handle } => self.close(front, handle),
            Operation::Stat { path } => self.stat(front, path),
            Operation::Mkdir { path } => {
                let made = self.make(front, path);
                front.close(made);
            }
            Operation::Rename { from, to } => self.rename(front, from, to),
            Operation::Unlink { path } => self.unlink(front, path),
            Operation::Deltree { path } => self.deltree(front, path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schemes::SCHEMES;
    use crate::workloads::{Running, Shape, Watch};
    use std::time::Duration;

    const LINES: &str = r#"
Deltree "\clients\client1" NT_STATUS_OK
Mkdir "\clients" NT_STATUS_OK
NTCreateX "\clients\client1" 0x1 0x2 16385 NT_STATUS_OK
Close 16385 NT_STATUS_OK
NTCreateX "\clients\client1\a b" 0x40 0x1 9935 NT_STATUS_OBJECT_NAME_NOT_FOUND
NTCreateX "\clients\client1\A B" 0x40 0x2 9938 NT_STATUS_OK
WriteX 9938 65534 1 1 NT_STATUS_OK
QUERY_PATH_INFORMATION "\clients\client1\a b" 1004 NT_STATUS_OK
Rename "\clients\client1\a b" "\clients\client1\c" NT_STATUS_OK
FIND_FIRST "\clients\client1\*" 260 1366 11 NT_STATUS_OK
Unlink "\clients\client1\c" 0x6 NT_STATUS_OK
Close 9938 NT_STATUS_OK
Deltree "\clients\client1" NT_STATUS_OK
"#;

    #[test]
    fn lines_become_what_they_cost_a_name_cache() {
        let load = Dbench::parse(LINES).expect("a loadfile");
        assert_eq!(load.operations(), 11, "all but Mkdir of what stands already, and WriteX");
        assert_eq!(load.handles, 2);
        assert_eq!(load.paths.entries.len(), 4, "the client's directory, two names, a pattern");
        assert_eq!(Dbench::parse("Deltree \"/clients/client1\" NT_STATUS_OK\nnonsense 1 2").err(), Some(2));
    }

    #[test]
    fn every_scheme_carries_the_load_with_right_answers() {
        let load = Dbench::parse(LINES).expect("a loadfile");
        for scheme in SCHEMES {
            let mut running = Running::new(&load, &scheme, Shape { threads: 2, cpus: 1 }, |config| config);
            let measured = running.work(Duration::from_millis(10), Watch::Latency);
            assert!(measured.operations[""] > 0, "{}", scheme.name);
            assert_eq!(measured.latencies[""].len(), measured.operations[""]);
        }
    }
}
