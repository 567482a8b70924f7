//! Our journals, replayed by e2fsck, the kernel and us.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use crate::common::{Image, Judges, SUPERBLOCK, assert_same_replay, location, run, text};
use dentree_blockdev::{BlockDevice, MemoryDevice};
use dentree_bufcache::BufCache;
use dentree_jbd2::{Journal, JournalOptions, replay};

const SMALL_BLOCK: usize = 1024;
const LARGE_BLOCK: usize = 4096;

/// Version of the checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sums {
    None,
    V1,
    V2,
    V3,
}

fn image(sums: Sums, block_size: usize, is_64bit: bool) -> Result<Image, String> {
    let has_sums = matches!(sums, Sums::V2 | Sums::V3);
    let sign = |on: bool| if on { "" } else { "^" };
    let features = format!("{}metadata_csum,{}64bit", sign(has_sums), sign(is_64bit));
    let (size, journal) = (block_size.to_string(), format!("size={}", block_size / 1024));
    let image = Image::new(&["-t", "ext4", "-b", &size, "-J", &journal, "-O", &features])?;
    if sums == Sums::V2 {
        let script = image.path.with_extension("script");
        fs::write(&script, "journal_open -c -v 2\njournal_close\n").unwrap();
        run("debugfs", &["-w", "-f", text(&script), text(&image.path)])?;
    }
    if sums == Sums::V1 {
        // `s_feature_compat`.
        return Ok(image.patched("v1", 0, 0x24, &1u32.to_be_bytes()));
    }
    Ok(image)
}

/// Sets `needs_recovery`.
fn mark(bytes: &mut [u8], has_sums: bool) {
    let superblock = &mut bytes[SUPERBLOCK];
    superblock[0x60] |= 4;
    if has_sums {
        let sum = !crc32c::crc32c(&superblock[..0x3FC]);
        superblock[0x3FC..].copy_from_slice(&sum.to_le_bytes());
    }
}

fn content(block_size: usize, number: u64) -> Vec<u8> {
    let mut bytes: Vec<u8> = number.to_le_bytes().iter().copied().cycle().take(block_size).collect();
    if number.is_multiple_of(3) {
        bytes[..4].copy_from_slice(&[0xC0, 0x3B, 0x39, 0x98]);
    }
    bytes
}

/// Changes, frees and reuses the image's last blocks, in a log that is closed in between and so
/// goes on where it ended, then cuts the power. Returns each block's content.
fn work(image: &Image, sums: Sums, is_64bit: bool, transactions: u64) -> BTreeMap<u64, Vec<u8>> {
    let location = location(&image.path);
    let block_size = location.block_size;
    let mut bytes = fs::read(&image.path).unwrap();
    let has_sums = matches!(sums, Sums::V2 | Sums::V3);
    mark(&mut bytes, has_sums);
    let blocks = (bytes.len() / block_size) as u64;
    let device = MemoryDevice::from(bytes);
    let cache = Arc::new(BufCache::new(Arc::new(device.clone()), block_size, 64 << 20));
    let options = JournalOptions { interval: None, has_checksums: has_sums, is_64bit };
    let open = || Journal::open(Arc::clone(&cache), &location, options).unwrap();
    let mut journal = open();
    let mut expected = BTreeMap::new();
    let mut is_metadata = BTreeMap::new();
    for transaction in 0..transactions {
        if transaction % 13 == 5 {
            journal.close().unwrap();
            drop(journal);
            journal = open();
        }
        let mut handle = journal.start(120).unwrap();
        let mut freed = Vec::new();
        for at in 0..120 {
            let (block, number) = (blocks - 1 - (transaction * 31 + at * 7) % 180, transaction << 16 | at);
            if freed.contains(&block) {
                continue;
            }
            if at % 5 == 0 && is_metadata.get(&block) == Some(&true) {
                handle.forget(block, 1);
                freed.push(block);
            } else {
                let bytes = content(block_size, number);
                handle.create(block, |to| to.copy_from_slice(&bytes)).unwrap();
                is_metadata.insert(block, true);
                expected.insert(block, bytes);
            }
        }
        journal.wait_commit(handle.stop()).unwrap();
        for block in freed {
            let bytes = content(block_size, transaction << 16 | 0xDA7A);
            device.write_at(block * block_size as u64, &bytes).unwrap();
            is_metadata.insert(block, false);
            expected.insert(block, bytes);
        }
    }
    fs::write(&image.path, device.to_vec()).unwrap();
    expected
}

fn replays(sums: Sums, block_size: usize, is_64bit: bool) {
    let what = format!("{sums:?}, blocks of {block_size}, 64 bits: {is_64bit}");
    for transactions in [1, 40] {
        let image = match image(sums, block_size, is_64bit) {
            Ok(image) => image,
            Err(reason) => return println!("skipped: {reason}"),
        };
        let expected = work(&image, sums, is_64bit, transactions);
        let recovered = assert_same_replay(&image, &what, Judges::Both);
        assert!(recovered.transactions > 0 && recovered.blocks > 0, "{what}: nothing to replay");
        assert!(transactions == 1 || recovered.revoked > 0, "{what}: nothing revoked");
        for (block, bytes) in expected {
            let mut found = vec![0; block_size];
            recovered.device.read_at(block * block_size as u64, &mut found).unwrap();
            assert!(found == bytes, "{what}, {transactions} transactions: block {block}");
        }
        let copy = image.copy("checked");
        let _ = run("e2fsck", &["-fy", text(&copy)]);
        run("e2fsck", &["-fn", text(&copy)]).unwrap_or_else(|error| panic!("{what}: {error}"));
        println!("{what}: {} transactions, {} blocks", recovered.transactions, recovered.blocks);
    }
}

#[test]
fn journals_without_sums() {
    replays(Sums::None, SMALL_BLOCK, false);
    replays(Sums::None, SMALL_BLOCK, true);
    replays(Sums::None, LARGE_BLOCK, false);
    replays(Sums::None, LARGE_BLOCK, true);
}

#[test]
fn journals_with_sums_of_version_1() {
    replays(Sums::V1, SMALL_BLOCK, false);
    replays(Sums::V1, SMALL_BLOCK, true);
    replays(Sums::V1, LARGE_BLOCK, false);
    replays(Sums::V1, LARGE_BLOCK, true);
}

#[test]
fn journals_with_sums_of_version_2() {
    replays(Sums::V2, SMALL_BLOCK, false);
    replays(Sums::V2, SMALL_BLOCK, true);
    replays(Sums::V2, LARGE_BLOCK, false);
    replays(Sums::V2, LARGE_BLOCK, true);
}

#[test]
fn journals_with_sums_of_version_3() {
    replays(Sums::V3, SMALL_BLOCK, false);
    replays(Sums::V3, SMALL_BLOCK, true);
    replays(Sums::V3, LARGE_BLOCK, false);
    replays(Sums::V3, LARGE_BLOCK, true);
}

#[test]
fn a_journal_that_ends_in_room_for_fast_commits() {
    let options = ["-t", "ext4", "-b", "1024", "-J", "size=2", "-O", "metadata_csum,64bit,fast_commit"];
    let image = match Image::new(&options) {
        Ok(image) => image,
        Err(reason) => return println!("skipped: {reason}"),
    };
    let expected = work(&image, Sums::V3, true, 80);
    // e2fsck misses the end of a wrapped log.
    let recovered = assert_same_replay(&image, "fast_commit", Judges::Kernel);
    assert!(recovered.transactions > 0 && recovered.revoked > 0);
    for (block, bytes) in expected {
        let mut found = vec![0; SMALL_BLOCK];
        recovered.device.read_at(block * SMALL_BLOCK as u64, &mut found).unwrap();
        assert!(found == bytes, "block {block}");
    }
}

#[test]
fn a_journal_that_was_closed_needs_no_replay() {
    let image = match image(Sums::V3, LARGE_BLOCK, true) {
        Ok(image) => image,
        Err(reason) => return println!("skipped: {reason}"),
    };
    let location = location(&image.path);
    let device = MemoryDevice::from(fs::read(&image.path).unwrap());
    let cache = Arc::new(BufCache::new(Arc::new(device.clone()), LARGE_BLOCK, 1 << 20));
    let options = JournalOptions { interval: None, has_checksums: true, is_64bit: true };
    let journal = Journal::open(cache, &location, options).unwrap();
    let mut handle = journal.start(1).unwrap();
    handle.create(4000, |bytes| bytes.fill(7)).unwrap();
    drop(handle);
    journal.close().unwrap();
    fs::write(&image.path, device.to_vec()).unwrap();
    run("e2fsck", &["-fn", text(&image.path)]).unwrap();
    assert!(image.mounts() || run("losetup", &["--find"]).is_err());
    assert_eq!(device.to_vec()[4000 * LARGE_BLOCK], 7);
}

#[test]
fn an_aborted_journal_says_so_to_e2fsck() {
    let image = match image(Sums::V3, LARGE_BLOCK, true) {
        Ok(image) => image,
        Err(reason) => return println!("skipped: {reason}"),
    };
    let location = location(&image.path);
    let mut bytes = fs::read(&image.path).unwrap();
    mark(&mut bytes, true);
    let device = MemoryDevice::from(bytes);
    let cache = Arc::new(BufCache::new(Arc::new(device.clone()), LARGE_BLOCK, 1 << 20));
    let options = JournalOptions { interval: None, has_checksums: true, is_64bit: true };
    let journal = Journal::open(cache, &location, options).unwrap();
    let mut handle = journal.start(1).unwrap();
    handle.create(4000, |bytes| bytes.fill(7)).unwrap();
    journal.wait_commit(handle.stop()).unwrap();
    journal.abort("an inode is not what it was");
    assert!(journal.close().unwrap_err().to_string().contains("an inode is not what it was"));
    fs::write(&image.path, device.to_vec()).unwrap();
    let again: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from(device.to_vec()));
    replay(&again, &location).unwrap();
    let cache = Arc::new(BufCache::new(again, LARGE_BLOCK, 64 << 20));
    assert_eq!(Journal::open(cache, &location, options).unwrap().recorded_error(), -5);
    // The replay runs, and the error is found.
    let output = std::process::Command::new("e2fsck").args(["-p", text(&image.path)]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("contains a file system with errors"), "{text}");
    assert_eq!(fs::read(&image.path).unwrap()[4000 * LARGE_BLOCK], 7);
}
