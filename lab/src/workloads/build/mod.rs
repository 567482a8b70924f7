//! A build's load on a name cache: the same headers again and again, and for each of them the
//! directories that lack it.
//!
//! A [`Recording`] of a command (`dentree-lab record -- make`) is replayed in a loop against every
//! scheme. All clients share the system's files (`/usr` and the like); each has a project and
//! temporary files in a directory of its own, which a replay leaves unchanged.
//!
//! Paths are walked from the root and without `..`: a little more than the kernel does for relative
//! ones, a little less for the detours that compilers make. `stat`, `access`, `readlink` and
//! `chdir` are [`Front::stat`]; `open` and `execve` open and close at once.

mod recording;
mod trace;

use std::io::Read;
use std::num::NonZeroU64;

use ruzstd::decoding::StreamingDecoder;

use super::{Client, Components, Front, PATH_MAX, Workload};
use crate::schemes::{Config, Dentry, Inode, Path};

pub use recording::{Malformed, Operation, PathId, ROOT, Recording};
pub use trace::record;

/// `make posix` of Lua 5.4.4, from Debian's source package, by gcc 12: 34 files compiled, a library
/// and two programs linked. Compressed by zstd.
const SAMPLE: &[u8] = include_bytes!("../../../assets/lua.names.zst");

/// A recording, ready for replay.
#[derive(Debug)]
pub struct Build {
    recording: Recording,
    /// Existence of each path before the first step.
    initial: Vec<bool>,
    steps: Vec<Step>,
}

/// An operation of a replay. The steps before determine whether the name exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Stat(PathId),
    Open(PathId),
    Create(PathId),
    Remove(PathId),
    Rename(PathId, PathId),
}

impl Build {
    /// The lab's own recording.
    ///
    /// # Panics
    /// Never: a test parses it.
    pub fn sample() -> Self {
        let mut text = String::new();
        let decoder = StreamingDecoder::new(SAMPLE);
        let read = decoder.expect("a zstd frame").read_to_string(&mut text);
        read.expect("the lab's own recording is text");
        Self::new(Recording::parse(&text).expect("the lab's own recording is well formed"))
    }

    /// A load from a recording. Contradictions, from changes that were not recorded, are resolved
    /// by additional changes.
    pub fn new(recording: Recording) -> Self {
        let mut plan = Plan::new(&recording);
        recording.operations().iter().for_each(|operation| plan.take(*operation));
        plan.restore();
        let Plan { initial, steps, .. } = plan;
        Self { recording, initial, steps }
    }

    /// Operations until the replay starts over.
    pub fn operations(&self) -> usize {
        self.steps.len()
    }
}

/// Follows a recording and derives what existed at its start.
struct Plan<'r> {
    recording: &'r Recording,
    children: Vec<Vec<PathId>>,
    /// Existence at the start; `false` for names without an operation so far.
    initial: Vec<bool>,
    /// Existence now, if known.
    now: Vec<Option<bool>>,
    steps: Vec<Step>,
}

impl<'r> Plan<'r> {
    fn new(recording: &'r Recording) -> Self {
        let mut children = vec![Vec::new(); recording.paths()];
        (1..recording.paths()).for_each(|path| children[recording.parent(path)].push(path));
        let mut plan = Self {
            recording,
            children,
            initial: vec![false; recording.paths()],
            now: vec![None; recording.paths()],
            steps: Vec::new(),
        };
        plan.initial[ROOT] = true;
        plan.now[ROOT] = Some(true);
        plan
    }

    fn take(&mut self, operation: Operation) {
        let paths = match operation {
            Operation::Stat(path, _) | Operation::Open(path, _) => [path, path],
            Operation::Create(path) | Operation::Remove(path) => [path, path],
            Operation::Rename(from, to) => [from, to],
        };
        if paths.iter().any(|path| *path == ROOT || self.depth(*path) >= PATH_MAX) {
            return;
        }
        // The system's files do not change.
        let fixed = paths.iter().any(|path| self.recording.is_system(*path));
        match operation {
            Operation::Stat(path, there) => {
                self.expect(path, there);
                self.steps.push(Step::Stat(path));
            }
            Operation::Open(path, there) => {
                self.expect(path, there);
                self.steps.push(Step::Open(path));
            }
            Operation::Create(path) | Operation::Remove(path) if fixed => {
                self.expect(path, true);
                self.steps.push(Step::Open(path));
            }
            Operation::Create(path) => self.create(path),
            Operation::Remove(path) => {
                self.expect(path, true);
                self.remove(path);
            }
            Operation::Rename(from, to) if fixed || from == to => {
                self.expect(from, true);
                self.steps.push(Step::Stat(from));
            }
            Operation::Rename(from, to) => self.rename(from, to),
        }
    }

    fn depth(&self, path: PathId) -> usize {
        if path == ROOT { 0 } else { 1 + self.depth(self.recording.parent(path)) }
    }

    /// Makes a name exist or not. At its first operation it is assumed to have been so from the
    /// start.
    fn expect(&mut self, path: PathId, there: bool) {
        let parent = self.recording.parent(path);
        if there && path != ROOT {
            self.expect(parent, true);
        }
        match self.now[path] {
            None => {
                self.initial[path] = there && self.now[parent] == Some(true);
                self.now[path] = Some(self.initial[path]);
            }
            Some(now) if now == there || self.recording.is_system(path) => {}
            Some(true) => self.remove(path),
            Some(false) => self.create(path),
        }
    }

    fn create(&mut self, path: PathId) {
        self.expect(self.recording.parent(path), true);
        let step = if self.now[path] == Some(true) { Step::Open(path) } else { Step::Create(path) };
        self.now[path] = Some(true);
        self.steps.push(step);
    }

    /// Removes a path, children first.
    fn remove(&mut self, path: PathId) {
        for child in self.children[path].clone() {
            if self.now[child] == Some(true) {
                self.remove(child);
            }
        }
        self.now[path] = Some(false);
        self.steps.push(Step::Remove(path));
    }

    fn rename(&mut self, from: PathId, to: PathId) {
        self.expect(from, true);
        if !self.children[from].is_empty() {
            // A directory: its content is renumbered.
            self.remove(from);
            return self.create(to);
        }
        self.expect(self.recording.parent(to), true);
        if self.now[to] == Some(true) && !self.children[to].is_empty() {
            self.remove(to);
        }
        (self.now[from], self.now[to]) = (Some(false), Some(true));
        self.steps.push(Step::Rename(from, to));
    }

    /// Restores the state of the start, for the next round.
    fn restore(&mut self) {
        for path in (1..self.now.len()).rev() {
            if self.now[path] == Some(true) && !self.initial[path] {
                self.remove(path);
            }
        }
        for path in 1..self.now.len() {
            if self.now[path] == Some(false) && self.initial[path] {
                self.create(path);
            }
        }
    }
}

impl Workload for Build {
    fn name(&self) -> &'static str {
        "build"
    }

    fn config(&self, clients: usize) -> Config {
        let entries = self.recording.paths() * (clients + 1);
        Config { entries, heads: entries, prefetch: false }
    }

    /// Nothing: misses fill the cache, as after a boot.
    fn prepare(&self, _front: &Front, _clients: usize) {}

    fn client(&self, number: usize, _clients: usize) -> Box<dyn Client + '_> {
        let owner = |path: PathId| if self.recording.is_system(path) { 0 } else { number + 1 };
        let inode = |path: PathId| self.initial[path].then(|| inode(owner(path), path));
        let mut replay = Replay {
            load: self,
            owner: number + 1,
            top: format!("client{number}").into_bytes(),
            next: 0,
            made: self.recording.paths(),
            truth: (0..self.recording.paths()).map(inode).collect(),
            texts: Vec::new(),
        };
        replay.texts = (0..replay.truth.len()).map(|path| replay.resolve(path).names().join(&b'/')).collect();
        Box::new(replay)
    }
}

/// An inode number that is unique among clients.
fn inode(owner: usize, number: usize) -> Inode {
    Inode(NonZeroU64::MIN.saturating_add((owner as u64) << 40 | number as u64))
}

/// A client's position in the recording.
struct Replay<'w> {
    load: &'w Build,
    owner: usize,
    top: Vec<u8>,
    next: usize,
    /// The last inode number used.
    made: usize,
    truth: Vec<Option<Inode>>,
    /// The text of each path, with the client's directory first unless it is the system's.
    texts: Vec<Vec<u8>>,
}

impl Replay<'_> {
    fn resolve(&self, path: PathId) -> Components<'_> {
        let recording = &self.load.recording;
        let own = (path == ROOT || !recording.is_system(path)).then_some((&self.top[..], ROOT));
        let above =
            std::iter::successors(Some(path), |at| Some(recording.parent(*at))).take_while(|at| *at != ROOT);
        Components::from_leaf(above.map(|at| (recording.name(at), at)).chain(own))
    }

    /// The file system's result for the first `depth` components.
    fn ask(&self, resolved: &Components<'_>, depth: usize) -> Option<Inode> {
        match resolved.numbers[depth - 1] {
            ROOT => Some(inode(self.owner, ROOT)),
            path => self.truth[path],
        }
    }

    fn stat(&self, front: &Front, path: PathId) {
        let resolved = self.resolve(path);
        let found =
            front.stat(Path::new(resolved.names(), &self.texts[path]), |depth| self.ask(&resolved, depth));
        assert_eq!(found, self.truth[path], "path {path}");
    }

    fn open(&self, front: &Front, path: PathId) -> Option<Dentry> {
        let resolved = self.resolve(path);
        let found =
            front.open(Path::new(resolved.names(), &self.texts[path]), |depth| self.ask(&resolved, depth));
        let inode = found.and_then(|dentry| front.cache().inode(dentry));
        assert!(path == ROOT || inode == self.truth[path], "path {path} led to {inode:?}");
        found
    }

    /// The directory of one of the client's own paths.
    fn open_parent(&self, front: &Front, path: PathId) -> Dentry {
        let parent = self.load.recording.parent(path);
        self.open(front, parent).unwrap_or_else(|| panic!("the directory of path {path} was not found"))
    }

    fn create(&mut self, front: &Front, path: PathId) {
        let parent = self.open_parent(front, path);
        self.made += 1;
        let inode = inode(self.owner, self.made);
        let made = front.create(parent, self.load.recording.name(path), inode);
        assert_eq!(front.cache().inode(made), Some(inode), "path {path} had been removed, and was found");
        [made, parent].into_iter().for_each(|dentry| front.close(dentry));
        self.truth[path] = Some(inode);
    }

    fn remove(&mut self, front: &Front, path: PathId) {
        let parent = self.open_parent(front, path);
        front.unlink(parent, self.load.recording.name(path));
        front.close(parent);
        self.truth[path] = None;
    }

    fn rename(&mut self, front: &Front, from: PathId, to: PathId) {
        let (from_parent, to_parent) = (self.open_parent(front, from), self.open_parent(front, to));
        // A rename looks the name up first; held, it stays cached.
        let held = self.open(front, from);
        let name = |path| self.load.recording.name(path);
        front.rename((from_parent, name(from)), (to_parent, name(to)));
        [from_parent, to_parent].into_iter().chain(held).for_each(|dentry| front.close(dentry));
        self.truth[to] = self.truth[from].take();
    }
}

impl Client for Replay<'_> {
    fn step(&mut self, front: &Front) {
        let step = self.load.steps[self.next];
        self.next = (self.next + 1) % self.load.steps.len();
        match step {
            Step::Stat(path) => self.stat(front, path),
            Step::Open(path) => self.open(front, path).into_iter().for_each(|found| front.close(found)),
            Step::Create(path) => self.create(front, path),
            Step::Remove(path) => self.remove(front, path),
            Step::Rename(from, to) => self.rename(front, from, to),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schemes::SCHEMES;

    /// One and a half rounds with two clients: the second round starts from the state that the
    /// first one left.
    fn replay(load: &Build) {
        for scheme in SCHEMES {
            let front = Front::new((scheme.build)(load.config(2)));
            let mut clients: Vec<_> = (0..2).map(|number| load.client(number, 2)).collect();
            for _ in 0..load.operations() * 3 / 2 {
                clients.iter_mut().for_each(|client| client.step(&front));
            }
        }
    }

    #[test]
    fn every_scheme_carries_the_sample_with_right_answers() {
        let load = Build::sample();
        let missing = load.recording.operations().iter();
        let missing =
            missing.filter(|o| matches!(o, Operation::Stat(_, false) | Operation::Open(_, false))).count();
        assert!(load.operations() > 5_000 && missing * 4 > load.operations(), "{missing}");
        replay(&load);
    }

    #[test]
    fn a_recording_that_contradicts_itself_is_made_consistent() {
        let text = "dentree names 1\n0 project\n1 a\n1 b\n2 in\n0 usr\n5 x\n0 tmp\n7 t\n\n\
                    s4 S2 s4 c3 r3,2 o2 u2 s1 S6 s6 c6 r8,3 u6 S1 s3 r2,8 s4\n";
        let load = Build::new(Recording::parse(text).expect("a recording"));
        assert!(load.initial[4] && load.initial[8] && !load.initial[6]);
        replay(&load);
    }
}
