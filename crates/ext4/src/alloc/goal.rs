//! How far from a directory's group a thread takes inodes for its files.
//!
//! Threads that fill one directory would take turns at its group: its lock, its bitmap, the inode table's block that is being filled. So who
//! finds the group locked steps on to the next one whose table lies with it, and stays there for some files: then each thread fills blocks
//! of its own, in ascending order. One thread alone never meets a lock, and has all files beside their directory.
//!
//! Nothing is reserved: what one thread leaves free any other may take, to the last inode.

use dentree_ext4_format::InodeNumber;
use std::cell::Cell;

/// So many files are made there before the directory's own group is tried again.
const STAY: u32 = 1024;

#[derive(Clone, Copy)]
struct Aside {
    dir: InodeNumber,
    /// So many groups are passed over.
    past: u32,
    /// For so many files yet.
    files: u32,
}

thread_local! {
    /// A hint: of another file system's directory of that number it is as good as any.
    static ASIDE: Cell<Aside> = const { Cell::new(Aside { dir: InodeNumber(0), past: 0, files: 0 }) };
}

/// How many groups this thread passes over for its next file of a directory.
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

/// Another thread has the group: this one goes to the next.
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
