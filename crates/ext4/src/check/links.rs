//! Passes 3 and 4: whether every directory leads to the root, and link counts.

use super::directories::Parents;
use super::records::Kind;
use super::{Check, Code, Defect};
use crate::Structure;
use dentree_ext4_format::{Inode, InodeNumber, Problem, RoCompat};
use dentree_vfs::FileType;

/// Links of a directory from which on, with dir_nlink, 1 is stored.
const LINK_MAX: u16 = 65_000;

impl Check<'_> {
    pub(super) fn links(&self, mut parents: Parents) {
        self.connections(&mut parents);
        self.in_parallel(self.groups(), |group, ()| {
            for (ino, _) in self.records.of_group(group) {
                self.link_count(ino);
            }
        });
    }

    fn connections(&self, Parents { named_in, dotdots }: &mut Parents) {
        named_in.sort_unstable();
        dotdots.sort_unstable();
        let unconnected = |code, ino: u32, because| {
            self.found(code, Structure::Inode.of(InodeNumber(ino)), Defect::Unconnected { because });
        };
        for pair in named_in.windows(2) {
            if let [(one, _), (other, _)] = pair
                && one == other
            {
                unconnected(Code::PR_2_LINK_DIR, *one, "is a directory with more than one name");
            }
        }
        if self.records.get(InodeNumber::ROOT).is_none() {
            unconnected(Code::PR_3_NO_ROOT_INODE, InodeNumber::ROOT.0, "is not in use, and it is the root");
        }
        let dirs = self.directories.lock();
        let of = |list: &[(u32, u32)], ino: u32| {
            list.binary_search_by_key(&ino, |(child, _)| *child)
                .ok()
                .and_then(|at| list.get(at))
                .map(|pair| pair.1)
        };
        for &ino in dirs.iter() {
            let parent = if ino == InodeNumber::ROOT.0 { Some(ino) } else { of(named_in, ino) };
            let Some(parent) = parent else {
                unconnected(Code::PR_3_UNCONNECTED_DIR, ino, "is a directory that no directory names");
                if of(dotdots, ino).is_some_and(|dotdot| dotdot != 0) {
                    let because = "must lead to lost+found, where e2fsck names the directory";
                    let place = Structure::DirectoryEntry.of(InodeNumber(ino));
                    self.value(Code::PR_3_BAD_DOT_DOT, place, "`..`", 0, because);
                }
                continue;
            };
            // 0 for one that lacks the entry.
            let dotdot = of(dotdots, ino).unwrap_or(0);
            if dotdot != parent {
                let (value, right) = (u64::from(dotdot), u64::from(parent));
                let problem = Problem::Range { field: "`..`", value, min: right, max: right };
                let place = Structure::DirectoryEntry.of(InodeNumber(ino));
                self.damaged(Code::PR_3_BAD_DOT_DOT, place, problem);
            }
        }
        self.loops(&dirs, |ino| of(named_in, ino));
    }

    /// Reports directories from which no way leads up to the root or to one without a parent.
    fn loops(&self, dirs: &[u32], parent: impl Fn(u32) -> Option<u32>) {
        let mut states = vec![State::New; dirs.len()];
        let place = |ino: u32| dirs.binary_search(&ino).ok();
        for start in 0..dirs.len() {
            let (mut way, mut at) = (Vec::new(), Some(start));
            while let Some(index) = at.filter(|&index| states[index] == State::New) {
                states[index] = State::OnWay;
                way.push(index);
                let ino = dirs[index];
                at = if ino == InodeNumber::ROOT.0 { None } else { parent(ino).and_then(place) };
            }
            let is_loop = at.is_some_and(|index| states[index] == State::OnWay);
            if is_loop && let Some(&first) = way.last() {
                let ino = InodeNumber(dirs[first]);
                let because = "is a directory in a loop, to which nothing leads from the root";
                let place = Structure::Inode.of(ino);
                self.found(Code::PR_3_LOOPED_DIR, place, Defect::Unconnected { because });
            }
            way.into_iter().for_each(|index| states[index] = State::Done);
        }
    }

    /// Whether a file or directory has no blocks: e2fsck offers to free it.
    fn is_empty(&self, ino: InodeNumber, kind: Kind) -> bool {
        let may_have = matches!(kind, Kind::Of(FileType::Regular | FileType::Directory));
        let blocks =
            self.inode_bytes(ino).ok().and_then(|(bytes, _)| Inode::head(&bytes)).map(|head| head.blocks);
        may_have && blocks == Some(0)
    }

    fn link_count(&self, ino: InodeNumber) {
        let Some(record) = self.records.get(ino) else { return };
        if self.is_reserved(ino) || record.kind == Kind::Value {
            return;
        }
        let place = Structure::Inode.of(ino);
        if record.counted == 0 {
            if !self.orphans.contains(&ino.0) {
                if self.is_empty(ino, record.kind) {
                    let because = "is empty, and no directory names it";
                    self.found(Code::PR_4_ZERO_LEN_INODE, place, Defect::Unconnected { because });
                }
                let because = "is in use, and no directory names it";
                self.found(Code::PR_4_UNATTACHED_INODE, place, Defect::Unconnected { because });
                self.count(Code::PR_4_BAD_REF_COUNT, place, "links", u64::from(record.links), 0);
            }
            return;
        }
        let is_dir = record.kind == Kind::Of(FileType::Directory);
        let has_many = is_dir && record.counted > LINK_MAX && self.fs.sb.ro_compat.has(RoCompat::DIR_NLINK);
        let stored = if has_many && record.links == 1 { record.counted } else { record.links };
        self.count(Code::PR_4_BAD_REF_COUNT, place, "links", u64::from(stored), u64::from(record.counted));
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    New,
    OnWay,
    Done,
}
