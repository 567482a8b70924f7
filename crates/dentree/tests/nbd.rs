//! Images over NBD, served by nbdkit and qemu-nbd.

mod common;
mod mounts;
mod population;

use common::{Image, assert_clean, assert_same_lines, can_mount, dentree, succeeds, text};
use dentree_testing::{NbdServer, unmount};
use mounts::{Mounted, mountable};
use std::fs;
use std::path::Path;

/// Options of mke2fs: what reads differ by.
const KINDS: [&[&str]; 6] = [
    &["-t", "ext4"],
    &["-t", "ext4", "-b", "1024", "-O", "inline_data"],
    &["-t", "ext4", "-b", "65536"],
    &["-t", "ext4", "-O", "bigalloc,ea_inode,metadata_csum_seed,orphan_file"],
    &["-t", "ext3"],
    &["-t", "ext2", "-b", "1024", "-I", "128"],
];

fn nbdkit(image: &Image, args: &[&str]) -> Option<NbdServer> {
    let file = image.file.to_str().unwrap();
    NbdServer::nbdkit(&image.dir.path().join("nbdkit"), &[args, &["file", file]].concat())
}

fn qemu_nbd(image: &Image, args: &[&str]) -> Option<NbdServer> {
    let file = image.file.to_str().unwrap();
    NbdServer::qemu_nbd(&image.dir.path().join("qemu"), &[args, &["--format=raw", file]].concat())
}

/// The message of a command that fails.
fn refusal(args: &[&str]) -> String {
    let output = dentree(args);
    assert_eq!(output.status.code(), Some(1), "{args:?}");
    let message = text(&output.stderr);
    assert!(!message.contains("os error") && message.lines().count() == 1, "{message}");
    message
}

#[test]
fn an_image_over_nbd_reads_as_the_local_file_whatever_its_features() {
    if !can_mount() {
        return;
    }
    for kind in KINDS {
        let image = Image::new(96, kind);
        match image.mount("rw") {
            Ok(mount) => population::everything(&mount.at),
            Err(why) => {
                println!("skipped: the kernel does not mount {kind:?}: {why}");
                continue;
            }
        }
        let local = succeeds(["checksum".as_ref(), image.file.as_os_str()]);
        // The filter refuses requests that are not in its blocks, or are longer than 1 MiB.
        let in_blocks = [
            "--filter=blocksize-policy",
            "blocksize-minimum=4096",
            "blocksize-preferred=65536",
            "blocksize-maximum=1M",
            "blocksize-error-policy=error",
        ];
        for server in [nbdkit(&image, &["--readonly"]), qemu_nbd(&image, &["--read-only"])] {
            let Some(server) = server else { return };
            assert_same_lines(&succeeds(["checksum", &server.address()]), &local);
        }
        let options = in_blocks.map(str::to_owned);
        let (filter, settings) = options.split_first().unwrap();
        let file = format!("file={}", image.file.display());
        let mut args = vec!["--readonly", filter, "file", &file];
        args.extend(settings.iter().map(String::as_str));
        let Some(server) = NbdServer::nbdkit(&image.dir.path().join("blocks"), &args) else { return };
        assert_same_lines(&succeeds(["checksum", &server.address()]), &local);
    }
}

#[test]
fn a_path_follows_the_address() {
    let image = Image::new(16, &["-t", "ext4"]);
    let Some(server) = qemu_nbd(&image, &["--export-name=the disk"]) else { return };
    let address = server.address().replace("///", "///the%20disk");
    succeeds(["mkdir", "-p", &format!("{address}:/a/b:c")]);
    assert_eq!(text(&succeeds(["ls", &format!("{address}:/a")])), "b:c\n");
    assert_eq!(text(&succeeds(["ls", &format!("{address}:<2>/a")])), "b:c\n");
    assert_eq!(text(&succeeds(["ls", &address])), "a\nlost+found\n");
}

#[test]
fn what_is_copied_into_an_image_over_nbd_is_there_and_the_image_clean() {
    let image = Image::new(64, &["-t", "ext4"]);
    let tree = image.dir.path().join("tree");
    fs::create_dir_all(tree.join("deep/er")).unwrap();
    for number in 0..300 {
        fs::write(tree.join(format!("deep/{number}")), vec![number as u8; number * 100]).unwrap();
    }
    fs::write(tree.join("deep/er/large"), vec![7; 20 << 20]).unwrap();
    let Some(server) = nbdkit(&image, &[]) else { return };
    succeeds(["cp".as_ref(), "-r".as_ref(), tree.as_os_str(), format!("{}:/", server.address()).as_ref()]);
    drop(server);
    assert_clean(&image.file);
    succeeds([
        "cp".as_ref(),
        "-r".as_ref(),
        image.at("/tree").as_ref(),
        image.dir.path().join("back").as_os_str(),
    ]);
    common::tool("diff", ["-r".as_ref(), tree.as_os_str(), image.dir.path().join("back").as_os_str()]);
}

#[test]
fn a_mount_over_nbd_is_written_and_leaves_a_clean_image() {
    if !mountable() {
        return;
    }
    let image = Image::new(64, &["-t", "ext4"]);
    let Some(server) = nbdkit(&image, &[]) else { return };
    let mut mounted = Mounted::new(Path::new(&server.address()), &[]);
    population::many_files(mounted.path(), 500);
    fs::remove_dir_all(mounted.path().join("d0")).unwrap();
    let ours = succeeds(["checksum".as_ref(), mounted.path().as_os_str()]);
    unmount(mounted.path());
    assert!(mounted.wait().success());
    drop(server);
    assert_clean(&image.file);
    assert_same_lines(&succeeds(["checksum".as_ref(), image.file.as_os_str()]), &ours);
}

#[test]
fn trimmed_blocks_become_holes_in_the_servers_file() {
    use std::os::unix::fs::MetadataExt;
    if !mountable() {
        return;
    }
    let image = Image::new(64, &["-t", "ext4"]);
    let Some(server) = nbdkit(&image, &[]) else { return };
    let big = image.dir.path().join("big");
    fs::write(&big, vec![1; 30 << 20]).unwrap();
    succeeds(["cp".as_ref(), big.as_os_str(), format!("{}:/big", server.address()).as_ref()]);
    assert!(fs::metadata(&image.file).unwrap().blocks() > (30 << 20) / 512);
    succeeds(["rm", &format!("{}:/big", server.address())]);
    let mut mounted = Mounted::new(Path::new(&server.address()), &[]);
    common::tool("fstrim", [mounted.path()]);
    unmount(mounted.path());
    assert!(mounted.wait().success());
    let blocks = fs::metadata(&image.file).unwrap().blocks();
    assert!(blocks < (20 << 20) / 512, "{blocks} blocks are left");
}

#[test]
fn what_cannot_be_opened_over_nbd_says_why() {
    let image = Image::new(16, &["-t", "ext4"]);
    let Some(server) = qemu_nbd(&image, &["--read-only"]) else { return };
    let address = server.address();
    let other = address.replace("///", "///other");
    assert!(refusal(&["ls", &other]).contains("has no such export"));
    assert!(refusal(&["mkdir", &format!("{address}:/x")]).contains("exports it read-only"));
    drop(server);
    assert!(refusal(&["ls", &address]).contains("is the server running"));
    assert!(refusal(&["ls", "nbd+unix:///x"]).contains("the socket is missing"));
    assert!(refusal(&["ls", "nbds://host/x"]).contains("no TLS"));
}
