//! Counts file descriptors: alone in its process, because other tests open some.

mod common;

use common::{Client, MemFs, Running, Thing, descriptors, large};
use dentree_testing::wait_until;
use std::io::Read;

#[test]
fn no_descriptor_stays_behind() {
    let before = descriptors();
    let tree = [
        ("small", Thing::File(b"small".to_vec())),
        ("large", large(64 << 20)),
        ("failing", Thing::Failing(10 << 20, 3 << 20)),
    ];
    let site = Running::new(MemFs::new(tree));
    assert_eq!(site.get("/small").status, 200);
    let serving = descriptors();
    let abuse = |kept: &mut Vec<Client>| {
        // Clients: silent; cut in a head; cut in a body; cut off by the server; greedy; normal.
        drop(site.client());
        site.client().send(b"GET /la");
        let mut client = site.client();
        client.request("GET /large", "");
        client.0.read_exact(&mut [0; 10]).unwrap();
        drop(client);
        site.get("/failing");
        site.client().send("GET /small HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(100).as_bytes());
        let mut client = site.client();
        client.request("GET /small", "");
        assert_eq!(client.reply(false).status, 200);
        kept.push(client);
    };
    let mut kept = Vec::new();
    (0..100).for_each(|_| abuse(&mut kept));
    assert!(descriptors() > serving + 100, "the ends of those that were kept");
    drop(kept);
    wait_until("as before", || descriptors() <= serving);
    drop(site);
    wait_until("as if it had never been", || descriptors() <= before);
}
