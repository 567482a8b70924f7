//! Files, ranges, conditions, refusals.

mod common;

use common::{CHANGED_DATE, MemFs, Running, Thing, large, pattern};
use std::sync::{Arc, Mutex};

fn file(content: &str) -> Thing {
    Thing::File(content.into())
}

fn site() -> Running {
    Running::new(MemFs::new([
        (&b"hello.txt"[..], file("Hello, world")),
        (b"empty", file("")),
        (b"notes", file("no extension, yet text\n")),
        (b"program", Thing::File(vec![0x7f, b'E', b'L', b'F', 0, 1, 2])),
        (b"page.html", file("<p>hi")),
        (b"large.bin", large(1_000_000)),
        (b"dir", Thing::Dir),
        (b"dir/inside", file("inside")),
        (b"dir/up", Thing::Link("../../../../hello.txt")),
        (b"absolute", Thing::Link("/dir/inside")),
        (b"todir", Thing::Link("dir")),
        (b"loop", Thing::Link("loop")),
        (b"dangling", Thing::Link("nowhere")),
        (b"pipe", Thing::Fifo),
        (b"a b%2f?#", file("odd")),
        (b"\xff\xfe", file("not UTF-8")),
    ]))
}

#[test]
fn a_file_is_sent_with_what_is_known_of_it() {
    let site = site();
    let reply = site.get("/hello.txt");
    assert_eq!((reply.status, reply.text().as_str()), (200, "Hello, world"));
    assert_eq!(reply.header("content-type"), "text/plain; charset=utf-8");
    assert_eq!(reply.header("last-modified"), CHANGED_DATE);
    assert_eq!(reply.header("accept-ranges"), "bytes");
    assert_eq!(reply.header("x-content-type-options"), "nosniff");
    assert!(reply.header("etag").starts_with('"') && reply.header("etag").ends_with('"'));
    assert_eq!(site.get("/notes").header("content-type"), "text/plain; charset=utf-8");
    assert_eq!(site.get("/program").header("content-type"), "application/octet-stream");
    assert!(site.get("/page.html").header("content-security-policy").starts_with("sandbox"));
    assert_eq!(site.get("/empty").body, b"");
}

#[test]
fn a_large_file_arrives_whole() {
    let reply = site().get("/large.bin");
    assert_eq!(reply.body.len(), 1_000_000);
    assert!(reply.body.iter().zip(0..).all(|(&byte, at)| byte == pattern(at)));
}

#[test]
fn head_tells_what_get_would() {
    let site = site();
    for path in ["/hello.txt", "/notes", "/program", "/empty", "/large.bin", "/dir/", "/dir", "/none", "/%"] {
        let (get, head) = (site.get(path), site.ask(&format!("HEAD {path}"), ""));
        let shown = |reply: &common::Reply| {
            let mut headers = reply.headers.clone();
            headers.remove("date");
            (reply.status, headers)
        };
        assert_eq!(shown(&get), shown(&head), "{path}");
        assert_eq!(head.body, b"");
    }
    // RFC 9110 §14.2: GET only.
    assert_eq!(site.ask("HEAD /hello.txt", "Range: bytes=0-1\r\n").status, 200);
}

#[test]
fn a_range_is_a_part_of_the_file() {
    let site = site();
    let ask = |range: &str| site.ask("GET /hello.txt", &format!("Range: {range}\r\n"));
    for (range, part, content_range) in [
        ("bytes=0-4", "Hello", "bytes 0-4/12"),
        ("bytes=7-", "world", "bytes 7-11/12"),
        ("bytes=-5", "world", "bytes 7-11/12"),
        ("bytes=7-1000", "world", "bytes 7-11/12"),
    ] {
        let reply = ask(range);
        assert_eq!((reply.status, reply.text().as_str()), (206, part));
        assert_eq!(reply.header("content-range"), content_range);
        assert_eq!(reply.header("etag"), site.get("/hello.txt").header("etag"));
    }
    for range in ["bytes=12-", "bytes=-0", "bytes=50-60,70-"] {
        let reply = ask(range);
        assert_eq!((reply.status, reply.header("content-range")), (416, "bytes */12"));
    }
    for range in ["bytes=5-4", "lines=1-2", "bytes=0-9,5-11", "nonsense"] {
        assert_eq!(ask(range).status, 200, "{range}");
    }
    let middle = site.ask("GET /large.bin", "Range: bytes=300000-799999\r\n");
    assert!(
        middle.body.len() == 500_000 && middle.body.iter().zip(300_000..).all(|(&b, at)| b == pattern(at))
    );
    let typed = site.ask("GET /notes", "Range: bytes=3-5\r\n");
    assert_eq!(typed.header("content-type"), "text/plain; charset=utf-8");
    assert_eq!(site.ask("GET /empty", "Range: bytes=0-\r\n").status, 416);
}

#[test]
fn several_ranges_come_as_parts_in_the_order_asked_for() {
    let reply = site().ask("GET /large.bin", "Range: bytes=900000-900003, 0-2, -2\r\n");
    assert_eq!(reply.status, 206);
    let boundary = reply.header("content-type").strip_prefix("multipart/byteranges; boundary=").unwrap();
    let head = |range: &str| {
        format!(
            "\r\n--{boundary}\r\nContent-Type: application/octet-stream\r\nContent-Range: bytes {range}/1000000\r\n\r\n"
        )
    };
    let mut expected = Vec::new();
    for (range, first, last) in
        [("900000-900003", 900_000, 900_003), ("0-2", 0, 2), ("999998-999999", 999_998, 999_999)]
    {
        expected.extend(head(range).as_bytes());
        expected.extend((first..=last).map(pattern));
    }
    expected.extend(format!("\r\n--{boundary}--\r\n").as_bytes());
    assert_eq!(reply.body, expected);
}

#[test]
fn a_client_that_has_the_file_is_not_sent_it_again() {
    let site = site();
    let tag = site.get("/hello.txt").header("etag").to_owned();
    let ask = |headers: &str| site.ask("GET /hello.txt", headers);
    for headers in [
        format!("If-None-Match: {tag}\r\n"),
        format!("If-None-Match: \"other\", W/{tag}\r\n"),
        format!("If-Modified-Since: {CHANGED_DATE}\r\n"),
    ] {
        let reply = ask(&headers);
        assert_eq!(
            (reply.status, reply.body.len(), reply.header("etag")),
            (304, 0, tag.as_str()),
            "{headers}"
        );
    }
    assert_eq!(ask("If-None-Match: \"other\"\r\n").status, 200);
    assert_eq!(ask("If-Match: \"other\"\r\n").status, 412);
    assert_eq!(ask("If-Unmodified-Since: Sat, 08 Sep 2001 01:46:40 GMT\r\n").status, 412);
    assert_eq!(ask(&format!("If-Range: {tag}\r\nRange: bytes=0-0\r\n")).status, 206);
    assert_eq!(ask(&format!("If-Range: {CHANGED_DATE}\r\nRange: bytes=0-0\r\n")).status, 206);
    assert_eq!(ask("If-Range: \"other\"\r\nRange: bytes=0-0\r\n").status, 200);
    assert_ne!(site.get("/notes").header("etag"), tag);
}

#[test]
fn times_that_no_date_can_say_are_not_sent() {
    for mtime in [-1, i64::MIN, i64::MAX, 253_402_300_800, 32_503_680_000] {
        let site = Running::new(MemFs::new([("file", file("x"))]).changed(mtime));
        let reply = site.get("/file");
        assert_eq!((reply.status, reply.header("last-modified")), (200, ""), "{mtime}");
        assert_eq!(site.get("/").status, 200);
    }
}

#[test]
fn nothing_outside_the_file_system_has_a_name() {
    let site = site();
    let escapes = [
        "/../etc/passwd",
        "/..%2f..%2fetc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/dir/../../etc/passwd",
        "/..%5c",
        "/dir%2finside",
        "/dir/%2e%2e/hello.txt",
        "/.%2e/",
        "/hello.txt%00.html",
        "/%",
        "/%2",
        "/%zz",
        "/%c0%ae%c0%ae/",
        "/..;/x",
        "/%252e%252e/x",
    ];
    for path in escapes {
        let reply = site.get(path);
        assert!(matches!(reply.status, 400 | 404), "{path}: {}", reply.status);
        assert!(!reply.text().contains("root:"));
    }
    // `..` of the root is the root, as in a chroot.
    assert_eq!(site.get("/dir/up").text(), "Hello, world");
    assert_eq!(site.get("/absolute").text(), "inside");
    for path in ["/loop", "/dangling", "/none", "/hello.txt/", "/hello.txt/x", "/dir/none"] {
        assert_eq!(site.get(path).status, 404, "{path}");
    }
    assert_eq!(site.get("/pipe").status, 403);
}

#[test]
fn any_name_can_be_asked_for() {
    let site = site();
    assert_eq!(site.get("/a%20b%252f%3f%23").text(), "odd");
    assert_eq!(site.get("/%ff%FE").text(), "not UTF-8");
    assert_eq!(site.get("//dir//inside").text(), "inside");
    assert_eq!(site.ask("GET http://localhost/dir/inside", "").text(), "inside");
}

#[test]
fn a_directory_without_its_slash_is_sent_to_it() {
    let site = site();
    for (path, to) in [
        ("/dir", "/dir/"),
        ("/todir", "/todir/"),
        ("//dir", "/dir/"),
        ("/dir?filter=a%20b", "/dir/?filter=a%20b"),
    ] {
        let reply = site.get(path);
        assert_eq!((reply.status, reply.header("location")), (301, to));
    }
    let page = site.get("/todir/");
    assert_eq!((page.status, page.header("content-type")), (200, "text/html; charset=utf-8"));
}

#[test]
fn only_reading_is_offered() {
    let site = site();
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "BREW"] {
        let reply = site.ask(&format!("{method} /hello.txt"), "Content-Length: 0\r\n");
        assert_eq!((reply.status, reply.header("allow")), (405, "GET, HEAD"), "{method}");
    }
}

#[test]
fn a_web_site_cannot_have_its_name_point_here() {
    let site = site();
    let mut client = site.client();
    for (host, status) in
        [("evil.example", 421), ("127.0.0.1:80", 200), ("[::1]", 200), ("LocalHost:8000", 200)]
    {
        client.send(format!("GET /notes HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
        assert_eq!(client.reply(false).status, status, "{host}");
    }
    for head in
        ["GET /notes HTTP/1.1\r\n\r\n", "GET /notes HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n"]
    {
        let mut client = site.client();
        client.send(head.as_bytes());
        assert_eq!(client.reply(false).status, 400);
    }
    let mut old = site.client();
    old.send(b"GET /notes HTTP/1.0\r\n\r\n");
    assert_eq!(old.reply(false).status, 200);
    assert!(old.ends(), "HTTP/1.0 closes");
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let site = site();
    let mut client = site.client();
    let paths = ["/hello.txt", "/dir/inside", "/none", "/large.bin", "/notes", "/dir", "/empty"];
    let rounds = 20;
    let one = |path: &&str| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let requests: String = paths.iter().map(one).collect::<String>().repeat(rounds);
    let mut writer = client.0.get_ref().try_clone().unwrap();
    let sender =
        std::thread::spawn(move || std::io::Write::write_all(&mut writer, requests.as_bytes()).unwrap());
    for _ in 0..rounds {
        let got = paths.map(|_| client.reply(false)).map(|reply| (reply.status, reply.body.len()));
        assert_eq!(
            got,
            [(200, 12), (200, 6), (404, got[2].1), (200, 1_000_000), (200, 23), (301, got[5].1), (200, 0)]
        );
    }
    sender.join().unwrap();
    assert_eq!(site.lines(paths.len() * rounds).len(), paths.len() * rounds);
}

#[test]
fn a_client_that_has_said_all_still_gets_its_answer() {
    let site = site();
    let mut client = site.client();
    client.request("GET /large.bin", "");
    client.0.get_ref().shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.reply(false).body.len(), 1_000_000);
}

#[test]
fn each_request_is_told_in_the_common_log_format() {
    let site = site();
    site.get("/hello.txt?x=1");
    site.ask("HEAD /none", "");
    let lines = site.lines(2);
    let (before, after) = lines[0].split_once(" - - [").unwrap();
    assert_eq!(before, "127.0.0.1");
    assert!(after.ends_with("] \"GET /hello.txt?x=1 HTTP/1.1\" 200 12"), "{after}");
    assert!(lines[1].ends_with("] \"HEAD /none HTTP/1.1\" 404 -"), "{}", lines[1]);
}

/// Cached files and negative dentries need no device.
#[test]
fn what_is_in_memory_is_answered_while_every_reader_waits() {
    let gate = Arc::new(Mutex::new(()));
    let tree = [
        ("small.txt", file("small")),
        ("link", Thing::Link("small.txt")),
        ("stuck", Thing::Stuck(gate.clone())),
        ("unread", Thing::File(b"unread".to_vec())),
    ];
    let site = Running::with(MemFs::new(tree), |options| options.limits.readers = 1);
    let first = site.get("/small.txt");
    assert_eq!((site.get("/none").status, first.text().as_str()), (404, "small"));
    let closed = gate.lock().unwrap();
    let mut waiting = site.client();
    waiting.request("GET /stuck", "");
    // Queued behind the first reader: the device has been asked by then.
    let mut behind = site.client();
    behind.request("GET /unread", "");
    assert_eq!(site.get("/small.txt"), first, "and all that is said of it");
    assert_eq!(site.ask("GET /small.txt", "Range: bytes=1-2\r\n").text(), "ma");
    assert_eq!(site.ask("HEAD /small.txt", "").header("content-length"), "5");
    let tag = format!("If-None-Match: {}\r\n", first.header("etag"));
    assert_eq!(site.ask("GET /small.txt", &tag).status, 304);
    assert_eq!(site.get("/none").status, 404);
    drop(closed);
    assert_eq!((waiting.reply(false).status, behind.reply(false).text().as_str()), (200, "unread"));
}

#[test]
fn several_ranges_of_a_file_in_memory_are_the_same_as_when_it_was_read() {
    let site = site();
    let parts = || site.ask("GET /hello.txt", "Range: bytes=0-0,7-\r\n");
    let boundary =
        |reply: &common::Reply| reply.header("content-type").split("boundary=").nth(1).unwrap().to_owned();
    let (first, again) = (parts(), (site.get("/hello.txt"), parts()).1);
    assert_eq!(first.text().replace(&boundary(&first), ""), again.text().replace(&boundary(&again), ""));
    assert!(again.text().contains("\r\n\r\nworld\r\n"));
}
