//! The tasks of `tools/recipes`, and mount(8)'s helper of the packages.

mod common;
mod mounts;

use common::{Image, dentree, text};
use dentree_testing::{is_mount_point, said};
use mounts::mountable;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;

const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// A path on which this build's program comes first.
fn path() -> OsString {
    let ours = Path::new(env!("CARGO_BIN_EXE_dentree")).parent().unwrap();
    let others = std::env::var_os("PATH").unwrap();
    std::env::join_paths([ours.to_owned()].into_iter().chain(std::env::split_paths(&others))).unwrap()
}

#[test]
fn the_recipes_do_what_they_say() {
    let ran = Command::new("sh").arg("tools/recipes").current_dir(REPOSITORY).env("PATH", path()).output();
    let ran = ran.unwrap();
    assert!(ran.status.success(), "{}", said(&ran));
}

#[test]
fn the_helper_mounts_as_mount_8_asks_it() {
    if !mountable() {
        return;
    }
    let image = Image::new(32, &["-t", "ext4"]);
    let place = tempfile::tempdir().unwrap();
    let helper = || {
        let mut helper = Command::new(Path::new(REPOSITORY).join("packaging/mount.fuse.dentree"));
        helper.arg(&image.file).arg(place.path()).env("PATH", path());
        helper
    };
    let fake = helper().args(["-f", "-o", "rw"]).output().unwrap();
    assert!(fake.status.success() && !is_mount_point(place.path()), "{}", said(&fake));
    for (options, writable) in [("ro,noauto,nofail", false), ("rw,x-systemd.automount,_netdev", true)] {
        let mounted = helper().args(["-s", "-v", "-o", options, "-t", "fuse.dentree"]).output().unwrap();
        assert!(mounted.status.success() && is_mount_point(place.path()), "{}", said(&mounted));
        assert_eq!(fs::write(place.path().join("file"), "new").is_ok(), writable);
        let ended = dentree([Path::new("umount"), place.path()]);
        assert!(ended.status.success(), "{}", text(&ended.stderr));
    }
}
