//! Clients that start TLS and stop.

mod common;

use common::{MemFs, Running, Thing, large};
use dentree_http::Tls;
use dentree_testing::wait_until;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(300);

/// `None`: there is no openssl(1).
fn certificate() -> Option<Tls> {
    let dir = tempfile::tempdir().unwrap();
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc"])
        .args(["-subj", "/CN=localhost", "-keyout", "key", "-out", "certificate"])
        .current_dir(dir.path())
        .stderr(Stdio::null())
        .status();
    let Ok(made) = made else {
        println!("skipped: openssl is not installed");
        return None;
    };
    assert!(made.success());
    let read = |name: &str| fs::read(dir.path().join(name)).unwrap();
    Some(Tls::parse(&read("certificate"), &read("key")).unwrap())
}

#[test]
fn a_handshake_that_does_not_end_is_cut_off() {
    let Some(tls) = certificate() else { return };
    let mut site = Running::with(MemFs::new([("a", Thing::Dir)]), |options| {
        options.tls = Some(tls);
        options.limits.head_time = SHORT;
    });
    let mut clients: Vec<_> = (0..2).map(|_| site.client()).collect();
    // First byte of a handshake, and part of its first message.
    clients[0].send(&[0x16]);
    clients[1].send(&[0x16, 3, 1, 1, 0, 1, 0]);
    assert!(clients.iter_mut().all(common::Client::ends), "without an answer");
    assert_eq!(site.stop(), 0);
}

#[test]
fn a_server_that_stops_does_not_wait_for_handshakes() {
    let Some(tls) = certificate() else { return };
    let mut site = Running::with(MemFs::new([("a", Thing::Dir)]), |options| options.tls = Some(tls));
    let mut client = site.client();
    client.send(&[0x16]);
    assert_eq!(site.stop(), 0, "none had to be cut off");
    assert!(client.ends());
}

#[test]
fn a_client_that_does_not_read_over_tls_is_cut_off() {
    let Some(tls) = certificate() else { return };
    let site = Running::with(MemFs::new([("large", large(64 << 20))]), |options| {
        options.tls = Some(tls);
        options.limits.write_time = SHORT;
    });
    let mut client = Command::new("openssl")
        .args(["s_client", "-quiet", "-connect", &site.address.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Output fills up unread.
    let request = "GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n";
    client.stdin.as_mut().unwrap().write_all(request.as_bytes()).unwrap();
    // A request is logged at the end of its response.
    wait_until("cut off", || !site.told.lines.lock().unwrap().is_empty());
    let _ = client.kill();
    client.wait().unwrap();
    let line = &site.lines(1)[0];
    let bytes: u64 = line.rsplit(' ').next().unwrap().parse().unwrap();
    assert!(line.contains("\"GET /large HTTP/1.1\" 200 ") && bytes < 64 << 20, "{line}");
}
