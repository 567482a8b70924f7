//! Disk cache: later runs fetch nothing, and all content is verified.

mod common;

use common::{BLOCK, Site, bytes};
use dentree_blockdev::BlockDevice;
use dentree_source_object::{ObjectDevice, cached, open};
use dentree_testing::{Exchange, Fault};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

const LEN: usize = 8 << 20;

fn read(device: &ObjectDevice, offset: u64, len: usize) -> Vec<u8> {
    let mut buf = vec![0; len];
    device.read_at(offset, &mut buf).unwrap();
    buf
}

fn body(exchanges: &[Exchange]) -> u64 {
    exchanges.iter().map(|exchange| exchange.body).sum()
}

fn cache_file(site: &Site) -> PathBuf {
    let entries = fs::read_dir(site.dir.path().join("cache")).unwrap();
    entries.map(|entry| entry.unwrap().path()).next().unwrap()
}

#[test]
fn a_second_run_asks_only_whether_the_object_is_the_same() {
    let content = bytes(LEN, 0);
    let Some(site) = Site::with(&content) else { return };
    assert!(read(&site.open_cached(), 0, LEN) == content);
    site.proxy.take();
    let device = site.open_cached();
    assert!(read(&device, 0, LEN) == content);
    let exchanges = site.proxy.take();
    assert_eq!((exchanges.len(), exchanges[0].status, body(&exchanges)), (1, 304, 0));
    assert_eq!(device.transfers().unwrap().cached_bytes, LEN as u64);
}

#[test]
fn a_server_that_always_sends_is_served_from_the_cache_too() {
    let content = bytes(LEN, 0);
    let Some(site) = Site::with(&content) else { return };
    site.proxy.always([Fault::Without("If-None-Match")]);
    assert!(read(&site.open_cached(), 0, LEN) == content);
    site.proxy.take();
    assert!(read(&site.open_cached(), 0, LEN) == content);
    assert_eq!(site.proxy.take().len(), 1);
}

#[test]
fn two_processes_share_what_either_has_fetched() {
    let content = bytes(LEN, 0);
    let Some(site) = Site::with(&content) else { return };
    let (one, other) = (site.open_cached(), site.open_cached());
    read(&one, 4 << 20, 4096);
    site.proxy.take();
    assert!(read(&other, 4 << 20, 4096) == content[4 << 20..][..4096]);
    assert_eq!(site.proxy.take().len(), 0);
}

#[test]
fn an_object_that_was_replaced_between_runs_is_fetched_anew() {
    let Some(site) = Site::with(&bytes(LEN, 0)) else { return };
    read(&site.open_cached(), 0, LEN);
    let new = bytes(LEN - 1, 1);
    site.replace(&new);
    assert!(read(&site.open_cached(), 0, LEN - 1) == new);
    assert!(read(&site.open_cached(), 0, LEN - 1) == new);
    assert_eq!(cached(&site.dir.path().join("cache")).unwrap().len(), 1);
}

/// A crash or full disk leaves records without blocks, blocks without records, and partial blocks.
#[test]
fn damage_of_the_cache_is_fetched_again() {
    let content = bytes(LEN, 0);
    let Some(site) = Site::with(&content) else { return };
    read(&site.open_cached(), 0, LEN);
    let file = File::options().write(true).open(cache_file(&site)).unwrap();
    let len = file.metadata().unwrap().len();
    // Data in each block, and a hole at the end.
    for at in (BLOCK..len).step_by(BLOCK as usize) {
        file.write_all_at(b"damage", at + 77).unwrap();
    }
    file.set_len(len - BLOCK).unwrap();
    assert!(read(&site.open_cached(), 0, LEN) == content);
    // Lose the records.
    file.write_all_at(&[0; 1024], 4096).unwrap();
    assert!(read(&site.open_cached(), 0, LEN) == content);
    // Damage the first page.
    file.write_all_at(b"damage", 100).unwrap();
    assert!(read(&site.open_cached(), 0, LEN) == content);
    site.proxy.take();
    assert!(read(&site.open_cached(), 0, LEN) == content);
    assert_eq!(body(&site.proxy.take()), 0, "and is whole then");
}

#[test]
fn what_a_killed_process_has_left_is_removed_by_the_next_and_a_file_in_the_making_is_not() {
    let Some(site) = Site::with(&bytes(LEN, 0)) else { return };
    read(&site.open_cached(), 0, LEN);
    let dir = site.dir.path().join("cache");
    let hour = SystemTime::now() - Duration::from_secs(3600);
    let file = |name: &str, modified: SystemTime| {
        let file = File::create(dir.join(name)).unwrap();
        file.set_modified(modified).unwrap();
        file
    };
    let held = file(".new-held", hour);
    held.lock().unwrap();
    for (name, modified) in [(".new-left", hour), (".new-young", SystemTime::now()), ("other", hour)] {
        file(name, modified);
    }
    read(&site.open_cached(), 0, LEN);
    let is_there = [".new-left", ".new-held", ".new-young", "other"].map(|name| dir.join(name).exists());
    assert_eq!(is_there, [false, true, true, true]);
}

#[test]
fn the_cache_stays_within_its_size() {
    let content = bytes(LEN, 0);
    let Some(site) = Site::with(&content) else { return };
    let dir = site.dir.path().join("cache");
    let on_disk = || cached(&dir).unwrap().iter().map(|object| object.on_disk).sum::<u64>();
    for name in ["a", "b", "c"] {
        fs::write(site.dir.path().join("www").join(name), &content).unwrap();
        let device = open(&site.proxy.url(&format!("/{name}")), &site.cached(20 << 20)).unwrap();
        assert!(read(&device, 0, LEN) == content);
    }
    let names: Vec<String> = cached(&dir).unwrap().into_iter().map(|object| object.address).collect();
    assert!(on_disk() <= 20 << 20 && names[0].ends_with("/c"), "{} bytes, {names:?}", on_disk());
    let device = open(&site.url(), &site.cached(0)).unwrap();
    assert!(read(&device, 0, LEN) == content);
}

#[test]
fn an_object_without_an_identity_is_not_kept() {
    let Some(site) = Site::with(&bytes(LEN, 0)) else { return };
    site.proxy.always([Fault::Drop("ETag"), Fault::Drop("Last-Modified")]);
    read(&site.open_cached(), 0, LEN);
    assert!(cached(&site.dir.path().join("cache")).unwrap().is_empty());
}

#[test]
fn addresses_are_kept_without_signatures_and_passwords() {
    let Some(site) = Site::with(&bytes(LEN, 0)) else { return };
    let url = site.proxy.url("/object?X-Amz-Signature=secret").replace("http://", "http://me:secret@");
    open(&url, &site.cached(1 << 30)).unwrap();
    assert_eq!(cached(&site.dir.path().join("cache")).unwrap()[0].address, site.url());
    let bytes = fs::read(cache_file(&site)).unwrap();
    assert!(!bytes.windows(6).any(|bytes| bytes == b"secret"));
}
