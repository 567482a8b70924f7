//! `dentree mkfs --from`: an image with a directory's tree, without root, with the same bytes each
//! time.

mod common;
mod oracle;
mod population;

use common::{Image, assert_same_lines, can_mount, dentree, from_a_terminal, succeeds, text, tool};
use dentree_testing::program_in;
use oracle::{
    assert_clean, assert_kernel_agrees, end_with, journal_sequence, makes_files_without_names, stopped_midway,
};
use rustix::process::Signal;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const NOBODY: u32 = 65534;

/// A temporary directory with a path for an image.
fn scratch() -> Image {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("disk.img");
    Image { dir, file }
}

fn mkfs(image: &Path, from: &Path, more: &[&str]) -> Output {
    let mut mkfs = Command::new(env!("CARGO_BIN_EXE_dentree"));
    mkfs.arg("mkfs").arg(image).arg("--from").arg(from).args(more).env_remove("SOURCE_DATE_EPOCH");
    mkfs.output().unwrap()
}

fn made(image: &Path, from: &Path, more: &[&str]) {
    let output = mkfs(image, from, more);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
}

fn checksum(tree: &Path) -> Vec<u8> {
    succeeds(["checksum".as_ref(), tree.as_os_str()])
}

#[test]
fn the_image_has_what_the_directory_has() {
    if !can_mount() {
        return;
    }
    let source = Image::filled(&["-t", "ext4"], population::everything);
    let mount = source.mount("ro").unwrap();
    let expected = checksum(&mount.at);
    for more in [
        &["--size", "160M"][..],
        &["--size", "1G", "-O", "inline_data"],
        &["--size", "200M", "-O", "^metadata_csum,^flex_bg"],
    ] {
        let image = scratch();
        made(&image.file, &mount.at, more);
        assert_same_lines(&checksum(&image.file), &expected);
        // The journal of a new image is unused.
        assert_eq!(journal_sequence(&image.file), 1);
        assert!(fs::metadata(&image.file).unwrap().blocks() * 512 < 40 << 20);
        assert_kernel_agrees(&image);
    }
}

/// A tree of an ordinary user, with several megabytes of data.
fn own_tree(root: &Path) {
    fs::create_dir_all(root.join("etc")).unwrap();
    fs::create_dir_all(root.join("usr/lib/deep/er")).unwrap();
    for n in 0..500_u32 {
        fs::write(root.join(format!("usr/lib/f{n}")), n.to_le_bytes().repeat(n as usize * 11)).unwrap();
    }
    let noise: Vec<u8> =
        (0..12_000_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()).collect();
    fs::write(root.join("usr/lib/deep/large"), noise).unwrap();
    fs::write(root.join("etc/passwd"), "root:x:0:0::/:/bin/sh\n").unwrap();
    fs::set_permissions(root.join("etc/passwd"), PermissionsExt::from_mode(0o600)).unwrap();
    fs::hard_link(root.join("etc/passwd"), root.join("usr/passwd")).unwrap();
    symlink("usr/lib", root.join("lib")).unwrap();
    let sparse = File::create(root.join("usr/sparse")).unwrap();
    for at in [1 << 20, (1 << 20) + 5000, 60 << 20] {
        sparse.write_all_at(&[3; 100], at).unwrap();
    }
    sparse.set_len(64 << 20).unwrap();
    let times = "find . -print0 | xargs -0 touch -h -d @1500000000.125";
    assert!(Command::new("sh").args(["-ec", times]).current_dir(root).status().unwrap().success());
}

const MANIFEST: &str = "\
# everything is root's
*             -  -     0    0
/dev          d  755   0    0
/dev/console  c  620   0    5    5 1
/dev/sda      b  660   0    6    8 0
/dev/log      s  666   0    0
/run          l  -     0    0    /var/run
/etc/passwd   -  644   -    0
/var          d  1777  0    0
/var/fifo     p  600   10   20
/var/a\\040b  f  4640  0    42
";

#[test]
fn an_ordinary_user_makes_an_image_with_owners_and_devices() {
    if !can_mount() {
        return;
    }
    let image = scratch();
    let at = |name: &str| image.dir.path().join(name);
    fs::create_dir(at("tree")).unwrap();
    own_tree(&at("tree"));
    fs::write(at("manifest"), MANIFEST).unwrap();
    // The build directory may be inaccessible to ordinary users.
    let program = program_in(image.dir.path(), env!("CARGO_BIN_EXE_dentree"));
    tool("chown", ["-R", "65534:65534", image.dir.path().to_str().unwrap()]);
    let output = Command::new(program)
        .arg("mkfs")
        .arg(&image.file)
        .args(["--size", "128M", "--from"])
        .arg(at("tree"))
        .arg("--manifest")
        .arg(at("manifest"))
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    let mount = image.mount("ro").unwrap();
    let found = |name: &str| {
        let found = fs::symlink_metadata(mount.at.join(name)).unwrap();
        (found.mode() & 0o7777, found.uid(), found.gid())
    };
    assert_eq!(found("etc/passwd"), (0o644, NOBODY, 0));
    assert_eq!(found("usr/lib"), (0o755, 0, 0));
    assert_eq!(found("var/a b"), (0o4640, 0, 42));
    assert_eq!(found("var/fifo"), (0o600, 10, 20));
    let device = |name: &str| {
        let found = fs::symlink_metadata(mount.at.join(name)).unwrap();
        (found.file_type().is_char_device(), rustix::fs::major(found.rdev()), rustix::fs::minor(found.rdev()))
    };
    assert_eq!(device("dev/console"), (true, 5, 1));
    assert_eq!(device("dev/sda"), (false, 8, 0));
    assert_eq!(fs::read_link(mount.at.join("run")).unwrap(), PathBuf::from("/var/run"));
    assert_eq!(fs::metadata(mount.at.join("etc/passwd")).unwrap().nlink(), 2);
    let content = |root: &Path| {
        let sums = "find . -type f -path './usr/*' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum";
        Command::new("sh").args(["-ec", sums]).current_dir(root).output().unwrap().stdout
    };
    assert_same_lines(&content(&mount.at), &content(&at("tree")));
    drop(mount);
    assert_kernel_agrees(&image);
}

#[test]
fn the_same_tree_gives_the_same_bytes() {
    let image = scratch();
    let at = |name: &str| image.dir.path().join(name);
    fs::create_dir(at("tree")).unwrap();
    own_tree(&at("tree"));
    fs::write(at("manifest"), MANIFEST).unwrap();
    // A copy made in another order and without holes; hard links and times are the same.
    fs::create_dir(at("copy")).unwrap();
    let copied = "find . | LC_ALL=C sort -r | tar -c --format=pax --no-recursion -T - | tar -x -p -C ../copy";
    assert!(Command::new("sh").args(["-ec", copied]).current_dir(at("tree")).status().unwrap().success());
    let manifest = at("manifest");
    let bytes = |name: &str, from: &str, options: &[&str]| {
        let common = ["--reproducible", "--size", "192M", "--manifest", manifest.to_str().unwrap()];
        made(&at(name), &at(from), &[&common, options].concat());
        assert_clean(at(name));
        fs::read(at(name)).unwrap()
    };
    for options in [&[][..], &["-O", "orphan_file,inline_data"], &["-b", "1024", "-O", "^has_journal"]] {
        let first = bytes("first", "tree", options);
        assert!(first == bytes("second", "tree", options), "again, with {options:?}");
        assert!(first == bytes("third", "copy", options), "from a copy, with {options:?}");
        for name in ["first", "second", "third"] {
            fs::remove_file(at(name)).unwrap();
        }
    }
    let first = bytes("first", "tree", &[]);
    fs::write(at("tree/etc/new"), "").unwrap();
    assert!(first != bytes("other", "tree", &[]));
}

#[test]
fn an_image_that_is_too_small_is_not_made_and_the_file_is_named() {
    let image = scratch();
    let from = image.dir.path().join("tree");
    fs::create_dir(&from).unwrap();
    fs::write(from.join("large"), vec![1; 9 << 20]).unwrap();
    let output = mkfs(&image.file, &from, &["--size", "8M"]);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        message.contains("disk.img:/large: no space left") && message.contains("larger --size"),
        "{message}"
    );
    let left: Vec<_> =
        fs::read_dir(image.dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["tree"]);
}

/// A long mkfs, stopped in the middle.
fn long_making(image: &Image) -> Child {
    let from = image.dir.path().join("tree");
    fs::create_dir(&from).unwrap();
    fs::write(from.join("large"), vec![1; 300 << 20]).unwrap();
    let child = stopped_midway(|| {
        let mut mkfs = from_a_terminal();
        mkfs.arg("mkfs").arg(&image.file).args(["--size", "400M", "--force", "--from"]).arg(&from);
        mkfs.stderr(Stdio::piped()).spawn().unwrap()
    });
    let _ = fs::remove_file(&image.file);
    child
}

#[test]
fn an_interrupted_mkfs_makes_no_image() {
    let image = scratch();
    let output = end_with(long_making(&image), Signal::INT);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("interrupted; nothing was made"), "{}", text(&output.stderr));
    assert_eq!(fs::read_dir(image.dir.path()).unwrap().count(), 1);
}

#[test]
fn a_killed_mkfs_leaves_nothing_behind() {
    let image = scratch();
    if !makes_files_without_names(image.dir.path()) {
        return;
    }
    end_with(long_making(&image), Signal::KILL);
    let left: Vec<_> =
        fs::read_dir(image.dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["tree"]);
}

#[test]
fn a_wrong_manifest_is_refused_by_line_and_an_image_inside_its_source_by_path() {
    let image = scratch();
    let at = |name: &str| image.dir.path().join(name);
    fs::create_dir(at("tree")).unwrap();
    fs::write(at("manifest"), "# one\n/dev/null c 666 0 0\n").unwrap();
    let manifest = at("manifest");
    let more = ["--size", "8M", "--manifest", manifest.to_str().unwrap()];
    let refused = |from: &str, more: &[&str]| {
        let output = mkfs(&image.file, &at(from), more);
        assert_eq!(output.status.code(), Some(2));
        text(&output.stderr)
    };
    let message = refused("tree", &more);
    assert!(message.contains("manifest:2: a device has MAJOR and MINOR"), "{message}");
    fs::write(at("manifest"), "\n/none/null c 666 0 0 1 3\n").unwrap();
    let message = refused("tree", &more);
    assert!(message.contains("line 2") && message.contains("add a line for it"), "{message}");
    let message = refused("", &["--size", "8M"]);
    assert!(message.contains("make it elsewhere"), "{message}");
    assert!(!image.file.exists());
    assert_eq!(
        dentree(["mkfs", image.file.to_str().unwrap(), "--size", "1M", "--from", "/none"]).status.code(),
        Some(1)
    );
}
