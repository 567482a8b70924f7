//! Power cuts while a file system grows: it has its old size or its new one, and e2fsck finds
//! nothing.

use crate::common::Image;
use crate::common::cuts::{Run, Work, check_all, left};
use crate::common::fsck;
use crate::common::run;
use dentree_blockdev::{BlockDevice, RecordingDevice, Survivors};
use dentree_ext4::{Ext4, InodeTime, Options, Size, grow};
use std::fs::{self, OpenOptions};
use std::process::Command;
use std::sync::Arc;

/// Recorded positions, and the blocks then.
struct Grown(Vec<(usize, u64)>);

impl Work for Grown {
    fn compare(&self, fs: Ext4, cut: usize) -> Result<(), String> {
        let found = fs.superblock().blocks_count;
        fs.close().map_err(|error| format!("closing: {error}"))?;
        // Acknowledged, or under way.
        let done = self.0.iter().take_while(|(position, _)| *position <= cut).count();
        let may_be: Vec<_> = self.0[done - 1..].iter().take(2).map(|(_, blocks)| *blocks).collect();
        if may_be.contains(&found) { Ok(()) } else { Err(format!("{found} is none of {may_be:?}")) }
    }
}

#[test]
fn after_a_power_cut_a_growing_file_system_has_its_old_size_or_its_new_one() {
    for options in [
        "-t ext4 -b 1024 -g 1024 -N 256",
        "-t ext4 -b 4096 -J size=4 -O ^resize_inode,meta_bg",
        "-t ext3 -b 1024 -g 2048 -O uninit_bg",
        "-t ext3 -b 2048 -O ^resize_inode",
    ] {
        let image = Image::new(options, "20M", |tree| fs::write(tree.join("file"), [7; 9000]).unwrap());
        OpenOptions::new().write(true).open(image.path()).unwrap().set_len(72 << 20).unwrap();
        let recorded = Arc::new(RecordingDevice::new(fs::read(image.path()).unwrap()));
        let device: Arc<dyn BlockDevice> = recorded.clone();
        let blocks = || Ext4::open(device.clone(), Options::default()).unwrap().superblock().blocks_count;
        let mut sizes = vec![(0, blocks())];
        for mib in [23, 31, 70, 72] {
            grow(&device, Size::Bytes(mib << 20), InodeTime::default()).unwrap();
            sizes.push((recorded.position(), blocks()));
        }
        let run = Run { what: options.to_owned(), recording: recorded.recording(), work: Grown(sizes) };
        let (cuts, problems) = check_all(&run, 60, 1);
        println!("{options}: {cuts} power cuts");
        assert!(problems.is_empty(), "{}", problems.join("\n\n"));
    }
}

#[test]
fn after_a_power_cut_without_a_journal_e2fsck_repairs_what_grew_and_files_are_there() {
    let content = vec![7; 900_000];
    for options in
        ["-t ext2 -b 1024 -g 2048", "-t ext4 -b 1024 -g 1024 -O ^has_journal,meta_bg,^resize_inode"]
    {
        let image = Image::new(options, "10M", |tree| fs::write(tree.join("file"), &content).unwrap());
        OpenOptions::new().write(true).open(image.path()).unwrap().set_len(45 << 20).unwrap();
        let recorded = Arc::new(RecordingDevice::new(fs::read(image.path()).unwrap()));
        let device: Arc<dyn BlockDevice> = recorded.clone();
        for mib in [11, 24, 45] {
            grow(&device, Size::Bytes(mib << 20), InodeTime::default()).unwrap();
        }
        let recording = recorded.recording();
        let (mut replay, scratch) = (recording.replay(), fsck::scratch());
        let (image, copy) = (scratch.path().join("image"), scratch.path().join("file"));
        let cuts = (0..=recording.steps().len()).step_by(recording.steps().len() / 40);
        for (cut, seed) in cuts.zip(1..) {
            for survivors in [Survivors::All, Survivors::Writes { seed }] {
                fs::write(&image, left(&mut replay, cut, survivors)).unwrap();
                let said = Command::new("e2fsck").arg("-fy").arg(&image).output().unwrap();
                assert!(said.status.code() <= Some(1), "{options}, cut {cut}: {said:?}");
                fsck::is_clean(&image).unwrap();
                run(Command::new("debugfs")
                    .arg("-R")
                    .arg(format!("dump /file {}", copy.display()))
                    .arg(&image));
                assert!(fs::read(&copy).unwrap() == content, "{options}, cut {cut}");
            }
        }
    }
}
