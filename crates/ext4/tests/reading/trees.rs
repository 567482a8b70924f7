//! The tree of an image equals the kernel's mount.

use crate::common::Image;
use std::fs;
use std::path::Path;

/// What needs no mount.
fn mixed(tree: &Path) {
    use std::os::unix::fs::{FileExt, symlink};
    fs::write(tree.join("empty"), "").unwrap();
    fs::write(tree.join("small"), "small\n").unwrap();
    fs::write(tree.join("of 60 bytes"), [b'x'; 60]).unwrap();
    fs::write(tree.join("of 150 bytes"), [b'y'; 150]).unwrap();
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    fs::write(tree.join("large"), &bytes).unwrap();
    let sparse = fs::File::create(tree.join("sparse")).unwrap();
    for at in [0, 100_000, 5_000_000, 90_000_000] {
        sparse.write_all_at(&bytes[..9000], at).unwrap();
    }
    sparse.set_len(100 << 20).unwrap();
    symlink("small", tree.join("fast")).unwrap();
    symlink("a/".repeat(200), tree.join("slow")).unwrap();
    fs::hard_link(tree.join("small"), tree.join("hard")).unwrap();
    let mut deep = tree.to_path_buf();
    for level in 0..60 {
        deep.push(format!("d{level}"));
    }
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("n".repeat(255)), "deep").unwrap();
    let many = tree.join("many");
    fs::create_dir(&many).unwrap();
    for n in 0..2000 {
        fs::write(many.join(format!("file with a longish name {n}")), "").unwrap();
    }
}

macro_rules! same_tree {
    ($($name:ident: $options:literal, $size:literal;)*) => {$(
        #[test]
        fn $name() {
            Image::new($options, $size, mixed).agrees_with_the_kernel();
        }
    )*};
}

same_tree! {
    default_ext4_is_read_as_the_kernel_does: "-t ext4 -b 4096", "64M";
    ext2_is_read_as_the_kernel_does: "-t ext2 -b 4096", "64M";
    ext3_with_1_kib_blocks_is_read_as_the_kernel_does: "-t ext3 -b 1024", "64M";
    ext4_with_2_kib_blocks_is_read_as_the_kernel_does: "-t ext4 -b 2048", "64M";
    inodes_of_128_bytes_are_read_as_the_kernel_does: "-t ext4 -b 4096 -I 128", "64M";
    gdt_csum_is_read_as_the_kernel_does: "-t ext4 -b 4096 -O ^metadata_csum,uninit_bg", "64M";
    csum_seed_is_read_as_the_kernel_does: "-t ext4 -b 4096 -O metadata_csum_seed,orphan_file", "64M";
    meta_bg_is_read_as_the_kernel_does: "-t ext4 -b 1024 -O meta_bg,^resize_inode", "300M";
    sparse_super2_is_read_as_the_kernel_does: "-t ext4 -b 4096 -O sparse_super2", "64M";
    bigalloc_is_read_as_the_kernel_does: "-t ext4 -b 4096 -O bigalloc -C 65536", "512M";
    no_extents_is_read_as_the_kernel_does: "-t ext4 -b 1024 -O ^extent,^64bit,^flex_bg", "64M";
    inline_data_is_read_as_the_kernel_does: "-t ext4 -b 4096 -O inline_data", "64M";
    large_inodes_with_inline_data_are_read_as_the_kernel_does: "-t ext4 -b 4096 -I 1024 -O inline_data", "64M";
}
