//! A record of operations, and the states that a power cut may leave.
//!
//! Namespace operations are sequential and atomic: a cut leaves the tree after some operation, not
//! before the last durable one. Each byte of content has a value since it was last made durable, or
//! is zero if the file was truncated meanwhile.
//!
//! Stories may run concurrently in one file system, each on its own names.

use super::ops::{Id, Op, OpMix, Runner, Tree, content, differences, id, tree, walk};
use super::writing::Dice;
use dentree_ext4::Ext4;
use dentree_vfs::{Error, FileType, MemoryFs, Vfs};
use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Every cut at `from` or later shows it. Operations count from one.
struct Durable {
    from: usize,
    /// The tree after this operation, or a later one.
    tree: usize,
    /// `None` for all files.
    file: Option<Id>,
    content: usize,
}

pub struct Story {
    top: String,
    model: Arc<Vfs<MemoryFs>>,
    ops: Vec<Op>,
    begun: Vec<usize>,
    /// One more than operations.
    trees: Vec<Tree>,
    files: Vec<BTreeMap<String, Id>>,
    /// Content from an operation on.
    versions: HashMap<Id, Vec<(usize, Vec<u8>)>>,
    changed: HashMap<Id, usize>,
    durable: Vec<Durable>,
}

impl Story {
    /// `model` equals the file system.
    pub fn new(top: &str, model: Vfs<MemoryFs>) -> Story {
        let mut story = Story {
            top: format!("/{top}"),
            model: Arc::new(model),
            ops: Vec::new(),
            begun: Vec::new(),
            trees: Vec::new(),
            files: Vec::new(),
            versions: HashMap::new(),
            changed: HashMap::new(),
            durable: Vec::new(),
        };
        let model = Arc::clone(&story.model);
        walk(&model, &mut |_, inode| {
            if inode.kind() == FileType::Regular {
                story.record_content(id(inode), content(&model, inode));
            }
        });
        story.record_tree();
        story
    }

    /// `position` returns the device's. Returns the device's errors; a failed operation has not
    /// happened.
    pub fn go_on(
        &mut self,
        ours: &Vfs<Ext4>,
        mix: &OpMix,
        dice: &mut Dice,
        steps: usize,
        position: &dyn Fn() -> usize,
    ) -> Vec<Error> {
        let model = Arc::clone(&self.model);
        let (mut runner, mut reference) = (Runner::new(ours), Runner::new(&*model));
        let mut errors = Vec::new();
        for _ in 0..steps {
            let op = mix.op(dice);
            let begun = position();
            let result = match runner.try_apply(&op) {
                Err(error @ (Error::Io(_) | Error::ReadOnly | Error::Corrupt(_))) => {
                    errors.push(error);
                    continue;
                }
                result => result.map_err(|error| error.errno()),
            };
            assert_eq!(result, reference.apply(&op), "operation {}: {op:?}", self.ops.len() + 1);
            self.begun.push(begun);
            self.ops.push(op);
            for inode in &reference.touched {
                if inode.kind() == FileType::Regular {
                    self.record_content(id(inode), content(&*model, inode));
                }
            }
            if result.is_ok() {
                let touched: Vec<Id> = reference.touched.iter().map(|inode| id(inode)).collect();
                self.record_done(&touched, position());
            }
            self.record_tree();
        }
        errors
    }

    fn record_content(&mut self, file: Id, content: Vec<u8>) {
        let versions = self.versions.entry(file).or_default();
        if versions.last().is_none_or(|(_, last)| *last != content) {
            versions.push((self.ops.len(), content));
        }
    }

    fn record_done(&mut self, touched: &[Id], position: usize) {
        let now = self.ops.len();
        match self.ops.last() {
            Some(Op::Fsync(_)) => {
                let tree = self.changed.get(&touched[0]).copied().unwrap_or(0);
                self.durable.push(Durable { from: position, tree, file: Some(touched[0]), content: now });
            }
            Some(Op::Sync) => self.synced(position),
            // An operation without effect is in no transaction.
            _ if self.trees.last() != Some(&self.own_part(tree(&self.model))) => {
                self.changed.extend(touched.iter().map(|&id| (id, now)));
            }
            _ => {}
        }
    }

    pub fn synced(&mut self, position: usize) {
        let now = self.ops.len();
        self.durable.push(Durable { from: position, tree: now, file: None, content: now });
    }

    fn record_tree(&mut self) {
        let mut files = BTreeMap::new();
        walk(&self.model, &mut |path, inode| {
            if inode.kind() == FileType::Regular {
                files.insert(path.to_owned(), id(inode));
            }
        });
        self.trees.push(self.own_part(tree(&self.model)));
        self.files.push(files);
    }

    /// The root, which all change, is in no story.
    fn own_part(&self, mut tree: Tree) -> Tree {
        tree.retain(|path, _| path.starts_with(&self.top));
        tree
    }

    pub fn ops(&self) -> usize {
        self.ops.len()
    }

    pub fn compare(&self, found: &Vfs<Ext4>, position: usize) -> Result<(), String> {
        let begun = self.begun.partition_point(|&begun| begun <= position);
        let acknowledged = self.durable.iter().filter(|durable| durable.from <= position);
        let least = acknowledged.map(|durable| durable.tree).max().unwrap_or(0);
        let seen = self.own_part(tree(found));
        let Some(at) = (least..=begun).rev().find(|&at| self.trees[at] == seen) else {
            return Err(self.explain(&seen, least..=begun));
        };
        let mut problems = String::new();
        walk(found, &mut |path, inode| {
            if path.starts_with(&self.top)
                && let Some(&file) = self.files[at].get(path)
                && let Err(problem) = self.compare_file(file, &content(found, inode), position, begun)
            {
                problems += &format!("{path:?} (tree of operation {at}): {problem}\n");
            }
        });
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    fn explain(&self, seen: &Tree, range: RangeInclusive<usize>) -> String {
        if let Some(lost) = (0..*range.start()).rev().find(|&at| self.trees[at] == *seen) {
            return format!("the tree is that of operation {lost}, but {} was acknowledged", range.start());
        }
        let nearest = range.clone().min_by_key(|&at| differences(seen, &self.trees[at]).len()).unwrap_or(0);
        let op = nearest.checked_sub(1).map(|at| &self.ops[at]);
        format!(
            "the tree is that of no operation of {range:?}; nearest {nearest} ({op:?}), then {:?}:\n{}",
            self.ops.get(nearest),
            differences(seen, &self.trees[nearest])
        )
    }

    fn compare_file(&self, file: Id, bytes: &[u8], position: usize, begun: usize) -> Result<(), String> {
        let of_file = |durable: &&Durable| {
            durable.from <= position && durable.file.is_none_or(|durable| durable == file)
        };
        let least = self.durable.iter().filter(of_file).map(|durable| durable.content).max().unwrap_or(0);
        let all = self.versions.get(&file).ok_or("it was never there")?;
        let first = all.partition_point(|&(at, _)| at <= least).saturating_sub(1);
        let possible: Vec<&Vec<u8>> =
            all[first..].iter().filter(|&&(at, _)| at <= begun).map(|(_, bytes)| bytes).collect();
        if possible.iter().any(|version| *version == bytes) {
            return Ok(());
        }
        let sizes = possible.iter().map(|bytes| bytes.len());
        let (shortest, longest) = (sizes.clone().min().unwrap_or(0), sizes.max().unwrap_or(0));
        if !(shortest..=longest).contains(&bytes.len()) {
            return Err(format!("{} bytes, but it had {shortest} to {longest}", bytes.len()));
        }
        let is_possible =
            |at: usize| possible.iter().any(|version| *version.get(at).unwrap_or(&0) == bytes[at]);
        match (0..bytes.len()).find(|&at| !is_possible(at)) {
            None => Ok(()),
            Some(at) => Err(format!(
                "byte {at} of {} is {}, but was {:?}",
                bytes.len(),
                bytes[at],
                possible.iter().map(|version| version.get(at)).collect::<Vec<_>>()
            )),
        }
    }
}
