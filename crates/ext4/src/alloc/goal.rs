//! Per-thread goal groups for new files.
//!
//! Threads that create files in one directory would contend for its group: the lock, the bitmap,
//! and the inode table block being filled. A thread that finds the group locked moves to the next
//! group of the flex group for [`STAY`] files, so each thread fills blocks of its own in ascending
//! order. A single thread never meets a lock and stays in the directory's group.
//!
//! Nothing is reserved: any thread may allocate the last inode of any group.

use dentree_ext4_format::InodeNumber;
use std::cell::Cell;

/// Files created there before the directory's own group is tried again.
const STAY: u32 = 1024;

#[derive(Clone, Copy)]
struct Aside {
    dir: InodeNumber,
    /// Groups to skip.
    past: u32,
    /// Files left before the goal expires.
    files: u32,
}

thread_local! {
    /// A hint; a directory of another file system with the same number may use it too.
    static ASIDE: Cell<Aside> = const { Cell::new(Aside { dir: InodeNumber(0), past: 0, files: 0 }) };
}

/// How many groups this thread skips for its next file in a directory.
pub(super) fn groups_past(dir: InodeNumber) -> u32 {
    let aside = ASIDE.get();
    if aside.dir != dir {
        return 0;
    }
    match aside.files.checked_sub(1) {
        Some(files) => {
            ASIDE.set(Aside { files, ..aside });
            aside.past
        }
        None => 0,
    }
}

/// Moves this thread's goal to the next group, as another thread holds the current one.
pub(super) fn step(dir: InodeNumber) {
    let aside = ASIDE.get();
    let past = if aside.dir == dir && aside.files > 0 { aside.past } else { 0 };
    ASIDE.set(Aside { dir, past: past + 1, files: STAY });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_steps_aside_stays_for_some_files_and_comes_back() {
        let (dir, other) = (InodeNumber(12), InodeNumber(13));
        assert_eq!(groups_past(dir), 0);
        step(dir);
        step(dir);
        assert_eq!((groups_past(dir), groups_past(other)), (2, 0));
        for _ in 1..STAY {
            assert_eq!(groups_past(dir), 2);
        }
        assert_eq!(groups_past(dir), 0, "it has been there long enough");
        step(dir);
        assert_eq!(groups_past(dir), 1, "from the directory's own group on");
        step(other);
        assert_eq!((groups_past(dir), groups_past(other)), (0, 1), "one directory at a time");
    }
}
