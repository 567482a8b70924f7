//! Metadata blocks are reused while the journal has old copies. Revoke records keep a replay from
//! restoring those.

use crate::common::{Image, fsck};
use dentree_blockdev::{MemoryDevice, RecordingDevice, Survivors};
use dentree_ext4::{Ext4, Options};
use dentree_vfs::{Durability, Error, Identity, NewKind, Vfs};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

const WHO: &Identity = &Identity::Superuser;
const NAMES: usize = 400;

fn writable() -> Options {
    Options { writable: true, ..Options::default() }
}

fn name(n: usize) -> String {
    format!("name {n:04} of a directory whose blocks others get")
}

/// Many blocks, and a symbolic link with a block.
fn make(vfs: &Vfs<Ext4>, top: &str) {
    let dir = vfs.create(WHO, vfs.root(), top.as_bytes(), NewKind::Directory, 0o755).unwrap();
    for n in 0..NAMES {
        vfs.create(WHO, &dir, name(n).as_bytes(), NewKind::Fifo, 0o644).unwrap();
    }
    vfs.create(WHO, &dir, b"link", NewKind::Symlink(&[b'l'; 500]), 0o777).unwrap();
}

fn remove(vfs: &Vfs<Ext4>, top: &str) {
    let dir = vfs.lookup(WHO, vfs.root(), top.as_bytes()).unwrap().unwrap();
    for n in 0..NAMES {
        vfs.unlink(WHO, &dir, name(n).as_bytes()).unwrap();
    }
    vfs.unlink(WHO, &dir, b"link").unwrap();
    drop(dir);
    vfs.rmdir(WHO, vfs.root(), top.as_bytes()).unwrap();
}

fn byte(at: u64) -> u8 {
    (at / 1024 % 199 + 40) as u8
}

/// Until ENOSPC. Returns the length.
fn fill(vfs: &Vfs<Ext4>) -> u64 {
    let file = vfs.create(WHO, vfs.root(), b"data", NewKind::Regular, 0o644).unwrap();
    let mut at = 0;
    loop {
        let block: Vec<u8> = (at..at + 1024).map(byte).collect();
        match vfs.write(WHO, &file, at, &block) {
            Ok(len) => at += len as u64,
            Err(Error::NoSpace) => break,
            Err(error) => panic!("{error}"),
        }
    }
    vfs.fsync(&file, Durability::Full).unwrap();
    at
}

fn replayed_by_e2fsck(image: &[u8], path: &Path) {
    std::fs::write(path, image).unwrap();
    fsck::recover(path, &[]).unwrap_or_else(|text| panic!("e2fsck repairs: {text}"));
    fsck::is_clean(path).unwrap_or_else(|text| panic!("after e2fsck's replay: {text}"));
}

/// Includes the link in the directory.
fn blocks_of(image: &Image, device: &RecordingDevice, top: &str) -> BTreeSet<u64> {
    let copy = image.beside("copy");
    replayed_by_e2fsck(&device.to_vec(), &copy.path());
    let text = copy.debugfs(&format!("blocks /{top}\nblocks /{top}/link\n"));
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// After each way to replay an image.
fn after_replays(image: &Image, left: Vec<u8>, what: &str, check: &dyn Fn(&Vfs<Ext4>, &str)) {
    let theirs = image.beside("theirs");
    replayed_by_e2fsck(&left, &theirs.path());
    let device = Arc::new(MemoryDevice::from(std::fs::read(theirs.path()).unwrap()));
    check(
        &Vfs::new(Ext4::open(device, Options::default()).unwrap()).unwrap(),
        &format!("{what}, replayed by e2fsck"),
    );
    let device = Arc::new(MemoryDevice::from(left.clone()));
    check(
        &Vfs::new(Ext4::open(device, Options::default()).unwrap()).unwrap(),
        &format!("{what}, shown as replayed"),
    );
    let device = Arc::new(MemoryDevice::from(left));
    let vfs = Vfs::new(Ext4::open(device.clone(), writable()).unwrap()).unwrap();
    check(&vfs, &format!("{what}, replayed by us"));
    vfs.into_fs().unwrap().close().unwrap();
    std::fs::write(theirs.path(), device.to_vec()).unwrap();
    fsck::is_clean(&theirs.path()).unwrap_or_else(|text| panic!("{what}, replayed by us: {text}"));
}

fn holds(bytes: &[u8], what: &[u8]) -> bool {
    bytes.windows(what.len()).any(|here| here == what)
}

/// Without revoke records, old leaves appear in the file's content.
fn reuse(options: &str) {
    let image = Image::new(options, "8M", |_| {});
    let device = Arc::new(RecordingDevice::new(std::fs::read(image.path()).unwrap()));
    let vfs = Vfs::new(Ext4::open(device.clone(), writable()).unwrap()).unwrap();
    make(&vfs, "old");
    vfs.sync().unwrap();
    let old = blocks_of(&image, &device, "old");
    assert!(old.len() > 10, "{options}: {old:?}");
    remove(&vfs, "old");
    vfs.sync().unwrap();
    let len = fill(&vfs);
    let filled = device.position();

    let left = device.recording().replay().image(filled, Survivors::None);
    let at = |block: u64| usize::try_from(block).unwrap() * 1024;
    let reused = old
        .iter()
        .filter(|&&block| left[at(block)..at(block + 1)].windows(2).all(|pair| pair[0] == pair[1]))
        .count();
    assert!(reused > 10, "{options}: {reused} of {old:?} have got data");
    assert!(holds(&left, name(7).as_bytes()), "{options}: the journal has no copy that could come back");
    after_replays(&image, left, options, &|vfs, what| {
        let file = vfs.lookup(WHO, vfs.root(), b"data").unwrap().unwrap();
        let mut content = vec![0; usize::try_from(len).unwrap()];
        assert_eq!(vfs.read(&file, 0, &mut content).unwrap(), content.len(), "{what}");
        let wrong = (0..len).find(|&at| content[usize::try_from(at).unwrap()] != byte(at));
        assert_eq!(wrong, None, "{what}: the file holds something else there");
    });

    // Reverse: revoked blocks are journalled again, and must be replayed.
    vfs.unlink(WHO, vfs.root(), b"data").unwrap();
    vfs.sync().unwrap();
    make(&vfs, "new");
    vfs.sync().unwrap();
    let again = blocks_of(&image, &device, "new").intersection(&old).count();
    assert!(again > 0, "{options}: no block is metadata again");
    let left = device.recording().replay().image(usize::MAX, Survivors::None);
    after_replays(&image, left, options, &|vfs, what| {
        let dir = vfs.lookup(WHO, vfs.root(), b"new").unwrap().unwrap();
        for n in 0..NAMES {
            assert!(
                vfs.lookup(WHO, &dir, name(n).as_bytes()).unwrap().is_some(),
                "{what}: {} is lost",
                name(n)
            );
        }
    });
    drop(vfs);
}

#[test]
fn freed_metadata_does_not_overwrite_data_with_checksums() {
    reuse("-t ext4 -b 1024 -J size=2");
}

#[test]
fn freed_metadata_does_not_overwrite_data_without_checksums() {
    reuse("-t ext3 -b 1024 -J size=2");
}
