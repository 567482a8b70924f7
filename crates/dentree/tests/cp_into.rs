//! `dentree cp` into an image: what is kept, what is replaced, and the result of an interruption.

mod common;
mod mounts;
mod oracle;
mod population;

use common::{Image, assert_same_lines, can_mount, dentree, from_a_terminal, succeeds, text};
use oracle::{Maker, assert_clean, assert_kernel_agrees, end_with, on_each_kind, stopped_midway, tree};
use rustix::process::Signal;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};

fn checksum(tree: &Path) -> Vec<u8> {
    succeeds(["checksum".as_ref(), tree.as_os_str()])
}

#[test]
fn an_archive_copy_keeps_everything_there_and_back() {
    if !can_mount() {
        return;
    }
    let source = Image::filled(&["-t", "ext4"], population::everything);
    let mount = source.mount("ro").unwrap();
    let from = format!("{}/.", mount.at.display());
    let expected = checksum(&mount.at);
    for options in [&["-O", "^has_journal"][..], &["-b", "1024", "-I", "512", "-O", "inline_data"], &[]] {
        let image = Image::new(160, &[&["-t", "ext4"], options].concat());
        succeeds(["cp", "-a", &from, &image.at("/")]);
        assert_same_lines(&checksum(&image.file), &expected);
        // Again, over the existing copy.
        succeeds(["cp", "-a", &from, &image.at("/")]);
        assert_same_lines(&checksum(&image.file), &expected);
        let sparse = image.mount("ro").unwrap();
        assert!(fs::metadata(sparse.at.join("contents/sparse")).unwrap().blocks() < 1000);
        drop(sparse);
        let back = image.dir.path().join("back");
        succeeds(["cp".as_ref(), "-a".as_ref(), OsStr::new(&image.at("/")), back.as_os_str()]);
        assert_same_lines(&checksum(&back), &expected);
        assert_kernel_agrees(&image);
    }
}

/// A tree for every kind of image, with times in whole seconds.
fn modest(root: &Path) {
    fs::create_dir_all(root.join("a/b/c")).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    for n in 0..300 {
        fs::write(root.join(format!("a/b/file-{n}")), format!("{n}\n").repeat(n * 7)).unwrap();
    }
    let sparse = fs::File::create(root.join("a/sparse")).unwrap();
    for at in [0, 100 << 10, 3 << 20, 20 << 20] {
        sparse.write_all_at(&[9; 5000], at).unwrap();
    }
    sparse.set_len(30 << 20).unwrap();
    fs::hard_link(root.join("a/b/file-7"), root.join("seven")).unwrap();
    symlink("a/b", root.join("short")).unwrap();
    symlink("x/".repeat(200), root.join("long")).unwrap();
    let script = "mknod null c 1 3; mknod disk b 8 70000; mkfifo fifo; chown -h 1000:100 short null a/b/file-1; \
                  chmod 4711 a/b/file-2; chmod 1777 empty; chmod 0 a/b/c; \
                  find . -print0 | xargs -0 touch -h -d @1234567890";
    let done = Command::new("sh").args(["-ec", script]).current_dir(root).output().unwrap();
    assert!(done.status.success(), "{}", text(&done.stderr));
}

#[test]
fn a_copy_into_each_kind_of_image_is_what_cp_makes() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (source, twin) = (dir.path().join("source"), dir.path().join("twin"));
    fs::create_dir(&source).unwrap();
    modest(&source);
    fs::create_dir(&twin).unwrap();
    on_each_kind(64, |image| {
        succeeds(["cp", "-a", source.to_str().unwrap(), &image.at("/archive")]);
        succeeds(["cp", source.to_str().unwrap(), &image.at("/")]);
        let mount = image.mount("ro").unwrap();
        assert_same_lines(&checksum(&mount.at.join("archive")), &checksum(&source));
        // Without -a links are copied as files, and root owns all.
        let plain = twin.join("source");
        if !plain.exists() {
            common::tool(
                "cp",
                ["-r".as_ref(), "--sparse=always".as_ref(), source.as_os_str(), twin.as_os_str()],
            );
            // cp(1) keeps the sticky bit of directories without -a; ours clears all special bits.
            fs::set_permissions(plain.join("empty"), PermissionsExt::from_mode(0o755)).unwrap();
        }
        assert_same_lines(tree(&mount.at.join("source")).as_bytes(), tree(&plain).as_bytes());
        drop(mount);
        assert_kernel_agrees(image);
    });
}

#[test]
fn existing_entries_are_replaced_or_filled_and_links_are_not_followed() {
    if !can_mount() {
        return;
    }
    let image = Image::new(64, &["-t", "ext4"]);
    let local = image.dir.path().join("local");
    fs::create_dir_all(local.join("dir")).unwrap();
    for name in ["file", "dir/inside", "link"] {
        fs::write(local.join(name), "new").unwrap();
    }
    succeeds(["mkdir", &image.at("/to"), &image.at("/to/dir"), &image.at("/victim")]);
    succeeds(["touch", &image.at("/to/file"), &image.at("/to/dir/stays"), &image.at("/victim/file")]);
    succeeds(["ln", "-s", "/victim/file", &image.at("/to/link")]);
    let into = format!("{}/.", local.display());
    // Below a directory a link is neither written through nor replaced unless asked.
    let refused = dentree(["cp", &into, &image.at("/to")]);
    let message = text(&refused.stderr);
    assert!(refused.status.code() == Some(1) && message.contains("/to/link: exists and is not"), "{message}");
    assert_eq!(text(&succeeds(["cat", &image.at("/to/file")])), "new");
    succeeds(["cp", "--remove-destination", &into, &image.at("/to")]);
    assert_eq!(text(&succeeds(["cat", &image.at("/to/link")])), "new");
    assert_eq!(text(&succeeds(["cat", &image.at("/victim/file")])), "");
    assert_eq!(text(&succeeds(["ls", &image.at("/to/dir")])), "inside\nstays\n");

    // A link does not serve as a directory.
    succeeds(["rm", "-r", &image.at("/to/dir")]);
    succeeds(["ln", "-s", "/victim", &image.at("/to/dir")]);
    let refused = dentree(["cp", &into, &image.at("/to")]);
    let message = text(&refused.stderr);
    assert!(refused.status.code() == Some(1) && message.contains("/to/dir: not a directory"), "{message}");
    assert_eq!(text(&succeeds(["ls", &image.at("/victim")])), "file\n");
    // A link argument is followed.
    succeeds(["cp", &into, &image.at("/to/dir")]);
    assert_eq!(text(&succeeds(["ls", &image.at("/victim")])), "dir\nfile\nlink\n");
    assert_kernel_agrees(&image);
}

#[test]
fn the_image_is_not_copied_into_itself_and_unreadable_files_are_reported() {
    let image = Image::new(32, &["-t", "ext4"]);
    fs::write(image.dir.path().join("beside"), "copied").unwrap();
    let output = dentree(["cp", image.dir.path().to_str().unwrap(), &image.at("/all")]);
    let message = text(&output.stderr);
    assert!(output.status.code() == Some(1) && message.contains("the image itself"), "{message}");
    assert_eq!(text(&succeeds(["ls", &image.at("/all")])), "beside\n");
    let output = dentree(["cp", "/nowhere/x", &image.at("/")]);
    let message = text(&output.stderr);
    assert!(output.status.code() == Some(1) && message.contains("/nowhere/x"), "{message}");
    let output = dentree(["cp", "/etc/hosts", image.dir.path().join("x").to_str().unwrap()]);
    assert!(output.status.code() == Some(2) && text(&output.stderr).contains("neither side"));
    assert_clean(&image.file);
}

#[test]
fn a_full_image_says_so_once_and_stays_whole_and_usable() {
    if !can_mount() {
        return;
    }
    // The last image lacks inodes for the files, the others blocks for the bytes.
    for (options, count, size) in [
        (&["-t", "ext4"][..], 40, 600_000),
        (&["-t", "ext2"], 40, 600_000),
        (&["-t", "ext4", "-N", "256"], 300, 1),
    ] {
        let image = Image::new(16, options);
        let local = image.dir.path().join("local");
        fs::create_dir(&local).unwrap();
        for n in 0..count {
            fs::write(local.join(format!("f{n:03}")), vec![n as u8; size]).unwrap();
        }
        let output = dentree(["cp", "-a", local.to_str().unwrap(), &image.at("/")]);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
        assert!(message.contains("/local/f") && message.contains("no space left"), "{message}");
        // Files with a name are complete.
        let mount = image.mount("ro").unwrap();
        let copied: Vec<_> = fs::read_dir(mount.at.join("local")).unwrap().map(Result::unwrap).collect();
        assert!(!copied.is_empty() && copied.len() < count);
        for entry in copied {
            assert!(fs::read(entry.path()).unwrap() == fs::read(local.join(entry.file_name())).unwrap());
        }
        drop(mount);
        assert_clean(&image.file);
        succeeds(["rm", "-r", &image.at("/local")]);
        succeeds(["cp", "-a", local.join("f001").to_str().unwrap(), &image.at("/")]);
        assert_kernel_agrees(&image);
    }
}

#[test]
fn a_disk_that_is_full_below_the_image_is_an_error() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let below = mounts::Small::new(&dir.path().join("below"), 6);
    let image = Image { file: below.path().join("disk.img"), dir };
    succeeds(["mkfs", image.file.to_str().unwrap(), "--size", "64M", "-b", "4096"]);
    let local = image.dir.path().join("large");
    fs::write(&local, vec![7; 20 << 20]).unwrap();
    let output = dentree(["cp", local.to_str().unwrap(), &image.at("/")]);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("disk.img:/large") && message.contains("No space left on device"), "{message}");
}

/// A copy of a large file into `image`, stopped in the middle.
fn long_copy(image: &Image) -> Child {
    let local = image.dir.path().join("large");
    fs::write(&local, vec![7; 300 << 20]).unwrap();
    succeeds(["mkdir", "-p", &image.at("/before")]);
    stopped_midway(|| {
        dentree(["rm", "-f", &image.at("/large")]);
        let mut copy = from_a_terminal();
        copy.args(["cp", local.to_str().unwrap(), &image.at("/large")]);
        copy.stderr(Stdio::piped()).spawn().unwrap()
    })
}

#[test]
fn a_copy_that_is_interrupted_leaves_a_clean_image_without_half_a_file() {
    let image = Maker::Ours(&[]).make(400);
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let output = end_with(long_copy(&image), signal);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(message.contains("interrupted"), "{message}");
        assert_clean(&image.file);
        assert_eq!(text(&succeeds(["ls", &image.at("/")])), "before\nlost+found\n");
    }
}

#[test]
fn a_copy_that_is_killed_leaves_an_image_that_recovers() {
    let image = Maker::Ours(&[]).make(400);
    end_with(long_copy(&image), Signal::KILL);
    let output = dentree(["mkdir", &image.at("/behind")]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_clean(&image.file);
    assert_eq!(text(&succeeds(["ls", &image.at("/")])), "before\nbehind\nlost+found\n");
}

#[test]
fn a_terminal_shows_the_progress_of_a_copy() {
    if Command::new("script").arg("--version").output().is_err() {
        println!("skipped: script(1) is not installed");
        return;
    }
    let image = Image::new(200, &["-t", "ext4"]);
    let local = image.dir.path().join("large");
    fs::write(&local, vec![7; 100 << 20]).unwrap();
    fs::set_permissions(&local, PermissionsExt::from_mode(0o640)).unwrap();
    let command = format!("{} cp {} {}", env!("CARGO_BIN_EXE_dentree"), local.display(), image.at("/"));
    let shown =
        Command::new("script").args(["-qec", &command, "/dev/null"]).env("TERM", "xterm").output().unwrap();
    let shown = text(&shown.stdout);
    assert!(shown.contains("0 files, ") && shown.contains('M'), "{shown:?}");
    assert_clean(&image.file);
}
