//! Images at addresses: nginx, behind a proxy that counts.

mod common;
mod mounts;

use common::{dentree, text, tool};
use dentree_testing::{Fault, Nginx, Proxy, Upstream, wait_until};
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

struct Site {
    proxy: Proxy,
    dir: TempDir,
    _nginx: Nginx,
}

impl Site {
    /// Serves images; `None` where nginx is not installed.
    fn start() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("www")).unwrap();
        let nginx = Nginx::start(&dir.path().join("www"), dir.path())?;
        let proxy = Proxy::start(Upstream::Unix(nginx.socket().to_owned()));
        Some(Site { proxy, dir, _nginx: nginx })
    }

    fn local(&self, name: &str) -> PathBuf {
        self.dir.path().join("www").join(name)
    }

    /// Makes an image of a small tree.
    fn image(&self, name: &str, size: u64, options: &[&str]) {
        let tree = self.dir.path().join("tree");
        if !tree.exists() {
            fs::create_dir_all(tree.join("etc/many")).unwrap();
            fs::write(tree.join("etc/hosts"), "127.0.0.1 localhost\n").unwrap();
            fs::write(tree.join("large"), vec![7; 3_000_000]).unwrap();
            (0..300).for_each(|n| fs::write(tree.join(format!("etc/many/{n}")), n.to_string()).unwrap());
        }
        let image = self.local(name);
        File::create(&image).unwrap().set_len(size).unwrap();
        let words = ["-q", "-F", "-d", tree.to_str().unwrap()].into_iter().chain(options.iter().copied());
        tool("mke2fs", words.chain([image.to_str().unwrap()]));
    }

    fn run(&self, words: &[&str]) -> Output {
        self.program(words).output().unwrap()
    }

    /// The program with a cache of this site's own.
    fn program(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dentree"));
        command.args(words).env("XDG_CACHE_HOME", self.dir.path().join("cache"));
        command
    }

    fn done(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    fn refused(&self, words: &[&str], status: i32) -> String {
        let output = self.run(words);
        assert_eq!(output.status.code(), Some(status), "{words:?}: {}", text(&output.stderr));
        text(&output.stderr)
    }

    fn url(&self, rest: &str) -> String {
        self.proxy.url(&format!("/{rest}"))
    }
}

#[test]
fn checksums_over_http_are_those_of_the_local_file() {
    let Some(site) = Site::start() else { return };
    for (name, options) in [
        ("ext4", &["-t", "ext4"][..]),
        ("small-blocks", &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,inline_data"]),
        ("ext3", &["-t", "ext3"]),
        ("ext2", &["-t", "ext2", "-O", "^dir_index"]),
    ] {
        site.image(name, 64 << 20, options);
        let local = dentree(["checksum".as_ref(), site.local(name).as_os_str()]);
        assert!(local.status.success(), "{}", text(&local.stderr));
        assert_eq!(site.done(&["checksum", &site.url(name)]), text(&local.stdout), "{name}");
    }
}

#[test]
fn one_file_of_ten_gigabytes_takes_few_requests_and_a_second_run_none_for_data() {
    let Some(site) = Site::start() else { return };
    site.image("disk.img", 10 << 30, &["-t", "ext4"]);
    let cat = ["cat", &site.url("disk.img:/etc/hosts")];
    assert_eq!(site.done(&cat), "127.0.0.1 localhost\n");
    let first = site.proxy.take();
    let bytes: u64 = first.iter().map(|exchange| exchange.body).sum();
    println!("{} requests, {bytes} bytes", first.len());
    assert!(first.len() <= 10 && bytes <= 4 << 20, "{} requests, {bytes} bytes", first.len());
    assert_eq!(site.done(&cat), "127.0.0.1 localhost\n");
    let second = site.proxy.take();
    assert!(second.len() == 1 && second[0].status == 304, "{second:?}");
}

#[test]
fn the_cache_is_listed_and_emptied() {
    let Some(site) = Site::start() else { return };
    site.image("disk.img", 16 << 20, &["-t", "ext4"]);
    let url = site.url("disk.img");
    assert_eq!(site.done(&["cache", "ls"]), "");
    site.done(&["ls", &url]);
    let listed = site.done(&["cache", "ls"]);
    assert!(listed.ends_with(&format!("16M  {url}\n")), "{listed}");
    assert!(site.refused(&["cache", "rm", "https://host/none"], 1).contains("is not in the cache"));
    site.done(&["cache", "rm", &url]);
    assert_eq!(site.done(&["cache", "ls"]), "");
    site.done(&["ls", &url]);
    site.done(&["cache", "rm", "--all"]);
    site.done(&["--cache-size", "0", "ls", &url]);
    assert_eq!(site.done(&["cache", "ls"]), "");
    let elsewhere = site.dir.path().join("elsewhere");
    site.done(&["--cache-dir", elsewhere.to_str().unwrap(), "ls", &url]);
    assert_eq!(fs::read_dir(elsewhere).unwrap().count(), 1);
}

#[test]
fn several_paths_of_one_address_open_it_once() {
    let Some(site) = Site::start() else { return };
    site.image("disk.img", 16 << 20, &["-t", "ext4"]);
    let stats =
        site.run(&["--stats", "cat", &site.url("disk.img:/etc/hosts"), &site.url("disk.img:/etc/many/7")]);
    assert_eq!(text(&stats.stdout), "127.0.0.1 localhost\n7");
    assert_eq!(text(&stats.stderr).matches("network  ").count(), 1, "{}", text(&stats.stderr));
}

#[test]
fn copies_and_searches_read_at_an_address() {
    let Some(site) = Site::start() else { return };
    site.image("disk.img", 16 << 20, &["-t", "ext4"]);
    let copy = site.dir.path().join("copy");
    site.done(&["cp", "-r", &site.url("disk.img:/etc"), copy.to_str().unwrap()]);
    assert_eq!(fs::read(copy.join("many/299")).unwrap(), b"299");
    let found = site.done(&["find", &site.url("disk.img:/"), "-name", "7"]);
    assert_eq!(found, "/etc/many/7\n");
}

#[test]
fn writing_to_an_address_is_refused_before_any_request() {
    let Some(site) = Site::start() else { return };
    site.image("disk.img", 16 << 20, &["-t", "ext4"]);
    let at = site.url("disk.img:/etc/hosts");
    for words in [&["rm", &at][..], &["touch", &at], &["cp", "/dev/null", &at], &["mount", &at, "/nowhere"]] {
        let refused = site.refused(words, 4);
        assert!(refused.contains("are read only"), "{refused}");
    }
    assert!(site.proxy.take().is_empty());
}

#[test]
fn what_cannot_be_opened_is_told() {
    let Some(site) = Site::start() else { return };
    site.image("disk.img", 16 << 20, &["-t", "ext4"]);
    assert!(site.refused(&["ls", &site.url("none.img:/etc")], 1).contains("none.img: no such object"));
    site.proxy.next([Fault::Without("Range")]);
    assert!(site.refused(&["ls", &site.url("disk.img")], 1).contains("sends no ranges"));
    assert!(site.refused(&["ls", "gopher://host/x"], 4).contains("https, http, s3, gs, az"));
    assert!(site.refused(&["ls", "s3://bucket"], 1).contains("no object is named"));
}

#[test]
fn commands_that_are_killed_leave_a_cache_that_serves_the_next() {
    let Some(site) = Site::start() else { return };
    site.image("disk.img", 64 << 20, &["-t", "ext4", "-O", "^has_journal"]);
    let (url, local) = (site.url("disk.img"), site.local("disk.img"));
    let whole = text(&common::succeeds(["checksum".as_ref(), local.as_os_str()]));
    let mut requests = 0;
    for kill_after in 1..=12 {
        site.proxy.take();
        let mut child = site.program(&["checksum", &url]).stdout(Stdio::null()).spawn().unwrap();
        let mut seen = 0;
        wait_until("asked so many times", || {
            seen += site.proxy.take().len();
            seen >= kill_after || child.try_wait().unwrap().is_some()
        });
        child.kill().unwrap();
        child.wait().unwrap();
        requests += seen;
    }
    assert_eq!(site.done(&["checksum", &url]), whole);
    println!("{requests} requests of 12 runs that were killed");
    site.proxy.take();
    assert_eq!(site.done(&["checksum", &url]), whole);
    let last = site.proxy.take();
    assert!(last.len() == 1 && last[0].status == 304, "{last:?}");
}

#[test]
fn a_cache_on_a_full_disk_is_done_without() {
    let Some(site) = Site::start() else { return };
    if !common::can_mount() {
        return;
    }
    site.image("disk.img", 64 << 20, &["-t", "ext4"]);
    let small = mounts::Small::new(&site.dir.path().join("small"), 1);
    let local = site.local("disk.img");
    let whole = text(&common::succeeds(["checksum".as_ref(), local.as_os_str()]));
    for run in 0..2 {
        let words = ["--cache-dir", small.path().to_str().unwrap(), "checksum", &site.url("disk.img")];
        assert_eq!(site.done(&words), whole, "run {run}");
    }
}
