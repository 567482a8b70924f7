//! The benchmark of whole tasks with an image against the tools people use for them: fuse2fs with
//! find, tar and cp, debugfs, e2tools and mke2fs; the kernel's mount, which needs root, beside
//! them.
//!
//! Times include mount and unmount (see `shell_race`). fuse2fs is waited for
//! after its unmount, as its image is complete only then.

use std::fs::{create_dir_all, write};
use std::io;
use std::path::Path;

use tempfile::TempDir;

use crate::leftovers::folder;
use crate::outcome::{OURS, Outcome};
use crate::shell_race::{KERNEL, Race, Shell, Task};
use crate::unavailable::Unavailable;

/// Of the time of a tool people use, ours is to be at most this.
const TARGET: f64 = 0.5;
/// No page of the large image is in memory afterwards; the programs are.
const EVICT_HUGE: &str = r#"sync; dd if="$HUGE" iflag=nocache count=0 status=none"#;

/// Functions that the lines use.
const PRELUDE: &str = r#"
set -e
with_fuse2fs() {
    fuse2fs -f "$@" "$MNT" >/dev/null 2>&1 &
    until mountpoint -q "$MNT"; do kill -0 $!; sleep 0.005; done
}
without_fuse2fs() { fusermount3 -u "$MNT"; wait; }
with_kernel() { mount -o loop "$@" "$MNT"; }
without_kernel() { umount "$MNT"; }
"#;

const TASKS: [Task<'_>; 8] = [
    Task {
        name: "find-name",
        prepare: "",
        lines: &[
            (OURS, r#""$DENTREE" find "$IMAGE:/" -name '*77*' > "$OUT/list""#),
            (
                "fuse2fs",
                r#"with_fuse2fs -o ro "$IMAGE"; find "$MNT" -name '*77*' > "$OUT/list"; without_fuse2fs"#,
            ),
            (KERNEL, r#"with_kernel -o ro "$IMAGE"; find "$MNT" -name '*77*' > "$OUT/list"; without_kernel"#),
        ],
        check: r#"wc -l < "$OUT/list""#,
    },
    Task {
        name: "find-size",
        prepare: "",
        lines: &[
            (OURS, r#""$DENTREE" find "$IMAGE:/" -type f -size +4k > "$OUT/list""#),
            (
                "fuse2fs",
                r#"with_fuse2fs -o ro "$IMAGE"; find "$MNT" -type f -size +4k > "$OUT/list"; without_fuse2fs"#,
            ),
            (
                KERNEL,
                r#"with_kernel -o ro "$IMAGE"; find "$MNT" -type f -size +4k > "$OUT/list"; without_kernel"#,
            ),
        ],
        check: r#"wc -l < "$OUT/list""#,
    },
    Task {
        name: "tar",
        prepare: "",
        lines: &[
            (OURS, r#""$DENTREE" tar c "$IMAGE:/" > "$OUT/tar""#),
            ("fuse2fs", r#"with_fuse2fs -o ro "$IMAGE"; tar -C "$MNT" -cf "$OUT/tar" .; without_fuse2fs"#),
            (KERNEL, r#"with_kernel -o ro "$IMAGE"; tar -C "$MNT" -cf "$OUT/tar" .; without_kernel"#),
        ],
        check: r#"mkdir "$OUT/x"; tar -C "$OUT/x" -xf "$OUT/tar"
            find "$OUT/x" -type f | wc -l; cat "$OUT/x/small/d0"/* "$OUT/x/large" | cksum"#,
    },
    Task {
        name: "copy-out",
        prepare: "",
        lines: &[
            (OURS, r#""$DENTREE" cp -a "$IMAGE:/small" "$IMAGE:/large" "$OUT""#),
            ("debugfs", r#"debugfs -R "rdump /small /large $OUT" "$IMAGE" >/dev/null 2>&1"#),
            (
                "fuse2fs",
                r#"with_fuse2fs -o ro "$IMAGE"; cp -a "$MNT/small" "$MNT/large" "$OUT"; without_fuse2fs"#,
            ),
            (KERNEL, r#"with_kernel -o ro "$IMAGE"; cp -a "$MNT/small" "$MNT/large" "$OUT"; without_kernel"#),
        ],
        check: r#"find "$OUT" -type f | wc -l; cat "$OUT/small/d0"/* "$OUT/large" | cksum"#,
    },
    Task {
        name: "copy-in",
        prepare: r#"rm -f "$NEW"; truncate -s 2G "$NEW"; mke2fs -q -F -t ext4 -N 65536 "$NEW""#,
        lines: &[
            (OURS, r#""$DENTREE" cp -a "$TREE/small" "$TREE/large" "$NEW:/""#),
            ("fuse2fs", r#"with_fuse2fs "$NEW"; cp -a "$TREE/small" "$TREE/large" "$MNT"; without_fuse2fs"#),
            (KERNEL, r#"with_kernel "$NEW"; cp -a "$TREE/small" "$TREE/large" "$MNT"; without_kernel"#),
        ],
        check: r#"e2fsck -fn "$NEW" >/dev/null 2>&1
            "$DENTREE" find "$NEW:/" -type f | wc -l; "$DENTREE" cat "$NEW:/large" | cksum"#,
    },
    Task {
        name: "mkfs-from",
        prepare: r#"rm -f "$NEW""#,
        lines: &[
            (OURS, r#""$DENTREE" mkfs -q --size 1G -N 131072 --from "$MANY" "$NEW""#),
            ("mke2fs", r#"mke2fs -q -F -t ext4 -N 131072 -d "$MANY" "$NEW" 1G"#),
        ],
        check: r#"e2fsck -fn "$NEW" >/dev/null 2>&1
            "$DENTREE" find "$NEW:/" -type f | wc -l; "$DENTREE" cat "$NEW:/d0/77" | cksum"#,
    },
    Task {
        name: "list-one-cold",
        prepare: EVICT_HUGE,
        lines: &[
            (OURS, r#""$DENTREE" ls -l "$HUGE:/small/d3/33" > "$OUT/list""#),
            ("e2tools", r#"e2ls -l "$HUGE:/small/d3/33" > "$OUT/list""#),
            ("debugfs", r#"debugfs -R "ls -l /small/d3" "$HUGE" > "$OUT/list" 2>/dev/null"#),
            (
                "fuse2fs",
                r#"with_fuse2fs -o ro "$HUGE"; ls -l "$MNT/small/d3/33" > "$OUT/list"; without_fuse2fs"#,
            ),
            (KERNEL, r#"with_kernel -o ro "$HUGE"; ls -l "$MNT/small/d3/33" > "$OUT/list"; without_kernel"#),
        ],
        check: r#"grep -c '33$' "$OUT/list" | sed 's/[1-9][0-9]*/found/'"#,
    },
    Task {
        name: "copy-one-cold",
        prepare: EVICT_HUGE,
        lines: &[
            (OURS, r#""$DENTREE" cp "$HUGE:/small/d3/33" "$OUT/file""#),
            ("e2tools", r#"e2cp "$HUGE:/small/d3/33" "$OUT/file""#),
            ("debugfs", r#"debugfs -R "dump /small/d3/33 $OUT/file" "$HUGE" 2>/dev/null"#),
            ("fuse2fs", r#"with_fuse2fs -o ro "$HUGE"; cp "$MNT/small/d3/33" "$OUT/file"; without_fuse2fs"#),
            (KERNEL, r#"with_kernel -o ro "$HUGE"; cp "$MNT/small/d3/33" "$OUT/file"; without_kernel"#),
        ],
        check: r#"cksum < "$OUT/file""#,
    },
];

/// The size of the work.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Directories of a hundred small files in the tree that is copied.
    pub small: usize,
    /// Bytes of its large file.
    pub large: usize,
    /// Directories of a hundred small files in the tree that a file system is made from.
    pub many: usize,
    /// Runs of each variant.
    pub rounds: usize,
}

/// 40,000 small files and one of 700 MB; 100,000 small files.
pub const FULL: Size = Size { small: 400, large: 700_000_000, many: 1000, rounds: 3 };
/// For tests.
pub const TINY: Size = Size { small: 4, large: 1_000_000, many: 5, rounds: 2 };

/// Runs the benchmark with the given `dentree` program.
///
/// # Errors
/// Needs root, loop devices, FUSE and e2fsprogs. A missing tool is reported and left out.
///
/// # Panics
/// If a variant does something else than the others.
pub fn run(dentree: &Path, size: Size, progress: &dyn Fn(&str)) -> Result<Outcome, Unavailable> {
    progress("making trees and images");
    let bench = Bench::new(dentree, size)?;
    let mut outcome = Outcome::default();
    for task in &TASKS {
        let race = Race { case: task.name, rounds: size.rounds, target: TARGET, progress };
        bench.shell.race(task, &race, &mut outcome)?;
    }
    Ok(outcome)
}

struct Bench {
    shell: Shell,
    folder: TempDir,
}

impl Bench {
    fn new(dentree: &Path, size: Size) -> Result<Self, Unavailable> {
        let folder = folder()?;
        let at = |name: &str| folder.path().join(name);
        let places = [
            ("TREE", "tree"),
            ("MANY", "many"),
            ("IMAGE", "image"),
            ("HUGE", "huge"),
            ("NEW", "new"),
            ("OUT", "out"),
            ("MNT", "mount"),
        ];
        let mut variables: Vec<_> = places.iter().map(|&(name, file)| (name, at(file).into())).collect();
        variables.push(("DENTREE", dentree.into()));
        let bench = Self { shell: Shell { prelude: PRELUDE, variables }, folder };
        bench.fill(size).map_err(|why| Unavailable::because("cannot make the trees", why))?;
        bench
            .shell
            .run(r#"for disk in "$IMAGE 2G" "$HUGE 10G"; do mke2fs -q -F -t ext4 -d "$TREE" $disk; done"#)?;
        Ok(bench)
    }

    fn fill(&self, size: Size) -> io::Result<()> {
        let at = |name: &str| self.folder.path().join(name);
        small_files(&at("tree/small"), size.small)?;
        write(at("tree/large"), content(size.large))?;
        small_files(&at("many"), size.many)?;
        ["out", "mount"].into_iter().try_for_each(|name| create_dir_all(at(name)))
    }
}

/// Directories `d0`, `d1`, … of a hundred files of up to 8 KiB, some empty.
pub(crate) fn small_files(at: &Path, directories: usize) -> io::Result<()> {
    for directory in 0..directories {
        let at = at.join(format!("d{directory}"));
        create_dir_all(&at)?;
        (0..100).try_for_each(|file| write(at.join(file.to_string()), content(file * 83 % 8192)))?;
    }
    Ok(())
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}
