//! Attributes set here: what was acknowledged is there, for e2fsck and the kernel too.

use crate::common::Image;
use crate::common::writing::{Dice, check, node, open};
use dentree_ext4::{Ext4, Node};
use dentree_vfs::{Error, FileSystem, SetXattr};
use std::collections::BTreeMap;

/// With `ea_inode` values may exceed a block.
const KINDS: [(&str, &str); 8] = [
    ("-t ext4", "32M"),
    ("-t ext4 -I 128 -b 1024", "24M"),
    ("-t ext4 -b 1024 -O ea_inode,metadata_csum_seed,orphan_file", "32M"),
    ("-t ext4 -I 128 -O ea_inode,^metadata_csum", "32M"),
    ("-t ext4 -I 512 -O inline_data", "32M"),
    ("-t ext4 -b 1024 -O ^has_journal", "24M"),
    ("-t ext3 -b 1024 -I 256", "24M"),
    ("-t ext2 -b 2048", "24M"),
];

const FILES: usize = 12;

/// Values by file and name.
type Reference = BTreeMap<(usize, String), Vec<u8>>;

fn file_name(file: usize) -> String {
    if file % 4 == 3 { format!("d{file}") } else { format!("f{file}") }
}

fn image(options: &str, size: &str) -> Image {
    Image::new(options, size, |tree| {
        for file in 0..FILES {
            let at = tree.join(file_name(file));
            if file % 4 == 3 {
                std::fs::create_dir(&at).unwrap();
                std::fs::write(at.join("entry"), "x").unwrap();
            } else {
                std::fs::write(at, vec![b'c'; 40 + file * 10]).unwrap();
            }
        }
    })
}

fn close(fs: Ext4) {
    fs.close().unwrap();
}

fn nodes(fs: &Ext4) -> Vec<Node> {
    (0..FILES).map(|file| crate::common::writing::node(fs, &file_name(file))).collect()
}

/// Few, so that files share them.
fn value(dice: &mut Dice, longest: usize) -> Vec<u8> {
    let len = match dice.roll(10) {
        0 => 0,
        1..=5 => dice.roll(40),
        6..=8 => dice.roll(600),
        _ => dice.roll(longest),
    };
    vec![b'a' + u8::try_from(dice.roll(3)).unwrap(); len - len % 7.min(len.max(1))]
}

/// Records what was acknowledged.
fn work(fs: &Ext4, reference: &mut Reference, dice: &mut Dice, count: usize, longest: usize) -> usize {
    let nodes = nodes(fs);
    let mut full = 0;
    for _ in 0..count {
        let file = dice.roll(FILES);
        let name =
            ["user.a", "user.bb", "user.comment", "trusted.a", "security.label", "user.z"][dice.roll(6)];
        let key = (file, name.to_owned());
        let node = &nodes[file];
        if dice.roll(4) == 0 {
            match (fs.removexattr(node, name.as_bytes()), reference.remove(&key)) {
                (Ok(()), Some(_)) | (Err(Error::NoAttribute), None) => {}
                other => panic!("removing {key:?}: {other:?}"),
            }
            continue;
        }
        let how = [SetXattr::Any, SetXattr::Any, SetXattr::Create, SetXattr::Replace][dice.roll(4)];
        let value = value(dice, longest);
        match (fs.setxattr(node, name.as_bytes(), &value, how), how, reference.contains_key(&key)) {
            (Err(Error::Exists), SetXattr::Create, true) => {}
            (Err(Error::NoAttribute), SetXattr::Replace, false) => {}
            (Err(Error::NoSpace), ..) => full += 1,
            (Ok(()), SetXattr::Create, false)
            | (Ok(()), SetXattr::Replace, true)
            | (Ok(()), SetXattr::Any, _) => {
                reference.insert(key, value);
            }
            other => panic!("{key:?}: {other:?}"),
        }
    }
    full
}

fn compare(fs: &Ext4, reference: &Reference, what: &str) {
    for (file, node) in nodes(fs).iter().enumerate() {
        let expected: Vec<_> = reference.iter().filter(|((of, _), _)| *of == file).collect();
        let mut names = fs.listxattr(node).unwrap();
        names.sort();
        let wanted: Vec<_> = expected.iter().map(|((_, name), _)| name.clone().into_bytes()).collect();
        assert_eq!(names, wanted, "{what}: names of {file}");
        for ((_, name), value) in expected {
            let found = fs.getxattr(node, name.as_bytes()).unwrap();
            assert!(found.as_ref() == Some(value), "{what}: {name} of {file}: {found:?} is not {value:?}");
        }
    }
}

#[test]
fn attributes_are_kept_in_every_kind_of_image() {
    for (options, size) in KINDS {
        let image = image(options, size);
        let mut reference = Reference::new();
        let longest = if options.contains("ea_inode") { 20_000 } else { 1000 };
        for round in 1..=4 {
            let fs = open(&image);
            let what = format!("{options}, round {round}");
            compare(&fs, &reference, &what);
            work(&fs, &mut reference, &mut Dice(7_919 * round), 150, longest);
            compare(&fs, &reference, &what);
            close(fs);
            check(&image, &[("f5", &[b'c'; 90])], &what);
        }
        compare(&image.open(), &reference, options);
        image.agrees_with_the_kernel();
    }
}

/// User counts by block, from debugfs.
fn users(image: &Image, names: &[String]) -> BTreeMap<u64, u32> {
    let commands: String = names.iter().map(|name| format!("stat /{name}\n")).collect();
    let mut users = BTreeMap::new();
    for line in image.debugfs(&commands).lines() {
        if let Some(block) = line.strip_prefix("File ACL: ").and_then(|rest| rest.trim().parse().ok())
            && block != 0
        {
            *users.entry(block).or_default() += 1;
        }
    }
    users
}

/// The files' attributes need blocks.
fn files_with_small_inodes(count: usize) -> (Image, Vec<String>) {
    let names: Vec<String> = (0..count).map(|file| format!("file{file}")).collect();
    let image = Image::new("-t ext4 -I 128 -N 4000", "32M", |tree| {
        names.iter().for_each(|name| std::fs::write(tree.join(name), "x").unwrap());
    });
    (image, names)
}

#[test]
fn files_with_equal_attributes_share_blocks_up_to_1024_users() {
    let (image, names) = files_with_small_inodes(2500);
    let fs = open(&image);
    let free = fs.statfs().unwrap().blocks_free;
    for name in &names {
        fs.setxattr(&node(&fs, name), b"user.label", b"the same for all", SetXattr::Any).unwrap();
    }
    assert_eq!(free - fs.statfs().unwrap().blocks_free, 3);
    close(fs);
    check(&image, &[], "shared");
    let mut counts: Vec<u32> = users(&image, &names).into_values().collect();
    counts.sort_unstable();
    assert_eq!(counts, [2500 - 2048, 1024, 1024]);

    // A full block that loses a user is usable again; one user's change leaves others alone.
    let fs = open(&image);
    fs.setxattr(&node(&fs, &names[0]), b"user.label", b"another", SetXattr::Replace).unwrap();
    assert_eq!(fs.getxattr(&node(&fs, &names[1]), b"user.label").unwrap().unwrap(), b"the same for all");
    fs.setxattr(&node(&fs, &names[0]), b"user.label", b"the same for all", SetXattr::Replace).unwrap();
    for name in &names {
        fs.removexattr(&node(&fs, name), b"user.label").unwrap();
    }
    fs.sync().unwrap();
    assert_eq!(fs.statfs().unwrap().blocks_free, free);
    close(fs);
    check(&image, &[], "no longer shared");
    assert_eq!(users(&image, &names), BTreeMap::new());
}

#[test]
fn attribute_blocks_are_shared_with_the_kernel() {
    let (image, names) = files_with_small_inodes(20);
    let set = |at: &std::path::Path, name: &str, value: &[u8]| {
        rustix::fs::setxattr(at, name, value, rustix::fs::XattrFlags::empty()).unwrap();
    };
    let by_kernel = image.change("noatime", |mount| {
        for name in &names[..10] {
            set(&mount.join(name), "user.from", b"one user");
            set(&mount.join(name), "trusted.longer", &[7; 300]);
        }
    });
    if by_kernel.is_none() {
        return;
    }
    assert_eq!(users(&image, &names).into_values().collect::<Vec<_>>(), [10]);
    let fs = open(&image);
    // Reading makes it shareable.
    assert_eq!(fs.getxattr(&node(&fs, &names[0]), b"user.from").unwrap().unwrap(), b"one user");
    for name in &names[10..] {
        fs.setxattr(&node(&fs, name), b"trusted.longer", &[7; 300], SetXattr::Create).unwrap();
        fs.setxattr(&node(&fs, name), b"user.from", b"one user", SetXattr::Create).unwrap();
    }
    close(fs);
    check(&image, &[], "the kernel's block is shared");
    assert_eq!(users(&image, &names).into_values().collect::<Vec<_>>(), [20]);
    image.agrees_with_the_kernel();
    // The kernel releases one of our blocks.
    image.change("noatime", |mount| set(&mount.join(&names[15]), "user.from", b"another"));
    check(&image, &[], "the kernel has left our block");
    let mut counts: Vec<u32> = users(&image, &names).into_values().collect();
    counts.sort_unstable();
    assert_eq!(counts, [1, 19]);
    image.agrees_with_the_kernel();
}

#[test]
fn long_values_are_shared_and_freed_with_their_last_user() {
    let image = Image::new("-t ext4 -O ea_inode", "32M", |tree| {
        (0..8).for_each(|file| std::fs::write(tree.join(format!("file{file}")), "x").unwrap());
    });
    let names: Vec<String> = (0..8).map(|file| format!("file{file}")).collect();
    let by_kernel = image.change("noatime", |mount| {
        let long = vec![b'k'; 30_000];
        rustix::fs::setxattr(mount.join("file0"), "user.long", &long, rustix::fs::XattrFlags::empty())
            .unwrap();
    });
    let fs = open(&image);
    let (blocks, inodes) = (fs.statfs().unwrap().blocks_free, fs.statfs().unwrap().inodes_free);
    let long = vec![b'k'; 30_000];
    if by_kernel.is_some() {
        // Reading makes it shareable, even without space for another.
        assert_eq!(fs.getxattr(&node(&fs, "file0"), b"user.long").unwrap().unwrap(), long);
        fs.setxattr(&node(&fs, "file1"), b"user.long", &long, SetXattr::Any).unwrap();
        assert_eq!(fs.statfs().unwrap().inodes_free, inodes);
    }
    for name in &names {
        fs.setxattr(&node(&fs, name), b"user.long", &long, SetXattr::Any).unwrap();
        fs.setxattr(&node(&fs, name), b"user.again", &long, SetXattr::Any).unwrap();
    }
    let used = if by_kernel.is_some() { (0, 0) } else { (1, 8) };
    let now = fs.statfs().unwrap();
    assert_eq!((inodes - now.inodes_free, blocks - now.blocks_free), used);
    close(fs);
    check(&image, &[], "shared values");
    image.agrees_with_the_kernel();
    let fs = open(&image);
    let root = fs.load(fs.root()).unwrap();
    for name in &names {
        let node = node(&fs, name);
        match name.ends_with('3') {
            // Delete the last user.
            true => {
                fs.removexattr(&node, b"user.again").unwrap();
                fs.unlink(&root, name.as_bytes(), &node).unwrap();
                fs.evict(&node);
            }
            false => {
                fs.setxattr(&node, b"user.long", b"short", SetXattr::Replace).unwrap();
                fs.removexattr(&node, b"user.again").unwrap();
            }
        }
    }
    fs.sync().unwrap();
    assert!(fs.statfs().unwrap().inodes_free > inodes);
    close(fs);
    check(&image, &[], "values are gone");
    image.agrees_with_the_kernel();
}

#[test]
fn without_space_the_old_value_stays() {
    for options in ["-t ext4 -I 128 -b 1024 -m 0", "-t ext4 -I 128 -b 1024 -O ea_inode -m 0"] {
        let image = Image::new(options, "4M", |tree| {
            (0..4).for_each(|file| std::fs::write(tree.join(format!("file{file}")), "x").unwrap());
        });
        let fs = open(&image);
        let old = [node(&fs, "file0"), node(&fs, "file1")];
        old.iter().for_each(|node| fs.setxattr(node, b"user.a", b"old", SetXattr::Any).unwrap());
        let hog = node(&fs, "file2");
        while fs.append(&hog, &[1; 10_000]).is_ok() {}
        while fs.append(&hog, &[1; 100]).is_ok() {}
        fs.sync().unwrap();
        let long = vec![2; if options.contains("ea_inode") { 40_000 } else { 500 }];
        let refused = fs.setxattr(&old[0], b"user.a", &long, SetXattr::Any);
        assert!(matches!(refused, Err(Error::NoSpace)), "{options}: {refused:?}");
        assert_eq!(fs.getxattr(&old[0], b"user.a").unwrap().unwrap(), b"old");
        let too_long = fs.setxattr(&old[0], b"user.b", &[3; 60_000], SetXattr::Any);
        assert!(matches!(too_long, Err(Error::NoSpace)));
        let free = fs.statfs().unwrap();
        close(fs);
        check(&image, &[], options);
        let fs = open(&image);
        assert_eq!(fs.getxattr(&node(&fs, "file0"), b"user.a").unwrap().unwrap(), b"old");
        assert_eq!(fs.statfs().unwrap().inodes_free, free.inodes_free);
    }
}

#[test]
fn an_inline_directory_keeps_its_attributes_as_it_grows() {
    let image = Image::new("-t ext4 -O inline_data -I 256", "16M", |tree| {
        std::fs::create_dir(tree.join("dir")).unwrap();
        (0..6).for_each(|file| std::fs::write(tree.join(format!("dir/entry{file}")), "").unwrap());
        std::fs::write(tree.join("file"), vec![b'c'; 100]).unwrap();
    });
    let fs = open(&image);
    let (dir, file) = (node(&fs, "dir"), node(&fs, "file"));
    for value in [&b"short"[..], &[7; 60], &[8; 800], b"back"] {
        for node in [&dir, &file] {
            fs.setxattr(node, b"user.value", value, SetXattr::Any).unwrap();
            assert_eq!(fs.getxattr(node, b"user.value").unwrap().unwrap(), value);
        }
    }
    // New names move the directory out of its inode.
    let new = dentree_vfs::NewInode {
        kind: dentree_vfs::NewKind::Regular,
        permissions: 0o644,
        uid: 0,
        gid: 0,
        xattrs: &[],
    };
    for name in 0..20 {
        fs.create(&dir, format!("made{name}").as_bytes(), &new).unwrap();
        assert_eq!(fs.getxattr(&dir, b"user.value").unwrap().unwrap(), b"back");
    }
    fs.append(&file, b"more").unwrap();
    fs.sync().unwrap();
    assert_eq!(fs.getxattr(&file, b"user.value").unwrap().unwrap(), b"back");
    assert_eq!(fs.listxattr(&file).unwrap(), [b"user.value".to_vec()]);
    close(fs);
    check(&image, &[("file", &[&[b'c'; 100][..], b"more"].concat())], "inline");
    image.agrees_with_the_kernel();
}

#[test]
fn missing_fields_of_an_old_inode_are_added_before_its_attributes() {
    let image = Image::new("-t ext4 -I 256", "16M", |tree| std::fs::write(tree.join("file"), "x").unwrap());
    // Made when inodes had fewer fields, all in use.
    image.debugfs("set_inode_field /file extra_isize 8\nea_set /file user.old value\nset_inode_field /file extra_isize 8\n");
    let fs = open(&image);
    let file = node(&fs, "file");
    let before = fs.attr(&file).crtime;
    fs.setxattr(&file, b"user.new", b"value", SetXattr::Any).unwrap();
    close(fs);
    check(&image, &[("file", b"x")], "grown");
    let stat = image.debugfs("stat /file\n");
    assert!(stat.contains("Size of extra inode fields: 32"), "{before:?}: {stat}");
    image.agrees_with_the_kernel();
}

/// Made when inodes had fewer fields; full of attributes.
fn full_old_inode(size: &str) -> Image {
    let image = Image::new("-t ext4 -I 256 -b 1024 -m 0", size, |tree| {
        (0..2).for_each(|file| std::fs::write(tree.join(format!("file{file}")), "x").unwrap());
    });
    // The 120 bytes after 8 of fields: 4 of header, 80 and 28 of entries with values, 4 at the end.
    let large = "l".repeat(60);
    image.debugfs(&format!(
        "set_inode_field /file0 extra_isize 8\nea_set /file0 user.large {large}\nea_set /file0 user.small 1234\n\
         set_inode_field /file0 extra_isize 8\n"
    ));
    assert!(image.debugfs("stat /file0\n").contains("File ACL: 0"), "there is a block already");
    image
}

#[test]
fn attributes_move_to_the_block_for_missing_fields() {
    let image = full_old_inode("16M");
    let fs = open(&image);
    fs.setxattr(&node(&fs, "file0"), b"user.new", b"value", SetXattr::Any).unwrap();
    close(fs);
    check(&image, &[("file0", b"x")], "grown");
    let stat = image.debugfs("stat /file0\n");
    assert!(stat.contains("Size of extra inode fields: 32") && !stat.contains("File ACL: 0"), "{stat}");
    // The smaller one was enough; the larger one stayed.
    let dump = image
        .debugfs("ea_get -V /file0 user.large\nea_get -V /file0 user.small\nea_get -V /file0 user.new\n");
    for value in [&*"l".repeat(60), "1234", "value"] {
        assert!(dump.lines().any(|line| line == value), "{dump}");
    }
    image.agrees_with_the_kernel();
}

#[test]
fn without_a_block_attributes_are_changed_in_place() {
    let image = full_old_inode("4M");
    let fs = open(&image);
    let (old, hog) = (node(&fs, "file0"), node(&fs, "file1"));
    while fs.append(&hog, &[1; 10_000]).is_ok() {}
    while fs.append(&hog, &[1; 100]).is_ok() {}
    fs.sync().unwrap();
    fs.setxattr(&old, b"user.small", b"4321", SetXattr::Replace).unwrap();
    assert!(matches!(fs.setxattr(&old, b"user.other", b"more", SetXattr::Any), Err(Error::NoSpace)));
    close(fs);
    check(&image, &[], "full");
    let stat = image.debugfs("stat /file0\n");
    assert!(stat.contains("Size of extra inode fields: 8") && stat.contains("File ACL: 0"), "{stat}");
    assert!(image.debugfs("ea_get -V /file0 user.small\n").contains("4321"));
    image.agrees_with_the_kernel();
}

/// The file system later wants more fields (96 bytes): the kernel filled inodes after 32 bytes of
/// fields, with values in inodes. The last file has a block too.
fn wants_more_fields() -> Option<Image> {
    let image = Image::new("-t ext4 -I 256 -b 1024 -O ea_inode", "16M", |tree| {
        (0..3).for_each(|file| std::fs::write(tree.join(format!("file{file}")), "x").unwrap());
    });
    image.change("noatime", |mount| {
        for file in 0..3 {
            set_by_kernel(&mount.join(format!("file{file}")), "user.first", &[b'f'; 3000]);
            set_by_kernel(&mount.join(format!("file{file}")), "user.second", &[b's'; 5000]);
        }
        set_by_kernel(&mount.join("file2"), "user.own", &[b'o'; 100]);
    })?;
    let (first, last) = (image.debugfs("stat /file0\n"), image.debugfs("stat /file2\n"));
    assert!(first.contains("Size of extra inode fields: 32") && first.contains("File ACL: 0"), "{first}");
    assert!(!last.contains("File ACL: 0"), "{last}");
    image.debugfs("set_super_value want_extra_isize 96\n");
    Some(image)
}

fn set_by_kernel(at: &std::path::Path, name: &str, value: &[u8]) {
    rustix::fs::setxattr(at, name, value, rustix::fs::XattrFlags::empty()).unwrap();
}

#[test]
fn value_entries_move_to_the_block_for_missing_fields_as_by_the_kernel() {
    let Some(image) = wants_more_fields() else { return };
    let theirs = wants_more_fields().unwrap();
    theirs.change("noatime", |mount| {
        // Any change extends an inode's fields.
        rustix::fs::chmod(mount.join("file0"), rustix::fs::Mode::RUSR).unwrap();
        set_by_kernel(&mount.join("file0"), "user.new", b"value");
    });
    let fs = open(&image);
    // The new attribute needs a new block, that one as a second user, and an existing one.
    for name in ["file0", "file1", "file2"] {
        fs.setxattr(&node(&fs, name), b"user.new", b"value", SetXattr::Any).unwrap();
    }
    close(fs);
    check(&image, &[], "grown");
    let list = |image: &Image| image.debugfs("ea_list /file0\n");
    assert_eq!(list(&image), list(&theirs));
    assert!(list(&image).contains("user.second (5000)\n  user.new (5) = \"value\"\n  user.first (3000)"));
    for image in [&image, &theirs] {
        let stat = image.debugfs("stat /file0\n");
        assert!(stat.contains("Size of extra inode fields: 96") && !stat.contains("File ACL: 0"), "{stat}");
    }
    let names = ["file0", "file1", "file2"].map(str::to_owned);
    assert_eq!(users(&image, &names).into_values().collect::<Vec<_>>(), [1, 2]);
    image.agrees_with_the_kernel();

    // Freed with their last user.
    let fs = open(&image);
    let inodes = fs.statfs().unwrap().inodes_free;
    for (attribute, freed) in [("user.first", 1), ("user.second", 2)] {
        for name in &names {
            assert_eq!(fs.statfs().unwrap().inodes_free, inodes + freed - 1, "{attribute} of {name}");
            fs.removexattr(&node(&fs, name), attribute.as_bytes()).unwrap();
            fs.sync().unwrap();
        }
        assert_eq!(fs.statfs().unwrap().inodes_free, inodes + freed, "{attribute}");
    }
    close(fs);
    check(&image, &[], "shrunk");
}
