//! Failing devices and damaged images: errors are reported, nothing acknowledged is lost, nothing
//! panics.

use crate::common::Image;
use crate::common::writing::{Dice, check, node, open, read_all};
use dentree_blockdev::{Access, Failure, Fault, FaultDevice, FileDevice, MemoryDevice, Operation};
use dentree_ext4::{Ext4, Options};
use dentree_vfs::{Allocate, Durability, FileSystem, SetAttr};
use std::process::Command;
use std::sync::Arc;

fn writable() -> Options {
    Options { writable: true, ..Options::default() }
}

#[test]
fn a_failed_write_or_flush_loses_nothing_acknowledged() {
    let pristine = Image::new("-t ext4 -b 1024 -J size=1", "16M", |tree| {
        std::fs::write(tree.join("file"), "").unwrap();
        std::fs::write(tree.join("other"), "").unwrap();
    });
    let (mut reported, mut survived) = (0, 0);
    for after in (0..60).step_by(6) {
        for (operation, failure) in [
            (Operation::Write, Failure::Io),
            (Operation::Write, Failure::Short),
            (Operation::Flush, Failure::Io),
        ] {
            let image = pristine.beside("broken");
            std::fs::copy(pristine.path(), image.path()).unwrap();
            let file = FileDevice::open(image.path(), Access::ReadWrite).unwrap();
            let device = Arc::new(FaultDevice::new(Arc::new(file)));
            let fs = Ext4::open(device.clone(), writable()).unwrap();
            device.inject(Fault { operation, after, times: u64::MAX, failure });
            let mut acknowledged = Vec::new();
            let (file, other) = (node(&fs, "file"), node(&fs, "other"));
            for n in 1..20 {
                let piece = vec![n; 7000];
                let kept = acknowledged.len();
                let written =
                    fs.append(&file, &piece).and_then(|_| fs.write(&other, u64::from(n) * 9000, &piece));
                if written.and_then(|_| fs.fsync(&file, Durability::Full)).is_err() {
                    reported += 1;
                    break;
                }
                acknowledged.extend_from_slice(&piece);
                assert_eq!(acknowledged.len(), kept + 7000);
            }
            let failed = device.injected() > 0;
            drop((file, other));
            assert!(
                fs.close().is_err() || !failed,
                "after {after} of {operation:?} {failure:?}: it was not reported"
            );
            drop((fs, device));
            let repaired = Command::new("e2fsck").arg("-fy").arg(image.path()).output().unwrap();
            let text = String::from_utf8_lossy(&repaired.stdout);
            assert!(matches!(repaired.status.code(), Some(0 | 1)), "{text}");
            let fs = open(&image);
            let read = read_all(&fs, &node(&fs, "file"));
            assert!(read.starts_with(&acknowledged), "after {after} of {operation:?} {failure:?}: lost");
            survived += 1;
            fs.close().unwrap();
            check(&image, &[], "repaired");
        }
    }
    assert!(reported > 10 && survived == 30, "{reported} of {survived}");
}

/// Only the journal holds the error: the program ends before it marks the superblock.
#[test]
fn an_abort_recorded_only_in_the_journal_reaches_e2fsck() {
    let image = Image::new("-t ext4 -b 1024 -J size=1", "16M", |tree| {
        std::fs::write(tree.join("file"), "").unwrap();
    });
    let disk = MemoryDevice::from(std::fs::read(image.path()).unwrap());
    let device = Arc::new(FaultDevice::new(Arc::new(disk.clone())));
    let fs = Ext4::open(device.clone(), writable()).unwrap();
    fs.append(&node(&fs, "file"), b"stored").unwrap();
    fs.sync().unwrap();
    fs.append(&node(&fs, "file"), b" and lost").unwrap();
    device.inject(Fault { operation: Operation::Flush, after: 0, times: 1, failure: Failure::Io });
    fs.sync().unwrap_err();
    // Closing waits for the record.
    let _ = fs.close();
    std::fs::write(image.path(), disk.to_vec()).unwrap();
    image.debugfs("set_super_value state 1\n");

    let refused = crate::common::writing::try_open(&image).err().unwrap().to_string();
    assert!(refused.contains("the journal has recorded an error"), "{refused}");
    assert_eq!(read_all(&image.open(), &node(&image.open(), "file")), b"stored");
    Command::new("e2fsck").arg("-fp").arg(image.path()).output().unwrap();
    check(&image, &[("file", b"stored")], "repaired");
    open(&image).close().unwrap();
}

#[test]
fn a_damaged_image_causes_errors_but_no_panic() {
    for options in ["-t ext2 -b 1024", "-t ext4 -b 1024 -O ^metadata_csum,^has_journal,^uninit_bg"] {
        let image = Image::new(options, "2M", |tree| {
            std::fs::write(tree.join("one"), vec![1; 300_000]).unwrap();
            std::fs::write(tree.join("two"), vec![2; 30_000]).unwrap();
        });
        let bytes = std::fs::read(image.path()).unwrap();
        for seed in 1..=150 {
            let mut dice = Dice(seed * 7_919);
            let mut damaged = bytes.clone();
            // The superblock stays intact; later blocks are mostly content.
            for _ in 0..1 + dice.roll(40) {
                let at = 2048 + dice.roll(100_000);
                damaged[at] = u8::try_from(dice.roll(256)).unwrap();
            }
            let device = Arc::new(MemoryDevice::from(damaged));
            let Ok(fs) = Ext4::open(device, writable()) else { continue };
            let root = fs.load(fs.root());
            for name in ["one", "two"] {
                let Ok(found) = root.as_ref().map_or(Ok(None), |root| fs.lookup(root, name.as_bytes()))
                else {
                    continue;
                };
                let Some(Ok(file)) = found.map(|found| fs.load(found.ino)) else { continue };
                let _ = fs.write(&file, u64::try_from(dice.roll(400_000)).unwrap(), &[3; 20_000]);
                let _ = fs.allocate(&file, 5000, 50_000, Allocate::PunchHole);
                let _ = fs.fsync(&file, Durability::Full);
                let _ = fs.set_attr(&file, &SetAttr { size: Some(100), ..SetAttr::default() });
                let _ = fs.append(&file, &[4; 50_000]);
            }
            let _ = fs.close();
        }
    }
}
