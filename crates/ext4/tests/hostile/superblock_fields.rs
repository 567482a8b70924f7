//! Every field of the superblock with unusual values and a valid checksum: opening for writing is
//! refused, or all works and `e2fsck` finds nothing new.
//!
//! The bug: any `s_want_extra_isize` was accepted; 1024 led to unreadable inodes.

use crate::common::Image;
use crate::common::fsck::{is_clean, scratch};
use crate::common::ops::{Op, Runner, Tree, contents, differences, reference, tree};
use crate::common::writing::{Dice, SMALL, new_image};
use dentree_blockdev::{Access, FileDevice};
use dentree_ext4::{Error, Ext4, Options};
use dentree_ext4_format::{RoCompat, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, crc32c};
use dentree_testing::{LoopDevice, LoopMount, PATIENCE};
use dentree_vfs::{self as vfs, Identity, OnExisting, SetAttr, Vfs, WalkOptions};
use rustix::fs::StatVfsMountFlags;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, mpsc};
use std::thread;
use tempfile::TempDir;

/// Kernel name, bytes of an element, number of elements.
type Field = (&'static str, usize, usize);

/// All fields, in order, without gaps.
const FIELDS: [Field; 103] = [
    ("s_inodes_count", 4, 1),
    ("s_blocks_count_lo", 4, 1),
    ("s_r_blocks_count_lo", 4, 1),
    ("s_free_blocks_count_lo", 4, 1),
    ("s_free_inodes_count", 4, 1),
    ("s_first_data_block", 4, 1),
    ("s_log_block_size", 4, 1),
    ("s_log_cluster_size", 4, 1),
    ("s_blocks_per_group", 4, 1),
    ("s_clusters_per_group", 4, 1),
    ("s_inodes_per_group", 4, 1),
    ("s_mtime", 4, 1),
    ("s_wtime", 4, 1),
    ("s_mnt_count", 2, 1),
    ("s_max_mnt_count", 2, 1),
    ("s_magic", 2, 1),
    ("s_state", 2, 1),
    ("s_errors", 2, 1),
    ("s_minor_rev_level", 2, 1),
    ("s_lastcheck", 4, 1),
    ("s_checkinterval", 4, 1),
    ("s_creator_os", 4, 1),
    ("s_rev_level", 4, 1),
    ("s_def_resuid", 2, 1),
    ("s_def_resgid", 2, 1),
    ("s_first_ino", 4, 1),
    ("s_inode_size", 2, 1),
    ("s_block_group_nr", 2, 1),
    ("s_feature_compat", 4, 1),
    ("s_feature_incompat", 4, 1),
    ("s_feature_ro_compat", 4, 1),
    ("s_uuid", 1, 16),
    ("s_volume_name", 1, 16),
    ("s_last_mounted", 1, 64),
    ("s_algorithm_usage_bitmap", 4, 1),
    ("s_prealloc_blocks", 1, 1),
    ("s_prealloc_dir_blocks", 1, 1),
    ("s_reserved_gdt_blocks", 2, 1),
    ("s_journal_uuid", 1, 16),
    ("s_journal_inum", 4, 1),
    ("s_journal_dev", 4, 1),
    ("s_last_orphan", 4, 1),
    ("s_hash_seed", 4, 4),
    ("s_def_hash_version", 1, 1),
    ("s_jnl_backup_type", 1, 1),
    ("s_desc_size", 2, 1),
    ("s_default_mount_opts", 4, 1),
    ("s_first_meta_bg", 4, 1),
    ("s_mkfs_time", 4, 1),
    ("s_jnl_blocks", 4, 17),
    ("s_blocks_count_hi", 4, 1),
    ("s_r_blocks_count_hi", 4, 1),
    ("s_free_blocks_count_hi", 4, 1),
    ("s_min_extra_isize", 2, 1),
    ("s_want_extra_isize", 2, 1),
    ("s_flags", 4, 1),
    ("s_raid_stride", 2, 1),
    ("s_mmp_interval", 2, 1),
    ("s_mmp_block", 8, 1),
    ("s_raid_stripe_width", 4, 1),
    ("s_log_groups_per_flex", 1, 1),
    ("s_checksum_type", 1, 1),
    ("s_encryption_level", 1, 1),
    ("s_reserved_pad", 1, 1),
    ("s_kbytes_written", 8, 1),
    ("s_snapshot_inum", 4, 1),
    ("s_snapshot_id", 4, 1),
    ("s_snapshot_r_blocks_count", 8, 1),
    ("s_snapshot_list", 4, 1),
    ("s_error_count", 4, 1),
    ("s_first_error_time", 4, 1),
    ("s_first_error_ino", 4, 1),
    ("s_first_error_block", 8, 1),
    ("s_first_error_func", 1, 32),
    ("s_first_error_line", 4, 1),
    ("s_last_error_time", 4, 1),
    ("s_last_error_ino", 4, 1),
    ("s_last_error_line", 4, 1),
    ("s_last_error_block", 8, 1),
    ("s_last_error_func", 1, 32),
    ("s_mount_opts", 1, 64),
    ("s_usr_quota_inum", 4, 1),
    ("s_grp_quota_inum", 4, 1),
    ("s_overhead_clusters", 4, 1),
    ("s_backup_bgs", 4, 2),
    ("s_encrypt_algos", 1, 4),
    ("s_encrypt_pw_salt", 1, 16),
    ("s_lpf_ino", 4, 1),
    ("s_prj_quota_inum", 4, 1),
    ("s_checksum_seed", 4, 1),
    ("s_wtime_hi", 1, 1),
    ("s_mtime_hi", 1, 1),
    ("s_mkfs_time_hi", 1, 1),
    ("s_lastcheck_hi", 1, 1),
    ("s_first_error_time_hi", 1, 1),
    ("s_last_error_time_hi", 1, 1),
    ("s_first_error_errcode", 1, 1),
    ("s_last_error_errcode", 1, 1),
    ("s_encoding", 2, 1),
    ("s_encoding_flags", 2, 1),
    ("s_orphan_file_inum", 4, 1),
    ("s_reserved", 4, 94),
    ("s_checksum", 4, 1),
];

fn offset_of(name: &str) -> usize {
    let before = FIELDS.iter().take_while(|(field, ..)| *field != name);
    before.map(|(_, width, count)| width * count).sum()
}

/// mke2fs options, size.
const KINDS: [(&str, &str); 4] = [
    ("-t ext4 -b 1024 -g 4096 -N 2048 -O orphan_file", "12M"),
    ("-t ext4 -b 1024 -I 256 -N 2048 -O ^metadata_csum,uninit_bg,^64bit,^flex_bg,inline_data", "12M"),
    ("-t ext2 -b 1024 -N 2048", "12M"),
    ("-t ext4 -b 1024 -g 256 -O meta_bg,^resize_inode,^has_journal,sparse_super2", "12M"),
];

fn names(dir: &'static str, count: usize) -> impl Iterator<Item = Op> {
    (0..count).map(move |at| Op::Create(format!("/{dir}/{at} {}", "long ".repeat(20))))
}

fn before() -> Vec<Op> {
    let mut ops = vec![
        Op::Mkdir("/kept".to_owned()),
        Op::Create("/old".to_owned()),
        Op::Append { path: "/old".to_owned(), len: 50_000, fill: 1 },
        Op::SetXattr { path: "/old".to_owned(), name: "user.a", value: vec![b'a'; 300] },
        Op::Create("/gone".to_owned()),
        Op::Append { path: "/gone".to_owned(), len: 70_000, fill: 2 },
        Op::Symlink { path: "/link".to_owned(), target: "x".repeat(200) },
    ];
    ops.extend(names("kept", 60));
    ops
}

fn work() -> Vec<Op> {
    let mut ops = vec![
        Op::Create("/new".to_owned()),
        Op::Append { path: "/new".to_owned(), len: 100_000, fill: 3 },
        Op::Mkdir("/dir".to_owned()),
        Op::Rename { from: "/old".to_owned(), to: "/dir/renamed".to_owned(), how: OnExisting::Replace },
        Op::SetXattr { path: "/dir/renamed".to_owned(), name: "user.b", value: vec![b'b'; 40] },
        Op::SetXattr { path: "/new".to_owned(), name: "user.a", value: vec![b'a'; 300] },
        // An orphan until its release.
        Op::Hold("/gone".to_owned()),
        Op::Unlink("/gone".to_owned()),
        Op::Sync,
        Op::Release,
        Op::Create("/kept/one more".to_owned()),
        Op::Unlink(format!("/kept/7 {}", "long ".repeat(20))),
        Op::Truncate { path: "/new".to_owned(), size: 30_000 },
        Op::Unlink("/link".to_owned()),
    ];
    ops.extend(names("dir", 60));
    ops
}

fn open(image: &Path) -> Result<Vfs<Ext4>, Error> {
    let device = FileDevice::open(image, Access::ReadWrite).unwrap();
    let options = Options { writable: true, cache_bytes: 4 << 20, ..Options::default() };
    Ok(Vfs::with_budgets(Ext4::open(Arc::new(device), options)?, SMALL).unwrap())
}

/// Returns those that fail by damage.
fn apply(vfs: &Vfs<Ext4>, ops: &[Op]) -> Result<(), String> {
    let mut runner = Runner::new(vfs);
    ops.iter().try_for_each(|op| match runner.try_apply(op) {
        Ok(_) => Ok(()),
        Err(error @ vfs::Error::Corrupt(_)) => Err(format!("{op:?}: {error}")),
        Err(error) => panic!("{op:?}: {error}"),
    })
}

fn write_as_user(vfs: &Vfs<Ext4>) {
    let who = &Identity::Superuser;
    let file = vfs.walk(who, vfs.root(), b"/new", WalkOptions::KEEP_LINK).unwrap();
    let owner = SetAttr { uid: Some(1000), ..SetAttr::default() };
    vfs.set_attr(who, &file, &owner).unwrap();
    let written = vfs.append(who, &file, &[5; 20_000]);
    assert!(matches!(written, Ok(_) | Err(vfs::Error::NoSpace)), "{written:?}");
}

fn close(vfs: Vfs<Ext4>) {
    vfs.into_fs().unwrap().close().unwrap();
}

fn filled(options: &str, size: &str) -> Vec<u8> {
    let image = new_image(options, size);
    let vfs = open(&image.path()).unwrap();
    apply(&vfs, &before()).unwrap();
    close(vfs);
    is_clean(&image.path()).unwrap();
    fs::read(image.path()).unwrap()
}

fn superblock(image: &mut [u8]) -> &mut [u8] {
    let at = usize::try_from(SUPERBLOCK_OFFSET).unwrap();
    &mut image[at..at + SUPERBLOCK_SIZE]
}

fn put(image: &mut [u8], name: &str, value: &[u8]) {
    let sb = superblock(image);
    let at = offset_of(name);
    sb[at..at + value.len()].copy_from_slice(value);
    let at = offset_of("s_feature_ro_compat");
    let ro_compat = RoCompat(u32::from_le_bytes(*sb[at..].first_chunk().unwrap()));
    if ro_compat.has(RoCompat::METADATA_CSUM) {
        let (summed, sum) = sb.split_at_mut(SUPERBLOCK_SIZE - 4);
        sum.copy_from_slice(&crc32c(!0, summed).to_le_bytes());
    }
}

/// `now`: the field's bytes.
fn values(&(name, width, count): &Field, now: &[u8], dice: &mut Dice) -> BTreeSet<Vec<u8>> {
    let len = width * count;
    let mut random = || (0..len).map(|_| u8::try_from(dice.roll(256)).unwrap()).collect::<Vec<u8>>();
    let mut values = BTreeSet::from([vec![0; len], vec![0xFF; len], random()]);
    if name.starts_with("s_feature") {
        values.extend((0..8 * len).map(|bit| {
            let mut value = now.to_vec();
            value[bit / 8] ^= 1 << (bit % 8);
            value
        }));
    } else if count == 1 {
        let mut wide = [0; 8];
        wide[..len].copy_from_slice(now);
        let now = u64::from_le_bytes(wide);
        let near = [1, now.wrapping_add(1), now.wrapping_sub(1), now.wrapping_mul(2), now / 2];
        values.extend(near.map(|value| value.to_le_bytes()[..len].to_vec()));
        values.extend([1, 16, 1024].map(|part| {
            let value = u64::from_le_bytes([random(), vec![0; 8 - len]].concat().try_into().unwrap());
            (value / part).to_le_bytes()[..len].to_vec()
        }));
    }
    values.remove(now);
    values
}

/// Numbers are left out.
fn complaints(image: &Path) -> BTreeSet<String> {
    let Err(text) = is_clean(image) else { return BTreeSet::new() };
    let without_lists = text.lines().map(|line| line.split_once("differences:").map_or(line, |both| both.0));
    without_lists.map(|line| line.replace(|c: char| c.is_ascii_digit(), "")).collect()
}

struct Expected {
    tree: Tree,
    contents: BTreeMap<String, Vec<u8>>,
}

impl Expected {
    fn new() -> Expected {
        let model = reference();
        let mut runner = Runner::new(&model);
        for op in before().iter().chain(&work()) {
            runner.try_apply(op).unwrap();
        }
        Expected { tree: tree(&model), contents: contents(&model) }
    }
}

enum Outcome {
    Refused,
    /// The field contradicts something.
    Contained(String),
    Worked,
}

fn use_image(image: &Path, expected: &Expected) -> Outcome {
    let Ok(vfs) = open(image) else { return Outcome::Refused };
    if let Err(refused) = apply(&vfs, &work()) {
        // Closing repeats the error.
        let _ = vfs.into_fs().unwrap().close();
        return Outcome::Contained(refused);
    }
    let wrong = differences(&tree(&vfs), &expected.tree);
    assert!(wrong.is_empty(), "{wrong}");
    assert!(contents(&vfs) == expected.contents, "the content of files differs");
    write_as_user(&vfs);
    close(vfs);
    Outcome::Worked
}

/// An error is a panic or a hang.
fn try_image(image: &Path, expected: &Arc<Expected>) -> Result<Outcome, String> {
    let (image, expected) = (image.to_owned(), Arc::clone(expected));
    let (sender, receiver) = mpsc::channel();
    let thread = thread::spawn(move || sender.send(use_image(&image, &expected)));
    match receiver.recv_timeout(PATIENCE) {
        Ok(outcome) => Ok(outcome),
        Err(RecvTimeoutError::Timeout) => Err("it does not end".to_owned()),
        Err(RecvTimeoutError::Disconnected) => {
            let panic = thread.join().expect_err("it has sent nothing");
            let text = panic.downcast_ref::<String>().cloned();
            Err(text.unwrap_or_else(|| format!("{:?}", panic.downcast_ref::<&str>())))
        }
    }
}

/// Passes the field's name, the value in words, and the image.
fn each_hostile(bytes: &[u8], mut each: impl FnMut(&'static str, String, &[u8])) {
    let mut dice = Dice(77);
    for field in &FIELDS {
        let &(name, width, count) = field;
        let at = offset_of(name);
        let now = superblock(&mut bytes.to_vec())[at..at + width * count].to_vec();
        for value in values(field, &now, &mut dice) {
            let mut hostile = bytes.to_vec();
            put(&mut hostile, name, &value);
            each(name, format!("{name} of bytes {value:x?}, was {now:x?}"), &hostile);
        }
    }
}

/// Only later reads show the error: names had another hash, directories other features.
const MET_LATER: [&str; 3] = ["s_hash_seed", "s_feature_compat", "s_feature_ro_compat"];

fn judge(name: &str, image: &Path, hostile: &[u8], expected: &Arc<Expected>) -> Result<(), String> {
    fs::write(image, hostile).unwrap();
    match try_image(image, expected) {
        Ok(Outcome::Refused) if fs::read(image).unwrap() == hostile => return Ok(()),
        Ok(Outcome::Refused) => return Err("it is refused, and was changed before".to_owned()),
        Ok(Outcome::Contained(_)) if MET_LATER.contains(&name) => {}
        Ok(Outcome::Contained(refused)) => return Err(refused),
        Ok(Outcome::Worked) => {}
        // Existing names are not found.
        Err(_) if name == "s_hash_seed" => return Ok(()),
        Err(failure) => return Err(failure),
    }
    let after = complaints(image);
    if after.is_empty() {
        return Ok(());
    }
    fs::write(image, hostile).unwrap();
    let before = complaints(image);
    let new: Vec<_> = after.difference(&before).collect();
    if new.is_empty() || name == "s_hash_seed" { Ok(()) } else { Err(format!("new for e2fsck: {new:#?}")) }
}

fn every_field_is_refused_or_all_works((options, size): (&str, &str)) {
    let (bytes, expected, dir) = (filled(options, size), Arc::new(Expected::new()), scratch());
    let (mut cases, mut failures) = (0, Vec::new());
    each_hostile(&bytes, |name, what, hostile| {
        cases += 1;
        if let Err(failure) = judge(name, &dir.path().join("image"), hostile, &expected) {
            failures.push(format!("{what}: {failure}\n"));
        }
    });
    assert!(failures.is_empty(), "{options}: {} of {cases}:\n{}", failures.len(), failures.concat());
}

#[test]
fn hostile_fields_are_refused_or_all_works_with_checksums_journal_and_orphan_file() {
    every_field_is_refused_or_all_works(KINDS[0]);
}

#[test]
fn hostile_fields_are_refused_or_all_works_with_group_checksums_only() {
    every_field_is_refused_or_all_works(KINDS[1]);
}

#[test]
fn hostile_fields_are_refused_or_all_works_without_features() {
    every_field_is_refused_or_all_works(KINDS[2]);
}

#[test]
fn hostile_fields_are_refused_or_all_works_with_meta_block_groups() {
    every_field_is_refused_or_all_works(KINDS[3]);
}

struct Kernel {
    device: LoopDevice,
    mount_point: TempDir,
}

impl Kernel {
    /// `None`, with the reason printed, without a mount. Overwrites `image`.
    fn new(image: &Path) -> Option<Kernel> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: mounting needs root");
            return None;
        }
        match LoopDevice::new(image, &[]) {
            Ok(device) => Some(Kernel { device, mount_point: tempfile::tempdir().unwrap() }),
            Err(reason) => {
                eprintln!("skipped: {reason}");
                None
            }
        }
    }

    fn mounts(&self, bytes: &[u8]) -> bool {
        fs::OpenOptions::new().write(true).open(self.device.path()).unwrap().write_all_at(bytes, 0).unwrap();
        // The superblock may ask for a panic.
        let Ok(mount) = LoopMount::of(&self.device, self.mount_point.path(), "errors=continue") else {
            return false;
        };
        let flags = rustix::fs::statvfs(mount.path()).unwrap().f_flag;
        !flags.contains(StatVfsMountFlags::RDONLY)
    }
}

/// Only the kernel accepts some of their values.
const STRICTER: [&str; 9] = [
    // The kernel mounts with recorded errors.
    "s_state",
    // The kernel then finds no free inode.
    "s_first_ino",
    // The kernel records an error.
    "s_last_orphan",
    // The kernel accepts sizes that are no multiple of 4, and cannot read its new inodes.
    "s_min_extra_isize",
    "s_want_extra_isize",
    // The kernel accepts a file without blocks.
    "s_orphan_file_inum",
    // The kernel does not notice descriptors that overlap their bitmaps.
    "s_first_meta_bg",
    // Unused, not writable here, or exclusive.
    "s_feature_incompat",
    "s_feature_ro_compat",
];

/// Only this crate accepts some of their values.
const LAXER: [&str; 2] = [
    // `fast_commit` with a journal too small for it.
    "s_feature_compat",
    // Mount options, not applied here.
    "s_mount_opts",
];

fn opens_what_the_kernel_mounts((options, size): (&str, &str)) {
    let (bytes, dir) = (filled(options, size), scratch());
    let (image, theirs) = (dir.path().join("image"), dir.path().join("theirs"));
    fs::write(&theirs, &bytes).unwrap();
    let Some(kernel) = Kernel::new(&theirs) else { return };
    assert!(kernel.mounts(&bytes));
    let mut failures = Vec::new();
    each_hostile(&bytes, |name, what, hostile| {
        fs::write(&image, hostile).unwrap();
        let (ours, theirs) = (open(&image).is_ok(), kernel.mounts(hostile));
        let may_differ = if theirs { STRICTER.contains(&name) } else { LAXER.contains(&name) };
        if ours != theirs && !may_differ {
            failures.push(format!("{what}: ours {ours}, the kernel {theirs}\n"));
        }
    });
    assert!(failures.is_empty(), "{options}: {}", failures.concat());
}

#[test]
fn images_that_the_kernel_cannot_write_are_refused() {
    opens_what_the_kernel_mounts(KINDS[0]);
}

#[test]
fn images_that_the_kernel_cannot_write_are_refused_with_meta_block_groups() {
    opens_what_the_kernel_mounts(KINDS[3]);
}

#[test]
fn the_documentation_of_the_superblock_covers_every_field() {
    assert_eq!(offset_of("none"), SUPERBLOCK_SIZE, "the fields fill the superblock");
    let page = include_str!("../../../../docs/internals/superblock.md");
    let missing = FIELDS.iter().filter(|(name, ..)| !page.contains(&format!("`{name}`")));
    let missing: Vec<&Field> = missing.collect();
    assert!(missing.is_empty(), "{missing:?}");
}

fn extra_fields(image: &Image, path: &str) -> String {
    let stat = image.debugfs(&format!("stat {path}\n"));
    let size = stat.lines().find_map(|line| line.strip_prefix("Size of extra inode fields: "));
    size.unwrap_or("none").to_owned()
}

#[test]
fn new_inodes_have_the_extra_fields_that_the_kernel_gives_them() {
    for options in ["-t ext4", "-t ext4 -O ^extra_isize", "-t ext2 -I 256", "-t ext4 -I 128"] {
        for wanted in [0_u16, 1, 4, 28, 32, 36, 64, 128] {
            let image = new_image(options, "12M");
            let mut bytes = fs::read(image.path()).unwrap();
            put(&mut bytes, "s_want_extra_isize", &wanted.to_le_bytes());
            fs::write(image.path(), bytes).unwrap();
            let vfs = open(&image.path()).unwrap();
            apply(&vfs, &[Op::Create("/ours".to_owned())]).unwrap();
            close(vfs);
            let make = |dir: &Path| drop(fs::File::create(dir.join("theirs")).unwrap());
            let Some(()) = image.change("noatime", make) else { return };
            let [ours, theirs] = ["/ours", "/theirs"].map(|path| extra_fields(&image, path));
            assert_eq!(ours, theirs, "{options}, {wanted} wanted");
        }
    }
}
