//! Small files and new directories are in their inodes, as with the kernel, and move out as they
//! grow.

use crate::common::fsck::is_clean;
use crate::common::writing::open;
use crate::common::{Image, compare, find, read_all};
use dentree_ext4::Ext4;
use dentree_vfs::{FileSystem, Identity, NewKind, SetAttr, SetXattr, Vfs};
use std::fs;
use std::path::Path;

const WHO: &Identity = &Identity::Superuser;

/// An inode of 512 bytes holds less than the last.
const SIZES: std::ops::Range<usize> = 1..430;

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|n| u8::try_from(n % 251).unwrap()).collect()
}

fn inline<'a>(image: &Image, paths: &[&'a str]) -> Vec<&'a str> {
    let stats = image.debugfs(&paths.iter().map(|path| format!("stat {path}\n")).collect::<String>());
    let flags = stats.split("Flags: 0x").skip(1).map(|rest| {
        let flags = rest.split_whitespace().next().unwrap();
        u32::from_str_radix(flags, 16).unwrap()
    });
    let flags: Vec<_> = flags.collect();
    assert_eq!(flags.len(), paths.len(), "{stats}");
    paths.iter().zip(flags).filter(|(_, flags)| flags & 0x1000_0000 != 0).map(|(path, _)| *path).collect()
}

fn check(image: &Image, what: &str) {
    is_clean(&image.path()).unwrap_or_else(|error| panic!("{what}: {error}"));
    if let Some(mount) = image.mount() {
        compare(&image.open(), mount.path());
    }
}

fn change(image: &Image, change: impl FnOnce(&Vfs<Ext4>)) {
    let vfs = Vfs::new(open(image)).unwrap();
    change(&vfs);
    vfs.into_fs().unwrap().close().unwrap();
}

#[test]
fn small_files_are_inline_up_to_the_kernels_length() {
    for options in ["-t ext4 -O inline_data -I 256", "-t ext4 -O inline_data -I 512 -b 1024"] {
        let ours = Image::new(options, "32M", |_| ());
        change(&ours, |vfs| {
            for len in SIZES {
                let name = format!("file{len}");
                let file = vfs.create(WHO, vfs.root(), name.as_bytes(), NewKind::Regular, 0o644).unwrap();
                vfs.write(WHO, &file, 0, &bytes(len)).unwrap();
            }
        });
        check(&ours, options);
        let fs = ours.open();
        for len in SIZES {
            assert_eq!(read_all(&fs, &find(&fs, &format!("file{len}"))), bytes(len), "{options}: {len}");
        }
        let theirs = Image::new(options, "32M", |_| ());
        let write = |at: &Path| {
            SIZES.for_each(|len| fs::write(at.join(format!("file{len}")), bytes(len)).unwrap());
        };
        if theirs.change("noatime", write).is_some() {
            let names: Vec<_> = SIZES.map(|len| format!("/file{len}")).collect();
            let names: Vec<_> = names.iter().map(String::as_str).collect();
            let ours = inline(&ours, &names);
            assert_eq!(ours, inline(&theirs, &names), "{options}");
            assert!(ours.len() > 100 && ours.len() < SIZES.len());
        }
    }
}

#[test]
fn files_stay_inline_while_they_fit_next_to_their_attributes() {
    let image = Image::new("-t ext4 -O inline_data -I 256", "16M", |_| ());
    change(&image, |vfs| {
        let make = |name: &[u8]| vfs.create(WHO, vfs.root(), name, NewKind::Regular, 0o644).unwrap();
        let grown = make(b"grown");
        for at in 0..10 {
            vfs.write(WHO, &grown, at * 10, b"0123456789").unwrap();
        }
        let cut = make(b"cut");
        vfs.write(WHO, &cut, 0, &bytes(100)).unwrap();
        vfs.set_attr(WHO, &cut, &SetAttr { size: Some(30), ..SetAttr::default() }).unwrap();
        vfs.set_attr(WHO, &cut, &SetAttr { size: Some(70), ..SetAttr::default() }).unwrap();
        let crowded = make(b"crowded");
        vfs.setxattr(WHO, &crowded, b"user.name", &[7; 40], SetXattr::Any).unwrap();
        vfs.write(WHO, &crowded, 0, &bytes(50)).unwrap();
        vfs.setxattr(WHO, &crowded, b"user.more", &[8; 60], SetXattr::Any).unwrap();
        vfs.append(WHO, &crowded, &bytes(100)).unwrap();
        let gap = make(b"gap");
        vfs.write(WHO, &gap, 20, b"behind a gap").unwrap();
        let unnamed = vfs.create_unnamed(WHO, vfs.root(), 0o644).unwrap();
        vfs.write(WHO, &unnamed, 0, b"small").unwrap();
        vfs.link(WHO, &unnamed, vfs.root(), b"late").unwrap();
        let gone = make(b"gone");
        vfs.write(WHO, &gone, 0, b"small").unwrap();
        vfs.unlink(WHO, vfs.root(), b"gone").unwrap();
    });
    check(&image, "beside attributes");
    let all = ["/grown", "/cut", "/gap", "/crowded", "/late"];
    assert_eq!(inline(&image, &all), ["/grown", "/cut", "/gap"]);
    let fs = image.open();
    let content = |name: &str| read_all(&fs, &find(&fs, name));
    assert_eq!(content("grown"), b"0123456789".repeat(10));
    assert_eq!(content("cut"), [&bytes(30)[..], &[0; 40]].concat());
    assert_eq!(content("crowded"), [bytes(50), bytes(100)].concat());
    assert_eq!(content("gap"), [&[0; 20], &b"behind a gap"[..]].concat());
    assert_eq!(content("late"), b"small");
    assert_eq!(fs.getxattr(&find(&fs, "crowded"), b"user.more").unwrap(), Some(vec![8; 60]));
}

#[test]
fn inline_files_and_directories_are_changed_here_and_by_the_kernel_in_turn() {
    let image = Image::new("-t ext4 -O inline_data -I 256", "16M", |_| ());
    change(&image, |vfs| {
        for n in 0..20_u8 {
            let (dir, name) = (format!("dir{n}"), b"file");
            let dir = vfs.create(WHO, vfs.root(), dir.as_bytes(), NewKind::Directory, 0o755).unwrap();
            let file = vfs.create(WHO, &dir, name, NewKind::Regular, 0o644).unwrap();
            vfs.write(WHO, &file, 0, &bytes(usize::from(n) * 8)).unwrap();
        }
    });
    check(&image, "ours");
    assert_eq!(inline(&image, &["/dir7", "/dir7/file"]).len(), 2);
    let Some(()) = image.change("noatime", |at| {
        for n in 0..20 {
            let dir = at.join(format!("dir{n}"));
            let was = fs::read(dir.join("file")).unwrap();
            assert_eq!(was, bytes(n * 8));
            fs::write(dir.join("second"), [&was[..], b"!"].concat()).unwrap();
            fs::write(dir.join("file"), bytes(n * 20)).unwrap();
        }
    }) else {
        return;
    };
    change(&image, |vfs| {
        for n in 0..20 {
            let dir = vfs.lookup(WHO, vfs.root(), format!("dir{n}").as_bytes()).unwrap().unwrap();
            let file = vfs.lookup(WHO, &dir, b"second").unwrap().unwrap();
            vfs.append(WHO, &file, &bytes(n * 30)).unwrap();
            vfs.rename(
                WHO,
                &dir,
                b"file",
                vfs.root(),
                format!("moved{n}").as_bytes(),
                dentree_vfs::OnExisting::Fail,
            )
            .unwrap();
        }
    });
    check(&image, "theirs, and ours again");
    let fs = image.open();
    for n in 0..20 {
        assert_eq!(read_all(&fs, &find(&fs, &format!("moved{n}"))), bytes(n * 20));
        let second = [bytes(n * 8), b"!".to_vec(), bytes(n * 30)].concat();
        assert_eq!(read_all(&fs, &find(&fs, &format!("dir{n}/second"))), second);
    }
}
