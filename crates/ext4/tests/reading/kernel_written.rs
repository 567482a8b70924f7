//! Contents written by the kernel, and read by both sides.

use crate::common::{Image, find, list, run};
use dentree_vfs::FileSystem;
use rustix::fs::{CWD, FallocateFlags, FileType, Mode, Timespec, Timestamps, XattrFlags};
use std::fs;
use std::path::Path;
use std::process::Command;

fn set_xattr(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::lsetxattr(path, name, value, XattrFlags::empty()).unwrap_or_else(|e| panic!("{name}: {e}"));
}

/// Sets attributes of every namespace, in the inode, the block and (with the feature) other inodes.
fn attributes(tree: &Path, largest: usize) {
    let acl = [
        &2_u32.to_le_bytes()[..],
        &[1, 0, 6, 0, 255, 255, 255, 255],
        &[2, 0, 4, 0, 0xE8, 3, 0, 0],
        &[4, 0, 4, 0, 255, 255, 255, 255],
        &[8, 0, 5, 0, 0xE9, 3, 0, 0],
        &[16, 0, 7, 0, 255, 255, 255, 255],
        &[32, 0, 0, 0, 255, 255, 255, 255],
    ]
    .concat();
    for n in 0..40 {
        let path = tree.join(format!("attributes {n}"));
        fs::write(&path, "x").unwrap();
        set_xattr(&path, "user.shared by all", &[7; 150]);
        if n % 2 == 0 {
            set_xattr(&path, "trusted.t", b"");
            set_xattr(&path, "security.label", &vec![b's'; n * 8]);
        }
        if n % 3 == 0 {
            set_xattr(&path, "system.posix_acl_access", &acl);
        }
        if n % 5 == 0 {
            set_xattr(&path, "user.large", &vec![b'0' + u8::try_from(n).unwrap(); largest]);
        }
    }
    let dir = tree.join("dir with default acl");
    fs::create_dir(&dir).unwrap();
    set_xattr(&dir, "system.posix_acl_default", &acl);
    fs::write(dir.join("heir"), "").unwrap();
    std::os::unix::fs::symlink("nowhere", tree.join("link")).unwrap();
    set_xattr(&tree.join("link"), "trusted.on a link", b"value");
    set_xattr(&tree.join("link"), "security.big on a link", &[b'v'; 300]);
}

/// Devices in both encodings, times beyond 32 bits, unwritten extents, holes.
fn oddities(tree: &Path) {
    let mode = Mode::from_raw_mode(0o4751);
    for (name, kind, major, minor) in [
        ("old character device", FileType::CharacterDevice, 5, 1),
        ("new block device", FileType::BlockDevice, 1000, 70_000),
        ("fifo", FileType::Fifo, 0, 0),
        ("socket", FileType::Socket, 0, 0),
    ] {
        rustix::fs::mknodat(CWD, tree.join(name), kind, mode, rustix::fs::makedev(major, minor)).unwrap();
    }
    for seconds in [-2_147_483_648, -1, 0, 2_147_483_648, 4_294_967_296, 15_032_385_535] {
        let path = tree.join(format!("time {seconds}"));
        fs::write(&path, "").unwrap();
        let time = Timespec { tv_sec: seconds, tv_nsec: 987_654_321 };
        let times = Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(CWD, &path, &times, rustix::fs::AtFlags::empty()).unwrap();
    }
    let path = tree.join("owned by many");
    fs::write(&path, "").unwrap();
    std::os::unix::fs::chown(&path, Some(3_000_000_000), Some(70_000)).unwrap();
    let unwritten = fs::File::create(tree.join("unwritten")).unwrap();
    rustix::fs::fallocate(&unwritten, FallocateFlags::empty(), 0, 10 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&unwritten, &[b'w'; 70_000], 3 << 20).unwrap();
    let punched = fs::File::create(tree.join("punched")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&punched, &[b'p'; 4 << 20], 0).unwrap();
    for n in 0..300 {
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&punched, punch, n * 12288, 4096).unwrap();
    }
}

fn check(options: &str, size: &str, change: impl FnOnce(&Path)) -> Image {
    let image = Image::new(options, size, |_| {});
    if image.change("", change).is_some() {
        image.agrees_with_the_kernel();
    }
    image
}

#[test]
fn attributes_in_inodes_and_blocks_equal_the_kernels() {
    check("-t ext4 -b 4096", "64M", |tree| attributes(tree, 2000));
    check("-t ext4 -I 128 -b 1024 -O ^metadata_csum", "64M", |tree| attributes(tree, 400));
}

#[test]
fn attribute_values_in_inodes_equal_the_kernels() {
    check("-t ext4 -b 4096 -O ea_inode", "64M", |tree| attributes(tree, 60_000));
    check("-t ext4 -O ea_inode,^metadata_csum", "64M", |tree| attributes(tree, 60_000));
}

#[test]
fn devices_times_and_unwritten_extents_equal_the_kernels() {
    check("-t ext4 -b 4096", "128M", oddities);
    check("-t ext4 -O ^extent,^64bit", "128M", |tree| {
        fs::write(tree.join("file"), vec![1; 9 << 20]).unwrap();
    });
}

#[test]
fn inline_files_and_directories_that_the_kernel_writes_are_read() {
    check("-t ext4 -I 512 -O inline_data", "64M", |tree| {
        for n in 0..200 {
            let dir = tree.join(format!("dir of {n}"));
            fs::create_dir(&dir).unwrap();
            for entry in 0..n / 8 {
                fs::write(dir.join(format!("e{entry}")), vec![b'i'; n * 2]).unwrap();
            }
            set_xattr(&dir, "user.beside the entries", b"value");
        }
    });
}

fn many_names(tree: &Path, count: usize) {
    fs::create_dir(tree.join("many")).unwrap();
    for n in 0..count {
        let target = tree.join(format!("target {}", n / 60_000));
        if n % 60_000 == 0 {
            fs::write(&target, "").unwrap();
        }
        fs::hard_link(&target, tree.join(format!("many/{n:0>30}"))).unwrap();
    }
}

#[test]
fn a_directory_of_200_000_entries_is_listed_and_looked_up_through_two_levels() {
    let image = check("-t ext4 -b 4096", "128M", |tree| many_names(tree, 200_000));
    assert_eq!(index_levels(&image), 1);
}

#[test]
fn a_directory_with_an_index_of_three_levels_is_listed_and_looked_up() {
    let image = check("-t ext4 -b 1024 -O large_dir", "128M", |tree| many_names(tree, 200_000));
    assert_eq!(index_levels(&image), 2);
}

fn index_levels(image: &Image) -> u32 {
    let dump = image.debugfs("htree_dump /many\n");
    let line = dump.lines().find(|line| line.contains("Indirect levels"));
    line.and_then(|line| line.rsplit(' ').next()).map_or(0, |levels| levels.parse().unwrap())
}

#[test]
fn names_whose_hashes_collide_across_leaves_are_found() {
    // Legacy hashes often collide, and leaves of 1 KiB hold four names of 200 bytes, so one hash
    // spans leaves.
    let image = Image::new("-t ext4 -b 1024", "64M", |_| {});
    run(Command::new("tune2fs").args(["-E", "hash_alg=legacy"]).arg(image.path()));
    let made = image.change("", |tree| {
        fs::create_dir(tree.join("many")).unwrap();
        for n in 0..3000 {
            fs::write(tree.join(format!("many/{}{n}", "x".repeat(200))), "").unwrap();
        }
    });
    if made.is_some() {
        image.agrees_with_the_kernel();
        let fs = image.open();
        let many = find(&fs, "many");
        assert!(fs.lookup(&many, b"absent").unwrap().is_none());
    }
}

#[test]
fn every_hash_and_both_signednesses_find_what_the_kernel_wrote() {
    for hash in ["legacy", "half_md4", "tea"] {
        for flags in [1, 2] {
            let image = Image::new("-t ext4 -b 1024", "32M", |_| {});
            run(Command::new("tune2fs").args(["-E", &format!("hash_alg={hash}")]).arg(image.path()));
            image.debugfs(&format!("set_super_value flags {flags}\n"));
            let changed = image.change("", |tree| {
                fs::create_dir(tree.join("names")).unwrap();
                for n in 0..1000 {
                    fs::write(tree.join(format!("names/größe und straße {n}")), "").unwrap();
                }
            });
            if changed.is_some() {
                image.agrees_with_the_kernel();
            }
        }
    }
}

#[test]
fn free_space_equals_the_kernels() {
    for options in [
        "-t ext4 -b 4096",
        "-t ext2 -b 1024",
        "-t ext4 -b 1024 -O meta_bg,^resize_inode",
        "-t ext4 -b 4096 -O bigalloc -C 65536",
    ] {
        let image = Image::new(options, "300M", |tree| fs::write(tree.join("file"), [1; 5000]).unwrap());
        let Some(mount) = image.mount() else { return };
        let theirs = rustix::fs::statvfs(mount.path()).unwrap();
        let ours = image.open().statfs().unwrap();
        assert_eq!(u64::from(ours.block_size), theirs.f_bsize);
        assert_eq!(
            [ours.blocks, ours.blocks_free, ours.blocks_available, ours.inodes, ours.inodes_free, ours.fsid],
            [theirs.f_blocks, theirs.f_bfree, theirs.f_bavail, theirs.f_files, theirs.f_ffree, theirs.f_fsid],
            "{options}"
        );
    }
}

#[test]
fn encrypted_names_without_the_key_equal_the_kernels() {
    let image = Image::new("-t ext4 -b 1024 -O encrypt", "64M", |_| {});
    let made = image.change("", |tree| {
        // The key vanishes with this shell's session keyring.
        let script = r#"
            mkdir "$1/few" "$1/many"
            e4crypt new_session
            echo a pass phrase | e4crypt add_key -k @s -S 0x5eed "$1/few" "$1/many"
            for n in 1 2 3; do echo secret > "$1/few/name $n"; done
            for n in $(seq 500); do : > "$1/many/name $n"; done
            long=$(printf 'l%.0s' $(seq 240)); : > "$1/many/$long"; mkdir "$1/many/inside"; : > "$1/many/inside/x"
        "#;
        let mut shell = Command::new("sh");
        println!("{}", run(shell.args(["-c", script, "sh"]).arg(tree)));
    });
    if made.is_some() {
        image.agrees_with_the_kernel();
        let fs = image.open();
        let few = find(&fs, "few");
        assert_eq!(list(&fs, &few).len(), 3);
        assert!(fs.lookup(&few, b"name 1").unwrap().is_none());
    }
}
