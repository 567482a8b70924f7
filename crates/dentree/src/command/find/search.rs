//! The traversal: evaluates the expression for a start and everything below it.
//!
//! Most searches read directories alone: inodes are loaded only for what a name and a directory
//! entry leave open, or where directories do not record types. Searches run on all processors,
//! except those whose actions follow each other: see [`Action::is_serial`].

use super::action::Action;
use super::candidate::Candidate;
use super::compile::Plan;
use super::sink::{Found, Printed, Sink};
use crate::fanout::{self, Emit, Order, Width};
use crate::image::Node;
use crate::path::join_into;
use crate::report::{Problem, Status};
use crate::tree::{Entry, Listing, Step, Tree, in_path_order};
use dentree_ext4::Ext4;
use dentree_find::{Cost, Expression, Follow, FoundAt};
use dentree_vfs::{FileType, Ino};
use std::collections::HashSet;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(super) struct Search<'a> {
    tree: Tree<'a>,
    expression: &'a Expression<Action>,
    sink: &'a Sink,
    /// Ctrl-C was pressed.
    interrupted: &'a AtomicBool,
    start: Vec<u8>,
    prefix: Vec<u8>,
    follow: Follow,
    depth: RangeInclusive<u32>,
    contents_first: bool,
    order: Order,
    /// In the byte order of the paths.
    sorts: bool,
    threads: usize,
    /// A directory's entries are evaluated by one job, which knows what was pruned.
    prunes: bool,
}

/// A directory whose entries are evaluated.
struct Directory {
    path: Vec<u8>,
    ino: Ino,
    /// Levels of its entries below the start.
    depth: u32,
    /// The directory above, where links may lead back to it.
    above: Option<Arc<Directory>>,
}

enum Job {
    /// The start, and its contents.
    Start(Node),
    /// The contents of a directory.
    Contents(Arc<Directory>),
    /// A part of a directory whose inodes are needed.
    Part { dir: Arc<Directory>, listing: Arc<Listing>, steps: Arc<[Step]>, range: Range<usize> },
    /// A directory after its contents.
    After { dir: Option<Arc<Directory>>, name: Vec<u8>, ino: Ino, kind: Option<FileType> },
}

impl<'a> Search<'a> {
    pub(super) fn new(
        tree: Tree<'a>,
        (start, prefix): (Vec<u8>, Vec<u8>),
        plan: &'a Plan,
        sink: &'a Sink,
        sorts: bool,
        interrupted: &'a AtomicBool,
    ) -> Self {
        let mut is_serial = plan.settings.contents_first;
        let mut prunes = false;
        plan.expression.each_action(&mut |action| {
            is_serial |= action.is_serial();
            prunes |= matches!(action, Action::Prune);
        });
        Search {
            tree,
            expression: &plan.expression,
            sink,
            interrupted,
            start,
            prefix,
            follow: plan.settings.follow,
            depth: plan.settings.depth.clone(),
            contents_first: plan.settings.contents_first,
            order: if sorts || is_serial { Order::Stable } else { Order::AsReady },
            sorts,
            threads: if is_serial { 0 } else { fanout::threads() },
            prunes,
        }
    }

    pub(super) fn run(&self, node: &Node) {
        fanout::run(
            self.threads,
            self.order,
            vec![Job::Start(node.clone())],
            |job, emit| self.work(job, emit),
            |found| self.sink.write(found),
        );
    }

    fn stops(&self) -> bool {
        self.sink.has_ended() || self.interrupted.load(Ordering::Relaxed)
    }

    fn work(&self, job: Job, emit: &mut Emit<'_, Job, Found>) {
        if self.stops() {
            return;
        }
        let mut found = Found::default();
        match job {
            Job::Start(node) => self.start(&node, &mut found, emit),
            Job::Contents(dir) => self.contents(dir, &mut found, emit),
            Job::Part { dir, listing, steps, range } => {
                self.steps(&dir, &listing, &steps[range], &mut found, emit);
            }
            Job::After { dir, name, ino, kind } => {
                let dir = dir.as_ref();
                self.evaluate(self.place(dir), dir, Entry { name: &name, ino, kind }, &mut found);
            }
        }
        flush(&mut found, emit);
    }

    fn start(&self, node: &Node, found: &mut Found, emit: &mut Emit<'_, Job, Found>) {
        let name = self.start.rsplit(|byte| *byte == b'/').next().unwrap_or(b"");
        let name = if name.is_empty() { b"/" } else { name };
        let entry = Entry { name, ino: node.ino(), kind: Some(node.kind()) };
        let descends = node.is_dir() && *self.depth.end() > 0;
        if !(self.contents_first && descends) {
            self.evaluate(self.place(None), None, entry, found);
        }
        if descends && !found.pruned && !self.stops() {
            flush(found, emit);
            let dir = Directory { path: self.start.clone(), ino: node.ino(), depth: 1, above: None };
            emit.spawn(Job::Contents(Arc::new(dir)));
            if self.contents_first {
                emit.spawn(Job::After { dir: None, name: name.to_vec(), ino: node.ino(), kind: entry.kind });
            }
        }
    }

    /// Where the entries of `dir`, or the start, are found.
    fn place<'p>(&'p self, dir: Option<&'p Arc<Directory>>) -> FoundAt<'p, Ext4> {
        FoundAt {
            vfs: &self.tree.image.vfs,
            problems: &self.tree,
            dir: dir.map_or(&self.start, |dir| &dir.path),
            parent: dir.map(|dir| dir.ino),
            start: &self.start,
            depth: dir.map_or(0, |dir| dir.depth),
            follows: self.follow == Follow::Always || self.follow == Follow::Starts && dir.is_none(),
        }
    }

    fn contents(&self, dir: Arc<Directory>, found: &mut Found, emit: &mut Emit<'_, Job, Found>) {
        let Some(node) = self.tree.inode(dir.ino, &dir.path) else { return };
        let mut listing = match self.follow {
            // Links may lead to one directory by several paths.
            Follow::Always => self.tree.entries(&node, &dir.path),
            _ => self.tree.list(&node, &dir.path),
        };
        let place = self.place(Some(&dir));
        let (enters, asks_inodes) = (dir.depth < *self.depth.end(), self.asks_inodes(dir.depth));
        self.tree.prefetch_inodes(listing.iter().filter(|entry| {
            let may_enter = enters && entry.kind.is_none_or(|kind| kind == FileType::Directory);
            may_enter || entry.kind.is_none() || asks_inodes && self.needs_inode(place, *entry)
        }));
        if enters {
            self.tree.prefetch_listings(listing.iter());
        }
        let steps = self.ordered(&mut listing);
        if !asks_inodes || self.threads == 0 || self.prunes {
            self.steps(&dir, &listing, &steps, found, emit);
            return;
        }
        let (listing, steps) = (Arc::new(listing), Arc::<[Step]>::from(steps));
        for range in Width::local().parts(steps.len()) {
            let (dir, listing, steps) = (dir.clone(), listing.clone(), steps.clone());
            emit.spawn(Job::Part { dir, listing, steps, range });
        }
    }

    /// Whether a printed path stands for attributes.
    fn prints_inodes(&self) -> bool {
        self.sink.printed != Printed::Path
    }

    /// Whether the expression may need more of entries at this depth than directories have.
    fn asks_inodes(&self, depth: u32) -> bool {
        depth >= *self.depth.start() && (self.prints_inodes() || self.expression.cost() >= Cost::Inode)
    }

    /// Whether name and directory entry leave open what the expression does.
    fn needs_inode(&self, place: FoundAt<'_, Ext4>, entry: Entry<'_>) -> bool {
        self.prints_inodes() || self.expression.peek(place, entry).is_none()
    }

    /// The steps through a directory, in the order of the search.
    fn ordered(&self, listing: &mut Listing) -> Vec<Step> {
        match self.sorts {
            true if !self.contents_first => {
                return in_path_order(
                    listing.iter().map(|entry| (entry.name, self.may_be_entered(entry.kind))),
                );
            }
            true => listing.sort_by_name(),
            false => listing.sort_by_inode(),
        }
        let mut steps = Vec::with_capacity(listing.len());
        for (index, entry) in listing.iter().enumerate() {
            let both = [Step::Entry(index), Step::Inside(index)];
            match self.may_be_entered(entry.kind) {
                true if self.contents_first => steps.extend(both.into_iter().rev()),
                true => steps.extend(both),
                false => steps.push(both[0]),
            }
        }
        steps
    }

    fn may_be_entered(&self, kind: Option<FileType>) -> bool {
        match kind {
            Some(FileType::Symlink) => self.follow == Follow::Always,
            kind => kind.is_none_or(|kind| kind == FileType::Directory),
        }
    }

    fn steps(
        &self,
        dir: &Arc<Directory>,
        listing: &Listing,
        steps: &[Step],
        found: &mut Found,
        emit: &mut Emit<'_, Job, Found>,
    ) {
        let place = self.place(Some(dir));
        let mut closed = HashSet::new();
        for &step in steps {
            if self.stops() {
                return;
            }
            match step {
                Step::Entry(index) => {
                    let entry = listing.get(index);
                    if !self.may_match(entry.name) {
                        continue;
                    }
                    if self.contents_first && self.may_be_entered(entry.kind) {
                        flush(found, emit);
                        let Entry { name, ino, kind } = entry;
                        emit.spawn(Job::After { dir: Some(dir.clone()), name: name.to_vec(), ino, kind });
                        continue;
                    }
                    self.evaluate(place, Some(dir), entry, found);
                    if std::mem::take(&mut found.pruned) {
                        closed.insert(index);
                    }
                    if found.is_large() {
                        flush(found, emit);
                    }
                }
                Step::Inside(index) if place.depth < *self.depth.end() && !closed.contains(&index) => {
                    if let Some(below) = self.below(dir, place, listing.get(index)) {
                        if self.order == Order::Stable {
                            flush(found, emit);
                        }
                        emit.spawn(Job::Contents(Arc::new(below)));
                    }
                }
                Step::Inside(_) => {}
            }
        }
    }

    /// Whether the name alone leaves open what the expression is. Where links are followed, a name
    /// may lead back, which is told.
    fn may_match(&self, name: &[u8]) -> bool {
        self.follow == Follow::Always || self.expression.may_match(name)
    }

    /// The directory that an entry is or leads to.
    fn below(&self, dir: &Arc<Directory>, place: FoundAt<'_, Ext4>, entry: Entry<'_>) -> Option<Directory> {
        let file = dentree_find::Candidate::new(place, entry);
        if file.kind()? != FileType::Directory || self.leads_back(dir, &file) {
            return None;
        }
        let ino = file.ino()?;
        let mut path = Vec::new();
        join_into(&mut path, &dir.path, entry.name);
        let above = (self.follow == Follow::Always).then(|| dir.clone());
        Some(Directory { path, ino, depth: place.depth + 1, above })
    }

    fn evaluate(
        &self,
        place: FoundAt<'_, Ext4>,
        dir: Option<&Arc<Directory>>,
        entry: Entry<'_>,
        found: &mut Found,
    ) {
        let file = dentree_find::Candidate::new(place, entry);
        if let Some(dir) = dir
            && self.leads_back(dir, &file)
        {
            let why = "the link leads to a directory above it; not entered again";
            let at = self.tree.image.at(file.path());
            self.tree.report.problem(&Problem::new(at, Status::Failed, why));
        } else if place.depth >= *self.depth.start() {
            let shown = Candidate { file: &file, tree: &self.tree, prefix: &self.prefix };
            let _ = self.expression.evaluate(&file, &mut |action| action.perform(&shown, found, self.sink));
        }
    }

    /// Whether a file in `dir` is one of the directories that it is in.
    fn leads_back(&self, dir: &Arc<Directory>, file: &dentree_find::Candidate<'_, Ext4>) -> bool {
        if self.follow != Follow::Always || !self.may_be_entered(file.entry().kind) {
            return false;
        }
        let Some(ino) = file.ino() else { return false };
        std::iter::successors(Some(dir), |dir| dir.above.as_ref()).any(|dir| dir.ino == ino)
    }
}

fn flush(found: &mut Found, emit: &mut Emit<'_, Job, Found>) {
    if !found.is_empty() {
        emit.put(found.take());
    }
}
