//! `dentree tar` and `mkfs --from ARCHIVE`: GNU tar packs and unpacks the same trees, on kernel
//! mounts.

mod common;

use common::{Image, assert_clean, can_mount, dentree, succeeds, text};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A tree with one of each: names, types, holes, links, owners, times, attributes, lists.
fn fill(root: &Path) {
    let at = |name: &str| root.join(name);
    let long = "l".repeat(120);
    fs::create_dir_all(at(&format!("deep/{long}/{long}/{long}"))).unwrap();
    fs::write(at(&format!("deep/{long}/{long}/{long}/file")), "deep\n").unwrap();
    fs::create_dir(at("etc")).unwrap();
    fs::write(at("etc/hosts"), "127.0.0.1 localhost\n").unwrap();
    fs::write(at("etc/empty"), "").unwrap();
    fs::write(at("etc/big"), (0..3_000_000_u32).map(|n| (n >> 7) as u8).collect::<Vec<u8>>()).unwrap();
    fs::hard_link(at("etc/hosts"), at("another")).unwrap();
    symlink("etc/hosts", at("link")).unwrap();
    symlink(format!("/{}", "x/".repeat(90)), at("long-link")).unwrap();
    let sparse = File::create(at("sparse")).unwrap();
    sparse.write_all_at(b"middle", 5 << 20).unwrap();
    sparse.write_all_at(&[7; 5000], 20 << 20).unwrap();
    sparse.set_len((40 << 20) + 3).unwrap();
    let long_sparse = File::create(at(&"s".repeat(110))).unwrap();
    long_sparse.write_all_at(b"end", 3 << 20).unwrap();
    fs::hard_link(at("sparse"), at("sparse-too")).unwrap();
    File::create(at("all-hole")).unwrap().set_len(1 << 20).unwrap();
    fs::write(at("name with \n and ü and \u{1}"), "x").unwrap();
    fs::set_permissions(at("etc"), fs::Permissions::from_mode(0o2751)).unwrap();
    fs::set_permissions(at("etc/empty"), fs::Permissions::from_mode(0o4755)).unwrap();
    let owner = |id| Some(rustix::fs::Uid::from_raw(id));
    rustix::fs::chown(at("etc/big"), owner(3_000_000_000), Some(rustix::fs::Gid::from_raw(77))).unwrap();
    let run = |command: &str| {
        let done = Command::new("sh").arg("-ec").arg(command).current_dir(root).status().unwrap();
        assert!(done.success(), "{command}");
    };
    run("mknod null c 1 3; mknod disk b 259 70000; mkfifo fifo; chmod 600 disk");
    run("setfattr -n user.note -v 'a=b%c' etc/hosts; setfattr -n trusted.t -v 0x00ff0a etc");
    run("setfacl -m u:1000:r--,u:1:r,g:50:rwx etc/hosts; setfacl -d -m u:7:rx etc");
    run(
        "touch -hd '1960-01-02 03:04:05.678901234 UTC' link; touch -d '2001-02-03 04:05:06.000000007 UTC' etc/big etc",
    );
}

/// A mounted image with the tree; `None` where images cannot be mounted.
fn filled() -> Option<Image> {
    can_mount().then(|| Image::filled(&["-t", "ext4", "-I", "256"], fill))
}

fn sums(of: &str) -> String {
    text(&succeeds(["checksum", of]))
}

fn with_input(command: &mut Command, input: &[u8]) -> std::process::Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        // Where the program ends early its input is not read.
        scope.spawn(move || drop(stdin.write_all(input)));
        child.wait_with_output().unwrap()
    })
}

fn ours(args: &[&str], input: &[u8]) -> std::process::Output {
    with_input(Command::new(env!("CARGO_BIN_EXE_dentree")).args(args), input)
}

#[test]
fn what_gnu_tar_extracts_of_our_archive_is_the_tree() {
    let Some(image) = filled() else { return };
    let archive = succeeds(["tar", "c", &image.at("/")]);
    assert!(archive.len() < 8 << 20, "holes are not in it: {} bytes", archive.len());
    let copy = Image::new(128, &["-t", "ext4", "-I", "256"]);
    {
        let mount = copy.mount("rw").unwrap();
        let flags =
            ["--xattrs", "--xattrs-include=*", "--acls", "--numeric-owner", "--same-owner", "-xpf", "-"];
        let mut tar = Command::new("tar");
        let done = with_input(tar.args(flags).arg("-C").arg(&mount.at), &archive);
        let told = text(&done.stderr);
        // What tar(1) says of a time before 1970, which it sets all the same.
        assert!(done.status.success() && told.lines().all(|line| line.contains("implausibly old")), "{told}");
        let sparse = fs::metadata(mount.at.join("sparse")).unwrap();
        use std::os::unix::fs::MetadataExt;
        assert!(sparse.blocks() < 200, "{} blocks", sparse.blocks());
    }
    assert_eq!(sums(&copy.at("/")), sums(&image.at("/")));
}

#[test]
fn what_we_extract_of_gnu_tars_archives_is_the_tree() {
    let Some(image) = filled() else { return };
    let expected = sums(&image.at("/"));
    let mount = image.mount("ro").unwrap();
    for flags in [
        &["--format=pax", "--xattrs", "--xattrs-include=*", "--acls", "--sparse"][..],
        &["--format=pax", "--xattrs", "--xattrs-include=*", "--acls", "--sparse", "--sparse-version=0.1"],
        &[
            "--format=pax",
            "--xattrs",
            "--xattrs-include=*",
            "--acls",
            "--sparse",
            "--sparse-version=0.0",
            "-z",
        ],
        &["--format=pax", "--xattrs", "--xattrs-include=*", "--acls", "--zstd"],
    ] {
        let mut tar = Command::new("tar");
        let packed = tar.args(flags).arg("-C").arg(&mount.at).args(["-cf", "-", "."]).output().unwrap();
        assert!(packed.status.success(), "{flags:?}: {}", text(&packed.stderr));
        let copy = Image::new(128, &["-t", "ext4", "-I", "256"]);
        let done = ours(&["tar", "x", &copy.at("/")], &packed.stdout);
        assert!(done.status.success() && done.stderr.is_empty(), "{flags:?}: {}", text(&done.stderr));
        assert_eq!(sums(&copy.at("/")), expected, "{flags:?}");
        assert_clean(&copy.file);

        let dir = tempfile::tempdir().unwrap();
        let made = dir.path().join("made.img");
        let made = made.to_str().unwrap();
        let done = ours(&["mkfs", made, "--from", "-", "-O", "extra_isize"], &packed.stdout);
        assert!(done.status.success() && done.stderr.is_empty(), "{flags:?}: {}", text(&done.stderr));
        assert_eq!(sums(&format!("{made}:/")), expected, "mkfs, {flags:?}");
        assert_clean(made);
    }
}

#[test]
fn old_formats_of_gnu_tar_are_extracted() {
    let Some(image) = filled() else { return };
    let mount = image.mount("ro").unwrap();
    for flags in [&["--format=gnu", "--sparse"][..], &["--format=ustar"], &["--format=v7"]] {
        let mut tar = Command::new("tar");
        tar.args(flags).arg("-C").arg(&mount.at).args([
            "-cf",
            "-",
            "etc/hosts",
            "etc/empty",
            "another",
            "link",
        ]);
        if flags[0] == "--format=gnu" {
            tar.args(["sparse", "deep", "long-link", "name with \n and ü and \u{1}"]);
        }
        let packed = tar.output().unwrap();
        let copy = Image::new(64, &["-t", "ext4"]);
        let done = ours(&["tar", "x", &copy.at("/")], &packed.stdout);
        assert!(done.status.success(), "{flags:?}: {}", text(&done.stderr));
        assert_clean(&copy.file);
        let copied = copy.mount("ro").unwrap();
        let mut diff = Command::new("diff");
        diff.args(["-r", "--no-dereference"]).arg(mount.at.join("etc")).arg(copied.at.join("etc"));
        let differ = diff.output().unwrap();
        assert_eq!(text(&differ.stdout).lines().filter(|line| !line.contains("Only in")).count(), 0);
        if flags[0] == "--format=gnu" {
            let same = |name: &str| {
                fs::read(mount.at.join(name)).unwrap() == fs::read(copied.at.join(name)).unwrap()
            };
            assert!(same("sparse") && same("name with \n and ü and \u{1}"));
        }
    }
}

/// With names that fit no header, too, which a `path` record has beside that of the map.
#[test]
fn what_we_extract_of_our_archive_is_the_tree() {
    let Some(image) = filled() else { return };
    let archive = succeeds(["tar", "c", &image.at("/")]);
    let copy = Image::new(128, &["-t", "ext4", "-I", "256"]);
    let done = ours(&["tar", "x", &copy.at("/")], &archive);
    assert!(done.status.success() && done.stderr.is_empty(), "{}", text(&done.stderr));
    assert_eq!(sums(&copy.at("/")), sums(&image.at("/")));
    assert_clean(&copy.file);
}

#[test]
fn an_extraction_that_waits_for_its_input_ends_at_a_signal() {
    let image = Image::new(16, &["-t", "ext4"]);
    let old = tempfile::NamedTempFile::new().unwrap();
    fs::write(old.path(), "old").unwrap();
    succeeds(["cp", old.path().to_str().unwrap(), &image.at("/second")]);
    let mut child = Command::new(env!("CARGO_BIN_EXE_dentree"))
        .args(["tar", "x", "-v", &image.at("/")])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let members = [
        ("first", tar::EntryType::Regular, "", &b"whole"[..]),
        ("second", tar::EntryType::Regular, "", &[b'x'; 9000]),
    ];
    // The end of the second member never comes.
    stdin.write_all(&archive(&members)[..4096]).unwrap();
    let mut told = BufReader::new(child.stderr.take().unwrap()).lines();
    while told.next().unwrap().unwrap() != "second" {}
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM)
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(2));
    drop(stdin);
    assert_eq!(succeeds(["cat", &image.at("/first")]), b"whole");
    assert_eq!(succeeds(["cat", &image.at("/second")]), b"old");
    assert_clean(&image.file);
}

#[test]
fn a_new_image_whose_archive_does_not_come_is_not_made() {
    let dir = TempDir::new().unwrap();
    let image = dir.path().join("disk.img");
    let mut child = Command::new(env!("CARGO_BIN_EXE_dentree"))
        .args(["mkfs", image.to_str().unwrap(), "--from", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // More than a pipe holds: all of it was written when the program has read some.
    stdin.write_all(&vec![0; 2 << 20]).unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM)
        .unwrap();
    let done = child.wait_with_output().unwrap();
    drop(stdin);
    assert!(done.status.code() == Some(1) && text(&done.stderr).contains("interrupted"));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn the_status_is_1_for_differences_and_2_for_errors_as_with_tar() {
    let image = Image::new(16, &["-t", "ext4", "-O", "^ea_inode"]);
    let mut builder = tar::Builder::new(Vec::new());
    let value = vec![b'x'; 60_000];
    builder.append_pax_extensions([("SCHILY.xattr.user.large", &value[..])]).unwrap();
    let packed =
        [&builder.get_ref()[..], &archive(&[("file", tar::EntryType::Regular, "", b"whole")])].concat();
    let done = ours(&["tar", "x", &image.at("/")], &packed);
    assert!(
        done.status.code() == Some(1) && text(&done.stderr).contains("not kept"),
        "{}",
        text(&done.stderr)
    );
    assert_eq!(succeeds(["cat", &image.at("/file")]), b"whole");
    assert_eq!(dentree(["tar", "c", &image.at("/gone")]).status.code(), Some(2));
    assert_eq!(dentree(["tar", "c", "-f", "/dev/null", "no.img:/"]).status.code(), Some(2));
    assert_eq!(dentree(["tar", "x", "-f", "/no/archive", &image.at("/")]).status.code(), Some(2));
}

/// An archive of members by their headers, with what no tar(1) writes.
fn archive(members: &[(&str, tar::EntryType, &str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, kind, link, content) in members {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(*kind);
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_cksum();
        builder.append(&header, *content).unwrap();
    }
    builder.into_inner().unwrap()
}

#[test]
fn a_hostile_archive_leads_nowhere_else() {
    use tar::EntryType::{Directory, Link, Regular, Symlink};
    let image = Image::new(16, &["-t", "ext4"]);
    succeeds(["mkdir", &image.at("/etc"), &image.at("/into")]);
    let secret = tempfile::NamedTempFile::new().unwrap();
    fs::write(secret.path(), "secret").unwrap();
    succeeds(["cp", secret.path().to_str().unwrap(), &image.at("/etc/shadow")]);
    let members: &[(&str, tar::EntryType, &str, &[u8])] = &[
        ("../etc/shadow", Regular, "", b"gone"),
        ("/absolute", Regular, "", b"below"),
        ("out", Symlink, "/etc", b""),
        ("out/shadow", Regular, "", b"gone"),
        ("up", Symlink, "..", b""),
        ("up/etc/shadow", Regular, "", b"gone"),
        ("stolen", Link, "../etc/shadow", b""),
        ("stolen", Link, "out/shadow", b""),
        ("in", Directory, "", b""),
        ("way", Symlink, "in", b""),
        ("way/file", Regular, "", b"inside"),
        ("strange", tar::EntryType::new(b'Z'), "", b""),
    ];
    let done = ours(&["tar", "x", &image.at("/into")], &archive(members));
    let told = text(&done.stderr);
    assert!(done.status.code() == Some(2) && told.lines().count() == 6, "{told}");
    assert_eq!(succeeds(["cat", &image.at("/etc/shadow")]), b"secret");
    assert_eq!(succeeds(["cat", &image.at("/into/absolute")]), b"below");
    assert_eq!(succeeds(["cat", &image.at("/into/in/file")]), b"inside");
    assert_eq!(dentree(["stat", &image.at("/into/stolen")]).status.code(), Some(1));
    assert_clean(&image.file);
}

#[test]
fn a_damaged_archive_is_one_error_and_leaves_no_half_file() {
    let whole = archive(&[
        ("first", tar::EntryType::Regular, "", b"whole"),
        ("second", tar::EntryType::Regular, "", &[b'x'; 100_000]),
    ]);
    for cut in [700, 1024 + 512 + 50_000] {
        let image = Image::new(16, &["-t", "ext4"]);
        let done = ours(&["tar", "x", &image.at("/")], &whole[..cut]);
        assert!(done.status.code() == Some(2), "{}", text(&done.stderr));
        assert_eq!(text(&done.stderr).lines().count(), 1);
        assert_eq!(dentree(["stat", &image.at("/second")]).status.code(), Some(1));
        assert_clean(&image.file);
    }
    let image = Image::new(16, &["-t", "ext4"]);
    for no_archive in [&b"\x1f\x8b no gzip"[..], b"", &[b'x'; 4096], b"\xfd7zXZ\0\0\0"] {
        let done = ours(&["tar", "x", &image.at("/")], no_archive);
        assert!(done.status.code() == Some(2) && text(&done.stderr).contains("cannot be read"));
    }
}

#[test]
fn a_full_image_ends_the_extraction_and_keeps_what_is_whole() {
    let image = Image::new(4, &["-t", "ext4", "-O", "^has_journal"]);
    let data = vec![b'x'; 1 << 20];
    let members: Vec<_> = ["a", "b", "c", "d", "e", "f"]
        .iter()
        .map(|name| (*name, tar::EntryType::Regular, "", &data[..]))
        .collect();
    let done = ours(&["tar", "x", &image.at("/")], &archive(&members));
    assert!(
        done.status.code() == Some(2) && text(&done.stderr).contains("no space"),
        "{}",
        text(&done.stderr)
    );
    assert_eq!(succeeds(["cat", &image.at("/a")]), data);
    assert_clean(&image.file);
}

#[test]
fn layers_of_a_container_image_lie_above_each_other() {
    use tar::EntryType::{Directory, Regular};
    let dir = TempDir::new().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    fs::write(
        path("low.tar"),
        archive(&[
            ("etc", Directory, "", b""),
            ("etc/a", Regular, "", b"low"),
            ("etc/b", Regular, "", b"low"),
            ("var", Directory, "", b""),
            ("var/x", Regular, "", b"low"),
            ("var/sub", Directory, "", b""),
            ("var/sub/y", Regular, "", b"low"),
            ("old", Directory, "", b""),
            ("old/z", Regular, "", b"low"),
        ]),
    )
    .unwrap();
    fs::write(
        path("high.tar"),
        archive(&[
            ("etc/a", Regular, "", b"high"),
            ("etc/.wh.b", Regular, "", b""),
            ("var/new", Regular, "", b"high"),
            ("var/.wh..wh..opq", Regular, "", b""),
            (".wh.old", Regular, "", b""),
        ]),
    )
    .unwrap();
    let image = path("image");
    succeeds(["mkfs", &image, "--from", &path("low.tar"), "--from", &path("high.tar")]);
    let found = text(&succeeds(["find", "--sort", &format!("{image}:/")]));
    let names: Vec<&str> = found.lines().filter(|line| !line.contains("lost+found")).collect();
    assert_eq!(names, ["/", "/etc", "/etc/a", "/var", "/var/new"]);
    assert_eq!(succeeds(["cat", &format!("{image}:/etc/a")]), b"high");
    assert_clean(&image);
}

#[test]
fn an_image_of_no_given_size_has_room_for_what_fills_it() {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name);
    let make = |name: &str, files: usize, bytes: usize| {
        fs::create_dir(at(name)).unwrap();
        for number in 0..files {
            fs::write(at(name).join(format!("file number {number}")), vec![b'x'; bytes]).unwrap();
        }
    };
    make("empty", 0, 0);
    make("names", 9_000, 0);
    make("small", 2_000, 1_025);
    make("large", 3, 8_000_000);
    fs::create_dir(at("directories")).unwrap();
    (0..2_000).for_each(|number| fs::create_dir(at("directories").join(number.to_string())).unwrap());
    for name in ["empty", "names", "small", "large", "directories"] {
        let packed = at(&format!("{name}.tar"));
        let packs = Command::new("tar").arg("-C").arg(at(name)).arg("-cf").arg(&packed).arg(".").status();
        assert!(packs.unwrap().success());
        let tree = at(name);
        for from in [&tree, &packed] {
            let image = at("image");
            let image = image.to_str().unwrap();
            succeeds(["mkfs", image, "--force", "--from", from.to_str().unwrap()]);
            assert_clean(image);
            let sums = |of: &str| sums(of).lines().filter(|line| !line.contains("lost+found")).count();
            assert_eq!(sums(&format!("{image}:/")), sums(tree.to_str().unwrap()), "{}", from.display());
        }
    }
}

#[test]
fn a_list_that_names_users_is_told_to_be_lost() {
    let Some(image) = filled() else { return };
    let mount = image.mount("ro").unwrap();
    let mut tar = Command::new("tar");
    tar.args(["--format=pax", "--acls", "-C"]).arg(&mount.at).args(["-cf", "-", "etc/hosts"]);
    let packed = tar.output().unwrap().stdout;
    if !packed.windows(5).any(|bytes| bytes == b"staff") {
        println!("skipped: tar(1) wrote no name of a user or group");
        return;
    }
    let copy = Image::new(16, &["-t", "ext4"]);
    let done = ours(&["tar", "x", &copy.at("/")], &packed);
    let told = text(&done.stderr);
    assert!(done.status.code() == Some(1) && told.contains("--numeric-owner"), "{told}");
    assert_clean(&copy.file);
}

#[test]
fn a_listing_is_that_of_gnu_tar() {
    let Some(image) = filled() else { return };
    let archive = image.dir.path().join("archive");
    let archive_arg = archive.to_str().unwrap();
    let mount = image.mount("ro").unwrap();
    let tree = mount.at.to_str().unwrap();
    for format in ["--format=pax", "--format=gnu"] {
        let mut tar = Command::new("tar");
        tar.args([format, "--sparse", "-C", tree, "-cf", archive_arg, "."]);
        assert!(tar.status().unwrap().success());
        for verbose in [false, true] {
            let mut tar = Command::new("tar");
            tar.env("TZ", "UTC")
                .env("LC_ALL", "C.UTF-8")
                .args(["--numeric-owner", "--quoting-style=literal"]);
            let theirs = tar.arg(if verbose { "-tvf" } else { "-tf" }).arg(&archive).output().unwrap();
            let args = ["tar", "t", "-f", archive_arg];
            let ours = succeeds(args.into_iter().chain(verbose.then_some("-v")));
            assert_eq!(text(&ours), text(&theirs.stdout), "{format}");
        }
    }
    let cut = fs::read(&archive).unwrap();
    fs::write(&archive, &cut[..cut.len() / 2 + 100]).unwrap();
    let done = dentree(["tar", "t", "-f", archive_arg]);
    assert_eq!(done.status.code(), Some(2), "{}", text(&done.stderr));
}
