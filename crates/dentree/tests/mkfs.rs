//! `dentree mkfs`: its images, refusals and failures.

mod common;

use common::{assert_clean, dentree, succeeds, text, tool};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

struct Scratch {
    dir: TempDir,
}

impl Scratch {
    fn new() -> Scratch {
        Scratch { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn image(&self) -> String {
        self.path("disk.img").to_str().unwrap().to_owned()
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// Runs mkfs, which must fail with this exit code; returns its messages.
fn refused(code: i32, args: &[&str]) -> String {
    let output = dentree(["mkfs"].iter().chain(args));
    assert_eq!(output.status.code(), Some(code), "{args:?}: {}", text(&output.stderr));
    text(&output.stderr)
}

#[test]
fn an_image_is_made_as_the_options_say() {
    let scratch = Scratch::new();
    let image = scratch.image();
    let uuid = "01234567-89ab-4def-8123-456789abcdef";
    let said = succeeds([
        "mkfs",
        &image,
        "--size",
        "64M",
        "-L",
        "lab",
        "-b",
        "2048",
        "-O",
        "^metadata_csum",
        "--uuid",
        uuid,
    ]);
    assert_eq!(
        text(&said),
        format!("{image}: 64M in 32768 blocks of 2048 bytes, 16384 inodes, a journal of 8.0M\n")
    );
    assert_clean(&image);
    let shown = text(&tool("dumpe2fs", ["-h", &image]));
    assert!(
        shown.contains(uuid) && shown.contains("name:   lab\n") && !shown.contains("metadata_csum"),
        "{shown}"
    );
    assert_eq!(text(&succeeds(["ls", &image])), "lost+found\n");
    assert_eq!(scratch.names(), ["disk.img"]);
}

#[test]
fn an_image_of_twenty_gibibytes_is_sparse() {
    let scratch = Scratch::new();
    succeeds(["mkfs", &scratch.image(), "--size", "20G"]);
    let found = fs::metadata(scratch.image()).unwrap();
    assert_eq!(found.len(), 20 << 30);
    assert!(found.blocks() * 512 < 8 << 20, "{} sectors", found.blocks());
}

#[test]
fn two_images_differ_unless_reproducible() {
    let scratch = Scratch::new();
    let make = |name: &str, args: &[&str], epoch: Option<&str>| {
        let image = scratch.path(name);
        let mut mkfs = Command::new(env!("CARGO_BIN_EXE_dentree"));
        mkfs.arg("mkfs").arg(&image).args(["--size", "8M"]).args(args).env_remove("SOURCE_DATE_EPOCH");
        let made = mkfs.envs(epoch.map(|epoch| ("SOURCE_DATE_EPOCH", epoch))).output().unwrap();
        assert!(made.status.success(), "{}", text(&made.stderr));
        assert_clean(image.to_str().unwrap());
        fs::read(image).unwrap()
    };
    assert!(make("a", &[], None) != make("b", &[], None), "UUIDs are random");
    let plain = make("c", &["--reproducible"], None);
    assert!(plain == make("d", &["--reproducible"], None));
    assert!(plain != make("e", &["--reproducible"], Some("1700000000")));
    assert!(plain[1024..2048] != make("f", &["--reproducible", "-L", "x"], None)[1024..2048]);
}

#[test]
fn a_file_that_is_not_empty_is_replaced_only_by_force() {
    let scratch = Scratch::new();
    let image = scratch.image();
    fs::write(&image, "precious").unwrap();
    let said = refused(1, &[&image, "--size", "1M"]);
    assert!(said.contains("--force"), "{said}");
    assert_eq!(fs::read(&image).unwrap(), b"precious");
    succeeds(["mkfs", &image, "--size", "1M", "--force"]);
    assert_clean(&image);
    fs::write(scratch.path("empty"), "").unwrap();
    succeeds(["mkfs", scratch.path("empty").to_str().unwrap(), "--size", "1M"]);
}

#[test]
fn a_replaced_file_keeps_owner_and_mode_and_one_with_hard_links_is_refused() {
    let scratch = Scratch::new();
    let image = scratch.image();
    fs::write(&image, "").unwrap();
    fs::set_permissions(&image, fs::Permissions::from_mode(0o600)).unwrap();
    let owner = if rustix::process::geteuid().is_root() { 1000 } else { fs::metadata(&image).unwrap().uid() };
    std::os::unix::fs::chown(&image, Some(owner), None).unwrap();
    succeeds(["mkfs", &image, "--size", "1M"]);
    let found = fs::metadata(&image).unwrap();
    assert_eq!((found.uid(), found.permissions().mode() & 0o7777), (owner, 0o600));

    fs::hard_link(&image, scratch.path("other")).unwrap();
    let before = fs::read(&image).unwrap();
    assert!(refused(1, &[&image, "--size", "2M", "--force"]).contains("other hard links"));
    fs::remove_file(scratch.path("other")).unwrap();
    std::os::unix::fs::symlink(&image, scratch.path("link")).unwrap();
    let link = scratch.path("link");
    assert!(refused(1, &[link.to_str().unwrap(), "--size", "2M", "--force"]).contains("regular file"));
    assert!(fs::read(&image).unwrap() == before && link.is_symlink());
}

#[test]
fn unusable_options_are_refused_by_name_and_leave_nothing() {
    let scratch = Scratch::new();
    let image = scratch.image();
    for (code, args, word) in [
        (2, &["--size", "16K"][..], "too few"),
        (2, &["--size", "1M", "-O", "bogus"], "bogus"),
        (4, &["--size", "1M", "-O", "bigalloc"], "bigalloc"),
        (2, &["--size", "1M", "-O", "^has_journal,orphan_file"], "has_journal"),
        (2, &["--size", "1M", "-b", "8192"], "8192"),
        (2, &["--size", "1M", "-L", "seventeen letters"], "at most 16"),
        (2, &["--size", "1X"], "1X"),
        (2, &["--size", "1M", "--uuid", "7"], "UUID"),
        (2, &["--size", "1M", "--offset", "512"], "--offset"),
    ] {
        let said = refused(code, &[&[image.as_str()], args].concat());
        assert!(said.contains(word), "{args:?}: {said}");
    }
    assert!(scratch.names().is_empty(), "{:?}", scratch.names());
    assert!(refused(1, &["/dev/null", "--size", "1M"]).contains("regular file"));
    assert!(refused(1, &["/nowhere/disk.img", "--size", "1M"]).contains("No such file"));
}

#[test]
fn an_image_with_a_writer_is_not_replaced() {
    let scratch = Scratch::new();
    let image = scratch.image();
    succeeds(["mkfs", &image, "--size", "1M"]);
    let held = fs::File::open(Path::new(&image)).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    assert!(refused(1, &[&image, "--size", "1M", "--force"]).contains("being written by"));
}

#[test]
fn options_of_mke2fs_mean_what_they_mean_there() {
    let scratch = Scratch::new();
    let image = scratch.image();
    let [more, filled] =
        ["more.img", "filled.img"].map(|name| scratch.path(name).to_str().unwrap().to_owned());
    let options = ["--size", "64M", "-N", "5000", "-I", "512", "-m", "0.5", "-U", "clear"];
    let planned = succeeds(["mkfs", "-n", &image].iter().chain(&options));
    assert!(scratch.names().is_empty(), "-n makes nothing");
    assert_eq!(succeeds(["mkfs", &image].iter().chain(&options)), planned);
    let shown = text(&tool("dumpe2fs", ["-h", &image]));
    let fields = |fields: &[&str]| {
        fields.iter().all(|field| shown.lines().any(|line| line.split_whitespace().eq(field.split(' '))))
    };
    assert!(
        fields(&[
            "Inode count: 4992",
            "Inode size: 512",
            "Reserved block count: 327",
            "Filesystem UUID: <none>",
        ]),
        "{shown}"
    );
    assert!(succeeds(["mkfs", "-q", &more, "--size", "8M", "-i", "2048"]).is_empty());
    assert_clean(&more);
    assert!(text(&tool("dumpe2fs", ["-h", &more])).contains("4096\nBlock count:"));
    fs::create_dir(scratch.path("tree")).unwrap();
    fs::write(scratch.path("tree/file"), "here").unwrap();
    succeeds(["mkfs", &filled, "-d", scratch.path("tree").to_str().unwrap(), "-I", "128"]);
    assert_clean(&filled);
    assert_eq!(succeeds(["cat", &format!("{filled}:/file")]), b"here");
    for wrong in [["-N", "0"], ["-m", "51"], ["-I", "300"], ["-i", "1"], ["-U", "x"]] {
        refused(2, &[&[&*more, "--size", "8M", "--force"], &wrong[..]].concat());
    }
}
