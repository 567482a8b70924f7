//! Renames that leave a whiteout (RENAME_WHITEOUT): after a power cut the file or its whiteout has
//! the name, or an overlay would show a lower file.

use crate::common::cuts::{Run, Work, check_all, writable};
use crate::common::writing::{OURS, SMALL, new_image, open};
use dentree_blockdev::RecordingDevice;
use dentree_ext4::Ext4;
use dentree_vfs::{Durability, FileType, Identity, NewKind, OnExisting, Vfs, WalkOptions};
use std::fs;
use std::sync::Arc;

const KINDS: [(&str, &str); 5] = [
    ("-t ext4 -b 4096 -J size=4", "12M"),
    ("-t ext4 -b 1024 -O metadata_csum_seed,orphan_file -J size=1", "8M"),
    ("-t ext3 -b 1024 -J size=1", "8M"),
    ("-t ext4 -b 1024 -O inline_data -I 256 -J size=1", "8M"),
    (OURS, "8M"),
];

const FILES: usize = 60;

/// Every third replaces a file, every second crosses directories.
fn names(n: usize) -> (String, String) {
    (format!("a/file {n}"), format!("{}/moved {n}", if n.is_multiple_of(2) { "a" } else { "b" }))
}

/// The device's position after each rename.
struct Renames(Vec<usize>);

fn kind(vfs: &Vfs<Ext4>, path: &str) -> Result<Option<(FileType, u64)>, String> {
    let found = vfs.walk(&Identity::Superuser, vfs.root(), path.as_bytes(), WalkOptions::KEEP_LINK);
    match found {
        Ok(inode) => Ok(Some((inode.kind(), inode.attr().size))),
        Err(dentree_vfs::Error::NotFound) => Ok(None),
        Err(error) => Err(format!("{path}: {error}")),
    }
}

impl Work for Renames {
    fn compare(&self, fs: Ext4, cut: usize) -> Result<(), String> {
        const MOVED: Option<(FileType, u64)> = Some((FileType::Regular, 3));
        const WHITEOUT: Option<(FileType, u64)> = Some((FileType::CharDevice, 0));
        let vfs = Vfs::with_budgets(fs, SMALL).map_err(|error| error.to_string())?;
        for n in 0..FILES {
            let (old, new) = names(n);
            let replaced = n.is_multiple_of(3).then_some((FileType::Regular, 8));
            let is_durable = self.0.get(n).is_some_and(|&at| at <= cut);
            match (kind(&vfs, &old)?, kind(&vfs, &new)?) {
                (WHITEOUT, MOVED) => {}
                (MOVED, before) if before == replaced && !is_durable => {}
                found => return Err(format!("{old}, durable {is_durable}: {found:?}")),
            }
        }
        let fs = vfs.into_fs().ok_or("an inode is in use")?;
        fs.close().map_err(|error| format!("closing: {error}"))
    }
}

fn work(options: &str, size: &str) -> Run<Renames> {
    let image = new_image(options, size);
    let who = &Identity::Superuser;
    let vfs = Vfs::new(open(&image)).unwrap();
    let [a, b] =
        [b"a", b"b"].map(|name| vfs.create(who, vfs.root(), name, NewKind::Directory, 0o755).unwrap());
    let make = |path: &str, content: &[u8]| {
        let at = vfs.walk_parent(who, vfs.root(), path.as_bytes()).unwrap();
        let file = vfs.create(who, &at.dir, at.name, NewKind::Regular, 0o644).unwrap();
        vfs.write(who, &file, 0, content).unwrap();
    };
    for n in 0..FILES {
        make(&names(n).0, b"old");
        if n.is_multiple_of(3) {
            make(&names(n).1, b"replaced");
        }
    }
    drop((a, b));
    vfs.into_fs().expect("no inode is in use").close().unwrap();

    let device = Arc::new(RecordingDevice::new(fs::read(image.path()).unwrap()));
    let vfs = Vfs::with_budgets(Ext4::open(device.clone(), writable()).unwrap(), SMALL).unwrap();
    let mut durable = Vec::new();
    for n in 0..FILES {
        let (old, new) = names(n);
        let [from, to] = [&old, &new].map(|path| vfs.walk_parent(who, vfs.root(), path.as_bytes()).unwrap());
        vfs.rename_leaving_whiteout(who, &from.dir, from.name, &to.dir, to.name, OnExisting::Replace)
            .unwrap();
        if n % 5 == 4 {
            vfs.fsync(&to.dir, Durability::Full).unwrap();
            durable.resize(n + 1, device.position());
        }
    }
    vfs.into_fs().expect("no inode is in use").close().unwrap();
    durable.resize(FILES, device.position());
    Run { what: options.to_owned(), recording: device.recording(), work: Renames(durable) }
}

#[test]
fn a_power_cut_leaves_a_rename_with_its_whiteout_or_neither() {
    for (options, size) in KINDS {
        let (done, problems) = check_all(&work(options, size), 30, 1);
        println!("{options}: {done} cuts");
        assert!(problems.is_empty(), "{}", problems.join("\n\n"));
    }
}
