//! Files come out of badly damaged images.

mod common;

use common::{Image, can_mount, dentree, text, tool};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, RngExt, SeedableRng};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

fn random(rng: &mut Xoshiro256PlusPlus, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    rng.fill_bytes(&mut bytes);
    bytes
}

/// Fills an image through the kernel: directories of several levels, files of many lengths, links,
/// holes, attributes.
fn fill(root: &Path) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
    for dir in 0..12 {
        let dir = root.join(format!("dir-{dir}/below/deep"));
        fs::create_dir_all(&dir).unwrap();
        for above in dir.ancestors().take(3) {
            for n in 0..6 {
                let len = [0, 1, 700, 5000, 20_000, 70_000][rng.random_range(0..6)];
                fs::write(above.join(format!("file-{n}")), random(&mut rng, len)).unwrap();
            }
        }
    }
    let sparse = File::create(root.join("sparse")).unwrap();
    (0..40).for_each(|n| sparse.write_all_at(&random(&mut rng, 1000), n * 100_000).unwrap());
    std::os::unix::fs::symlink("dir-1/file-1", root.join("link")).unwrap();
    std::os::unix::fs::symlink("x".repeat(500), root.join("long link")).unwrap();
    fs::hard_link(root.join("dir-1/file-1"), root.join("hard")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, root.join("fifo"), rustix::fs::Mode::from_raw_mode(0o604)).unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(root.join("dir-2"), "user.mine", b"value", flags).unwrap();
}

/// Overwrites bytes of an image with zeros.
fn zero(image: &Path, offset: u64, len: usize) {
    File::options().write(true).open(image).unwrap().write_all_at(&vec![0; len], offset).unwrap();
}

/// Salvages an image. Returns the exit status, the list and the directory.
fn salvage(image: &Path, options: &[&OsStr]) -> (i32, String, PathBuf) {
    let out = image.with_extension("out");
    let _ = fs::remove_dir_all(&out);
    let words = ["salvage".as_ref()].into_iter().chain(options.iter().copied());
    let output = dentree(words.chain([image.as_os_str(), out.as_os_str()]));
    let code = output.status.code().unwrap();
    (code, text(&output.stdout) + &text(&output.stderr), out)
}

/// What rsync would change: content, types, modes, owners, times, links, attributes.
fn assert_same_trees(image: &Image, out: &Path) {
    let mount = image.mount("ro").unwrap();
    let list = |root: &Path| {
        let script = "find . -mindepth 1 -type d -not -name lost+found -printf '%P %m %U %G %T@\\n' | sort; \
                      find . -not -type d -printf '%P %y %m %U %G %s %n %T@ %l\\n' | sort; \
                      find . -type f -not -path './lost+found/*' -print0 | sort -z | xargs -0 sha256sum; \
                      getfattr -h -d -R -m user . 2>/dev/null || true";
        let words = ["-C".as_ref(), root.as_os_str(), "sh".as_ref(), "-c".as_ref(), OsStr::new(script)];
        tool("env", words)
    };
    common::assert_same_lines(&list(out), &list(&mount.at));
}

const KINDS: [&[&str]; 8] = [
    &["-t", "ext4", "-b", "1024"],
    &["-t", "ext4", "-b", "1024", "-O", "^flex_bg"],
    &["-t", "ext4", "-b", "1024", "-O", "sparse_super2"],
    &["-t", "ext4", "-b", "1024", "-O", "meta_bg,^resize_inode"],
    &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"],
    &["-t", "ext4", "-O", "inline_data", "-I", "256"],
    &["-t", "ext3", "-b", "1024"],
    &["-t", "ext2", "-b", "1024"],
];

#[test]
fn all_files_come_back_without_superblock_and_descriptors() {
    if !can_mount() {
        return;
    }
    for options in KINDS {
        let image = Image::filled(options, fill);
        let broken = image.dir.path().join("broken.img");
        fs::copy(&image.file, &broken).unwrap();
        // Superblock and descriptors of group 0; of the bitmaps nothing is needed.
        zero(&broken, 0, 8192);
        let (code, said, out) = salvage(&broken, &[]);
        println!("{options:?}: {said}");
        assert_same_trees(&image, &out);
        assert!(code == 0 && said.contains(" 0 partial, 0 lost"), "{options:?}: {code} {said}");
    }
}

/// What debugfs says.
fn debugfs(image: &Path, request: &str) -> String {
    text(&tool("debugfs", ["-R".as_ref(), request.as_ref(), image.as_os_str()]))
}

#[test]
fn what_is_partial_or_lost_is_said_with_the_missing_bytes() {
    if !can_mount() {
        return;
    }
    // A journal would still have the inode.
    let image = Image::filled(&["-t", "ext4", "-b", "1024", "-O", "^has_journal"], |root| {
        fs::create_dir(root.join("dir")).unwrap();
        for name in ["partial", "lost", "kept"] {
            fs::write(root.join("dir").join(name), vec![b'x'; 5000]).unwrap();
        }
    });
    let blocks = debugfs(&image.file, "blocks /dir/partial");
    let third: u64 = blocks.split_whitespace().nth(2).unwrap().parse().unwrap();
    let place = debugfs(&image.file, "imap /dir/lost");
    let mut words = place.split("at block ").nth(1).unwrap().split(", offset ");
    let block: u64 = words.next().unwrap().trim().parse().unwrap();
    let offset = u64::from_str_radix(words.next().unwrap().trim().trim_start_matches("0x"), 16).unwrap();
    zero(&image.file, block * 1024 + offset, 256);
    let map = image.dir.path().join("map");
    fs::write(&map, format!("# of ddrescue\n0x0 + 1\n0 512 +\n{} 512 -\n", third * 1024)).unwrap();
    let (code, said, out) = salvage(&image.file, &["--map".as_ref(), map.as_os_str()]);
    assert_eq!(code, 4, "{said}");
    assert!(said.contains("partial\t/dir/partial\tbytes 2048-2559 missing\n"), "{said}");
    assert!(said.contains("lost\t/dir/lost\tinode ") && said.contains(" is gone\n"), "{said}");
    assert!(said.contains(" 1 partial, 1 lost; "), "{said}");
    let there = fs::read(out.join("dir/partial")).unwrap();
    let is_hole = |at: usize| (2048..2560).contains(&at);
    assert!(there.len() == 5000 && (0..5000).all(|at| there[at] == if is_hole(at) { 0 } else { b'x' }));
    assert!(fs::read(out.join("dir/kept")).unwrap() == vec![b'x'; 5000] && !out.join("dir/lost").exists());
    let (_, said, _) = salvage(&image.file, &["--json".as_ref(), "--map".as_ref(), map.as_os_str()]);
    assert!(said.contains("\"missing\":[[2048,2560]]") && said.contains("\"state\":\"lost\""), "{said}");
}

#[test]
fn what_is_no_file_system_is_refused_and_nothing_is_written_over() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("zeros.img");
    fs::write(&image, vec![0; 1 << 20]).unwrap();
    let (code, said, out) = salvage(&image, &[]);
    assert!(code == 8 && said.contains("no ext2, ext3 or ext4"), "{code} {said}");
    fs::write(out.join("mine"), "").unwrap();
    let output = dentree(["salvage".as_ref(), image.as_os_str(), out.as_os_str()]);
    assert!(output.status.code() == Some(16) && text(&output.stderr).contains("is not empty"));
}
