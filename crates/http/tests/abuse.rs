//! Slow, greedy or broken clients, and a failing device.

mod common;

use common::{Client, MemFs, Running, Thing, large};
use dentree_testing::{PATIENCE, linger, wait_until};
use std::io::{Read, Write};
use std::thread;
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(300);

fn tree() -> MemFs {
    MemFs::new([
        ("small", Thing::File(b"small".to_vec())),
        ("medium", large(100_000)),
        ("large", large(64 << 20)),
        ("failing", Thing::Failing(10 << 20, 3 << 20)),
        ("dead", Thing::Failing(10 << 20, 0)),
        ("part", Thing::Failing(400_000, 300_000)),
    ])
}

fn figure(site: &Running, name: &str) -> u64 {
    let mut client = Client::new(site.metrics.unwrap());
    client.request("GET /metrics", "");
    let text = client.reply(false).text();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.map_or(0, |value| value.parse().unwrap())
}

fn with_figures(options: &mut dentree_http::Options) {
    options.metrics = Some(([127, 0, 0, 1], 0).into());
}

#[test]
fn a_head_that_comes_a_byte_at_a_time_is_cut_off() {
    let site = Running::with(tree(), |options| {
        with_figures(options);
        options.limits.head_time = SHORT;
    });
    let mut client = site.client();
    let mut writer = client.0.get_ref().try_clone().unwrap();
    let dripping = thread::spawn(move || {
        // Much longer than the limit unless the server cuts it off.
        (b"GET /small HTTP/1.1\r\nX: ".iter().chain(std::iter::repeat(&b'x')).take(10_000)).all(|byte| {
            linger(Duration::from_millis(5));
            writer.write_all(&[*byte]).is_ok()
        })
    });
    assert!(client.ends(), "without an answer");
    assert!(!dripping.join().unwrap(), "the server took every byte");
    wait_until("counted", || figure(&site, "dentree_http_heads_late_total") == 1);
    // Silent and idle clients are cut off, too.
    assert!(site.client().ends());
    // On a busy machine a request may time out.
    wait_until("answered in time", || {
        let mut client = site.client();
        let head = b"GET /small HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let sent = client.0.get_mut().write_all(head).is_ok();
        let status = client.try_reply(false).filter(|_| sent).map(|reply| reply.status);
        assert!(client.ends());
        status == Some(200)
    });
}

#[test]
fn a_head_that_is_too_large_is_refused() {
    let site = Running::new(tree());
    let many: String = (0..500).map(|number| format!("X-{number}: y\r\n")).collect();
    for headers in [format!("X: {}\r\n", "y".repeat(1 << 20)), many] {
        let mut client = site.client();
        // The server may not take all of it.
        let _ = client
            .0
            .get_mut()
            .write_all(format!("GET /small HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n").as_bytes());
        if let Some(reply) = client.try_reply(false) {
            assert_eq!(reply.status, 431);
        }
        assert!(client.ends());
    }
    for head in [
        "GET /small\r\n\r\n",
        "\0\0\0\0\r\n\r\n",
        "GET /sm\u{7f}all HTTP/1.1\r\n\r\n",
        "GET /small HTTP/9.9\r\n\r\n",
    ] {
        let mut client = site.client();
        client.send(head.as_bytes());
        assert!(client.try_reply(false).is_none_or(|reply| reply.status == 400), "{head:?}");
        assert!(client.ends(), "{head:?}");
    }
    assert!(site.lines(6).iter().all(|line| line.contains("\"\" 431 ") || line.contains("\"\" 400 ")));
    assert_eq!(site.get("/small").status, 200);
}

#[test]
fn a_body_that_nobody_asked_for_is_not_waited_for() {
    let site = Running::new(tree());
    let mut client = site.client();
    client.request("POST /small", "Content-Length: 1000000\r\n");
    assert_eq!(client.reply(false).status, 405);
    assert!(client.ends());
}

#[test]
fn a_client_that_does_not_read_is_cut_off() {
    let site = Running::with(tree(), |options| {
        with_figures(options);
        options.limits.write_time = SHORT;
    });
    let mut client = site.client();
    client.request("GET /large", "");
    wait_until("cut off", || figure(&site, "dentree_http_responses_cut_total") == 1);
    let mut rest = Vec::new();
    let _ = client.0.read_to_end(&mut rest);
    assert!(rest.len() < 64 << 20);
    assert_eq!(site.get("/small").status, 200);
}

#[test]
fn slow_clients_together_hold_no_more_than_the_budget() {
    let site = Running::with(tree(), |options| {
        options.limits.buffers = 0;
        options.limits.buffer_wait = SHORT;
    });
    // The smallest budget holds a page and a chunk: 33 chunks.
    let slow: Vec<Client> = (0..100)
        .map(|_| {
            let mut client = site.client();
            client.request("GET /large", "");
            client
        })
        .collect();
    let mut refused = 0;
    wait_until("out of memory for responses", || {
        refused = site.get("/small").status;
        refused == 503
    });
    drop(slow);
    wait_until("free again", || site.get("/small").status == 200);
}

/// An evicted content may still be on its way to a client.
#[test]
fn slow_clients_of_files_in_memory_hold_no_more_than_the_budget_either() {
    let site = Running::with(tree(), |options| {
        options.limits.buffers = 0;
        options.limits.buffer_wait = SHORT;
    });
    assert_eq!((site.get("/medium").status, site.get("/small").status), (200, 200));
    // More than the sockets hold; the budget is 43 of these files.
    let slow: Vec<Client> = (0..60)
        .map(|_| {
            let mut client = site.client();
            client.send("GET /medium HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(100).as_bytes());
            client
        })
        .collect();
    wait_until("out of memory for responses", || site.get("/small").status == 503);
    drop(slow);
    wait_until("free again", || site.get("/small").status == 200);
}

#[test]
fn a_device_that_fails_in_mid_file_gives_a_short_body() {
    let site = Running::with(tree(), with_figures);
    let reply = site.get("/failing");
    assert_eq!((reply.status, reply.short), (200, true));
    assert!(reply.body.len() <= 3 << 20);
    assert!(reply.body.iter().zip(0..).all(|(&byte, at)| byte == common::pattern(at)));
    wait_until("told", || !site.told.problems.lock().unwrap().is_empty());
    assert_eq!(site.told.problems.lock().unwrap()[0], "/failing: the device's secret");
    wait_until("counted", || figure(&site, "dentree_http_responses_cut_total") == 1);
    let (sent, line) = (reply.body.len() as u64, site.lines(1)[0].clone());
    let told: u64 = line.rsplit(' ').next().unwrap().parse().unwrap();
    assert!(told >= sent && told < 10 << 20, "{line}");
    // An error before the head is sent cuts the connection.
    let mut client = site.client();
    client.request("GET /part", "Range: bytes=0-9,390000-\r\n");
    assert!(client.try_reply(false).is_none_or(|parts| (parts.status, parts.short) == (206, true)));
}

#[test]
fn a_device_that_fails_at_once_gives_an_error_without_its_reason() {
    let site = Running::new(tree());
    let reply = site.get("/dead");
    assert_eq!(reply.status, 500);
    assert!(!reply.text().contains("secret") && reply.header("etag").is_empty());
    assert_eq!(site.told.problems.lock().unwrap()[..], ["/dead: the device's secret"]);
    let mut client = site.client();
    for (path, status) in [("/dead", 500), ("/small", 200)] {
        client.request(&format!("GET {path}"), "");
        assert_eq!(client.reply(false).status, status);
    }
}

#[test]
fn connections_past_the_limit_wait_their_turn() {
    let site = Running::with(tree(), |options| options.limits.connections = 2);
    let held = [site.client(), site.client()].map(|mut client| {
        client.request("GET /small", "");
        assert_eq!(client.reply(false).status, 200);
        client
    });
    let mut third = site.client();
    third.request("GET /small", "");
    third.0.get_ref().set_read_timeout(Some(SHORT)).unwrap();
    assert!(third.try_reply(false).is_none(), "it had to wait");
    third.0.get_ref().set_read_timeout(Some(PATIENCE)).unwrap();
    drop(held);
    assert_eq!(third.reply(false).status, 200);
}

#[test]
fn what_is_under_way_is_finished_when_the_server_stops() {
    let mut site = Running::with(tree(), |options| options.limits.grace = PATIENCE);
    let mut idle = site.client();
    let mut kept = site.client();
    kept.request("GET /small", "");
    assert_eq!(kept.reply(false).status, 200);
    let mut busy = site.client();
    busy.request("GET /large", "");
    let mut first = [0; 100];
    busy.0.read_exact(&mut first).unwrap();
    site.handle.stop();
    assert!(idle.ends() && kept.ends());
    let mut rest = Vec::new();
    busy.0.read_to_end(&mut rest).unwrap();
    let head = first
        .iter()
        .chain(&rest)
        .collect::<Vec<_>>()
        .windows(4)
        .position(|at| at == [&b'\r', &b'\n', &b'\r', &b'\n']);
    assert_eq!(first.len() + rest.len(), head.unwrap() + 4 + (64 << 20));
    assert_eq!(site.stop(), 0);
    assert!(std::net::TcpStream::connect(site.address).is_err());
}

#[test]
fn what_is_not_finished_in_time_is_cut_off_when_the_server_stops() {
    let mut site = Running::with(tree(), |options| options.limits.grace = SHORT);
    let mut busy = site.client();
    busy.request("GET /large", "");
    busy.0.read_exact(&mut [0; 100]).unwrap();
    assert_eq!(site.stop(), 1);
}
