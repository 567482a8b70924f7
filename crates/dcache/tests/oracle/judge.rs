//! The judge: whether some version of the tree gives a result, at one instant of the call's window.
//!
//! It narrows an interval of instants: each register that the result depends on must have had its
//! value then. A change whose window includes the instant may have happened or not, but the same
//! for all of its registers.

use crate::truth::{Dir, Node, Register, Version, name};
use dentree_dcache::{Handle, Reason, Walk};
use std::sync::Arc;

/// Instants of a call, and assumptions about changes in progress.
#[derive(Clone)]
pub struct View {
    low: u64,
    high: u64,
    happened: Vec<(u64, bool)>,
}

impl View {
    pub fn new(low: u64, high: u64) -> View {
        View { low, high, happened: Vec::new() }
    }

    /// Whether the register had a value, at an instant of the view, for which `holds` does.
    pub fn some<T: Clone>(
        &mut self,
        register: &Register<T>,
        holds: &mut dyn FnMut(&mut View, &T) -> bool,
    ) -> bool {
        let before = self.clone();
        for version in register.within(self.low, self.high) {
            if self.assume(&version) && holds(self, &version.value) {
                return true;
            }
            self.clone_from(&before);
        }
        false
    }

    fn assume<T>(&mut self, version: &Version<T>) -> bool {
        self.low = self.low.max(version.began.begin);
        self.high = self.high.min(version.last());
        self.low <= self.high
            && self.decide(version.began.begin, true)
            && version.ended.as_ref().is_none_or(|op| self.decide(op.begin, false))
    }

    fn decide(&mut self, op: u64, happened: bool) -> bool {
        match self.happened.iter().find(|decided| decided.0 == op) {
            Some(decided) => decided.1 == happened,
            None => {
                self.happened.push((op, happened));
                true
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum What {
    Dot,
    DotDot,
    Name(usize),
    /// No entry ever has it.
    Unknown,
}

/// A component and its place in the path.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    pub begin: usize,
    pub end: usize,
    pub what: What,
}

/// The identity of a walk.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Who {
    /// May search every directory.
    Superuser,
    /// May search directories that everyone may.
    Nobody,
    /// The same, by `may_search`.
    Asked,
}

/// Where `..` stops.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Floor {
    Root,
    /// Also at this directory.
    At(u64),
    /// At a directory that may have been removed.
    Unsure,
    /// Everywhere.
    Gone,
}

#[derive(Debug)]
pub struct Question {
    pub path: Vec<u8>,
    pub parts: Vec<Part>,
    pub keep_last_link: bool,
    pub who: Who,
    pub floor: Floor,
    /// The instants of the call.
    pub low: u64,
    pub high: u64,
}

/// The result of a walk; inodes by number.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Answer {
    Found(u64),
    Negative { at: usize, end: usize },
    Stopped { dir: u64, link: Option<u64>, rest: usize, why: Reason },
}

impl Answer {
    pub fn of<H: Handle, F>(
        walk: &Walk<'_, H, F>,
        ino: impl Fn(&H) -> u64,
        found: impl Fn(&F) -> u64,
    ) -> Answer {
        match walk {
            Walk::Found(entry) => Answer::Found(found(entry)),
            Walk::Negative { at, end } => Answer::Negative { at: *at, end: *end },
            Walk::Stopped(stopped) => Answer::Stopped {
                dir: ino(stopped.dir.handle()),
                link: stopped.link.as_ref().map(|link| ino(link.handle())),
                rest: stopped.rest,
                why: stopped.why,
            },
        }
    }
}

/// Continues from a directory.
type Then<'a> = &'a mut dyn FnMut(&mut View, &Arc<Dir>) -> bool;
type Check<'a> = &'a mut dyn FnMut(&Arc<Dir>, Option<&Node>) -> bool;

impl Question {
    /// Whether some version gives the result.
    pub fn is_answered(&self, start: &Arc<Dir>, answer: Answer) -> bool {
        let (all, begins_at) = (self.parts.len(), |at| self.parts.iter().position(|part| part.begin == at));
        match answer {
            Answer::Found(ino) if all == 0 => ino == start.ino,
            Answer::Found(ino) => self.step(start, all - 1, &mut |_, node| {
                node.is_some_and(|node| {
                    let is_kept = self.keep_last_link && !self.has_slash_after(all - 1);
                    let is_dir = matches!(node, Node::Dir(_));
                    node.ino() == ino
                        && (is_kept || !node.is_symlink())
                        && (is_dir || !self.has_slash_after(all - 1))
                })
            }),
            Answer::Negative { at, end } => begins_at(at).is_some_and(|last| {
                self.parts[last].end == end && self.step(start, last, &mut |_, node| node.is_none())
            }),
            Answer::Stopped { dir, rest, why: Reason::Busy, .. } => (dir, rest) == (start.ino, 0),
            Answer::Stopped { dir, link: Some(link), rest, why: Reason::Symlink } => {
                let last = self.parts.iter().position(|part| part.end == rest);
                last.is_some_and(|last| {
                    self.step(start, last, &mut |above, node| {
                        above.ino == dir && node.is_some_and(|node| node.is_symlink() && node.ino() == link)
                    })
                })
            }
            Answer::Stopped { dir, link: None, rest, why } => begins_at(rest).is_some_and(|last| {
                let is_it = &mut |above: &Arc<Dir>| above.ino == dir;
                match why {
                    Reason::NotADirectory => self.step(start, last, &mut |above, node| {
                        let is_other =
                            node.is_some_and(|node| matches!(node, Node::Leaf(_)) && !node.is_symlink());
                        is_it(above) && is_other && self.has_slash_after(last)
                    }),
                    Reason::Miss | Reason::Detached => {
                        self.go(&mut self.view(), start, 0, last, &mut |view, above| {
                            is_it(above) && self.search(view, above, &mut |_, _| true)
                        })
                    }
                    Reason::Floor => self.go(&mut self.view(), start, 0, last, &mut |_, above| {
                        is_it(above) && self.parts[last].what == What::DotDot && self.may_be_floor(above)
                    }),
                    Reason::NameTooLong => self.parts[last].what == What::Unknown,
                    Reason::Denied => {
                        self.who != Who::Superuser
                            && self.go(&mut self.view(), start, 0, last, &mut |_, above| is_it(above))
                    }
                    Reason::Symlink | Reason::Busy => false,
                }
            }),
            Answer::Stopped { .. } => false,
        }
    }

    fn view(&self) -> View {
        View::new(self.low, self.high)
    }

    fn has_slash_after(&self, part: usize) -> bool {
        self.parts[part].end < self.path.len()
    }

    fn may_be_floor(&self, dir: &Dir) -> bool {
        dir.is_root()
            || match self.floor {
                Floor::Root => false,
                Floor::At(ino) => dir.ino == ino,
                Floor::Unsure | Floor::Gone => true,
            }
    }

    fn must_be_floor(&self, dir: &Dir) -> bool {
        dir.is_root() || self.floor == Floor::Gone || self.floor == Floor::At(dir.ino)
    }

    /// Whether a walk reaches component `last` and `check` holds for what it finds.
    fn step(&self, start: &Arc<Dir>, last: usize, check: Check<'_>) -> bool {
        self.go(&mut self.view(), start, 0, last, &mut |view, dir| {
            self.search(view, dir, &mut |view, dir| match self.parts[last].what {
                What::Dot => check(dir, Some(&Node::Dir(dir.clone()))),
                What::DotDot if self.must_be_floor(dir) => false,
                What::DotDot => view.some(&dir.parent, &mut |_, parent| {
                    parent.upgrade().is_some_and(|parent| check(dir, Some(&Node::Dir(parent))))
                }),
                What::Name(name) => {
                    view.some(&dir.slots[name].value, &mut |_, node| check(dir, node.as_ref()))
                }
                What::Unknown => check(dir, None),
            })
        })
    }

    /// Walks from component `at` to `last`.
    fn go(&self, view: &mut View, dir: &Arc<Dir>, at: usize, last: usize, then: Then<'_>) -> bool {
        if at == last {
            return then(view, dir);
        }
        self.search(view, dir, &mut |view, dir| match self.parts[at].what {
            What::Dot => self.go(view, dir, at + 1, last, then),
            What::DotDot if self.must_be_floor(dir) => false,
            What::DotDot => view.some(&dir.parent, &mut |view, parent| {
                parent.upgrade().is_some_and(|parent| self.go(view, &parent, at + 1, last, then))
            }),
            What::Name(name) => view.some(&dir.slots[name].value, &mut |view, node| match node {
                Some(Node::Dir(dir)) => self.go(view, dir, at + 1, last, then),
                _ => false,
            }),
            What::Unknown => false,
        })
    }

    fn search(&self, view: &mut View, dir: &Arc<Dir>, then: Then<'_>) -> bool {
        match self.who {
            Who::Superuser => then(view, dir),
            Who::Nobody => view.some(&dir.search, &mut |view, is_open| *is_open && then(view, dir)),
            // Checked at another instant than that of the path.
            Who::Asked => self.view().some(&dir.search, &mut |_, is_open| *is_open) && then(view, dir),
        }
    }

    /// The versions of all registers below a directory that the call may have met.
    pub fn histories(&self, dir: &Dir, depth: usize, text: &mut String) {
        use std::fmt::Write;
        let mut told = |what: &str, versions: &[String]| {
            let _ = writeln!(text, "{:depth$}{} {what}: {}", "", dir.ino, versions.join(", "));
        };
        fn tell<T: std::fmt::Debug>(versions: Vec<Version<T>>) -> Vec<String> {
            let one = |version: Version<T>| {
                let until = version.ended.as_ref().map_or("", |op| op.what);
                let last = if version.last() == u64::MAX { "now".into() } else { version.last().to_string() };
                let Version { value, began, .. } = &version;
                format!("{value:?} [{} {} – {last} {until}]", began.begin, began.what)
            };
            versions.into_iter().map(one).collect()
        }
        told("search", &tell(dir.search.within(self.low, self.high)));
        for (number, slot) in dir.slots.iter().enumerate() {
            let versions = slot.value.within(self.low, self.high);
            if matches!(&versions[..], [Version { value: None, began, .. }] if began.begin == 0) {
                continue;
            }
            told(&format!("{number} ({})", name(number).len()), &tell(versions));
        }
        for slot in &dir.slots {
            for version in slot.value.within(self.low, self.high) {
                if let Some(Node::Dir(below)) = version.value.filter(|_| depth < 12) {
                    self.histories(&below, depth + 2, text);
                }
            }
        }
    }
}

impl Dir {
    pub fn is_root(&self) -> bool {
        self.ino == crate::world::ROOT
    }
}

impl View {
    /// Whether all directories above this one were linked at an instant.
    pub fn is_placed(&mut self, dir: &Dir) -> bool {
        let above = |view: &mut View, parent: &std::sync::Weak<Dir>| {
            parent.upgrade().is_some_and(|parent| view.is_placed(&parent))
        };
        dir.is_root() || self.some(&dir.parent, &mut { above })
    }
}
