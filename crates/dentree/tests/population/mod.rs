//! Trees with every special case of files.

#![allow(dead_code)] // each test binary uses a part

use rustix::fs::{AtFlags, CWD, FallocateFlags, FileType, Mode, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, chown, lchown, symlink};
use std::path::Path;

/// One of everything, and directories of several sizes.
pub fn everything(root: &Path) {
    names(root);
    links(root);
    nodes(root);
    contents(root);
    attributes(root);
    times(root);
    deep(root);
    many_names(&root.join("many"), 1_200);
    many_files(&root.join("files"), 200);
}

fn names(root: &Path) {
    let dir = root.join("names");
    fs::create_dir(&dir).unwrap();
    let names: [&[u8]; 9] = [
        &[b'x'; 255],
        &[0xff; 255],
        b"not \xfe UTF-8",
        b"new\nline\ttab\\backslash",
        "Ünïcödé 日本".as_bytes(),
        b"...",
        b"-n",
        b" ",
        b"a:b",
    ];
    for name in names {
        fs::write(dir.join(OsStr::from_bytes(name)), name).unwrap();
    }
    // The contents of `a` sort after `a-b`.
    fs::create_dir(dir.join("a")).unwrap();
    fs::write(dir.join("a/z"), "").unwrap();
    fs::write(dir.join("a-b"), "").unwrap();
}

fn links(root: &Path) {
    let dir = root.join("links");
    fs::create_dir_all(dir.join("other")).unwrap();
    fs::write(dir.join("one"), "several names").unwrap();
    for n in 0..20 {
        fs::hard_link(dir.join("one"), dir.join(format!("other/name-{n}"))).unwrap();
    }
    for len in [1, 59, 60, 61, 254, 1000] {
        symlink("t".repeat(len), dir.join(format!("symlink-{len}"))).unwrap();
    }
    symlink("../one", dir.join("other/up")).unwrap();
    symlink("loop", dir.join("loop")).unwrap();
    lchown(dir.join("loop"), Some(1234), Some(70_000)).unwrap();
}

fn nodes(root: &Path) {
    let dir = root.join("nodes");
    fs::create_dir(&dir).unwrap();
    let node = |name: &str, kind, major, minor| {
        let mode = Mode::RUSR | Mode::WGRP;
        rustix::fs::mknodat(CWD, dir.join(name), kind, mode, rustix::fs::makedev(major, minor)).unwrap();
    };
    node("null", FileType::CharacterDevice, 1, 3);
    node("disk", FileType::BlockDevice, 8, 17);
    node("large", FileType::CharacterDevice, 300, 70_000);
    node("fifo", FileType::Fifo, 0, 0);
    node("socket", FileType::Socket, 0, 0);
}

fn contents(root: &Path) {
    let dir = root.join("contents");
    fs::create_dir(&dir).unwrap();
    for len in [0, 1, 59, 60, 61, 160, 161, 1023, 1024, 4095, 4096, 4097, 100_000] {
        let content: Vec<u8> = (0..len).map(|i| (i % 251 + 1) as u8).collect();
        fs::write(dir.join(format!("bytes-{len}")), content).unwrap();
    }
    let holes = File::create(dir.join("holes")).unwrap();
    for at in [0, 5 << 10, 300 << 10, 7 << 20] {
        holes.write_all_at(b"data between holes", at).unwrap();
    }
    holes.set_len((7 << 20) + 100_000).unwrap();
    // Every second block is a hole: more extents than one node holds.
    let extents = File::create(dir.join("extents")).unwrap();
    for n in 0..700 {
        extents.write_all_at(&[(n % 255) as u8 + 1; 100], n << 13).unwrap();
    }
    sparse(&dir.join("sparse"));
    let unwritten = File::create(dir.join("unwritten")).unwrap();
    let reserved = rustix::fs::fallocate(&unwritten, FallocateFlags::empty(), 0, 200 << 10);
    assert!(matches!(reserved, Ok(()) | Err(Errno::OPNOTSUPP)), "{reserved:?}");
    unwritten.write_all_at(b"written in the middle", 100 << 10).unwrap();
    let beyond = rustix::fs::fallocate(&unwritten, FallocateFlags::KEEP_SIZE, 1 << 20, 64 << 10);
    assert!(matches!(beyond, Ok(()) | Err(Errno::OPNOTSUPP)), "{beyond:?}");
}

/// A sparse file of 1 TiB, or of the largest size possible.
fn sparse(path: &Path) {
    let file = File::create(path).unwrap();
    let size = [1_u64 << 40, 1 << 33].into_iter().find(|&size| file.set_len(size).is_ok()).unwrap();
    for at in [12_345, size / 2, size - 3] {
        file.write_all_at(b"end", at).unwrap();
    }
}

fn attributes(root: &Path) {
    let dir = root.join("attributes");
    fs::create_dir(&dir).unwrap();
    let file = |name: &str| {
        let path = dir.join(name);
        fs::write(&path, name).unwrap();
        path
    };
    let set =
        |path: &Path, name: &str, value: &[u8]| rustix::fs::lsetxattr(path, name, value, XattrFlags::empty());
    let modes = file("modes");
    chown(&modes, Some(1000), Some(0xffff_fff0)).unwrap();
    fs::set_permissions(&modes, PermissionsExt::from_mode(0o6751)).unwrap();
    fs::set_permissions(&dir, PermissionsExt::from_mode(0o1777)).unwrap();

    let small = file("small");
    set(&small, "user.empty", b"").unwrap();
    set(&small, "user.short", b"value").unwrap();
    set(&small, "trusted.\u{fc}", &[0, 1, 2, 255]).unwrap();
    set(&small, "security.capability", &[1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
        .unwrap();
    let large = file("large");
    // As far as the file system allows: in a block, or in an inode of its own.
    for len in [300, 600, 2_500, 20_000] {
        let _ = set(&large, &format!("user.of-{len}"), &vec![len as u8; len]);
    }
    // Two files that share one block.
    for name in ["shared-1", "shared-2"] {
        let _ = set(&file(name), "user.same", &[7; 700]);
    }
    let acl = acl();
    set(&file("acl"), "system.posix_acl_access", &acl).unwrap();
    fs::create_dir(dir.join("default")).unwrap();
    set(&dir.join("default"), "system.posix_acl_default", &acl).unwrap();
    fs::write(dir.join("default/inherits"), "").unwrap();
    symlink("nowhere", dir.join("link")).unwrap();
    set(&dir.join("link"), "trusted.on-a-link", b"x").unwrap();
}

/// `u::rw-,u:1000:r--,g::r--,g:70000:rwx,m::rwx,o::---` in the kernel's form: version,
/// then tag, permissions, id.
fn acl() -> Vec<u8> {
    let entries: [(u16, u16, u32); 6] =
        [(1, 6, !0), (2, 4, 1000), (4, 4, !0), (8, 7, 70_000), (16, 7, !0), (32, 0, !0)];
    let mut acl = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        acl.extend(tag.to_le_bytes());
        acl.extend(permissions.to_le_bytes());
        acl.extend(id.to_le_bytes());
    }
    acl
}

fn times(root: &Path) {
    let dir = root.join("times");
    fs::create_dir(&dir).unwrap();
    for (name, tv_sec, tv_nsec) in [
        ("before-1970", -1_234_567, 987_654_321),
        ("1901", -(1 << 31), 0),
        ("epoch", 0, 0),
        ("2038", (1 << 31) - 1, 999_999_999),
        ("past-2038", (1 << 31) + 5, 1),
        ("past-2106", (1 << 32) + 5, 1),
        ("past-2242", (1 << 33) + 7, 123_456_789),
        ("2446", 0x3_7fff_fffe, 5),
    ] {
        fs::write(dir.join(name), "").unwrap();
        let time = Timespec { tv_sec, tv_nsec };
        let times = Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(CWD, dir.join(name), &times, AtFlags::empty()).unwrap();
    }
}

fn deep(root: &Path) {
    let mut path = root.join("deep");
    for level in 0..60 {
        path.push(format!("level-{level}"));
    }
    fs::create_dir_all(&path).unwrap();
    fs::write(path.join("bottom"), "here").unwrap();
}

pub fn many_names(dir: &Path, count: usize) {
    fs::create_dir(dir).unwrap();
    for n in 0..count {
        File::create(dir.join(format!("n-{n}-a-name-of-some-length"))).unwrap();
    }
}

/// `count` small files, fifty in a directory.
pub fn many_files(root: &Path, count: usize) {
    for n in 0..count {
        let dir = root.join(format!("d{}", n / 50));
        if n % 50 == 0 {
            fs::create_dir_all(&dir).unwrap();
        }
        fs::write(dir.join(format!("f{n}")), format!("file {n}\n").repeat(n % 40)).unwrap();
    }
}

/// A little of everything, for images of a few MiB.
pub fn small(root: &Path) {
    names(root);
    links(root);
    nodes(root);
    attributes(root);
    many_names(&root.join("many"), 400);
    many_files(&root.join("files"), 40);
    let file = File::create(root.join("sparse")).unwrap();
    for n in 0..300_u64 {
        file.write_all_at(b"x", n * 8192).unwrap();
    }
    rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 4 << 20, 65_536)
        .or_else(|error| if error == Errno::OPNOTSUPP { Ok(()) } else { Err(error) })
        .unwrap();
}
