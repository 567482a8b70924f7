//! Per-thread goal groups for new files.
//!
//! Threads that create files in one directory would contend for its group's lock, bitmap and inode
//! table. A thread that finds the group locked uses the flex group's next for [`STAY`] files.

use dentree_ext4_format::InodeNumber;
use std::cell::Cell;

const STAY: u32 = 1024;

#[derive(Clone, Copy)]
struct Goal {
    dir: InodeNumber,
    skip: u32,
    files: u32,
}

thread_local! {
    /// A hint: the directory may be of another file system.
    static GOAL: Cell<Goal> = const { Cell::new(Goal { dir: InodeNumber(0), skip: 0, files: 0 }) };
}

pub(super) fn groups_to_skip(dir: InodeNumber) -> u32 {
    let goal = GOAL.get();
    if goal.dir != dir {
        return 0;
    }
    match goal.files.checked_sub(1) {
        Some(files) => {
            GOAL.set(Goal { files, ..goal });
            goal.skip
        }
        None => 0,
    }
}

pub(super) fn skip_group(dir: InodeNumber) {
    let goal = GOAL.get();
    let skip = if goal.dir == dir && goal.files > 0 { goal.skip } else { 0 };
    GOAL.set(Goal { dir, skip: skip + 1, files: STAY });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_group_lasts_for_some_files() {
        let (dir, other) = (InodeNumber(12), InodeNumber(13));
        assert_eq!(groups_to_skip(dir), 0);
        skip_group(dir);
        skip_group(dir);
        assert_eq!((groups_to_skip(dir), groups_to_skip(other)), (2, 0));
        for _ in 1..STAY {
            assert_eq!(groups_to_skip(dir), 2);
        }
        assert_eq!(groups_to_skip(dir), 0, "it has been there long enough");
        skip_group(dir);
        assert_eq!(groups_to_skip(dir), 1, "from the directory's own group on");
        skip_group(other);
        assert_eq!((groups_to_skip(dir), groups_to_skip(other)), (0, 1), "one directory at a time");
    }
}
