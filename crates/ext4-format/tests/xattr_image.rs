//! Attributes by debugfs and the kernel have the expected values, hashes and checksums.

mod common;

use common::{Image, block_of, superblock};
use dentree_ext4_format::xattr::{Namespace, XattrBlock, XattrList, XattrValue, block_hash};
use dentree_testing::LoopMount;
use rustix::fs::{XattrFlags, setxattr};

fn mount(image: &Image) -> Option<LoopMount> {
    let mount = LoopMount::new(&image.path(), &image.folder().join("mnt"), "rw");
    mount.inspect_err(|reason| println!("skipped: {reason}")).ok()
}

fn image(arguments: &[&str]) -> Option<Image> {
    Image::new("2M", arguments, |folder| {
        for name in ["one", "two"] {
            std::fs::write(folder.join(name), "x").unwrap();
        }
    })
}

#[test]
fn debugfs_writes_small_values_into_the_inode_and_large_ones_into_a_block() {
    let Some(image) = image(&["-O", "metadata_csum"]) else { return };
    let large = "large ".repeat(100);
    let value = image.folder().join("value");
    std::fs::write(&value, &large).unwrap();
    image.debugfs("ea_set /one user.small little").unwrap();
    image.debugfs(&format!("ea_set -f {} /one user.large", value.display())).unwrap();

    let (inode, number, record) = image.inode("/one").unwrap();
    let list = XattrList::in_inode(&record[inode.fields_len..]).unwrap();
    let small = list.find(Namespace::User, b"small").unwrap().unwrap();
    assert_eq!(small.value, XattrValue::Inline(b"little"));
    let bytes = image.bytes();
    let sb = superblock(&bytes);
    let block_number = inode.xattr_block.unwrap();
    let block = XattrBlock::parse(block_of(&bytes, &sb, block_number)).unwrap();
    block.verify(sb.checksum_seed, block_number).unwrap();
    let entry = block.list.find(Namespace::User, b"large").unwrap().unwrap();
    assert_eq!(entry.value, XattrValue::Inline(large.as_bytes()), "inode {number}");
    entry.verify_hash(0).unwrap();
}

#[test]
fn the_kernel_shares_blocks_by_the_same_hash() {
    let Some(image) = image(&["-O", "metadata_csum", "-b", "1024"]) else { return };
    {
        let Some(mount) = mount(&image) else { return };
        for file in ["one", "two"] {
            for name in ["user.comment", "trusted.na\u{ef}ve", "security.label"] {
                setxattr(mount.path().join(file), name, &[b'v'; 101], XattrFlags::empty()).unwrap();
            }
        }
    }
    let (one, ..) = image.inode("/one").unwrap();
    let (two, ..) = image.inode("/two").unwrap();
    let number = one.xattr_block.unwrap();
    assert_eq!(two.xattr_block, Some(number));
    let bytes = image.bytes();
    let sb = superblock(&bytes);
    let block = XattrBlock::parse(block_of(&bytes, &sb, number)).unwrap();
    block.verify(sb.checksum_seed, number).unwrap();
    assert_eq!(block.refcount, 2);
    let entries: Vec<_> = block.list.iter().collect::<Result<_, _>>().unwrap();
    assert!(!entries.is_empty());
    for entry in &entries {
        entry.verify_hash(0).unwrap();
        assert_eq!(entry.value, XattrValue::Inline(&[b'v'; 101]));
    }
    assert_eq!(block_hash(entries.iter().map(|entry| entry.hash)), block.hash);
}

#[test]
fn the_kernel_puts_large_values_into_inodes() {
    let Some(image) = image(&["-O", "metadata_csum,ea_inode", "-b", "1024"]) else { return };
    {
        let Some(mount) = mount(&image) else { return };
        setxattr(mount.path().join("one"), "user.big", &[b'v'; 5000], XattrFlags::empty()).unwrap();
    }
    let (inode, _, record) = image.inode("/one").unwrap();
    let list = XattrList::in_inode(&record[inode.fields_len..]).unwrap();
    let entry = list.find(Namespace::User, b"big").unwrap().unwrap();
    let XattrValue::Inode { inode: value_inode, size: 5000 } = entry.value else { panic!("{entry:?}") };
    // A value's inode has its checksum in place of atime.
    let (value_inode, ..) = image.inode(&format!("<{value_inode}>")).unwrap();
    let sb = superblock(&image.bytes());
    assert_eq!(value_inode.raw_times[0], sb.checksum_seed.sum(&[b'v'; 5000]));
    entry.verify_hash(value_inode.raw_times[0]).unwrap();
}
