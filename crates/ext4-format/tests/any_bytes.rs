//! Arbitrary bytes do not panic, and what parses is valid. Bytes are random, or a structure with
//! changes.

use dentree_ext4_format::{
    BlockRole, BlockSize, ChecksumSeed, Entries, ExtentNode, GroupDesc, GroupNumber, Inode, InodeNumber,
    LogicalBlock, SUPERBLOCK_SIZE, Step, Superblock, block_role, verify_extent_block, verify_leaf,
};
use flate2::read::GzDecoder;
use proptest::collection::vec;
use proptest::prelude::*;
use std::io::Read as _;
use std::sync::LazyLock;

const BLOCK: usize = 1024;
/// Offsets in the image.
const ROOT_INODE: usize = 256;

static IMAGE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut bytes = Vec::new();
    let packed = &include_bytes!("../../ext4/tests/images/ext4-bare.img.gz")[..];
    GzDecoder::new(packed).read_to_end(&mut bytes).unwrap();
    bytes
});

static SUPERBLOCK: LazyLock<Superblock> =
    LazyLock::new(|| Superblock::parse(IMAGE[BLOCK..][..SUPERBLOCK_SIZE].try_into().unwrap()).unwrap());

fn inode_table() -> &'static [u8] {
    let group = GroupDesc::parse(&IMAGE[2 * BLOCK..][..32], GroupNumber(0), &SUPERBLOCK).unwrap();
    &IMAGE[usize::try_from(group.inode_table.0).unwrap() * BLOCK..]
}

/// Its first block.
fn root_directory() -> &'static [u8] {
    let inode = Inode::parse(&inode_table()[ROOT_INODE..][..256], InodeNumber::ROOT, &SUPERBLOCK).unwrap();
    let Step::Mapped(extent) = ExtentNode::parse_root(&inode.block).unwrap().step(LogicalBlock(0)) else {
        panic!("the root directory has a first block");
    };
    &IMAGE[usize::try_from(extent.start.0).unwrap() * BLOCK..][..BLOCK]
}

/// Values are often plausible lengths or counts.
fn changes() -> impl Strategy<Value = Vec<(prop::sample::Index, u8)>> {
    let value = prop_oneof![any::<u8>(), prop::sample::select(vec![0, 1, 2, 4, 8, 0x7f, 0x80, 0xff])];
    vec((any::<prop::sample::Index>(), value), 0..6)
}

fn changed(intact: &[u8], changes: Vec<(prop::sample::Index, u8)>) -> Vec<u8> {
    let mut bytes = intact.to_vec();
    for (at, value) in changes {
        let at = at.index(bytes.len());
        bytes[at] = value;
    }
    bytes
}

fn check_superblock(bytes: &[u8]) {
    let Ok(sb) = Superblock::parse(bytes.try_into().unwrap()) else { return };
    assert!(sb.inodes_per_group > 0 && sb.blocks_per_group > 0 && sb.groups > 0);
    assert!(sb.inode_size.is_power_of_two() && (128..=sb.block_size.bytes()).contains(&sb.inode_size));
    assert!(sb.desc_size >= 32 && sb.descs_per_block() > 0);
    for group in [0, sb.groups / 2, sb.groups - 1].map(GroupNumber) {
        assert!(sb.group_start(group).0 < sb.blocks_count);
        sb.group_has_superblock(group);
    }
    assert!(sb.check_inode("ino", InodeNumber(0)).is_err());
    assert!(sb.check_inode("ino", InodeNumber::ROOT).is_ok());
    assert!(sb.desc_blocks() > 0);
}

fn check_node(node: ExtentNode<'_>, range: std::ops::Range<u64>, at: u32) {
    let block = u64::from(at);
    match node.step(LogicalBlock(at)) {
        Step::Mapped(extent) => {
            let start = u64::from(extent.logical.0);
            assert!((start..start + u64::from(extent.len)).contains(&block));
            assert!(start + u64::from(extent.len) <= range.end);
        }
        Step::Hole { end } => assert!(block < end && end <= range.end),
        Step::Down { range: below, .. } => {
            assert!(node.depth() > 0 && below.contains(&block) && below.end <= range.end);
        }
    }
}

fn check_entries(bytes: &[u8], log_block_size: u32) {
    let block_size = BlockSize::from_log_block_size(log_block_size).unwrap();
    let mut end = 0;
    for entry in Entries::new(bytes, block_size, 128).flatten() {
        assert!(!entry.name.is_empty() && entry.name.len() <= 255);
        assert!((1..=128).contains(&entry.inode.0));
        assert!(entry.start >= end && entry.end <= bytes.len() && entry.start + 12 <= entry.end);
        end = entry.end;
    }
    let _ = verify_leaf(bytes, ChecksumSeed(!0));
    let first_is_index = block_role(bytes, LogicalBlock(0), true, block_size) == BlockRole::Index;
    assert!(first_is_index, "the first block of an indexed directory is the root");
}

proptest! {
    #[test]
    fn superblocks(changes in changes()) {
        check_superblock(&changed(&IMAGE[BLOCK..][..SUPERBLOCK_SIZE], changes));
    }

    #[test]
    fn superblocks_of_any_bytes(bytes in vec(any::<u8>(), SUPERBLOCK_SIZE), magic in any::<bool>()) {
        let mut bytes = bytes;
        if magic {
            bytes[0x38..0x3a].copy_from_slice(&[0x53, 0xef]);
        }
        check_superblock(&bytes);
    }

    #[test]
    fn group_descriptors(bytes in vec(any::<u8>(), 0..65), changes in changes()) {
        let _ = GroupDesc::parse(&bytes, GroupNumber(0), &SUPERBLOCK);
        let near = changed(&IMAGE[2 * BLOCK..][..32], changes);
        if let Ok(group) = GroupDesc::parse(&near, GroupNumber(0), &SUPERBLOCK) {
            prop_assert!(group.inode_table.0 < SUPERBLOCK.blocks_count);
        }
    }

    #[test]
    fn inodes(bytes in vec(any::<u8>(), 0..257), changes in changes(), ino in 1_u32..20) {
        let at = usize::try_from(ino - 1).unwrap() * 256;
        for bytes in [bytes, changed(&inode_table()[at..][..256], changes)] {
            if let Ok(inode) = Inode::parse(&bytes, InodeNumber(ino), &SUPERBLOCK) {
                prop_assert!(inode.fields_len <= bytes.len());
                for time in [inode.atime, inode.mtime, inode.ctime] {
                    prop_assert!(time.nanos < 1_000_000_000);
                }
                let _ = inode.device();
                let _ = ExtentNode::parse_root(&inode.block);
            }
        }
    }

    #[test]
    fn extent_roots(changes in changes(), ino in 1_usize..30, at in prop_oneof![any::<u32>(), 0_u32..16]) {
        let i_block = changed(&inode_table()[(ino - 1) * 256 + 0x28..][..60], changes);
        if let Ok(node) = ExtentNode::parse_root(i_block.first_chunk().unwrap()) {
            check_node(node, 0..1 << 32, at);
        }
    }

    #[test]
    fn extent_blocks(
        entries in vec((0_u32..64, 0_u16..9, any::<u16>(), any::<u32>()), 0..12),
        depth in 0_u16..3,
        claimed in 0_u16..3,
        at in 0_u32..64,
        sorted in any::<bool>(),
    ) {
        let mut entries = entries;
        if sorted {
            entries.sort_unstable();
        }
        let count = u16::try_from(entries.len()).unwrap().to_le_bytes();
        let mut bytes = [&[0x0a, 0xf3][..], &count, &[12, 0], &claimed.to_le_bytes(), &[0; 4]].concat();
        for (block, len, high, low) in entries {
            bytes.extend_from_slice(&block.to_le_bytes());
            bytes.extend_from_slice(&len.to_le_bytes());
            bytes.extend_from_slice(&high.to_le_bytes());
            bytes.extend_from_slice(&low.to_le_bytes());
        }
        bytes.resize(12 + 12 * 12 + 4, 0);
        if let Ok(node) = ExtentNode::parse(&bytes, depth, 0..64) {
            prop_assert_eq!(depth, claimed);
            check_node(node, 0..64, at);
        }
        let _ = verify_extent_block(&bytes, ChecksumSeed(!0));
    }

    #[test]
    fn extent_blocks_of_any_bytes(bytes in vec(any::<u8>(), 0..200), depth in 0_u16..6) {
        let _ = ExtentNode::parse(&bytes, depth, 0..1 << 32);
        let _ = verify_extent_block(&bytes, ChecksumSeed(!0));
    }

    #[test]
    fn directory_entries(
        bytes in vec(prop_oneof![any::<u8>(), 0_u8..16], 0..200),
        changes in changes(),
        log_block_size in prop::sample::select(vec![0_u32, 2, 6]),
    ) {
        check_entries(&bytes, log_block_size);
        check_entries(&changed(root_directory(), changes), 0);
    }
}
