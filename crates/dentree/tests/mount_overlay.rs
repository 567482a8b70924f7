//! The mount as the upper layer of an overlay, which moves files with RENAME_WHITEOUT.
//!
//! The bug: where that is refused, overlayfs warns and copies, and `xfstests` generic/631 skips.

mod common;
mod mounts;
mod oracle;

use common::{Image, assert_clean, assert_same_lines, text};
use mounts::{Mounted, mountable};
use oracle::{KINDS, tree};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::process::Command;

/// Changes of `low/`, `gone`, `moved`, `replaced` of the lower layer.
const SCRIPT: &str = "
rm gone; mv moved elsewhere; echo new >x; mv x replaced; echo more >>appended; chmod 600 appended
mkdir dir; mv low/a dir/a; mv -T dir/a low/b; rm -r low/sub; mkdir low/sub; echo fresh >low/sub/f
ln elsewhere hard; ln -s hard soft; mv elsewhere gone; mv appended low/appended; setfattr -n user.k -v v hard || true
";

/// An overlay of two directories, unmounted on drop.
struct Overlay<'a>(&'a Path);

impl<'a> Overlay<'a> {
    /// `None`, with the reason printed, where the kernel has no overlays.
    fn new(at: &'a Path, lower: &Path, upper: &Path) -> Option<Overlay<'a>> {
        let listed = fs::read_to_string("/proc/filesystems").unwrap().contains("\toverlay\n");
        if !listed && !Command::new("modprobe").arg("overlay").status().is_ok_and(|s| s.success()) {
            println!("skipped: the kernel has no overlayfs");
            return None;
        }
        let (up, work) = (upper.join("up"), upper.join("work"));
        let layers =
            format!("lowerdir={},upperdir={},workdir={}", lower.display(), up.display(), work.display());
        let mount =
            Command::new("mount").args(["-t", "overlay", "-o", &layers, "overlay"]).arg(at).output().unwrap();
        assert!(mount.status.success(), "{}", text(&mount.stderr));
        Some(Overlay(at))
    }
}

impl Drop for Overlay<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            dentree_testing::detach(self.0);
        } else {
            dentree_testing::unmount(self.0);
        }
    }
}

fn lower(image: &Image) -> std::path::PathBuf {
    let lower = image.dir.path().join("lower");
    fs::create_dir_all(lower.join("low/sub")).unwrap();
    for name in ["gone", "moved", "replaced", "appended", "low/a", "low/b", "low/sub/old"] {
        fs::write(lower.join(name), name).unwrap();
    }
    lower
}

#[test]
fn an_overlay_over_the_mount_works_as_over_the_kernels() {
    if !mountable() {
        return;
    }
    for (name, maker) in KINDS {
        println!("on {name}");
        let image = maker.make(32);
        let lower = lower(&image);
        let at = image.dir.path().join("merged");
        fs::create_dir(&at).unwrap();
        let mut ours = Mounted::new(&image.file, &[]);
        ["up", "work"].iter().for_each(|dir| fs::create_dir(ours.path().join(dir)).unwrap());
        let Some(overlay) = Overlay::new(&at, &lower, ours.path()) else { return };
        let done = Command::new("sh").args(["-ec", SCRIPT]).current_dir(&at).output().unwrap();
        assert!(done.status.success(), "{}", text(&done.stderr));
        let seen = tree(&at);
        for (path, expected) in
            [("gone", "moved"), ("replaced", "new\n"), ("low/b", "low/a"), ("low/sub/f", "fresh\n")]
        {
            assert_eq!(fs::read_to_string(at.join(path)).unwrap(), expected, "{path}");
        }
        assert!(
            ["moved", "elsewhere", "appended", "low/a", "low/sub/old"]
                .iter()
                .all(|path| !at.join(path).exists())
        );
        drop(overlay);
        let whiteout = fs::symlink_metadata(ours.path().join("up/moved")).unwrap();
        assert!(whiteout.file_type().is_char_device() && whiteout.rdev() == 0);
        dentree_testing::unmount(ours.path());
        assert!(ours.wait().success());
        assert_clean(&image.file);
        let mount = image.mount("rw").unwrap();
        let Some(overlay) = Overlay::new(&at, &lower, &mount.at) else { return };
        assert_same_lines(tree(&at).as_bytes(), seen.as_bytes());
        drop(overlay);
    }
}

#[test]
fn a_rename_that_leaves_a_whiteout_is_one_step_and_obeys_its_other_flag() {
    if !mountable() {
        return;
    }
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    let image = oracle::Maker::Ours(&[]).make(32);
    let mut ours = Mounted::new(&image.file, &[]);
    let at = |name: &str| ours.path().join(name);
    let whiteout = RenameFlags::WHITEOUT;
    let rename = |from: &str, to: &str, flags| renameat_with(CWD, at(from), CWD, at(to), flags);
    fs::create_dir_all(at("dir/below")).unwrap();
    fs::write(at("a"), "a").unwrap();
    fs::write(at("b"), "b").unwrap();
    assert_eq!(rename("a", "b", whiteout | RenameFlags::NOREPLACE), Err(rustix::io::Errno::EXIST));
    assert_eq!(rename("a", "b", whiteout | RenameFlags::EXCHANGE), Err(rustix::io::Errno::INVAL));
    assert_eq!(rename("none", "b", whiteout), Err(rustix::io::Errno::NOENT));
    rename("a", "b", whiteout).unwrap();
    rename("b", "dir/c", whiteout | RenameFlags::NOREPLACE).unwrap();
    rename("dir/below", "moved", whiteout).unwrap();
    assert_eq!(fs::read(at("dir/c")).unwrap(), b"a");
    for name in ["a", "b", "dir/below"] {
        let left = fs::symlink_metadata(at(name)).unwrap();
        assert!(left.file_type().is_char_device(), "{name}");
        assert_eq!((left.rdev(), left.mode() & 0o7777, left.nlink()), (0, 0, 1));
    }
    let names: std::collections::BTreeSet<_> = fs::read_dir(ours.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(["a", "b", "dir", "moved"].iter().all(|&name| names.contains(name)), "{names:?}");
    dentree_testing::unmount(ours.path());
    assert!(ours.wait().success());
    assert_clean(&image.file);
}
