//! Basic authentication. Hashes are libxcrypt's at the lowest cost.

mod common;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use common::{MemFs, Reply, Running, Thing};
use dentree_http::Passwords;

const ANN: &str = "ann:$2y$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW";
const ZOE: &str = "zoë:$2b$04$ZYXWVUTSRQPONMLKJIHGFeLJ1Kuz2T4ik2tziYOGlqw7XkibK5hpm";
const SECRET: &str = "secret";
const ZOES: &str = "pässwörd: x";

fn site() -> Running {
    let files = MemFs::new([("dir", Thing::Dir), ("file", Thing::File(b"content".to_vec()))]);
    Running::with(files, |options| {
        options.passwords = Some(Passwords::parse(&format!("# users\n\n{ANN}\r\n{ZOE}\n")).unwrap());
        options.metrics = Some(([127, 0, 0, 1], 0).into());
        options.archive = Some(Box::new(|path, to| to.write_all(path)));
    })
}

fn basic(credentials: &str) -> String {
    format!("Authorization: Basic {}\r\n", BASE64_STANDARD.encode(credentials))
}

fn get(site: &Running, credentials: &str) -> Reply {
    site.ask("GET /file", &basic(credentials))
}

#[test]
fn a_password_of_the_file_admits_its_user_whom_the_log_names() {
    let site = site();
    for _ in 0..2 {
        assert_eq!(get(&site, &format!("ann:{SECRET}")).text(), "content");
        assert_eq!(get(&site, &format!("zoë:{ZOES}")).text(), "content");
        assert_eq!(get(&site, &format!("ann:{ZOES}")).status, 401, "a password is for its user");
        assert_eq!(get(&site, &format!("ann:{SECRET} ")).status, 401);
    }
    let scheme = basic(&format!("ann:{SECRET}")).replace("Basic", "bASIC");
    assert_eq!(site.ask("GET /dir/?archive=tar", &scheme).text(), "/dir/");
    let mut users: Vec<String> =
        site.lines(9).iter().map(|line| line.split(' ').nth(2).unwrap().to_owned()).collect();
    users.sort();
    assert_eq!(users, ["-", "-", "-", "-", "ann", "ann", "ann", r"zo\u{eb}", r"zo\u{eb}"]);
}

#[test]
fn a_request_without_a_password_of_the_file_learns_nothing() {
    let site = site();
    let wrong = [
        String::new(),
        basic("ann:wrong"),
        basic("ann:"),
        basic("ann"),
        basic("bob:secret"),
        basic(ANN),
        basic(&format!("ann:{SECRET}")).replace("Basic", "Bearer"),
        "Authorization: Basic ?\r\n".into(),
        "Authorization: Basic\r\n".into(),
    ];
    for headers in &wrong {
        for path in ["/", "/file", "/none", "/dir", "/dir/?archive=tar"] {
            let reply = site.ask(&format!("GET {path}"), headers);
            assert_eq!(reply.status, 401, "{path} {headers}");
            assert_eq!(reply.header("www-authenticate"), "Basic realm=\"disk.img\", charset=\"UTF-8\"");
            assert_eq!(reply.text(), site.get("/").text(), "{path} {headers}");
        }
    }
    assert_eq!(site.ask("HEAD /file", "").status, 401);
}

#[test]
fn the_figures_need_no_password() {
    let site = site();
    let mut client = common::Client::new(site.metrics.unwrap());
    client.request("GET /metrics", "");
    assert_eq!(client.reply(false).status, 200);
}

#[test]
fn a_name_of_an_image_cannot_end_its_realm() {
    let site = Running::with(MemFs::new([("a", Thing::Dir)]), |options| {
        options.title = "a\"\\é\n".into();
        options.passwords = Some(Passwords::parse(ANN).unwrap());
    });
    assert_eq!(site.get("/").header("www-authenticate"), "Basic realm=\"a____\", charset=\"UTF-8\"");
}

#[test]
fn a_file_of_passwords_is_refused_by_the_line_that_is_wrong() {
    let problem = |text: &str| Passwords::parse(text).err().expect("a problem");
    assert_eq!(problem(&format!("{ANN}\nbob\n")), "line 2 is not NAME:HASH");
    for hash in ["secret", "$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/", "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=", ""] {
        let text = format!("#\nbob:{hash}\n");
        assert_eq!(problem(&text), "line 2 has no bcrypt hash; make one with htpasswd -B");
    }
    assert_eq!(problem("# none\n"), "it names no user; add one with htpasswd -B");
}
