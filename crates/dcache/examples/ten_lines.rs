//! The cache over a file system of ten lines: a map from (directory, name) to inode.
//!
//! `cargo run -p dentree-dcache --example ten_lines`

use dentree_dcache::{Child, Dcache, DentryRef, Fill, Walk, WalkOptions};
use std::collections::BTreeMap;
use std::convert::Infallible;

struct TenLines(BTreeMap<(u64, &'static str), u64>);

impl TenLines {
    fn lookup(&self, dir: u64, name: &[u8]) -> Result<Fill<u64>, Infallible> {
        let inode = std::str::from_utf8(name).ok().and_then(|name| self.0.get(&(dir, name)));
        Ok(match inode {
            Some(&inode) if inode < 100 => Fill::Positive(Child::directory(inode)),
            Some(&inode) => Fill::Positive(Child::other(inode)),
            None => Fill::Negative,
        })
    }
}

/// Walks; wherever the cache has to stop, asks the file system for one name and goes on from there.
fn open<'c>(cache: &'c Dcache<u64>, disk: &TenLines, path: &[u8]) -> Option<DentryRef<'c, u64>> {
    let (mut at, mut rest) = (cache.root(), path);
    loop {
        let stopped = match cache.walk(&at, rest, WalkOptions::default(), |_| true) {
            Walk::Found(dentry) => return Some(dentry),
            Walk::Negative { .. } => return None,
            Walk::Stopped(stopped) => stopped,
        };
        rest = &rest[stopped.rest..];
        let name = rest.split(|&byte| byte == b'/').next()?;
        let Ok(found) = cache.lookup_or_fill(&stopped.dir, name, || {
            println!("  asking for {:?} in inode {}", String::from_utf8_lossy(name), stopped.dir.handle());
            disk.lookup(*stopped.dir.handle(), name)
        });
        (at, rest) = (found?, &rest[name.len()..]);
    }
}

fn main() {
    let disk = TenLines(BTreeMap::from([((1, "usr"), 2), ((2, "share"), 3), ((3, "doc"), 100)]));
    let cache = Dcache::builder().memory(1 << 20).build(Child::directory(1));
    for path in ["usr/share/doc", "usr/share/doc", "usr/share/man", "usr/share/man"] {
        println!("{path}");
        match open(&cache, &disk, path.as_bytes()) {
            Some(dentry) => println!("  inode {}", dentry.handle()),
            None => println!("  no such file or directory"),
        }
    }
    let share = open(&cache, &disk, b"usr/share").expect("there");
    cache.rename(&share.parent(), b"share", &cache.root(), b"moved");
    println!("after `mv usr/share moved`, without asking:\nmoved/doc");
    println!("  inode {}", open(&cache, &disk, b"moved/doc").expect("moved along").handle());
    let stats = cache.stats();
    println!("{} questions, {} components without one", stats.fills, stats.components);
}
