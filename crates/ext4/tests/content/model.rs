//! Random operations by several threads have the same results as in memory, for e2fsck and the
//! kernel too. Threads have their own names, so the result does not depend on the schedule.

use crate::common::ops::{OpMix, Runner, contents, differences, reference, tree};
use crate::common::writing::{Dice, OURS, new_image, open};
use crate::common::{Image, fsck};
use dentree_vfs::{FileSystem, Identity, NewKind, Vfs};
use std::sync::Barrier;

/// mke2fs options, size.
const KINDS: [(&str, &str); 10] = [
    ("-t ext4", "48M"),
    ("-t ext4 -O metadata_csum_seed,orphan_file", "48M"),
    ("-t ext2", "48M"),
    ("-t ext3", "48M"),
    ("-t ext4 -b 1024", "48M"),
    ("-t ext4 -b 2048 -O inline_data -I 256", "48M"),
    ("-t ext4 -O ^has_journal", "48M"),
    ("-t ext4 -b 1024 -O large_dir", "48M"),
    ("-t ext3 -b 1024 -O ^dir_index", "48M"),
    (OURS, "48M"),
];

const THREADS: usize = 4;

const SHARED: [&str; 2] = ["shared", "shared/below"];

fn make_shared<F: FileSystem>(vfs: &Vfs<F>) {
    for path in SHARED {
        let at = vfs.walk_parent(&Identity::Superuser, vfs.root(), path.as_bytes()).unwrap();
        vfs.create(&Identity::Superuser, &at.dir, at.name, NewKind::Directory, 0o777).unwrap();
    }
}

fn change<F: FileSystem, G: FileSystem>(
    ours: &Vfs<F>,
    model: &Vfs<G>,
    mix: &[OpMix],
    dice: &mut Dice,
    steps: usize,
) {
    let (mut ours, mut model) = (Runner::new(ours), Runner::new(model));
    for step in 0..steps {
        let op = mix[dice.roll(mix.len())].op(dice);
        let (result, must) = (ours.apply(&op), model.apply(&op));
        assert_eq!(result, must, "step {step}: {op:?}");
    }
}

fn agree<F: FileSystem, G: FileSystem>(ours: &Vfs<F>, model: &Vfs<G>, what: &str) {
    let differences = differences(&tree(ours), &tree(model));
    assert!(differences.is_empty(), "{what}: {differences}");
    let (ours, model) = (contents(ours), contents(model));
    assert_eq!(ours.keys().collect::<Vec<_>>(), model.keys().collect::<Vec<_>>());
    for (path, content) in &ours {
        assert!(*content == model[path], "{what}: the content of {path} differs");
    }
}

fn counts_agree(image: &Image, what: &str) {
    fsck::is_clean(&image.path()).unwrap_or_else(|text| panic!("{what}: {text}"));
    let [superblock, groups] = fsck::free_counts(&image.path());
    assert_eq!(superblock, groups, "{what}: free blocks and inodes");
}

fn run(options: &str, size: &str, seed: u64, steps: usize) {
    let what = format!("{options}, seed {seed}");
    let image = new_image(options, size);
    let (ours, model) = (Vfs::new(open(&image)).unwrap(), reference());
    make_shared(&ours);
    make_shared(&model);
    // Only extents support allocation ahead of content.
    let allocates = options.contains("ext4") || options == OURS;
    let barrier = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (ours, model, barrier) = (&ours, &model, &barrier);
            scope.spawn(move || {
                let tops = [
                    format!("own {thread} "),
                    format!("shared/{thread} "),
                    format!("shared/below/{thread} "),
                ];
                let mix = tops.map(|top| OpMix { top, allocates, durable_one_of: 40 });
                let mut dice = Dice(0x9E37_79B9 * (seed * 100 + thread as u64 + 1));
                barrier.wait();
                change(ours, model, &mix, &mut dice, steps);
            });
        }
    });
    agree(&ours, &model, &what);
    ours.sync().unwrap();
    let free = ours.statfs().unwrap();
    ours.into_fs().expect("no inode is in use").close().unwrap();
    counts_agree(&image, &what);
    assert_eq!(free.blocks_free, fsck::free_counts(&image.path())[0].0, "{what}: statfs");
    let afresh = Vfs::new(image.open()).unwrap();
    agree(&afresh, &model, &format!("{what}, opened again"));
    kernel_goes_on(&image, &what);
}

/// The kernel reads and changes the tree; then this crate reads the result.
fn kernel_goes_on(image: &Image, what: &str) {
    image.agrees_with_the_kernel();
    let changed = image.change("", |mount| {
        let dir = mount.join("by the kernel");
        std::fs::create_dir(&dir).unwrap();
        for n in 0..50 {
            std::fs::write(dir.join(format!("file {n}")), vec![n; 100 * usize::from(n)]).unwrap();
        }
        for entry in std::fs::read_dir(mount.join("shared")).unwrap() {
            let path = entry.unwrap().path();
            if path.symlink_metadata().unwrap().is_file() {
                std::fs::rename(&path, dir.join(path.file_name().unwrap())).unwrap();
            }
        }
    });
    if changed.is_some() {
        counts_agree(image, what);
        image.agrees_with_the_kernel();
    }
}

#[test]
fn threads_leave_the_same_tree_as_in_memory() {
    for (options, size) in KINDS {
        for seed in 1..=2 {
            run(options, size, seed, 300);
        }
    }
}
