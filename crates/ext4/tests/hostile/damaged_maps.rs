//! A file with a damaged block map leaves the rest of the image usable.
//!
//! The bug: `rm` of such a file left an orphan, and the image could no longer be opened for
//! writing.

use crate::common::writing::{Dice, node, open, read_all};
use crate::common::{Image, find};
use dentree_ext4::Ext4;
use dentree_vfs::{Allocate, Error, FileSystem, NewInode, NewKind, Result, SetAttr, SetXattr};
use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Command;

const BLOCK: u64 = 1024;

/// Extents with and without checksums, indirect blocks; the three ways to keep orphans.
const KINDS: [&str; 5] = [
    "-t ext4 -b 1024",
    "-t ext4 -b 1024 -O ^metadata_csum",
    "-t ext4 -b 1024 -O ^has_journal,^metadata_csum",
    "-t ext3 -b 1024",
    "-t ext2 -b 1024",
];

const ROUNDS: usize = 3;
const GONE: usize = 7;

const OTHERS: [&str; 3] = ["before", "behind", "dir/below"];

fn others_content(name: &str) -> Vec<u8> {
    name.bytes().cycle().take(50_000).collect()
}

fn image(options: &str) -> Image {
    Image::new(options, "16M", |tree| {
        fs::create_dir(tree.join("dir")).unwrap();
        for name in OTHERS {
            fs::write(tree.join(name), others_content(name)).unwrap();
        }
        let file = fs::File::create(tree.join("file")).unwrap();
        for block in (0..700).map(|block| block * 3 / 2) {
            file.write_all_at(&[7; BLOCK as usize], block * BLOCK).unwrap();
        }
    })
}

fn nodes_of_file(image: &Image) -> Vec<u64> {
    let stat = image.debugfs("stat /file\n");
    let parts = stat.split(", ").flat_map(|part| part.split('\n'));
    let is_node = |kind: &str| kind.contains("ETB") || kind.contains("IND");
    let nodes = parts.filter_map(|part| part.split_once("):").filter(|(kind, _)| is_node(kind)));
    nodes.map(|(_, number)| number.trim().parse().unwrap()).collect()
}

/// Not to another file's block, as that error cannot be seen; with `is_part` nor to this file's.
fn bad_pointer(dice: &mut Dice, nodes: &[u64], is_part: bool) -> u32 {
    let node = u32::try_from(nodes[dice.roll(nodes.len())]).unwrap();
    [1, 2, 40, 8195, 16_384, u32::MAX, 1 << 30, node][dice.roll(if is_part { 7 } else { 8 })]
}

/// Returns how. `is_part`: only a part of the map is freed, and checked.
fn damage(image: &Image, nodes: &[u64], dice: &mut Dice, is_part: bool) -> String {
    let block = nodes[dice.roll(nodes.len())];
    let file = fs::OpenOptions::new().read(true).write(true).open(image.path()).unwrap();
    let mut bytes = vec![0; BLOCK as usize];
    file.read_exact_at(&mut bytes, block * BLOCK).unwrap();
    let is_extents = bytes[..2] == [0x0A, 0xF3];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    let how = match dice.roll(6) {
        0 => {
            // Whole words: none becomes the number of another file's block.
            let (from, words) = (4 * dice.roll(250), 1 + dice.roll(6));
            (0..4 * words).for_each(|at| put(from + at, &[0xF0 | dice.roll(16) as u8]));
            format!("block {block}: {words} words from {from}")
        }
        1 if is_extents => {
            let at = [0, 2, 4, 6, 7][dice.roll(5)];
            put(at, &[dice.roll(256) as u8]);
            format!("block {block}: header, {at}")
        }
        1..=3 => {
            // The low half of an extent's start, or a pointer.
            let (at, value) = (12 + 12 * dice.roll(60), bad_pointer(dice, nodes, is_part));
            put(at + 8, &value.to_le_bytes());
            format!("block {block}: entry at {at} to {value}")
        }
        4 if !is_part => {
            // Two entries for the same blocks.
            let (from, to) = (12 + 12 * dice.roll(60), 12 + 12 * dice.roll(60));
            let copied: Vec<u8> =
                fs::read(image.path()).unwrap()[(block * BLOCK) as usize..][from..from + 12].to_vec();
            put(to, &copied);
            format!("block {block}: {from} to {to}")
        }
        _ => {
            let (word, value) = (dice.roll(15), bad_pointer(dice, nodes, is_part));
            let field = match word {
                12 => "IND".to_owned(),
                13 => "DIND".to_owned(),
                14 => "TIND".to_owned(),
                word => word.to_string(),
            };
            image.debugfs(&format!("sif /file block[{field}] {value}\n"));
            return format!("i_block[{word}] to {value}");
        }
    };
    file.write_all_at(&bytes, block * BLOCK).unwrap();
    how
}

type Use = fn(&Ext4) -> Result<()>;

const USES: [(&str, Use); 6] = [
    ("remove", |fs| {
        let (root, file) = (fs.load(fs.root())?, node(fs, "file"));
        if !fs.unlink_and_free(&root, b"file", &file)? {
            fs.unlink(&root, b"file", &file)?;
            fs.evict(&file);
        }
        assert!(fs.lookup(&root, b"file")?.is_none());
        Ok(())
    }),
    ("empty", |fs| truncate(fs, 0)),
    ("cut", |fs| truncate(fs, 600 * BLOCK + 1)),
    ("punch", |fs| fs.allocate(&node(fs, "file"), 100 * BLOCK, 700 * BLOCK, Allocate::PunchHole)),
    ("overwrite", |fs| {
        let file = node(fs, "file");
        for at in 0..300 {
            fs.write(&file, at * 4000, &[9; 3000])?;
        }
        fs.fsync(&file, dentree_vfs::Durability::Full)
    }),
    ("append", |fs| {
        let file = node(fs, "file");
        fs.append(&file, &[9; 300_000])?;
        fs.fsync(&file, dentree_vfs::Durability::Full)
    }),
];

fn truncate(fs: &Ext4, size: u64) -> Result<()> {
    fs.set_attr(&node(fs, "file"), &SetAttr { size: Some(size), ..SetAttr::default() })
}

fn use_others(fs: &Ext4, round: usize) {
    let root = fs.load(fs.root()).unwrap();
    let new = NewInode { kind: NewKind::Regular, permissions: 0o644, uid: 0, gid: 0, xattrs: &[] };
    for n in 0..20 {
        let name = format!("new{round}-{n}");
        let made = fs.create(&root, name.as_bytes(), &new).unwrap();
        fs.write(&made, 0, &others_content(&name)).unwrap();
        fs.evict(&made);
    }
    let gone = format!("new{round}-{GONE}");
    let gone_node = node(fs, &gone);
    fs.unlink(&root, gone.as_bytes(), &gone_node).unwrap();
    fs.evict(&gone_node);
}

fn check_others(image: &Image, what: &str) {
    let fs = image.open();
    let new =
        (0..ROUNDS).flat_map(|round| (0..20).filter(|n| *n != GONE).map(move |n| format!("new{round}-{n}")));
    for name in new.chain(OTHERS.map(str::to_owned)) {
        assert!(read_all(&fs, &find(&fs, &name)) == others_content(&name), "{what}: {name}");
    }
}

fn check(options: &str, seed: u64) {
    let dice = &mut Dice(seed);
    (0..10).for_each(|_| _ = dice.roll(2));
    let image = image(options);
    let nodes = nodes_of_file(&image);
    let (name, act) = USES[dice.roll(USES.len())];
    let how = damage(&image, &nodes, dice, ["cut", "punch"].contains(&name));
    let what = format!("seed {seed}, {options}, {how}: {name}");
    let fs = open(&image);
    let outcome = act(&fs);
    assert!(matches!(outcome, Ok(()) | Err(Error::Corrupt(_))), "{what}: {outcome:?}");
    use_others(&fs, 0);
    // Lost blocks are reported here.
    let _ = fs.sync();
    let _ = fs.close();
    drop(fs);
    for round in 1..ROUNDS {
        let fs = crate::common::writing::try_open(&image).unwrap_or_else(|error| panic!("{what}: {error}"));
        use_others(&fs, round);
        fs.close().unwrap_or_else(|error| panic!("{what}: {error}"));
    }
    check_others(&image, &what);
    // e2fsck copies blocks that several files map.
    Command::new("e2fsck").arg("-fy").arg(image.path()).output().unwrap();
    check_others(&image, &format!("{what}, and e2fsck"));
}

#[test]
fn a_damaged_block_map_leaves_the_rest_of_the_image_usable() {
    let rounds = std::env::var("ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(12);
    let first = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    for seed in first..first + rounds {
        for options in KINDS {
            check(options, seed);
        }
    }
}

#[test]
fn a_file_whose_attributes_are_damaged_can_be_removed() {
    for options in KINDS {
        let image = image(options);
        let fs = open(&image);
        fs.setxattr(&node(&fs, "file"), b"user.large", &[7; 600], SetXattr::Any).unwrap();
        fs.close().unwrap();
        drop(fs);
        let stat = image.debugfs("stat /file\n");
        let block: u64 = stat.split("File ACL: ").nth(1).unwrap().lines().next().unwrap().parse().unwrap();
        let file = fs::OpenOptions::new().write(true).open(image.path()).unwrap();
        file.write_all_at(&[0xFF; 40], block * BLOCK).unwrap();
        let fs = open(&image);
        USES[0].1(&fs).unwrap();
        use_others(&fs, 0);
        assert!(matches!(fs.sync(), Err(Error::Corrupt(_))), "{options}: it is reported");
        fs.close().unwrap();
        drop(fs);
        for round in 1..ROUNDS {
            let fs = open(&image);
            use_others(&fs, round);
            fs.close().unwrap();
        }
        check_others(&image, options);
    }
}
