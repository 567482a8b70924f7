//! Power cuts while a file system shrinks: it has all files, its old size or its new one, and
//! e2fsck finds nothing wrong.

use crate::common::cuts::{Run, Work, check_all, left, writable};
use crate::common::{Image, find, fsck, list, read_all};
use dentree_blockdev::{BlockDevice, MemoryDevice, RecordingDevice, Survivors};
use dentree_ext4::{Ext4, InodeTime, Options, Size, shrink};
use dentree_vfs::{FileSystem, FileType, NewInode, NewKind, SetXattr};
use std::fs;
use std::process::Command;
use std::sync::Arc;

/// All names with types, owners, times, attributes and contents.
fn tree(fs: &Ext4) -> Vec<String> {
    let (mut all, mut dirs) = (Vec::new(), vec![String::new()]);
    while let Some(dir) = dirs.pop() {
        for (name, (_, kind)) in list(fs, &find(fs, &dir)) {
            let path = format!("{dir}/{}", name.display());
            if path == "/lost+found" || name == "." || name == ".." {
                continue;
            }
            let node = find(fs, &path);
            let attr = fs.attr(&node);
            let content = match attr.kind {
                FileType::Regular => read_all(fs, &node),
                FileType::Symlink => fs.readlink(&node).unwrap(),
                _ => Vec::new(),
            };
            let attributes: Vec<_> = fs.listxattr(&node).unwrap();
            let values: Vec<_> = attributes.iter().map(|name| fs.getxattr(&node, name).unwrap()).collect();
            let (links, times) = (attr.nlink, (attr.mtime, attr.ctime));
            let sum = content.iter().fold(0_u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte));
            all.push(format!("{path} {kind:?} {links} {times:?} {} {sum} {values:?}", attr.size));
            if attr.is_dir() {
                dirs.push(path);
            }
        }
    }
    all
}

/// Directories in all groups, with files in pieces, shared attributes, and a large one.
fn fill(device: &Arc<dyn BlockDevice>) {
    let fs = Ext4::open(device.clone(), writable()).unwrap();
    let root = fs.load(fs.root()).unwrap();
    let new = |kind| NewInode { kind, permissions: 0o755, uid: 0, gid: 0, xattrs: &[] };
    for n in 0..12_u64 {
        let dir = fs.create(&root, format!("dir {n}").as_bytes(), &new(NewKind::Directory)).unwrap();
        let names = if n == 11 { 200 } else { 6 };
        for name in 0..names {
            let file = fs.create(&dir, format!("file {name}").as_bytes(), &new(NewKind::Regular)).unwrap();
            for piece in 0..(n * name) % 7 {
                fs.write(&file, piece * 9_000, &vec![n as u8 + 1; 3_000]).unwrap();
            }
            if name % 3 == 0 {
                fs.setxattr(&file, b"user.shared", &vec![n as u8; 300], SetXattr::Any).unwrap();
            }
            if name % 5 == 0 {
                // Only with ea_inode: in an inode of its own, which others share.
                let _ = fs.setxattr(&file, b"user.large", &vec![n as u8 / 2; 6_000], SetXattr::Any);
            }
            fs.evict(&file);
        }
        let sub = fs.create(&dir, b"sub", &new(NewKind::Directory)).unwrap();
        fs.create(&sub, b"link", &new(NewKind::Symlink(&[b'l'; 200]))).unwrap();
        if n > 0 {
            fs.link(&dir, b"other name", &find(&fs, "dir 0/file 1")).unwrap();
        }
    }
    fs.close().unwrap();
}

struct Shrunk {
    tree: Vec<String>,
    /// Recorded positions, and the blocks then.
    sizes: Vec<(usize, u64)>,
}

impl Work for Shrunk {
    fn compare(&self, fs: Ext4, cut: usize) -> Result<(), String> {
        let (found, tree) = (fs.superblock().blocks_count, tree(&fs));
        fs.close().map_err(|error| format!("closing: {error}"))?;
        let done = self.sizes.iter().take_while(|(position, _)| *position <= cut).count();
        let may_be: Vec<_> = self.sizes[done - 1..].iter().take(2).map(|(_, blocks)| *blocks).collect();
        if !may_be.contains(&found) {
            return Err(format!("{found} is none of {may_be:?}"));
        }
        match tree.iter().zip(&self.tree).find(|(now, before)| now != before) {
            Some((now, before)) => Err(format!("{now} was {before}")),
            None if tree.len() != self.tree.len() => Err("names are missing".to_owned()),
            None => Ok(()),
        }
    }
}

/// Shrinks an image in two steps, and records what is written.
fn recorded(options: &str) -> Run<Shrunk> {
    let image = Image::new(options, "24M", |_| {});
    let filled = MemoryDevice::from(fs::read(image.path()).unwrap());
    fill(&(Arc::new(filled.clone()) as Arc<dyn BlockDevice>));
    let device = Arc::new(RecordingDevice::new(filled.to_vec()));
    let shared: Arc<dyn BlockDevice> = device.clone();
    let open = || Ext4::open(shared.clone(), Options::default()).unwrap();
    let (mut sizes, before) = (vec![(0, open().superblock().blocks_count)], tree(&open()));
    for size in [Some(Size::Bytes(16 << 20)), None] {
        shrink(&shared, size, InodeTime::default()).unwrap();
        sizes.push((device.position(), open().superblock().blocks_count));
    }
    println!("{options}: {sizes:?}");
    assert!(sizes.is_sorted_by(|(_, before), (_, after)| before > after));
    Run { what: options.to_owned(), recording: device.recording(), work: Shrunk { tree: before, sizes } }
}

#[test]
fn after_a_power_cut_a_shrinking_file_system_has_all_files_and_one_of_two_sizes() {
    for options in [
        // The journal stays where it is.
        "-t ext4 -b 1024 -g 2048 -N 960 -J size=1,location=1200",
        "-t ext4 -b 1024 -g 2048 -N 960 -J size=1,location=1200 -O ^flex_bg,inline_data,orphan_file",
        "-t ext3 -b 1024 -g 2048 -N 960 -I 128 -J size=1,location=1200",
        "-t ext4 -b 2048 -g 1024 -N 960 -J size=2,location=600 -O ^resize_inode,meta_bg,ea_inode",
    ] {
        let (cuts, problems) = check_all(&recorded(options), 60, 1);
        println!("{options}: {cuts} power cuts");
        assert!(problems.is_empty(), "{}", problems.join("\n\n"));
    }
}

#[test]
fn after_a_power_cut_e2fsck_makes_what_shrank_clean_and_all_files_are_there() {
    for options in [
        "-t ext2 -b 1024 -g 2048 -N 960",
        // The journal is in the middle, and moves.
        "-t ext4 -b 1024 -g 2048 -N 960 -J size=1",
        "-t ext3 -b 1024 -g 2048 -N 960 -J size=1",
    ] {
        let run = recorded(options);
        let (mut replay, scratch) = (run.recording.replay(), fsck::scratch());
        let image = scratch.path().join("image");
        let steps = run.recording.steps().len();
        let cuts = (0..=steps).step_by((steps / 60).max(1));
        for (cut, seed) in cuts.zip(1..) {
            for survivors in [Survivors::All, Survivors::Writes { seed }] {
                fs::write(&image, left(&mut replay, cut, survivors)).unwrap();
                let said = Command::new("e2fsck").arg("-fy").arg(&image).output().unwrap();
                assert!(said.status.code() <= Some(1), "{options}, cut {cut}: {said:?}");
                fsck::is_clean(&image).unwrap();
                let device = MemoryDevice::from(fs::read(&image).unwrap());
                let fs = Ext4::open(Arc::new(device), Options::default()).unwrap();
                let is_ext2 = options.contains("ext2");
                if let Err(problem) = run.work.compare(fs, cut) {
                    // Without a journal e2fsck gives files without names back by number.
                    assert!(is_ext2, "{options}, cut {cut}, {survivors:?}: {problem}");
                }
            }
        }
    }
}
