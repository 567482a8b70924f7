//! Walks agree with `openat2(2)`: random paths over a tree full of links, for root and an ordinary
//! user, with all options.

mod common;

use common::{Line, MemFs, Thing, dir, file, link};
use dentree_vfs::{Identity, Ino, LastLink, Vfs, WalkOptions};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rustix::fs::{Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

const NOBODY: u32 = 65534;

fn tree() -> Vec<Line> {
    let mut lines = vec![
        dir("a"),
        dir("a/b"),
        dir("a/b/c"),
        file("a/b/c/f"),
        file("a/f"),
        link("a/up", ".."),
        link("a/self", "."),
        link("a/file", "b/c/f"),
        link("a/slash", "b/c/"),
        link("a/fileslash", "f/"),
        link("a/abs", "/a/b"),
        link("a/root", "/"),
        link("a/above", "../../../a/b"),
        link("a/gone", "b/nothing"),
        link("loop", "loop"),
        link("ping", "pong"),
        link("pong", "ping"),
        dir("shut"),
        dir("shut/in"),
        file("shut/in/f"),
        dir("mine"),
        file("mine/f"),
        link("l0", "a/b/c/f"),
    ];
    for line in &mut lines {
        match line.path {
            "shut" => line.permissions = 0o700,
            "mine" => (line.permissions, line.uid) = (0o500, NOBODY),
            _ => {}
        }
    }
    // l39 takes 40 links to the file, l40 one too many.
    for number in 1..=40 {
        let leak = |text: String| -> &'static str { text.leak() };
        lines.push(link(leak(format!("l{number}")), leak(format!("l{}", number - 1))));
    }
    lines
}

/// Creates the list in the kernel's file system. Returns our numbers by the kernel's.
fn make(top: &Path, lines: &[Line]) -> HashMap<u64, Ino> {
    let mut same = HashMap::from([(fs::metadata(top).unwrap().ino(), Ino(1))]);
    for (index, line) in lines.iter().enumerate() {
        let path = top.join(line.path);
        match line.thing {
            Thing::Dir => fs::create_dir(&path).unwrap(),
            Thing::File => drop(File::create(&path).unwrap()),
            Thing::Link(target) => std::os::unix::fs::symlink(target, &path).unwrap(),
        }
        same.insert(fs::symlink_metadata(&path).unwrap().ino(), Ino(index as u64 + 2));
    }
    for line in lines.iter().filter(|line| !matches!(line.thing, Thing::Link(_))) {
        let path = top.join(line.path);
        fs::set_permissions(&path, fs::Permissions::from_mode(line.permissions.into())).unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(line.uid), Some(line.uid)).unwrap();
        }
    }
    same
}

fn kernel(top: &File, path: &str, options: WalkOptions) -> Result<u64, Errno> {
    let mut flags = OFlags::PATH | OFlags::CLOEXEC;
    let mut resolve = if options.beneath { ResolveFlags::BENEATH } else { ResolveFlags::IN_ROOT };
    flags.set(OFlags::NOFOLLOW, options.last_link != LastLink::Follow);
    flags.set(OFlags::DIRECTORY, options.directory);
    resolve.set(ResolveFlags::NO_SYMLINKS, options.no_links);
    let open = || rustix::fs::openat2(top.as_fd(), path, flags, Mode::empty(), resolve);
    // A walk that restarts after its RCU mode counts links twice, and fails with more than 20. With
    // all names cached it does not restart.
    let found = open().or_else(|error| if error == Errno::LOOP { open() } else { Err(error) })?;
    let found = rustix::fs::fstat(found)?;
    let is_link = rustix::fs::FileType::from_raw_mode(found.st_mode).is_symlink();
    // O_PATH returns a last link, where O_NOFOLLOW alone fails.
    if is_link && options.last_link == LastLink::Refuse { Err(Errno::LOOP) } else { Ok(found.st_ino) }
}

fn any_path() -> impl Strategy<Value = String> {
    let names = tree().into_iter().map(|line| line.path.rsplit('/').next().unwrap_or_default());
    let names: Vec<_> = names.chain([".", "..", "", "none", "f", "a", "b", "c"]).collect();
    let slash = prop_oneof![9 => Just(""), 1 => Just("/")];
    let parts = prop::collection::vec(prop::sample::select(names), 1..7);
    (slash.clone(), parts, slash).prop_map(|(first, parts, last)| format!("{first}{}{last}", parts.join("/")))
}

fn any_options() -> impl Strategy<Value = WalkOptions> {
    let last = prop_oneof![Just(LastLink::Follow), Just(LastLink::Keep), Just(LastLink::Refuse)];
    (last, any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(last_link, no_links, beneath, directory)| WalkOptions { last_link, no_links, beneath, directory },
    )
}

/// For this thread.
fn become_user(caller: &Identity) {
    if let Identity::User { uid, gid, groups } = caller {
        assert!(groups.is_empty());
        let (uid, gid) = (Uid::from_raw(*uid), Gid::from_raw(*gid));
        rustix::thread::set_thread_groups(&[]).unwrap();
        rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
        rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
    }
}

fn compare(caller: &Identity, paths: u32) {
    let lines = tree();
    let top = tempfile::tempdir().unwrap();
    fs::set_permissions(top.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let same = make(top.path(), &lines);
    let vfs = Vfs::new(MemFs::new(&lines)).unwrap();
    let here = File::open(top.path()).unwrap();
    std::thread::scope(|scope| {
        let walks = scope.spawn(|| {
            become_user(caller);
            let config = Config { cases: paths, failure_persistence: None, ..Config::default() };
            TestRunner::new(config).run(&(any_path(), any_options()), |(path, options)| {
                let ours = vfs.walk(caller, vfs.root(), path.as_bytes(), options);
                let ours = ours.map(|inode| inode.ino()).map_err(|error| error.errno());
                let theirs = kernel(&here, &path, options).map(|ino| same[&ino]);
                prop_assert_eq!(ours, theirs, "{} {:?}", path, options);
                // In a batch.
                let paths = [path.as_str(), "a/b/c/f", &path, "/a/none"];
                for (path, ours) in paths.iter().zip(vfs.walk_many(caller, vfs.root(), &paths, options)) {
                    let ours = ours.map(|inode| inode.ino()).map_err(|error| error.errno());
                    let theirs = kernel(&here, path, options).map(|ino| same[&ino]);
                    prop_assert_eq!(ours, theirs, "{} {:?}", path, options);
                }
                Ok(())
            })
        });
        walks.join().unwrap().unwrap();
    });
}

#[test]
fn a_walk_by_root_ends_where_the_kernels_does() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: the kernel checks no permissions for root alone");
    }
    compare(&Identity::Superuser, 20_000);
}

#[test]
fn a_walk_by_a_user_ends_where_the_kernels_does() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: only root can become another user");
    }
    compare(&Identity::User { uid: NOBODY, gid: NOBODY, groups: Vec::new() }, 20_000);
}
