//! What is no ext4 image is named, with the command that opens it: files made by the programs that
//! people have them from.

mod common;

use common::{dentree, text, tool};
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

/// Runs a command in a directory; `false` with a printed reason where the program is missing.
fn runs(dir: &Path, command: &str) -> bool {
    let mut words = command.split(' ');
    let name = words.next().expect("a program");
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    match Command::new(name).args(words).current_dir(dir).env("PATH", path).output() {
        Ok(output) => {
            assert!(output.status.success(), "{command}: {}", text(&output.stderr));
            true
        }
        Err(error) => {
            println!("skipped: {command}: {error}");
            false
        }
    }
}

/// The message about a file where no other program is installed; the exit status says that it
/// cannot be read.
fn refusal(file: &str) -> String {
    let program =
        Command::new(env!("CARGO_BIN_EXE_dentree")).args(["ls", file]).env("PATH", "/nowhere").output();
    let output = program.unwrap();
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{file}: {message}");
    assert!(!message.contains("os error") && message.lines().count() == 1, "{message}");
    message
}

#[test]
fn other_formats_are_named_with_the_command_that_opens_them() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    File::create(dir.join("raw")).unwrap().set_len(300 << 20).unwrap();
    fs::create_dir(dir.join("tree")).unwrap();
    fs::write(dir.join("tree/file"), "content").unwrap();
    let convert = |format: &str| format!("qemu-img convert -f raw -O {format} raw it");
    for (make, words) in [
        (convert("vmdk"), ["VMDK", "qemu-img convert"]),
        (convert("vdi"), ["VDI", "qemu-img convert"]),
        (convert("vhdx"), ["VHDX", "qemu-img convert"]),
        (convert("vpc"), ["VHD ", "qemu-img convert"]),
        ("mksquashfs tree it -quiet -no-progress".to_owned(), ["squashfs", "unsquashfs"]),
        ("mkfs.xfs -q -f it".to_owned(), ["XFS", "mount -o loop"]),
        ("mkfs.btrfs -q -f it".to_owned(), ["Btrfs", "btrfs restore"]),
        ("mkfs.vfat it".to_owned(), ["FAT", "mcopy"]),
        ("mkswap -q it".to_owned(), ["swap", "no files"]),
        ("zip -q -r it.zip tree".to_owned(), ["zip", "unzip"]),
        ("tar cf it tree".to_owned(), ["tar", "tar xf"]),
        ("gzip -k -S .z tree/file".to_owned(), ["gzip", "gzip -dc"]),
        ("xz -k -S .z tree/file".to_owned(), ["xz", "xz -dc"]),
        ("zstd -q tree/file -o it".to_owned(), ["zstd", "zstd -dc"]),
    ] {
        let [it, zipped, packed] = ["it", "it.zip", "tree/file.z"].map(|name| dir.join(name));
        for old in [&it, &zipped, &packed] {
            let _ = fs::remove_file(old);
        }
        if make.starts_with("mk") && !make.starts_with("mksquashfs") {
            File::create(&it).unwrap().set_len(400 << 20).unwrap();
        }
        if runs(dir, &make) {
            let made = [it, zipped, packed].into_iter().find(|path| path.exists()).expect("made");
            let message = refusal(made.to_str().unwrap());
            assert!(words.iter().all(|word| message.contains(word)), "{make}: {message}");
        }
    }
}

#[test]
fn a_partition_of_another_format_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("disk");
    File::create(&disk).unwrap().set_len(64 << 20).unwrap();
    fs::write(dir.path().join("table"), "label: dos\n2048,65536,83\n,,8e\n").unwrap();
    if !runs(dir.path(), "sh -c sfdisk\t-q\tdisk\t<table") {
        return;
    }
    let name = disk.to_str().unwrap();
    let mut image = fs::read(&disk).unwrap();
    image[2048 * 512..][..4].copy_from_slice(b"XFSB");
    image[(2048 + 65536) * 512 + 512..][..8].copy_from_slice(b"LABELONE");
    fs::write(&disk, image).unwrap();

    let output = dentree(["ls", name]);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{message}");
    assert!(
        message.contains("an XFS file system") && message.contains("an LVM physical volume"),
        "{message}"
    );
    let chosen = dentree(["ls", "--partition", "2", name]);
    let message = text(&chosen.stderr);
    assert!(chosen.status.code() == Some(4) && message.contains("vgchange -ay"), "{message}");
}

#[test]
fn pieces_are_told_from_images() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("whole");
    File::create(&image).unwrap().set_len(16 << 20).unwrap();
    tool("mke2fs", ["-q".as_ref(), "-F".as_ref(), image.as_os_str()]);
    if runs(dir.path(), "split -b 4M -d -a 3 whole disk.") {
        for piece in ["disk.000", "disk.001"] {
            let message = refusal(dir.path().join(piece).to_str().unwrap());
            assert!(message.contains("/disk.* > disk.img"), "{message}");
        }
    }
}
