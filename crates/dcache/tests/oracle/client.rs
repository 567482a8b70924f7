//! One thread: its lookups, and the operations that change no name.

use crate::judge::{Answer, Floor, Part, Question, View, What, Who};
use crate::truth::{Dir, FLOOD, LENGTHS, Node, name};
use crate::world::{Inode, World, kind_of};
use dentree_dcache::{Child, DentryId, DentryRef, Fill, Kind, Reason, Seen, Walk, WalkOptions};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

/// Most directories that a thread holds.
const POCKET: usize = 8;
/// Entries of the directory that causes evictions.
const CROWDING: u64 = 600;

/// A directory and a reference to an entry of it.
pub type Held<'w, H> = (DentryRef<'w, H>, Arc<Dir>);

pub struct Client<'w, H: Inode> {
    pub world: &'w World<H>,
    pub number: usize,
    random: Cell<u64>,
    pocket: Vec<Held<'w, H>>,
    ids: Vec<(DentryId, u64)>,
    pub turns: u64,
}

impl<'w, H: Inode> Client<'w, H> {
    pub fn new(world: &'w World<H>, number: usize, seed: u64) -> Self {
        let random = Cell::new(((seed << 8) | (number as u64 + 1)).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Client { world, number, random, pocket: Vec::new(), ids: Vec::new(), turns: 0 }
    }

    /// A number below `n`.
    pub fn random(&self, n: usize) -> usize {
        let mut state = self.random.get();
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        self.random.set(state);
        (state >> 16) as usize % n
    }

    pub fn one_in(&self, n: usize) -> bool {
        self.random(n) == 0
    }

    /// Sometimes yields to other threads.
    pub fn dawdle(&self) {
        for _ in 0..self.random(8).saturating_sub(3) {
            thread::yield_now();
        }
    }

    pub fn turn(&mut self) {
        self.world.begin(self.number);
        self.turns += 1;
        match self.random(64) {
            0..=21 => self.change(),
            22..=33 => self.walk(),
            34..=38 => self.walk_many(),
            39..=42 => self.look(),
            43..=47 => self.fill(),
            48..=54 => self.gather(),
            55..=56 => self.invalidate(),
            57 if self.one_in(4) => self.flood(),
            58..=59 => self.examine_held(),
            60 => self.keep_house(),
            _ => self.walk(),
        }
        self.world.end(self.number);
    }

    /// The root, or a directory that this thread has found.
    fn held(&self) -> Held<'w, H> {
        match self.pocket.get(self.random(POCKET + 2)) {
            Some((entry, dir)) => (entry.clone(), dir.clone()),
            None => (self.world.cache.root(), self.world.root.clone()),
        }
    }

    fn keep(&mut self, entry: DentryRef<'w, H>) {
        self.ids.insert(0, (entry.id(), entry.handle().ino()));
        self.ids.truncate(POCKET);
        let Some(dir) = self.world.dir(entry.handle().ino()) else { return };
        if self.pocket.len() == POCKET {
            self.pocket.swap_remove(self.random(POCKET));
        }
        self.pocket.push((entry, dir));
    }

    pub fn a_name(&self) -> usize {
        self.random(LENGTHS.len())
    }

    pub fn a_dir(&self) -> Arc<Dir> {
        let mut dir = self.world.root.clone();
        loop {
            match dir.slots[self.a_name()].value.now() {
                Some(Node::Dir(below)) => dir = below,
                _ if self.one_in(3) => return dir,
                _ if dir.slots.iter().all(|slot| !matches!(slot.value.now(), Some(Node::Dir(_)))) => {
                    return dir;
                }
                _ => {}
            }
        }
    }

    /// A path, mostly to an existing file.
    fn question(&self, start: &Arc<Dir>) -> Question {
        let (mut path, mut parts) = (Vec::new(), Vec::new());
        let mut at = Some(start.clone());
        if self.one_in(8) {
            path.extend_from_slice(b"/");
        }
        for _ in 0..1 + self.random(5) {
            let there = |dir: &Arc<Dir>| {
                (0..8).map(|_| self.a_name()).find(|&name| dir.slots[name].value.now().is_some())
            };
            let what = match self.random(24) {
                0 | 1 => What::Dot,
                2..=4 => What::DotDot,
                5 => What::Unknown,
                6..=8 => What::Name(self.a_name()),
                _ => What::Name(at.as_ref().and_then(there).unwrap_or_else(|| self.a_name())),
            };
            let begin = path.len();
            match what {
                What::Dot => path.extend_from_slice(b"."),
                What::DotDot => path.extend_from_slice(b".."),
                What::Name(number) => path.extend(name(number)),
                What::Unknown if self.one_in(2) => path.extend_from_slice(&[b'x'; 256]),
                What::Unknown => path.extend_from_slice(b"unknown"),
            }
            parts.push(Part { begin, end: path.len(), what });
            at = at.and_then(|dir| match what {
                What::DotDot => dir.parent.now().upgrade(),
                What::Name(name) => match dir.slots[name].value.now()? {
                    Node::Dir(below) => Some(below),
                    Node::Leaf(_) => None,
                },
                _ => Some(dir),
            });
            if at.is_none() && !self.one_in(8) {
                break;
            }
            path.extend_from_slice(if self.one_in(8) { b"//" } else { b"/" });
        }
        if !self.one_in(8) {
            let end = parts.last().map_or(0, |part: &Part| part.end);
            path.truncate(end);
        }
        let who = [Who::Superuser, Who::Superuser, Who::Nobody, Who::Asked][self.random(4)];
        let keep_last_link = self.one_in(2);
        Question { path, parts, keep_last_link, who, floor: Floor::Root, low: 0, high: 0 }
    }

    fn may_search(&self, who: Who, ino: u64) -> bool {
        match who {
            Who::Superuser => true,
            Who::Nobody => false,
            Who::Asked => {
                self.dawdle();
                self.world.dir(ino).is_some_and(|dir| dir.search.now())
            }
        }
    }

    fn walk(&mut self) {
        let (entry, start) = self.held();
        let mut question = self.question(&start);
        // Repeated walks take other code paths than the first.
        for _ in 0..1 + self.random(6) {
            self.walk_from(&entry, &start, &mut question);
        }
    }

    fn walk_from(&mut self, entry: &DentryRef<'w, H>, start: &Arc<Dir>, question: &mut Question) {
        let below = self.held();
        let gone = self.ids.iter().find(|(id, _)| self.world.cache.get(*id).is_none()).map(|(id, _)| *id);
        let floor = match self.random(8) {
            0 => Some(below.0.id()),
            1 => gone,
            _ => None,
        };
        let options = WalkOptions { floor, keep_last_link: question.keep_last_link };
        let cache = &self.world.cache;
        let who = question.who;
        let may_search = |handle: &H| self.may_search(who, handle.ino());
        question.low = self.world.now();
        let (answer, end) = if self.one_in(2) {
            let walk = cache.walk(entry, &question.path, options, may_search);
            let answer = Answer::of(&walk, H::ino, |found| found.handle().ino());
            let end = match walk {
                Walk::Found(found) => Some(found),
                Walk::Negative { .. } => None,
                Walk::Stopped(stopped) => Some(stopped.dir),
            };
            (answer, end)
        } else {
            let walk = cache.find(entry, &question.path, options, may_search);
            (self.seen(&walk), if let Walk::Stopped(stopped) = walk { Some(stopped.dir) } else { None })
        };
        question.high = self.world.now();
        question.floor = match floor {
            None => Floor::Root,
            Some(id) if Some(id) == gone => Floor::Gone,
            Some(_) if below.0.is_reachable() => Floor::At(below.1.ino),
            Some(_) => Floor::Unsure,
        };
        self.judge(question, start, answer);
        let Some(end) = end else { return };
        self.examine(&end);
        let name_at = |at| match question.parts.iter().find(|part| part.begin == at)?.what {
            What::Name(number) => Some(number),
            _ => None,
        };
        // The next walk gets further.
        if let Answer::Stopped { rest, why: Reason::Miss | Reason::Detached, .. } = answer
            && let (Some(number), Some(dir)) = (name_at(rest), self.world.dir(end.handle().ino()))
        {
            self.look_up(&end, &dir, number, false);
        }
        self.keep(end);
    }

    fn seen(&self, walk: &Walk<'_, H, Seen<H>>) -> Answer {
        if let Walk::Found(seen) = walk {
            assert_eq!(seen.kind, kind_of(seen.handle.ino()));
            let kept = self.world.cache.get(seen.id);
            assert!(kept.is_none_or(|kept| kept.handle() == &seen.handle), "another inode under an id");
        }
        Answer::of(walk, H::ino, |seen| seen.handle.ino())
    }

    fn walk_many(&mut self) {
        let (entry, start) = self.held();
        let mut questions: Vec<_> = (0..1 + self.random(12)).map(|_| self.question(&start)).collect();
        let (who, keep_last_link) = (questions[0].who, questions[0].keep_last_link);
        let paths: Vec<_> = questions.iter().map(|question| question.path.clone()).collect();
        let options = WalkOptions { floor: None, keep_last_link };
        let low = self.world.now();
        let may_search = |handle: &H| self.may_search(who, handle.ino());
        let walks = self.world.cache.find_many(&entry, &paths, options, may_search);
        let high = self.world.now();
        for (question, walk) in questions.iter_mut().zip(&walks) {
            (question.low, question.high) = (low, high);
            (question.who, question.keep_last_link) = (who, keep_last_link);
            self.judge(question, &start, self.seen(walk));
        }
    }

    fn judge(&self, question: &Question, start: &Arc<Dir>, answer: Answer) {
        if !question.is_answered(start, answer) {
            self.fail(question, start, &format!("a walk from {}: {answer:?}", start.ino));
        }
    }

    /// Reports a result that no version allows.
    fn fail(&self, question: &Question, start: &Arc<Dir>, what: &str) -> ! {
        let mut text = String::new();
        question.histories(start, 0, &mut text);
        text.push_str("from the root:\n");
        question.histories(&self.world.root, 0, &mut text);
        let path = String::from_utf8_lossy(&question.path);
        panic!("thread {}, turn {}: {what}\n{path}\n{question:?}\n{text}", self.number, self.turns);
    }

    /// Fails if the name of `dir` never had this result.
    fn judge_name(&self, (what, low): (&str, u64), dir: &Arc<Dir>, name: usize, found: Option<u64>) {
        let high = self.world.now();
        let is_it = |view: &mut View| {
            view.some(&dir.slots[name].value, &mut |_, node| node.as_ref().map(Node::ino) == found)
        };
        if !is_it(&mut View::new(low, high)) {
            let what = format!("{what} of {name} in {}: {found:?}", dir.ino);
            self.fail(&self.at(low, high), dir, &what);
        }
    }

    fn at(&self, low: u64, high: u64) -> Question {
        let (path, parts) = (Vec::new(), Vec::new());
        Question { path, parts, keep_last_link: false, who: Who::Superuser, floor: Floor::Root, low, high }
    }

    fn look(&mut self) {
        let ((entry, dir), number) = (self.held(), self.a_name());
        let low = self.world.now();
        let Some(found) = self.world.cache.lookup(&entry, &name(number)) else { return };
        self.judge_name(("lookup", low), &dir, number, found.as_ref().map(|found| found.handle().ino()));
        found.into_iter().for_each(|found| self.keep(found));
    }

    fn fill(&mut self) {
        let ((entry, dir), number) = (self.held(), self.a_name());
        if let Some(found) = self.look_up(&entry, &dir, number, false) {
            self.keep(found);
        }
    }

    /// Looks a name up, in the model tree if need be; the result must be cached if `must`.
    pub fn look_up(
        &self,
        entry: &DentryRef<'w, H>,
        dir: &Arc<Dir>,
        number: usize,
        must: bool,
    ) -> Option<DentryRef<'w, H>> {
        let slot = &dir.slots[number];
        let low = self.world.now();
        let found = self.world.cache.lookup_or_fill(entry, &name(number), || {
            self.dawdle();
            let child = slot.value.now().map(|node| self.world.child(&node));
            // After the read of the tree: a thread that sees the rename there, and not this, comes
            // after the cache was told.
            let is_moving = slot.moving.load(Ordering::SeqCst);
            self.dawdle();
            if self.one_in(64) {
                // `fill` may use the cache.
                self.world.cache.prune(4);
            }
            match child {
                _ if !must && self.one_in(32) => Err(()),
                child if is_moving || !must && self.one_in(16) => Ok(Fill::NotCached(child)),
                Some(child) => Ok(Fill::Positive(child)),
                None => Ok(Fill::Negative),
            }
        });
        let found = found.ok()?;
        self.judge_name(
            ("lookup_or_fill", low),
            dir,
            number,
            found.as_ref().map(|found| found.handle().ino()),
        );
        found
    }

    /// Inserts all names of a directory as a scan does.
    fn gather(&mut self) {
        let (entry, dir) = self.held();
        let mut completion = self.world.cache.begin_complete(&entry);
        for (number, slot) in dir.slots.iter().enumerate() {
            let node = slot.value.now();
            if slot.moving.load(Ordering::SeqCst) || self.one_in(256) {
                return;
            }
            self.dawdle();
            if let Some(node) = node {
                completion.enter(&name(number), self.world.child(&node));
            }
        }
        if completion.finish() {
            (0..dir.slots.len()).for_each(|number| drop(self.look_up(&entry, &dir, number, true)));
        }
    }

    fn invalidate(&mut self) {
        self.world.cache.invalidate(&self.held().0, &name(self.a_name()));
    }

    /// Inserts more than fits.
    fn flood(&mut self) {
        let (root, world) = (self.world.cache.root(), self.world);
        let Some(flood) = self.look_up(&root, &world.root, FLOOD, true) else { return };
        for _ in 0..32 {
            let number = self.random(CROWDING as usize) as u64;
            let ino = (1 << 40) + 4 * number + 2;
            let name = format!("{number:050}");
            let found = world.cache.lookup_or_fill(&flood, name.as_bytes(), || {
                Ok::<_, ()>(Fill::Positive(Child::other(H::new(ino))))
            });
            assert_eq!(found.map(|found| found.map(|found| found.handle().ino())), Ok(Some(ino)));
        }
    }

    /// Checks a held entry.
    fn examine(&self, entry: &DentryRef<'w, H>) {
        let cache = &self.world.cache;
        assert_eq!(entry.kind(), kind_of(entry.handle().ino()));
        assert_eq!(entry.parent().kind(), Kind::Directory);
        assert!(!entry.is_complete() || entry.kind() == Kind::Directory);
        assert!([0, 1, 2, 31, 32, 33, 255, b"flood".len()].contains(&entry.name().len()));
        // Only the last holder may make an entry negative, and that is this thread.
        assert!(!entry.is_negative(), "held, and made negative");
        let again = cache.get(entry.id());
        assert!(again.is_some_and(|again| again == *entry), "held, and its id leads elsewhere");
        // A reference that is leaked and taken back is the same.
        let raw = entry.clone().into_raw();
        // SAFETY: leaked just now.
        let back = unsafe { DentryRef::from_raw(cache, raw) };
        assert!(
            back == *entry && back.cache().is_linked(back.id()) == back.is_linked() || !back.is_reachable()
        );
    }

    fn examine_held(&mut self) {
        let (entry, dir) = self.held();
        self.examine(&entry);
        let low = self.world.now();
        let is_reachable = entry.is_reachable();
        let high = self.world.now();
        if is_reachable && !View::new(low, high).is_placed(&dir) {
            self.fail(&self.at(low, high), &dir, "an entry is reachable, and its directory had no place");
        }
        for (id, ino) in &self.ids {
            let kept = self.world.cache.get(*id);
            assert!(kept.is_none_or(|kept| kept.handle().ino() == *ino), "another inode under an id");
        }
        if self.one_in(4) && !self.pocket.is_empty() {
            self.pocket.swap_remove(self.random(self.pocket.len()));
        }
    }

    fn keep_house(&mut self) {
        let (cache, (entry, _)) = (&self.world.cache, self.held());
        match self.random(4) {
            0 => drop(cache.prune(self.random(16))),
            1 if self.one_in(4) => drop(cache.prune_subtree(&entry)),
            2 if self.one_in(8) => cache.shrink_to(self.random(self.world.budget)),
            _ => {
                let stats = cache.stats();
                // Each reference pins its ancestors; names of 255 bytes are outside of the entries.
                let held = self.world.threads() * 24 * 12 * 512;
                assert!(stats.memory.used <= self.world.budget + held, "{stats:?}");
            }
        }
    }
}
