//! `?archive=tar` with a writer controlled by the test.

mod common;

use common::{MemFs, Running, Thing, pattern};
use dentree_testing::wait_until;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const LARGE: u64 = 5_000_000;

/// Active writers.
type Busy = Arc<AtomicUsize>;

/// Two archives at a time. Below `endless` the writer ends only on failure.
fn site(busy: &Busy) -> Running {
    let busy = busy.clone();
    let write = move |path: &[u8], to: &mut dyn Write| -> io::Result<()> {
        busy.fetch_add(1, Relaxed);
        let written = match path {
            b"/large/" => (0..LARGE)
                .map(pattern)
                .collect::<Vec<u8>>()
                .chunks(1000)
                .try_for_each(|part| to.write_all(part)),
            b"/endless/" => (0..).try_for_each(|_: u64| to.write_all(&[0; 5000])),
            b"/failing/" => to.write_all(&[1; 200_000]).and(Err(io::ErrorKind::InvalidData.into())),
            b"/panicking/" => panic!("as the test wants it"),
            path => to.write_all(path),
        };
        busy.fetch_sub(1, Relaxed);
        written
    };
    let names = ["large", "endless", "failing", "panicking", "a \"b\" \u{fc}"];
    let tree = names.map(|name| (name, Thing::Dir)).into_iter();
    Running::with(MemFs::new(tree.chain([("file", Thing::File(b"content".to_vec()))])), |options| {
        options.archive = Some(Box::new(write));
        options.limits.archives = 2;
    })
}

#[test]
fn an_archive_arrives_whole_under_the_name_of_its_directory() {
    let site = site(&Busy::default());
    let reply = site.get("/large/?archive=tar");
    assert_eq!((reply.status, reply.header("content-type")), (200, "application/x-tar"));
    assert!(!reply.short && reply.body.len() as u64 == LARGE);
    assert!(reply.body.iter().zip(0..).all(|(&byte, at)| byte == pattern(at)));
    for (path, name) in [
        ("/large/", "filename=\"large.tar\"; filename*=UTF-8''large.tar"),
        ("/", "filename=\"disk.img.tar\"; filename*=UTF-8''disk.img.tar"),
        ("/a%20%22b%22%20%C3%BC/", "filename=\"a _b_ _.tar\"; filename*=UTF-8''a%20%22b%22%20%C3%BC.tar"),
    ] {
        let head = site.ask(&format!("HEAD {path}?archive=tar"), "");
        assert_eq!(head.header("content-disposition"), format!("attachment; {name}"));
    }
    assert_eq!(site.get("/?archive=tar").text(), "/");
    assert_eq!(site.get("/large?archive=tar").header("location"), "/large/?archive=tar");
    assert_eq!(site.get("/file?archive=tar").text(), "content");
    assert!(site.get("/?archive=zip").text().contains("href=\"?archive=tar\""), "this is the page");
    assert!(!Running::new(MemFs::new([("a", Thing::Dir)])).get("/?archive=tar").text().contains("archive"));
}

#[test]
fn an_archive_that_cannot_be_written_to_its_end_is_cut_short() {
    let site = site(&Busy::default());
    let reply = site.get("/failing/?archive=tar");
    assert!(reply.short && reply.body.iter().all(|&byte| byte == 1));
    assert_eq!(site.get("/panicking/?archive=tar").status, 500);
}

#[test]
fn a_client_that_leaves_ends_the_writing_of_its_archive() {
    let busy = Busy::default();
    let site = site(&busy);
    let mut clients = [site.client(), site.client()];
    for client in &mut clients {
        client.request("GET /endless/?archive=tar", "");
        client.0.read_exact(&mut [0; 300_000]).unwrap();
    }
    assert_eq!(busy.load(Relaxed), 2);
    assert_eq!(site.get("/large/?archive=tar").status, 503, "no more than the limit");
    assert_eq!(site.get("/file").status, 200, "files are not in the way of archives");
    drop(clients);
    wait_until("ended", || busy.load(Relaxed) == 0);
    wait_until("free again", || site.get("/large/?archive=tar").status == 200);
}
