//! Checking a file system, as e2fsck does, without writing.
//!
//! | pass | file | what |
//! |---|---|---|
//! | 0 | this one | superblock, group descriptors, journal, resize inode, orphan file |
//! | 1 | `inodes` | inodes, block maps, attributes; which blocks are in use, by how many |
//! | 2 | `directories` | entries, indexes |
//! | 3, 4 | `links` | whether every directory leads to the root; link counts |
//! | 5 | `bitmaps` | bitmaps and free counts |
//!
//! # Data
//! Passes run one behind the other; within one, threads take groups or directories from a counter.
//! Two facts outlive pass 1, both by group and allocated when a group has something in use: a bit
//! for each cluster (`claims`), and for each inode its kind, its links and how many were counted
//! (`records`). Nothing is written twice but atomics, which no other memory depends on.
//!
//! # Bounds
//! Memory: a bit a cluster, five bytes an inode, eight a directory. Work: each block is read once
//! as what it is; shared blocks and damaged directories are reported up to a limit.

mod bitmaps;
mod claims;
mod classify;
mod code;
mod directories;
mod finding;
mod index;
mod inodes;
mod links;
mod records;
mod start;
mod xattrs;

pub use code::{Code, Repair};
pub use finding::{Defect, Finding};

use crate::alloc::SystemBlocks;
use crate::{Error, Ext4, Options, Place, Result};
use claims::Claims;
use dentree_blockdev::BlockDevice;
use dentree_ext4_format::{GroupDesc, GroupNumber, InodeNumber, Problem};
use dentree_sync::Mutex;
use records::Records;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use xattrs::Shares;

/// Most groups that are checked: 256 TiB with blocks of 4 KiB.
const MOST_GROUPS: u32 = 1 << 21;

/// What to check.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Scope {
    /// Everything.
    #[default]
    All,
    /// Superblock, descriptors, bitmaps, and the checksums of inodes: no block maps, no
    /// directories.
    Quick,
    /// Superblock, descriptors, these inodes, and the entries of those that are directories. What
    /// needs all inodes is left out: link counts, connections, bitmaps.
    Inodes(Vec<InodeNumber>),
}

/// How to check.
pub struct CheckOptions<'a> {
    /// What to check.
    pub scope: Scope,
    /// Threads that read and compare.
    pub threads: usize,
    /// Receives what is wrong, in any order within a pass.
    pub found: &'a (dyn Fn(Finding) + Sync),
    /// Receives the number of inodes that were read since the last call; `false` ends the check.
    pub progress: &'a (dyn Fn(u64) -> bool + Sync),
}

/// What the passes share.
struct Check<'a> {
    fs: &'a Ext4,
    options: &'a CheckOptions<'a>,
    /// `None`: damaged.
    descs: Vec<Option<GroupDesc>>,
    /// `None`: two of them overlap.
    system: Option<SystemBlocks>,
    claims: Claims,
    records: Records,
    shares: Shares,
    /// Inodes that are in use although they may have no links.
    orphans: HashSet<u32>,
    /// In order, from pass 2 on.
    directories: Mutex<Vec<u32>>,
    is_stopped: AtomicBool,
}

impl Ext4 {
    /// Opens a file system to check it: without replaying its journal, where that is damaged, which
    /// goes to `found`.
    ///
    /// # Errors
    /// The superblock and its backups are damaged, or have features that are not supported.
    pub fn open_to_check(
        device: Arc<dyn BlockDevice>,
        cache_bytes: usize,
        found: &dyn Fn(Finding),
    ) -> Result<Ext4> {
        let options = Options { cache_bytes, ..Options::default() };
        match Ext4::open(device.clone(), options.clone()) {
            Err(error @ (Error::Journal(dentree_jbd2::Error::Corrupt { .. }) | Error::Corrupt { .. })) => {
                let without = Options { replay_journal: false, ..options };
                let Ok(fs) = Ext4::open(device, without) else { return Err(error) };
                found(classify::finding(0, error, fs.superblock_at));
                Ok(fs)
            }
            opened => opened,
        }
    }

    /// Checks what e2fsck checks with `-fn`, and reports what is wrong. The file system is opened
    /// for reading. Returns whether the check ran to its end.
    ///
    /// # Errors
    /// `Unsupported` for a file system that is too large, or open for writing.
    pub fn check(&self, options: &CheckOptions<'_>) -> Result<bool> {
        if self.writer.is_some() {
            return Err(Error::Unsupported("checking while it is open for writing".to_owned()));
        }
        if self.sb.groups > MOST_GROUPS {
            let groups = self.sb.groups;
            return Err(Error::Unsupported(format!("checking {groups} groups (at most {MOST_GROUPS})")));
        }
        let mut check = Check {
            fs: self,
            options,
            descs: Vec::new(),
            system: None,
            claims: Claims::new(&self.sb),
            records: Records::new(&self.sb),
            shares: Shares::default(),
            orphans: HashSet::new(),
            directories: Mutex::default(),
            is_stopped: AtomicBool::new(false),
        };
        check.start();
        match &options.scope {
            Scope::All => {
                check.inodes();
                let parents = check.directories();
                check.links(parents);
                check.bitmaps();
            }
            Scope::Quick => {
                check.inode_sums();
                check.stored_bitmaps();
            }
            Scope::Inodes(inodes) => {
                check.some_inodes(inodes);
                check.directories();
            }
        }
        Ok(!check.is_stopped.load(Relaxed))
    }
}

impl Check<'_> {
    fn found(&self, code: Code, place: Place, defect: Defect) {
        (self.options.found)(Finding { code, place, defect });
    }

    /// Reports a failed check.
    fn damaged(&self, code: Code, place: Place, problem: Problem) {
        self.found(code, place, Defect::Damaged(problem));
    }

    /// Reports an error of reading a structure in a pass.
    fn error(&self, pass: u8, error: Error) {
        (self.options.found)(classify::finding(pass, error, self.fs.superblock_at));
    }

    fn value(&self, code: Code, place: Place, field: &'static str, value: u64, because: &'static str) {
        self.damaged(code, place, Problem::Value { field, value, because });
    }

    /// Reports a count that differs from what was counted.
    fn count(&self, code: Code, place: Place, what: &'static str, stored: u64, counted: u64) {
        if stored != counted {
            self.found(code, place, Defect::Count { what, stored, counted });
        }
    }

    /// Tells of inodes that were read. Returns whether to go on.
    fn step(&self, inodes: u64) -> bool {
        if !(self.options.progress)(inodes) {
            self.is_stopped.store(true, Relaxed);
        }
        !self.is_stopped.load(Relaxed)
    }

    /// Runs `work` for the numbers below `count` on all threads. Each thread has a state, which is
    /// returned.
    fn in_parallel<S: Default + Send>(&self, count: usize, work: impl Fn(usize, &mut S) + Sync) -> Vec<S> {
        let next = AtomicUsize::new(0);
        let run = || {
            let mut state = S::default();
            loop {
                let number = next.fetch_add(1, Relaxed);
                if number >= count || !self.step(0) {
                    return state;
                }
                work(number, &mut state);
            }
        };
        let threads = self.options.threads.clamp(1, count.max(1));
        if threads == 1 {
            return vec![run()];
        }
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
        })
    }

    fn groups(&self) -> usize {
        usize::try_from(self.fs.sb.groups).unwrap_or(0)
    }

    fn group(&self, index: usize) -> (GroupNumber, Option<&GroupDesc>) {
        let number = GroupNumber(u32::try_from(index).unwrap_or(u32::MAX));
        (number, self.descs.get(index).and_then(Option::as_ref))
    }

    /// Inodes that the file system keeps for itself: no directory names them.
    fn is_reserved(&self, ino: InodeNumber) -> bool {
        let sb = &self.fs.sb;
        ino.0 < sb.first_ino && ino != InodeNumber::ROOT
            || sb.orphan_file_inum == ino.0
            || sb.quota_inums.contains(&ino.0)
    }
}
