//! A wrong checksum is an error that names the structure; no reader bypasses it.

use crate::common::{Image, find, run};
use dentree_blockdev::MemoryDevice;
use dentree_ext4::{Error, Ext4, Options, Structure};
use dentree_vfs::{DirEntry, FileSystem, Ino, ReaddirStart};
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

fn tree(tree: &Path) {
    fs::write(tree.join("file"), vec![b'f'; 30_000]).unwrap();
    fs::create_dir(tree.join("dir")).unwrap();
    for n in 0..300 {
        fs::write(tree.join(format!("dir/file with a name {n}")), vec![b'x'; n]).unwrap();
    }
    std::os::unix::fs::symlink("x/".repeat(100), tree.join("slow link")).unwrap();
    let sparse = fs::File::create(tree.join("in pieces")).unwrap();
    for n in 0..20 {
        std::os::unix::fs::FileExt::write_all_at(&sparse, b"piece", n * 50_000).unwrap();
    }
}

fn open(bytes: Vec<u8>) -> dentree_ext4::Result<Ext4> {
    Ext4::open(Arc::new(MemoryDevice::from(bytes)), Options::default())
}

fn blamed<T>(result: dentree_vfs::Result<T>) -> Structure {
    let Err(dentree_vfs::Error::Corrupt(cause)) = result else { panic!("no damage was found") };
    match cause.downcast_ref() {
        Some(Error::Corrupt { place, .. }) => place.structure,
        other => panic!("{other:?}"),
    }
}

fn block_of(image: &Image, command: &str) -> usize {
    image.debugfs(command).lines().last().unwrap().trim().parse().unwrap()
}

#[test]
fn checksum_errors_name_the_damaged_structure() {
    let image = Image::new("-t ext4 -b 1024 -N 400", "8M", tree);
    let flipped = |at: usize| {
        let mut bytes = fs::read(image.path()).unwrap();
        bytes[at] ^= 0x10;
        open(bytes).unwrap()
    };
    let intact = image.open();
    let Ino(ino) = intact.attr(&find(&intact, "file")).ino;
    let table = dump(&image, "Inode table at ");
    let inode_at = table * 1024 + usize::try_from(ino - 1).unwrap() * 256;
    assert_eq!(blamed(flipped(inode_at + 0x50).load(Ino(ino))), Structure::Inode);

    let descriptors = 2 * 1024;
    let blame = blamed(flipped(descriptors + 0xC).load(Ino(ino)));
    assert!(matches!(blame, Structure::GroupDescriptor(_)), "{blame:?}");

    let leaf = block_of(&image, "bmap /dir 1\n");
    let fs = flipped(leaf * 1024 + 20);
    let dir = find(&fs, "dir");
    let list = fs.readdir(&dir, ReaddirStart::First, &mut |_| ControlFlow::Continue(()));
    assert!(matches!(blamed(list), Structure::DirectoryLeaf(_)));

    let (mut names, mut damage) = (Vec::new(), Vec::new());
    let mut each = |entry: DirEntry<'_>| {
        names.push(entry.name.to_vec());
        ControlFlow::Continue(())
    };
    fs.readdir_past_damage(&dir, &mut each, &mut |error| damage.push(blamed::<()>(Err(error)))).unwrap();
    assert!(names.len() > 200 && names.len() < 300, "{} names", names.len());
    assert!(matches!(damage[..], [Structure::DirectoryLeaf(_)]), "{damage:?}");

    let pieces = find(&intact, "in pieces");
    let extents = image.debugfs("dump_extents \"/in pieces\"\n");
    let node: usize = extents.lines().nth(2).unwrap().split_whitespace().nth(7).unwrap().parse().unwrap();
    let fs = flipped(node * 1024 + 30);
    assert_eq!(blamed(fs.read(&pieces, 0, &mut [0; 9])), Structure::ExtentNode);
}

fn dump(image: &Image, label: &str) -> usize {
    let text = run(Command::new("dumpe2fs").arg(image.path()));
    let rest = &text[text.find(label).unwrap() + label.len()..];
    rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap()].parse().unwrap()
}

#[test]
fn a_damaged_index_is_an_error_and_not_bypassed() {
    let image = Image::new("-t ext4 -b 1024 -N 400", "8M", tree);
    let _ = Command::new("e2fsck").arg("-fyD").arg(image.path()).output();
    let mut bytes = fs::read(image.path()).unwrap();
    let root = block_of(&image, "bmap /dir 0\n");
    bytes[root * 1024 + 0x30] ^= 0x10;
    let fs = open(bytes).unwrap();
    let looked_up = fs.lookup(&find(&fs, "dir"), b"file with a name 7");
    assert!(matches!(blamed(looked_up), Structure::DirectoryIndex(_)));
}
