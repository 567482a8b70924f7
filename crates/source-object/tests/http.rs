//! Objects of an HTTP server behind a proxy that counts and injects faults.

mod common;

use common::{BLOCK, Site, bytes};
use dentree_blockdev::BlockDevice;
use dentree_source_object::{Error, Options, open};
use dentree_testing::{Fault, wait_until};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;

/// Concurrent requests of a device.
const CONNECTIONS: u64 = 16;

fn read(device: &impl BlockDevice, offset: u64, len: usize) -> std::io::Result<Vec<u8>> {
    let mut buf = vec![0; len];
    device.read_at(offset, &mut buf).map(|()| buf)
}

fn refusal(site: &Site) -> Error {
    open(&site.url(), &Options::default()).err().unwrap()
}

#[test]
fn every_range_has_the_bytes_of_the_object() {
    let content = bytes(3_000_001, 0);
    let Some(site) = Site::with(&content) else { return };
    let device = site.open();
    assert_eq!(device.size(), 3_000_001);
    for (offset, len) in
        [(0, 1), (65_535, 2), (1_000_000, 300_000), (2_999_000, 1_001), (5, 0), (0, 3_000_001)]
    {
        assert!(
            read(&device, offset, len).unwrap() == content[offset as usize..][..len],
            "{len} at {offset}"
        );
    }
    let past = read(&device, 3_000_000, 2).unwrap_err();
    assert_eq!(past.kind(), std::io::ErrorKind::UnexpectedEof);
}

#[test]
fn opening_and_reading_the_beginning_is_one_request() {
    let Some(site) = Site::with(&bytes(10 << 20, 0)) else { return };
    let device = site.open();
    read(&device, 1024, 1024).unwrap();
    read(&device, 4096, 200_000).unwrap();
    assert_eq!(site.proxy.take().len(), 1);
}

#[test]
fn threads_that_read_the_same_make_one_request() {
    let content = bytes(10 << 20, 0);
    let Some(site) = Site::with(&content) else { return };
    let device = site.open();
    site.proxy.take();
    site.proxy.hold();
    thread::scope(|scope| {
        let readers: Vec<_> =
            (0..16).map(|_| scope.spawn(|| read(&device, 5 << 20, 4096).unwrap())).collect();
        site.proxy.release();
        for reader in readers {
            assert!(reader.join().unwrap() == content[5 << 20..][..4096]);
        }
    });
    assert_eq!(site.proxy.take().len(), 1);
}

#[test]
fn neighbours_that_wait_for_a_connection_share_a_request() {
    let content = bytes(70 << 20, 0);
    let Some(site) = Site::with(&content) else { return };
    let device = Arc::new(site.open());
    site.proxy.take();
    let (sender, receiver) = channel();
    let submit = |block: u64| {
        let sender = sender.clone();
        let done =
            Box::new(move |read: std::io::Result<Vec<u8>>| sender.send((block, read.unwrap())).unwrap());
        Arc::clone(&device).submit(block * BLOCK, vec![0; 4096], done);
    };
    site.proxy.hold();
    (0..CONNECTIONS).for_each(|far| submit(100 + 50 * far));
    wait_until("all connections are busy", || site.proxy.held() == CONNECTIONS as usize);
    (1000..1064).for_each(submit);
    site.proxy.release();
    for (block, read) in receiver.iter().take(CONNECTIONS as usize + 64) {
        assert!(read == content[(block * BLOCK) as usize..][..4096], "{block}");
    }
    let exchanges = site.proxy.take();
    assert_eq!(exchanges.len() as u64, CONNECTIONS + 1);
    let longest = exchanges.iter().map(|exchange| exchange.body).max();
    assert_eq!(longest, Some(64 * BLOCK), "each once");
}

#[test]
fn a_sequential_reader_makes_few_requests() {
    let content = bytes(20 << 20, 0);
    let Some(site) = Site::with(&content) else { return };
    let device = site.open();
    for at in (0..20 << 20).step_by(4096) {
        assert!(read(&device, at, 4096).unwrap() == content[at as usize..][..4096]);
    }
    let exchanges = site.proxy.take();
    assert!(exchanges.len() <= 10, "{} requests", exchanges.len());
    assert_eq!(exchanges.iter().map(|exchange| exchange.body).sum::<u64>(), 20 << 20);
}

#[test]
fn an_object_that_is_replaced_is_an_error_and_never_a_mixture() {
    let Some(site) = Site::with(&bytes(10 << 20, 0)) else { return };
    let device = site.open();
    site.replace(&bytes(10 << 20, 1).repeat(1)[..(10 << 20) - 1]);
    let refused = read(&device, 5 << 20, 4096).unwrap_err().to_string();
    assert!(refused.contains("the object changed while it was read"), "{refused}");
    // Without conditions, length and ETag reveal the change.
    site.proxy.always([Fault::Without("If-Match")]);
    let refused = read(&device, 6 << 20, 4096).unwrap_err().to_string();
    assert!(
        refused.contains("changed while it was read: its length was 10485760 and is 10485759"),
        "{refused}"
    );
}

#[test]
fn without_a_strong_etag_the_time_of_change_stands_for_it() {
    let Some(site) = Site::with(&bytes(10 << 20, 0)) else { return };
    let weak = || Fault::Header("ETag", "W/\"1\"".into());
    let changed = |time: &str| Fault::Header("Last-Modified", format!("Mon, 23 Nov 2026 08:00:{time} GMT"));
    site.proxy.always([weak(), changed("00"), Fault::Without("If-Unmodified-Since")]);
    let device = site.open();
    read(&device, 5 << 20, 4096).unwrap();
    let asked = site.proxy.take().pop().unwrap().request.to_ascii_lowercase();
    assert!(!asked.contains("if-match") && asked.contains("if-unmodified-since"), "{asked}");
    site.proxy.always([weak(), changed("01"), Fault::Without("If-Unmodified-Since")]);
    let refused = read(&device, 6 << 20, 4096).unwrap_err().to_string();
    assert!(refused.contains("its time of change was"), "{refused}");
}

#[test]
fn what_a_bad_line_does_is_asked_for_again() {
    let content = bytes(10 << 20, 0);
    let Some(site) = Site::with(&content) else { return };
    let device = site.open();
    let wrong_length = || Fault::Header("Content-Length", "100".into());
    let faults = [
        Fault::Status(503),
        Fault::Status(429),
        Fault::CutAfter(0),
        Fault::CutAfter(30_000),
        wrong_length(),
        Fault::Header("Content-Range", "bytes 0-65535/10485760".into()),
    ];
    for (at, fault) in (1..).zip(faults) {
        site.proxy.take();
        site.proxy.next([fault.clone()]);
        let offset = at << 20;
        assert!(read(&device, offset, 4096).unwrap() == content[offset as usize..][..4096], "{fault:?}");
        assert!(site.proxy.take().len() >= 2, "{fault:?}");
    }
    // A connection lost early.
    site.proxy.next([Fault::CutAfter(1000)]);
    assert!(read(&site.open(), 0, 4096).unwrap() == content[..4096]);
}

#[test]
fn a_server_that_stays_bad_is_an_error_that_says_what() {
    let Some(site) = Site::with(&bytes(10 << 20, 0)) else { return };
    let device = site.open();
    site.proxy.always([Fault::Header("Content-Length", "100".into())]);
    let refused = read(&device, 5 << 20, 4096).unwrap_err().to_string();
    assert!(refused.contains("the server sent 100 bytes"), "{refused}");
    site.proxy.always([Fault::Status(410)]);
    let refused = read(&device, 5 << 20, 4096).unwrap_err().to_string();
    assert!(refused.contains("410 Gone"), "{refused}");
    // Continues once the server recovers.
    site.proxy.always([]);
    read(&device, 5 << 20, 4096).unwrap();
}

#[test]
fn what_is_not_there_or_denied_or_without_ranges_is_told() {
    let Some(site) = Site::with(&bytes(1 << 20, 0)) else { return };
    let missing = open(&site.proxy.url("/none"), &Options::default()).err().unwrap();
    assert_eq!(missing, Error::NotFound);
    for status in [401, 403] {
        site.proxy.next([Fault::Status(status)]);
        let denied = refusal(&site).to_string();
        assert!(denied.contains(&status.to_string()) && denied.contains("without credentials"), "{denied}");
    }
    site.proxy.next([Fault::Without("Range")]);
    assert_eq!(refusal(&site), Error::NoRanges);
    // The server speaks no TLS.
    let tls = site.url().replace("http:", "https:");
    let refused = open(&tls, &Options::default()).err().unwrap();
    assert!(matches!(refused, Error::Tls { .. }), "{refused}");
}
