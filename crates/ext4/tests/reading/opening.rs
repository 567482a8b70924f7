//! Opening: what is read, what is refused, and the messages.

use crate::common::{Image, find, list};
use dentree_blockdev::{Access, BlockDevice, FileDevice, MemoryDevice, MeteredDevice};
use dentree_ext4::{Error, Ext4, Notice, Options};
use std::fs;
use std::path::Path;
use std::sync::Arc;

fn tree(tree: &Path) {
    fs::create_dir(tree.join("dir")).unwrap();
    for n in 0..300 {
        fs::write(tree.join(format!("dir/file with a name {n}")), "").unwrap();
    }
}

fn open(bytes: Vec<u8>) -> dentree_ext4::Result<Ext4> {
    Ext4::open(Arc::new(MemoryDevice::from(bytes)), Options::default())
}

#[test]
fn a_backup_superblock_replaces_a_damaged_one() {
    for (options, size) in [("-b 1024", "20M"), ("-b 4096", "300M")] {
        let image = Image::new(&format!("-t ext4 {options} -N 400"), size, tree);
        let mut bytes = fs::read(image.path()).unwrap();
        bytes[1024..4096].fill(0);
        let ours = open(bytes).unwrap();
        assert!(matches!(ours.notices(), [Notice::BackupSuperblock { .. }]), "{:?}", ours.notices());
        assert!(list(&ours, &find(&ours, "dir")).len() == 300);
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
fn a_truncated_image_is_reported() {
    let image = Image::new("-t ext4 -N 400", "8M", tree);
    let bytes = fs::read(image.path()).unwrap();
    let ours = open(bytes[..6 << 20].to_vec()).unwrap();
    assert!(matches!(ours.notices(), [Notice::Truncated { expected: 8388608, found: 6291456 }]));
}

#[test]
fn opening_a_large_image_and_one_lookup_take_a_handful_of_reads() {
    let image = Image::new("-t ext4", "4G", tree);
    let file = FileDevice::open(image.path(), Access::ReadOnly).unwrap();
    let device = Arc::new(MeteredDevice::new(Arc::new(file)));
    let fs = Ext4::open(device.clone() as Arc<dyn BlockDevice>, Options::default()).unwrap();
    assert_eq!(device.counts().total_reads(), 1);
    find(&fs, "dir/file with a name 7");
    let reads = device.counts().total_reads();
    assert!(reads <= 8, "{reads} reads");
}
