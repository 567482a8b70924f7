//! Damaged and hostile images give an error that names the place, or what is still true, within bounded time.

mod common;

use common::{Image, find};
use dentree_blockdev::{BlockDevice, MemoryDevice, MeteredDevice};
use dentree_ext4::{Error, Ext4, Notice, Options, Structure};
use dentree_vfs::{Extent, FileSystem, FileType, Ino, ReaddirStart};
use std::collections::HashSet;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
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

/// Reads all that can be read, and gives how many inodes that were.
fn read_everything(fs: &Ext4) -> usize {
    let mut seen = HashSet::from([fs.root()]);
    let mut waiting = vec![fs.root()];
    let mut buffer = vec![0; 1 << 16];
    while let Some(ino) = waiting.pop() {
        let Ok(node) = fs.load(ino) else { continue };
        let attr = fs.attr(&node);
        for name in fs.listxattr(&node).unwrap_or_default() {
            let _ = fs.getxattr(&node, &name);
        }
        match attr.kind {
            FileType::Directory => {
                let _ = fs.parent(&node);
                let mut names = Vec::new();
                let each = &mut |entry: dentree_vfs::DirEntry<'_>| {
                    names.push((entry.name.to_vec(), entry.ino));
                    ControlFlow::Continue(())
                };
                let _ = fs.readdir(&node, ReaddirStart::First, each);
                for (name, ino) in names {
                    let _ = fs.lookup(&node, &name);
                    if seen.insert(ino) {
                        waiting.push(ino);
                    }
                }
            }
            FileType::Symlink => {
                let _ = fs.readlink(&node);
            }
            _ => {
                let mut at = 0;
                for _ in 0..100 {
                    let Ok(Extent::Data(end) | Extent::Hole(end)) = fs.extent(&node, at) else { break };
                    let _ = fs.read(&node, at, &mut buffer);
                    assert!(end > at);
                    at = end;
                }
            }
        }
    }
    seen.len()
}

/// A small generator, so that a failure can be repeated from its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(limit).unwrap()).unwrap()
    }
}

fn small_images() -> Vec<Vec<u8>> {
    ["-t ext4 -O ^metadata_csum,inline_data -I 256", "-t ext3", "-t ext4"]
        .map(|options| {
            let image = Image::new(&format!("{options} -b 1024 -N 400 -J size=1"), "4M", tree);
            let _ = std::process::Command::new("e2fsck").arg("-fyD").arg(image.path()).output();
            fs::read(image.path()).unwrap()
        })
        .into()
}

#[test]
fn bit_flips_in_metadata_never_panic_nor_hang() {
    for (kind, image) in small_images().into_iter().enumerate() {
        let intact = read_everything(&open(image.clone()).unwrap());
        assert!(intact > 300);
        for seed in 1..300_u64 {
            let mut random = Random(seed * 0x9E37_79B9_7F4A_7C15);
            let mut bytes = image.clone();
            // Metadata lies in the first part of an image this small.
            for _ in 0..1 + seed % 20 {
                let at = random.below(400 << 10);
                bytes[at] ^= 1 << random.below(8);
            }
            if let Ok(fs) = open(bytes) {
                read_everything(&fs);
            }
            let _ = kind;
        }
    }
}

#[test]
fn zeroed_and_truncated_images_never_panic_nor_hang() {
    for image in small_images() {
        for seed in 1..60_u64 {
            let mut random = Random(seed * 0x9E37_79B9_7F4A_7C15);
            let mut zeroed = image.clone();
            let at = random.below(400) << 10;
            zeroed[at..at + 4096].fill(0);
            let cut = image[..random.below(image.len())].to_vec();
            for bytes in [zeroed, cut] {
                if let Ok(fs) = open(bytes) {
                    read_everything(&fs);
                }
            }
        }
    }
}

/// The structure that an error blames.
fn blamed<T>(result: dentree_vfs::Result<T>) -> Structure {
    let Err(dentree_vfs::Error::Corrupt(cause)) = result else { panic!("no damage was found") };
    match cause.downcast_ref() {
        Some(Error::Corrupt { place, .. }) => place.structure,
        other => panic!("{other:?}"),
    }
}

/// The number that `debugfs` prints on the line that `command` gives.
fn block_of(image: &Image, command: &str) -> usize {
    image.debugfs(command).lines().last().unwrap().trim().parse().unwrap()
}

#[test]
fn checksums_blame_the_damaged_structure() {
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

    let pieces = find(&intact, "in pieces");
    let extents = image.debugfs("dump_extents \"/in pieces\"\n");
    let node: usize = extents.lines().nth(2).unwrap().split_whitespace().nth(7).unwrap().parse().unwrap();
    let fs = flipped(node * 1024 + 30);
    assert_eq!(blamed(fs.read(&pieces, 0, &mut [0; 9])), Structure::ExtentNode);
}

/// The first number behind `label` in what `dumpe2fs` prints.
fn dump(image: &Image, label: &str) -> usize {
    let text = common::run(std::process::Command::new("dumpe2fs").arg(image.path()));
    let rest = &text[text.find(label).unwrap() + label.len()..];
    rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap()].parse().unwrap()
}

#[test]
fn a_damaged_index_is_blamed_and_not_walked_around() {
    let image = Image::new("-t ext4 -b 1024 -N 400", "8M", tree);
    let _ = std::process::Command::new("e2fsck").arg("-fyD").arg(image.path()).output();
    let mut bytes = fs::read(image.path()).unwrap();
    let root = block_of(&image, "bmap /dir 0\n");
    bytes[root * 1024 + 0x30] ^= 0x10;
    let fs = open(bytes).unwrap();
    let looked_up = fs.lookup(&find(&fs, "dir"), b"file with a name 7");
    assert!(matches!(blamed(looked_up), Structure::DirectoryIndex(_)));
}

#[test]
fn a_backup_superblock_serves_where_the_primary_is_damaged() {
    for (options, size) in [("-b 1024", "20M"), ("-b 4096", "300M")] {
        let image = Image::new(&format!("-t ext4 {options} -N 400"), size, tree);
        let mut bytes = fs::read(image.path()).unwrap();
        bytes[1024..4096].fill(0);
        let ours = open(bytes).unwrap();
        assert!(matches!(ours.notices(), [Notice::BackupSuperblock { .. }]), "{:?}", ours.notices());
        assert!(read_everything(&ours) > 300);
    }
    assert!(matches!(open(vec![0; 50 << 20]), Err(Error::NotExt4(_))));
}

#[test]
fn features_that_cannot_be_read_are_refused_by_name() {
    let image = Image::new("-t ext4 -O ^metadata_csum -N 400", "4M", |_| {});
    for (bit, name) in [(0x1, "compression"), (0x1000, "dirdata"), (0x8, "journal"), (1 << 30, "FEATURE_I30")]
    {
        let mut bytes = fs::read(image.path()).unwrap();
        let field: &mut [u8; 4] = bytes[1024 + 0x60..].first_chunk_mut().unwrap();
        *field = (u32::from_le_bytes(*field) | bit).to_le_bytes();
        let Err(Error::Unsupported(text)) = open(bytes) else { panic!("{name} was accepted") };
        assert!(text.contains(name), "{text}");
    }
}

#[test]
fn a_truncated_image_is_told_of() {
    let image = Image::new("-t ext4 -N 400", "8M", tree);
    let bytes = fs::read(image.path()).unwrap();
    let ours = open(bytes[..6 << 20].to_vec()).unwrap();
    assert!(matches!(ours.notices(), [Notice::Truncated { expected: 8388608, found: 6291456 }]));
}

#[test]
fn opening_a_large_image_and_one_look_up_take_a_handful_of_reads() {
    let image = Image::new("-t ext4", "4G", tree);
    let file = dentree_blockdev::FileDevice::open(image.path(), dentree_blockdev::Access::ReadOnly).unwrap();
    let device = Arc::new(MeteredDevice::new(Arc::new(file)));
    let fs = Ext4::open(device.clone() as Arc<dyn BlockDevice>, Options::default()).unwrap();
    assert_eq!(device.counts().total_reads(), 1);
    find(&fs, "dir/file with a name 7");
    let reads = device.counts().total_reads();
    assert!(reads <= 8, "{reads} reads");
}
