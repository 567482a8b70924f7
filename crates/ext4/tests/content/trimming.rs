//! Discarding free blocks (FITRIM). A crash before a removal is committed restores the file with
//! its content. The recorded device overwrites what is discarded.

use crate::common::cuts::{Run, Work, check_all, writable};
use crate::common::writing::{KINDS, OURS, SMALL, check, new_image, node, open, read_all};
use dentree_blockdev::RecordingDevice;
use dentree_ext4::Ext4;
use dentree_vfs::{FileSystem, Identity, NewKind, Vfs, WalkOptions};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const FILES: usize = 40;

fn name(n: usize) -> String {
    format!("file {n}")
}

fn content(n: usize) -> Vec<u8> {
    (0..20_000_usize).map(|at| (n * 31 + at / 100) as u8).collect()
}

/// Positions from which each removal is durable.
struct Removals(Vec<usize>);

impl Work for Removals {
    fn compare(&self, fs: Ext4, cut: usize) -> Result<(), String> {
        let vfs = Vfs::with_budgets(fs, SMALL).map_err(|error| error.to_string())?;
        for n in 0..FILES {
            let walk = vfs.walk(&Identity::Superuser, vfs.root(), name(n).as_bytes(), WalkOptions::FOLLOW);
            match walk {
                Err(dentree_vfs::Error::NotFound) => {}
                Err(error) => return Err(format!("{n}: {error}")),
                Ok(_) if self.0.get(n).is_some_and(|&at| at <= cut) => return Err(format!("{n} is back")),
                Ok(file) => {
                    let mut bytes = vec![0; 20_001];
                    let read = vfs.read(&file, 0, &mut bytes).map_err(|error| format!("{n}: {error}"))?;
                    if bytes[..read] != content(n) {
                        return Err(format!("{n} has other content"));
                    }
                }
            }
        }
        let fs = vfs.into_fs().ok_or("an inode is in use")?;
        fs.close().map_err(|error| format!("closing: {error}"))
    }
}

fn filled(options: &str, size: &str) -> Vec<u8> {
    let image = new_image(options, size);
    let vfs = Vfs::new(open(&image)).unwrap();
    let who = &Identity::Superuser;
    for n in 0..FILES {
        let file = vfs.create(who, vfs.root(), name(n).as_bytes(), NewKind::Regular, 0o644).unwrap();
        vfs.write(who, &file, 0, &content(n)).unwrap();
    }
    vfs.into_fs().expect("no inode is in use").close().unwrap();
    fs::read(image.path()).unwrap()
}

#[test]
fn files_restored_by_a_crash_keep_their_content_after_discard() {
    for (options, size) in [
        ("-t ext4 -J size=4", "12M"),
        ("-t ext3 -b 1024 -J size=1", "8M"),
        ("-t ext4 -O inline_data -J size=4", "12M"),
        (OURS, "8M"),
    ] {
        let device = Arc::new(RecordingDevice::new(filled(options, size)));
        let vfs = Vfs::with_budgets(Ext4::open(device.clone(), writable()).unwrap(), SMALL).unwrap();
        let (who, mut durable, mut least) = (&Identity::Superuser, Vec::new(), u64::MAX);
        for n in 0..FILES {
            vfs.unlink(who, vfs.root(), name(n).as_bytes()).unwrap();
            if n % 3 == 0 {
                least = least.min(vfs.trim(0..u64::MAX, 0).unwrap());
            }
            if n % 8 == 7 {
                vfs.sync().unwrap();
                durable.resize(n + 1, device.position());
            }
        }
        assert!(least > 1 << 20, "{options}: {least}");
        vfs.into_fs().expect("no inode is in use").close().unwrap();
        let run = Run { what: options.to_owned(), recording: device.recording(), work: Removals(durable) };
        let (done, problems) = check_all(&run, 30, 1);
        println!("{options}: {done} cuts");
        assert!(problems.is_empty(), "{}", problems.join("\n\n"));
    }
}

#[test]
fn discard_shrinks_an_image_during_writes() {
    for (options, size) in KINDS.into_iter().chain([(OURS, "32M")]) {
        let image = new_image(options, size);
        let vfs = Vfs::new(open(&image)).unwrap();
        let who = &Identity::Superuser;
        let write = |name: &str, bytes: &[u8]| {
            let file = vfs.create(who, vfs.root(), name.as_bytes(), NewKind::Regular, 0o644).unwrap();
            vfs.write(who, &file, 0, bytes).unwrap();
        };
        write("large", &[7; 8 << 20]);
        vfs.sync().unwrap();
        let before = fs::metadata(image.path()).unwrap().blocks();
        vfs.unlink(who, vfs.root(), b"large").unwrap();
        vfs.sync().unwrap();
        let writing = AtomicBool::new(true);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (0..FILES).for_each(|n| {
                    write(&name(n), &content(n));
                    vfs.sync().unwrap();
                });
                writing.store(false, Relaxed);
            });
            while writing.load(Relaxed) {
                vfs.trim(0..u64::MAX, 0).unwrap();
            }
        });
        let after = fs::metadata(image.path()).unwrap().blocks();
        assert!(after + (6 << 20) / 512 < before, "{options}: {before} blocks, then {after}");
        // The first has no free space, and no run is as long as the image.
        assert_eq!(vfs.trim(0..512, 0).unwrap() + vfs.trim(0..u64::MAX, 1 << 40).unwrap(), 0, "{options}");
        vfs.into_fs().expect("no inode is in use").close().unwrap();
        check(&image, &[], options);
        let again = crate::common::writing::open(&image);
        (0..FILES)
            .for_each(|n| assert!(read_all(&again, &node(&again, &name(n))) == content(n), "{options}: {n}"));
        assert!(!again.is_read_only());
        again.close().unwrap();
    }
}
