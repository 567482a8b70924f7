//! qcow2 images without a program beside them, and overlays. The oracles are qemu-img and e2fsck.

mod common;
mod mounts;
mod population;

use common::{Image, assert_clean, assert_same_lines, can_mount, dentree, succeeds, text, tool};
use dentree_testing::{detach, unmount};
use mounts::{Mounted, mountable};
use rustix::process::Signal;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Whether qemu-img is there; prints why not.
fn can_convert() -> bool {
    let can = Command::new("qemu-img").arg("--version").output().is_ok();
    if !can {
        println!("skipped: qemu-img is not installed");
    }
    can
}

fn qemu_img<'a>(args: impl IntoIterator<Item = &'a OsStr>) {
    tool("qemu-img", args);
}

/// The image as `disk.qcow2` beside it.
fn convert(image: &Image, options: &[&str]) -> PathBuf {
    let made = image.dir.path().join("disk.qcow2");
    let args = ["convert", "-f", "raw", "-O", "qcow2"].iter().chain(options).map(OsStr::new);
    qemu_img(args.chain([image.file.as_os_str(), made.as_os_str()]));
    made
}

/// A raw image of what is in `made`, checked by qemu-img and e2fsck.
fn raw_of(made: &Path) -> PathBuf {
    let raw = made.with_extension("raw");
    qemu_img(["check".as_ref(), made.as_os_str()]);
    qemu_img(["convert", "-O", "raw"].map(OsStr::new).into_iter().chain([made.as_os_str(), raw.as_os_str()]));
    assert_clean(&raw);
    raw
}

fn checksum(image: &Path) -> Vec<u8> {
    succeeds(["checksum".as_ref(), image.as_os_str()])
}

/// `disk.img:path` as an argument.
fn at(image: &Path, path: &str) -> String {
    format!("{}:{path}", image.display())
}

#[test]
fn a_qcow2_image_reads_as_its_raw_image_without_another_program() {
    if !can_mount() || !can_convert() {
        return;
    }
    let image = Image::new(64, &["-t", "ext4"]);
    population::everything(&image.mount("rw").unwrap().at);
    let raw = checksum(&image.file);
    let kinds: [&[&str]; 7] = [
        &[],
        &["-c"],
        &["-o", "compat=0.10"],
        &["-o", "cluster_size=512"],
        &["-o", "cluster_size=2M,refcount_bits=1"],
        &["-o", "preallocation=full,refcount_bits=64"],
        &["-o", "lazy_refcounts=on"],
    ];
    for options in kinds {
        let made = convert(&image, options);
        let mut alone = Command::new(env!("CARGO_BIN_EXE_dentree"));
        let output = alone.arg("checksum").arg(&made).env("PATH", "/nowhere").output().unwrap();
        assert_eq!(text(&output.stderr), "", "{options:?}");
        assert_same_lines(&output.stdout, &raw);
    }
    let made = convert(&image, &["-c"]);
    let [middle, top] = ["middle.qcow2", "top.qcow2"].map(|name| image.dir.path().join(name));
    for (over, name) in [(&middle, "disk.qcow2"), (&top, "middle.qcow2")] {
        qemu_img(
            ["create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", name]
                .map(OsStr::new)
                .into_iter()
                .chain([over.as_os_str()]),
        );
    }
    let before = fs::read(&made).unwrap();
    assert_same_lines(&checksum(&top), &raw);
    succeeds(["mkdir", &at(&top, "/made")]);
    assert!(raw != checksum(&top) && fs::read(&made).unwrap() == before);
    raw_of(&top);
}

#[test]
fn what_is_written_to_a_qcow2_image_is_in_it_for_qemu_too() {
    if !can_convert() {
        return;
    }
    for options in [&[][..], &["-c"], &["-o", "compat=0.10,cluster_size=4k"], &["-o", "refcount_bits=64"]] {
        let image = Image::new(32, &["-t", "ext4"]);
        let made = convert(&image, options);
        let tree = image.dir.path().join("tree");
        fs::create_dir(&tree).unwrap();
        for number in 0..50u8 {
            fs::write(tree.join(format!("{number}")), vec![number; 99_999]).unwrap();
        }
        succeeds(["cp".as_ref(), "-a".as_ref(), tree.as_os_str(), at(&made, "/").as_ref()]);
        succeeds(["rm", &at(&made, "/tree/7")]);
        let ours = checksum(&made);
        assert_same_lines(&ours, &checksum(&raw_of(&made)));
    }
}

#[test]
fn an_overlay_keeps_the_changes_and_the_image_stays_as_it_was() {
    if !can_convert() {
        return;
    }
    let image = Image::new(32, &["-t", "ext4"]);
    succeeds(["mkdir", &image.at("/there")]);
    let qcow2 = convert(&image, &["-c"]);
    for base in [&image.file, &qcow2] {
        let overlay = image.dir.path().join("changes.qcow2");
        let _ = fs::remove_file(&overlay);
        let before = (fs::read(base).unwrap(), checksum(base));
        let with = |args: &[&str]| succeeds([&["--overlay", overlay.to_str().unwrap()], args].concat());
        assert_same_lines(&with(&["checksum", base.to_str().unwrap()]), &before.1);
        assert!(!overlay.exists(), "made without a change");
        with(&["mkdir", &at(base, "/made")]);
        with(&["mv", &at(base, "/there"), &at(base, "/moved")]);
        let changed = with(&["checksum", base.to_str().unwrap()]);
        assert!(text(&changed).contains("/moved") && text(&changed).contains("/made"));
        assert!((fs::read(base).unwrap(), checksum(base)) == before, "the image was written");
        // What qemu makes of it, by the name and the format that it records.
        assert_same_lines(&checksum(&raw_of(&overlay)), &changed);
    }
}

#[test]
fn no_command_writes_to_an_image_below_an_overlay() {
    let image = Image::new(16, &["-t", "ext4"]);
    let (file, f, new) = (image.file.to_str().unwrap(), image.at("/f"), image.at("/new"));
    let local = image.dir.path().join("local");
    fs::write(&local, "some bytes").unwrap();
    let archive = image.dir.path().join("archive.tar");
    tool("tar", ["-cf", archive.to_str().unwrap(), "-C", image.dir.path().to_str().unwrap(), "local"]);
    succeeds(["cp", local.to_str().unwrap(), &f]);
    let before = fs::read(&image.file).unwrap();
    let (local, archive) = (local.to_str().unwrap(), archive.to_str().unwrap());
    let commands: [(&[&str], bool); 18] = [
        (&["cp", local, &new], true),
        (&["tar", "x", "-f", archive, &image.at("/")], true),
        (&["mkdir", &new], true),
        (&["rm", &f], true),
        (&["mv", &f, &new], true),
        (&["ln", &f, &new], true),
        (&["chmod", "600", &f], true),
        (&["chown", "1:1", &f], true),
        (&["touch", &new], true),
        (&["truncate", "-s", "1M", &f], true),
        (&["xattr", "set", &f, "user.a", "b"], true),
        (&["dedup", file], true),
        (&["find", file, "-name", "f", "-delete"], true),
        (&["label", file, "new"], true),
        (&["tune", "-c", "5", file], true),
        (&["uuid", file, "random"], false),
        (&["resize", file, "20M"], false),
        (&["mkfs", file, "--force"], false),
    ];
    for (args, is_done) in commands {
        let overlay = image.dir.path().join("changes.qcow2");
        let _ = fs::remove_file(&overlay);
        let output = dentree([&["--overlay", overlay.to_str().unwrap()], args].concat());
        assert_eq!(output.status.success(), is_done, "{args:?}: {}", text(&output.stderr));
        assert!(fs::read(&image.file).unwrap() == before, "{args:?} wrote to the image");
    }
}

#[test]
fn an_overlay_of_something_else_is_refused() {
    if !can_convert() {
        return;
    }
    let [image, other] = [(), ()].map(|()| Image::new(16, &["-t", "ext4"]));
    let overlay = image.dir.path().join("changes.qcow2");
    let args = |image: &Image| {
        ["--overlay", overlay.to_str().unwrap(), "mkdir", &image.at("/made")].map(String::from)
    };
    succeeds(args(&image));
    let refusal = |words: &str, args: [String; 4]| {
        let output = dentree(args);
        let message = text(&output.stderr);
        assert!(!output.status.success() && message.contains(words), "{message}");
    };
    refusal("keeps the changes of", args(&other));
    fs::OpenOptions::new().write(true).open(&image.file).unwrap().set_len(17 << 20).unwrap();
    refusal("bytes now", args(&image));
    let alone = convert(&other, &[]);
    fs::rename(alone, &overlay).unwrap();
    refusal("no overlay", args(&other));
    fs::write(&overlay, "precious").unwrap();
    refusal("cannot be read as qcow2", args(&other));
    assert_eq!(fs::read(&overlay).unwrap(), b"precious");
}

#[test]
fn a_mount_over_an_overlay_is_written_and_what_was_synced_survives_a_kill() {
    if !mountable() || !can_convert() {
        return;
    }
    let image = Image::new(64, &["-t", "ext4"]);
    let before = fs::read(&image.file).unwrap();
    let overlay = image.dir.path().join("changes.qcow2");
    let option = format!("overlay={}", overlay.display());
    let mut mounted = Mounted::new(&image.file, &["-o", &option]);
    for number in 0..20u8 {
        let file = mounted.path().join(format!("{number}"));
        fs::write(&file, vec![number; 300_000]).unwrap();
        fs::File::open(&file).unwrap().sync_all().unwrap();
    }
    mounted.signal(Signal::KILL);
    let _ = mounted.wait();
    detach(mounted.path());

    let mut mounted = Mounted::new(&image.file, &["-o", &option]);
    for number in 0..20u8 {
        assert!(fs::read(mounted.path().join(format!("{number}"))).unwrap() == vec![number; 300_000]);
    }
    unmount(mounted.path());
    assert!(mounted.wait().success());
    assert!(fs::read(&image.file).unwrap() == before, "the image was written");
    raw_of(&overlay);
}
