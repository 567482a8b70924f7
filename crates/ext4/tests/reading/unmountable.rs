//! Images that this kernel may not mount, compared with their source.

use crate::common::{Image, find, list, read_all, run};
use dentree_ext4::Ext4;
use dentree_vfs::{FileSystem, FileType};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

/// Names, types, link targets, content.
fn same_as(ours: &Ext4, at: &str, theirs: &Path) {
    let dir = find(ours, at);
    let entries = list(ours, &dir);
    let mut names: Vec<_> = fs::read_dir(theirs).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(entries.keys().collect::<Vec<_>>(), names.iter().collect::<Vec<_>>(), "{at}");
    for (name, (ino, _)) in entries {
        let found = ours.lookup(&dir, name.as_bytes()).unwrap();
        assert_eq!(found.map(|found| found.ino), Some(ino));
        let node = ours.load(ino).unwrap();
        let path = theirs.join(&name);
        match ours.attr(&node).kind {
            FileType::Directory => same_as(ours, &format!("{at}/{}", name.to_str().unwrap()), &path),
            FileType::Regular => assert!(read_all(ours, &node) == fs::read(&path).unwrap(), "{path:?}"),
            FileType::Symlink => {
                let target = fs::read_link(&path).unwrap();
                assert_eq!(ours.readlink(&node).unwrap(), target.as_os_str().as_bytes());
            }
            other => panic!("{path:?} is a {other:?}"),
        }
    }
}

fn tree(tree: &Path) {
    std::os::unix::fs::symlink("x/".repeat(100), tree.join("slow link")).unwrap();
    fs::write(tree.join("file"), (0..400_000_u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>()).unwrap();
    fs::create_dir(tree.join("many")).unwrap();
    for n in 0..1500 {
        fs::write(tree.join(format!("many/{n} {}", "n".repeat(n % 200))), n.to_string()).unwrap();
    }
}

#[test]
fn blocks_of_64_kib_are_read() {
    let original = tempfile::tempdir().unwrap();
    tree(original.path());
    fs::create_dir(original.path().join("lost+found")).unwrap();
    for features in ["metadata_csum", "^metadata_csum", "inline_data", "^extent,^64bit"] {
        let image = Image::new(&format!("-t ext4 -b 65536 -I 256 -N 6000 -O {features}"), "300M", tree);
        // Only e2fsck makes an index.
        same_as(&image.open(), "", original.path());
        reindex(&image);
        same_as(&image.open(), "", original.path());
    }
}

/// If larger than a block.
fn reindex(image: &Image) {
    let output = Command::new("e2fsck").arg("-fyD").arg(image.path()).output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    run(Command::new("e2fsck").arg("-fn").arg(image.path()));
}

#[test]
fn casefolded_directories_find_names_in_any_case() {
    let image = Image::new("-t ext4 -b 1024 -O casefold", "64M", |tree| {
        fs::create_dir(tree.join("folded")).unwrap();
        for n in 0..600 {
            fs::write(tree.join(format!("folded/Größe {n} of a Straße")), "").unwrap();
        }
        fs::create_dir(tree.join("few")).unwrap();
        fs::write(tree.join("few/Read Me"), "").unwrap();
    });
    for dir in ["/folded", "/few"] {
        image.debugfs(&format!("set_inode_field {dir} flags 0x40080000\n"));
    }
    reindex(&image);
    let dump = image.debugfs("htree_dump /folded\n");
    assert!(dump.contains("Number of entries"), "{dump}");
    let fs = image.open();
    let dir = find(&fs, "folded");
    assert_eq!(fs.fold_name(&dir, b"Read Me").unwrap(), b"read me");
    for n in 0..600 {
        let exact = fs.lookup(&dir, format!("Größe {n} of a Straße").as_bytes()).unwrap().unwrap();
        for other in [format!("GRÖSSE {n} OF A STRASSE"), format!("gro\u{308}ße {n} OF a straSSe")] {
            assert_eq!(fs.lookup(&dir, other.as_bytes()).unwrap(), Some(exact), "{other}");
        }
    }
    assert!(fs.lookup(&dir, b"grosse 1 of a strasse").unwrap().is_none());
    assert!(fs.lookup(&find(&fs, "few"), b"READ me").unwrap().is_some());
    assert!(fs.lookup(&find(&fs, ""), b"FEW").unwrap().is_none());
}
