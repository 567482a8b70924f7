//! Other sizes for damaged images: an error that leaves them as they are, or a file system of that
//! size.

use crate::common::Image;
use crate::common::writing::Dice;
use dentree_blockdev::{BlockDevice, MemoryDevice};
use dentree_ext4::{Error, InodeTime, Result, Size, Superblock, grow, shrink};
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// Damages images at random, and calls `resize` with each, of `size` bytes.
fn each_damaged(
    size: usize,
    fill: impl Fn(&Path) + Copy,
    resize: impl Fn(&Arc<dyn BlockDevice>) -> Result<Superblock>,
) {
    let rounds = std::env::var("ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(300);
    for options in [
        "-t ext2 -b 1024 -g 1024",
        "-t ext4 -b 1024 -g 1024 -O ^metadata_csum",
        "-t ext4 -b 1024 -g 2048 -O ^metadata_csum,meta_bg,^resize_inode -J size=1",
    ] {
        let image = fs::read(Image::new(options, "6M", fill).path()).unwrap();
        let used: Vec<usize> =
            (0..image.len() / 1024).filter(|&n| image[n * 1024..][..1024] != [0; 1024]).collect();
        let (mut dice, mut done) = (Dice(7), 0);
        for round in 0..rounds {
            let mut bytes = image.clone();
            bytes.resize(size, 0);
            for _ in 0..=dice.roll(3) {
                // Superblock and descriptors more often.
                let block = if dice.roll(2) == 0 { 1 + dice.roll(2) } else { used[dice.roll(used.len())] };
                let at = block * 1024 + dice.roll(1024);
                bytes[at] = [0, 1, 0xFF, bytes[at] ^ (1 << dice.roll(8))][dice.roll(4)];
            }
            let device = MemoryDevice::from(bytes.clone());
            let shared: Arc<dyn BlockDevice> = Arc::new(device.clone());
            match resize(&shared) {
                Ok(_) => done += 1,
                Err(Error::Journal(_)) => {}
                Err(error) => assert!(device.to_vec() == bytes, "{options}, round {round}: {error}"),
            }
        }
        println!("{options}: {done} of {rounds} were resized");
    }
}

#[test]
fn a_damaged_image_is_refused_as_it_is_or_grows() {
    each_damaged(20 << 20, |_| {}, |device| grow(device, Size::Bytes(20 << 20), InodeTime::default()));
}

#[test]
fn a_damaged_image_is_refused_as_it_is_or_shrinks() {
    let fill = |tree: &Path| {
        for n in 0..40 {
            let dir = tree.join(format!("dir {}", n % 5));
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join(format!("file {n}")), vec![n; 20_000]).unwrap();
        }
    };
    each_damaged(6 << 20, fill, |device| shrink(device, None, InodeTime::default()));
}
