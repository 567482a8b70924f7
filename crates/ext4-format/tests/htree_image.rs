//! In directories indexed by `e2fsck -D` each name is in the leaf of its hash.

mod common;

use common::{Image, run, superblock};
use dentree_ext4_format::casefold::FoldedName;
use dentree_ext4_format::hash::{CharSign, HashSeed, MajorHash};
use dentree_ext4_format::htree::{IndexBlock, IndexEntry, IndexRoot};
use dentree_ext4_format::{ChecksumSeed, Entries, LogicalBlock, Superblock};

struct Directory {
    sb: Superblock,
    content: Vec<u8>,
    sign: CharSign,
    /// With checksums.
    seed: Option<ChecksumSeed>,
}

impl Directory {
    fn block(&self, block: LogicalBlock) -> &[u8] {
        let size = self.sb.block_size.in_memory();
        &self.content[usize::try_from(block.0).unwrap() * size..][..size]
    }

    fn root(&self) -> IndexRoot<'_> {
        IndexRoot::parse(self.block(LogicalBlock(0)), self.sign, true, self.seed.is_some()).unwrap()
    }

    /// Leaves below `index` with their lowest hashes, in order.
    fn leaves(&self, index: IndexBlock<'_>, levels: u8) -> Vec<IndexEntry> {
        index.verify(self.seed).unwrap();
        let below = |entry: IndexEntry| {
            let node = IndexBlock::parse_node(self.block(entry.block), self.seed.is_some()).unwrap();
            self.leaves(node, levels - 1)
        };
        if levels == 0 { index.iter().collect() } else { index.iter().flat_map(below).collect() }
    }

    /// The leaf of `hash`.
    fn leaf(&self, hash: MajorHash) -> LogicalBlock {
        let root = self.root();
        let (mut index, mut levels) = (root.entries, root.indirect_levels);
        loop {
            let entry = index.get(index.find(hash)).unwrap();
            if levels == 0 {
                return entry.block;
            }
            index = IndexBlock::parse_node(self.block(entry.block), self.seed.is_some()).unwrap();
            levels -= 1;
        }
    }
}

/// Of many lengths, some with bytes above 0x80.
fn name(i: usize) -> String {
    match i % 4 {
        0 => format!("file-{i}"),
        1 => format!("Ünïcode-ÿ-{i}-{}", "ß".repeat(i % 90)),
        2 => format!("{i}-{}", "long".repeat(i % 60)),
        _ => format!("{i:x}{}", "x".repeat(i % 220)),
    }
}

fn check(mke2fs: &[&str], superblock_fields: &[&str], names: usize, levels: u8) {
    let Some(image) = Image::new("8M", mke2fs, |folder| {
        std::fs::create_dir(folder.join("dir")).unwrap();
        for i in 0..names {
            std::os::unix::fs::symlink("x", folder.join("dir").join(name(i))).unwrap();
        }
    }) else {
        return;
    };
    for field in superblock_fields {
        image.debugfs(&format!("set_super_value {field}")).unwrap();
    }
    if superblock_fields.iter().any(|field| field.starts_with("encoding")) {
        image.debugfs("set_inode_field /dir flags 0x40000000").unwrap();
    }
    run("e2fsck", &["-fyD", image.path().to_str().unwrap()]).unwrap();
    let (inode, ..) = image.inode("/dir").unwrap();
    let sb = superblock(&image.bytes());
    let sign = if sb.flags & 2 == 0 { CharSign::Signed } else { CharSign::Unsigned };
    let seed = HashSeed::new(sb.hash_seed);
    let content = image.folder().join("content");
    image.debugfs(&format!("dump /dir {}", content.display())).unwrap();
    let directory = Directory {
        content: std::fs::read(content).unwrap(),
        sign,
        seed: sb.has_metadata_csum().then_some(inode.checksum_seed),
        sb,
    };

    let root = directory.root();
    assert_eq!(root.indirect_levels, levels, "the test wants an index of {levels} levels");
    let casefold = inode.flags.0 & 0x4000_0000 != 0;
    let leaves = directory.leaves(root.entries, root.indirect_levels);
    let mut seen = 0;
    for leaf in leaves {
        let bytes = directory.block(leaf.block);
        for entry in Entries::new(bytes, directory.sb.block_size, directory.sb.inodes_count) {
            let entry = entry.unwrap();
            let folded = FoldedName::new(entry.name, false).unwrap();
            let name = if casefold { folded.hash_input() } else { entry.name };
            let hash = root.hash_version.hash(name, seed).unwrap().major;
            assert!(leaf.hash() <= hash);
            assert_eq!(directory.leaf(hash), leaf.block, "{}", entry.name.escape_ascii());
            seen += 1;
        }
    }
    assert_eq!(seen, names);
}

#[test]
fn one_level_with_checksums() {
    check(&["-O", "metadata_csum", "-b", "4096"], &[], 1000, 0);
}

#[test]
fn two_levels_with_checksums() {
    check(&["-O", "metadata_csum", "-b", "1024"], &[], 1600, 1);
}

#[test]
fn two_levels_without_checksums() {
    check(&["-O", "^metadata_csum", "-b", "1024"], &[], 1600, 1);
}

#[test]
fn every_algorithm_and_signedness() {
    for algorithm in ["legacy", "half_md4", "tea"] {
        for flags in ["flags 1", "flags 2"] {
            check(&["-b", "1024"], &[&format!("def_hash_version {algorithm}"), flags], 500, 0);
        }
    }
}

#[test]
fn folded_names() {
    check(&["-b", "1024", "-O", "casefold"], &["encoding 1"], 500, 0);
}
