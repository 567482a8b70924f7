//! `dentree cp`: attributes are kept, and nothing is written outside the target.

mod common;
mod oracle;
mod population;

use common::{Image, assert_same_lines, can_mount, dentree, from_a_terminal, succeeds, text};
use dentree_testing::program_in;
use oracle::{end_with, makes_files_without_names, stopped_midway};
use rustix::process::Signal;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

fn rich() -> Option<Image> {
    can_mount().then(|| Image::filled(&["-t", "ext4"], population::everything))
}

#[test]
fn an_archive_copy_keeps_everything() {
    let Some(image) = rich() else { return };
    let mount = image.mount("ro").unwrap();
    let target = image.dir.path().join("copy");
    succeeds(["cp", "-a", &image.at("/"), target.to_str().unwrap()]);
    let ours = succeeds(["checksum".as_ref(), target.as_os_str()]);
    assert_same_lines(&ours, &succeeds(["checksum".as_ref(), mount.at.as_os_str()]));
    let sparse = fs::metadata(target.join("contents/sparse")).unwrap();
    assert!(sparse.blocks() < 1000 && sparse.len() == 1 << 40, "sparse files stay sparse");
    let inode = |name: &str| fs::metadata(target.join("links").join(name)).unwrap().ino();
    assert_eq!(inode("one"), inode("other/name-7"));
}

#[test]
fn copying_again_over_a_copy_changes_nothing() {
    let Some(image) = rich() else { return };
    let target = image.dir.path().join("copy");
    fs::create_dir(&target).unwrap();
    let sum = || {
        succeeds(["cp", "-a", &image.at("/"), target.to_str().unwrap()]);
        succeeds(["checksum".as_ref(), target.as_os_str()])
    };
    assert_same_lines(&sum(), &sum());
}

#[test]
fn a_plain_copy_takes_content_and_modes_and_leaves_owners() {
    let Some(image) = rich() else { return };
    let target = image.dir.path().join("copy");
    succeeds(["cp", &image.at("/attributes"), target.to_str().unwrap()]);
    let modes = fs::metadata(target.join("modes")).unwrap();
    assert_eq!((modes.uid(), modes.permissions().mode() & 0o7000), (0, 0));
    assert_eq!(fs::read(target.join("modes")).unwrap(), b"modes");
}

#[test]
fn a_file_goes_under_a_new_name_or_into_a_directory() {
    let Some(image) = rich() else { return };
    let at = |name: &str| image.dir.path().join(name);
    succeeds(["cp", &image.at("/links/one"), at("renamed").to_str().unwrap()]);
    assert_eq!(fs::read(at("renamed")).unwrap(), b"several names");
    fs::create_dir(at("into")).unwrap();
    succeeds(["cp", &image.at("/links/one"), &image.at("/nodes"), at("into").to_str().unwrap()]);
    assert_eq!(fs::read(at("into/one")).unwrap(), b"several names");
    assert!(fs::symlink_metadata(at("into/nodes/fifo")).unwrap().file_type().is_fifo());
    let several =
        dentree(["cp", &image.at("/links/one"), &image.at("/nodes"), at("renamed").to_str().unwrap()]);
    assert_eq!(several.status.code(), Some(1));
}

#[test]
fn a_path_that_ends_in_dots_copies_what_is_inside_and_does_not_climb() {
    let Some(image) = rich() else { return };
    let target = image.dir.path().join("into");
    fs::create_dir(&target).unwrap();
    succeeds(["cp", &image.at("/links/other/.."), target.to_str().unwrap()]);
    assert_eq!(fs::read(target.join("one")).unwrap(), b"several names");
    assert!(!image.dir.path().join("one").exists());
}

#[test]
fn an_ordinary_user_gets_a_copy_and_a_note_of_what_could_not_be_kept() {
    let Some(image) = rich() else { return };
    let target = image.dir.path().join("copy");
    fs::create_dir(&target).unwrap();
    for path in [image.dir.path(), &target] {
        fs::set_permissions(path, PermissionsExt::from_mode(0o777)).unwrap();
    }
    let program = program_in(image.dir.path(), env!("CARGO_BIN_EXE_dentree"));
    let output = Command::new(program)
        .args(["cp", "-a", &image.at("/"), target.to_str().unwrap()])
        .uid(65_534)
        .gid(65_534)
        .output()
        .unwrap();
    let notes = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{notes}");
    assert!(notes.contains("not kept") && notes.contains("owners") && notes.contains("devices"), "{notes}");
    assert_eq!(fs::read(target.join("contents/bytes-4097")).unwrap().len(), 4097);
    let modes = fs::metadata(target.join("attributes/modes")).unwrap();
    assert_eq!(
        (modes.uid(), modes.permissions().mode() & 0o7777),
        (65_534, 0o751),
        "rights of another are not given"
    );
}

/// A directory that an attacker wants to write into.
fn victim(image: &Image) -> std::path::PathBuf {
    let victim = image.dir.path().join("victim");
    fs::create_dir(&victim).unwrap();
    victim
}

fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).unwrap().next().is_none()
}

/// Overwrites a name in the directory blocks of an image without checksums.
fn rename_on_disk(image: &Image, from: &[u8], to: &[u8]) {
    let mut bytes = fs::read(&image.file).unwrap();
    let at = bytes.windows(from.len()).position(|window| window == from).unwrap();
    bytes[at..at + to.len()].copy_from_slice(to);
    fs::write(&image.file, bytes).unwrap();
}

#[test]
fn a_link_and_a_directory_of_the_same_name_do_not_lead_outside() {
    let image = Image::new(8, &["-t", "ext4", "-O", "^metadata_csum,^dir_index"]);
    let victim = victim(&image);
    let evil = image.dir.path().join("evil");
    fs::write(&evil, "evil").unwrap();
    image.debugfs(&[
        &format!("symlink same-name {}", victim.display()),
        "mkdir SAME-NAME",
        &format!("write {} SAME-NAME/evil", evil.display()),
    ]);
    rename_on_disk(&image, b"SAME-NAME", b"same-name");
    let target = image.dir.path().join("copy");
    // The order varies; the second time both exist.
    for _ in 0..2 {
        let output = dentree(["cp", "-a", &image.at("/"), target.to_str().unwrap()]);
        assert!(is_empty(&victim), "written through a link; {}", text(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    }
}

#[test]
fn names_made_of_dots_and_slashes_do_not_lead_outside() {
    // The image gets a name of letters, which is then overwritten in the directory block.
    for name in ["../v/e.vl", "{}/v/evil", "x/../y/ev", "..\0\0\0\0\0\0\0"] {
        let image = Image::new(8, &["-t", "ext4", "-O", "^metadata_csum,^dir_index"]);
        let name = name.replace("{}", image.dir.path().to_str().unwrap());
        let letters = "A".repeat(name.len());
        let evil = image.dir.path().join("evil");
        fs::write(&evil, "evil").unwrap();
        fs::create_dir(image.dir.path().join("v")).unwrap();
        image.debugfs(&[&format!("write {} {letters}", evil.display())]);
        rename_on_disk(&image, letters.as_bytes(), name.as_bytes());
        let target = image.dir.path().join("copy");
        let output = dentree(["cp", "-a", &image.at("/"), target.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(3), "{name:?}: {}", text(&output.stderr));
        assert!(is_empty(&image.dir.path().join("v")), "{name:?}");
    }
}

#[test]
fn links_that_are_in_the_target_already_are_not_followed() {
    let image = Image::new(8, &["-t", "ext4"]);
    let victim = victim(&image);
    fs::write(image.dir.path().join("content"), "from the image").unwrap();
    let content = image.dir.path().join("content");
    image.debugfs(&[
        "mkdir dir",
        &format!("write {} dir/file", content.display()),
        &format!("write {} file", content.display()),
    ]);
    let target = image.dir.path().join("copy");
    fs::create_dir(&target).unwrap();
    fs::write(victim.join("kept"), "kept").unwrap();
    symlink(&victim, target.join("dir")).unwrap();
    symlink(victim.join("kept"), target.join("file")).unwrap();
    let output = dentree(["cp", &image.at("/"), target.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let outside = || (fs::read(victim.join("kept")).unwrap(), fs::read_dir(&victim).unwrap().count());
    assert_eq!(outside(), (b"kept".to_vec(), 1));
    assert!(
        target.join("file").is_symlink()
            && text(&output.stderr).contains("/file: exists and is not a regular")
    );
    let output = dentree(["cp", "--remove-destination", &image.at("/"), target.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert_eq!(outside(), (b"kept".to_vec(), 1));
    assert_eq!(fs::read(target.join("file")).unwrap(), b"from the image");
    assert!(!target.join("file").is_symlink());
}

/// A copy of a large file out of an image into `copy`, stopped in the middle.
fn long_copy(image: &Image) -> Child {
    let content = image.dir.path().join("content");
    fs::write(&content, vec![7; 300 << 20]).unwrap();
    succeeds(["cp", content.to_str().unwrap(), &image.at("/large")]);
    fs::remove_file(&content).unwrap();
    let target = image.dir.path().join("copy");
    fs::create_dir(&target).unwrap();
    stopped_midway(|| {
        let _ = fs::remove_file(target.join("large"));
        let mut copy = from_a_terminal();
        copy.args([OsStr::new("cp"), OsStr::new(&image.at("/large")), target.as_os_str()]);
        copy.stderr(Stdio::piped()).spawn().unwrap()
    })
}

#[test]
fn an_interrupted_copy_leaves_no_half_file_under_its_name() {
    let image = Image::new(400, &["-t", "ext4"]);
    let output = end_with(long_copy(&image), Signal::INT);
    let message = text(&output.stderr);
    assert!(output.status.code() == Some(1) && message.contains("interrupted"), "{message}");
    assert!(is_empty(&image.dir.path().join("copy")));
}

#[test]
fn a_killed_copy_leaves_nothing_behind() {
    let image = Image::new(400, &["-t", "ext4"]);
    if !makes_files_without_names(image.dir.path()) {
        return;
    }
    end_with(long_copy(&image), Signal::KILL);
    let left: Vec<_> = fs::read_dir(image.dir.path().join("copy"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(left.is_empty(), "{left:?}");
}
