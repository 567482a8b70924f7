//! `dentree check` of an image that its mount is changing: one state of it is checked.
//!
//! `ROUNDS` checks of each kind of file system.

mod mounts;
mod writing;

use mounts::dentree;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::{env, thread};
use writing::{Image, end};

/// Creates, renames, links, extends and removes files until the end.
fn load(dir: &Path, is_done: &AtomicBool, changes: &AtomicU64) -> std::io::Result<()> {
    fs::create_dir(dir)?;
    for n in 0_u64.. {
        if is_done.load(Relaxed) {
            break;
        }
        let file = |n: u64| dir.join(format!("file-{:0>40}", n % 300));
        let mut one = fs::File::options().append(true).create(true).open(file(n))?;
        one.write_all(&vec![b'x'; usize::try_from(n % 7 * 900).unwrap_or(0)])?;
        let _ = fs::hard_link(file(n), dir.join(format!("link-{}", n % 50)));
        let _ = fs::rename(file(n * 7), file(n * 11));
        let _ = fs::create_dir(dir.join(format!("dir-{}", n % 40)));
        let _ = fs::rename(file(n * 3), dir.join(format!("dir-{}/moved", n % 40)));
        let _ = fs::remove_file(file(n * 5));
        let _ = fs::remove_file(dir.join(format!("link-{}", n * 3 % 50)));
        let _ = fs::remove_dir(dir.join(format!("dir-{}", n * 3 % 40)));
        if n % 64 == 0 {
            one.sync_all()?;
        }
        changes.fetch_add(1, Relaxed);
    }
    Ok(())
}

#[test]
fn a_mounted_image_under_load_has_no_findings() {
    let rounds = env::var("ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(12_u32);
    for kind in ["-t ext4", "-t ext4 -b 1024 -O orphan_file", "-t ext4 -O ^has_journal", "-t ext2"] {
        let Some(image) = Image::new(kind, "128M") else { return };
        let mounted = image.mount();
        let (is_done, changes) = (AtomicBool::new(false), AtomicU64::new(0));
        let checks: Vec<(Output, u64)> = thread::scope(|scope| {
            let loads: Vec<_> = (0..2)
                .map(|n| mounted.path().join(format!("load-{n}")))
                .map(|dir| {
                    let (is_done, changes) = (&is_done, &changes);
                    scope.spawn(move || load(&dir, is_done, changes))
                })
                .collect();
            let check = |_| {
                let output = dentree().arg("check").arg(image.path()).output();
                output.map(|output| (output, changes.load(Relaxed)))
            };
            let checks: std::io::Result<Vec<_>> = (0..rounds).map(check).collect();
            is_done.store(true, Relaxed);
            loads.into_iter().for_each(|load| load.join().unwrap().unwrap());
            checks.unwrap()
        });
        for (output, _) in &checks {
            let said = dentree_testing::said(output);
            assert!(output.status.success(), "{kind}: {said}");
        }
        let counts: Vec<u64> = checks.iter().map(|check| check.1).collect();
        println!("{kind}: changes by the end of each check: {counts:?}");
        assert!(counts.first() < counts.last(), "the load goes on between checks: {counts:?}");
        end(mounted);
        image.check();
    }
}
