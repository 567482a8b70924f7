//! An image shows the same tree as the kernel's mount of it.
//!
//! Each case makes an image with some features, fills it through the kernel with all kinds of
//! files, and compares `dentree checksum` of image and mount, then all attributes of lstat(2).

mod common;
mod population;

use common::{Image, Mount, assert_same_lines, can_mount, succeeds};
use dentree_testing::{NbdServer, S3_KEYS, serve_s3};
use serde_json::Value;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

/// A change to an image before it is filled.
struct Case {
    mke2fs: &'static [&'static str],
    tune2fs: &'static [&'static str],
    debugfs: &'static [&'static str],
}

const PLAIN: Case = Case { mke2fs: &[], tune2fs: &[], debugfs: &[] };

fn kernel_and_dentree_agree(case: &Case) {
    if !can_mount() {
        return;
    }
    let image = Image::new(96, case.mke2fs);
    if !case.tune2fs.is_empty() {
        let args = case.tune2fs.iter().map(OsStr::new).chain([image.file.as_os_str()]);
        common::tool("tune2fs", args);
    }
    if !case.debugfs.is_empty() {
        image.debugfs(case.debugfs);
    }
    match image.mount("rw") {
        Ok(mount) => population::everything(&mount.at),
        Err(why) => {
            println!("skipped: the kernel does not mount it: {why}");
            return;
        }
    }
    compare(&image);
    compare_sources(&image);
}

/// Compares the image with itself behind an S3 server, behind an NBD server, and in a qcow2 file.
fn compare_sources(image: &Image) {
    let local = succeeds(["checksum".as_ref(), image.file.as_os_str()]);
    let root = image.dir.path().join("s3");
    fs::create_dir_all(root.join("bucket")).unwrap();
    fs::hard_link(&image.file, root.join("bucket/disk.img")).unwrap();
    // With a record of its ETag: otherwise the server reads the whole object for each request.
    let record = ".bucket-YnVja2V0.object-ZGlzay5pbWc.internal.json";
    fs::write(root.join(record), r#"{"e_tag":"one"}"#).unwrap();
    let endpoint = format!("http://{}", serve_s3(&root));
    let checksum = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dentree"));
        command.args(["--cache-size", "0"]).args(words).envs(S3_KEYS);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", common::text(&output.stderr));
        assert_same_lines(&output.stdout, &local);
    };
    checksum(&["--endpoint", &endpoint, "checksum", "s3://bucket/disk.img"]);
    let file = format!("file={}", image.file.display());
    if let Some(server) = NbdServer::nbdkit(&image.dir.path().join("socket"), &["-r", "file", &file]) {
        checksum(&["checksum", &server.address()]);
    }
    let qcow2 = image.dir.path().join("disk.qcow2");
    let converted =
        Command::new("qemu-img").args(["convert", "-O", "qcow2"]).args([&image.file, &qcow2]).status();
    match converted {
        Ok(status) if status.success() => checksum(&["checksum", qcow2.to_str().unwrap()]),
        converted => println!("skipped: qemu-img: {converted:?}"),
    }
}

/// Compares the image with the kernel's view, read afresh.
fn compare(image: &Image) {
    let mount = image.mount("ro").unwrap();
    let ours = succeeds(["checksum".as_ref(), image.file.as_os_str()]);
    let theirs = succeeds(["checksum".as_ref(), mount.at.as_os_str()]);
    assert_same_lines(&ours, &theirs);
    compare_attributes(image, &mount);
}

/// Compares what checksum lines lack: sizes and link counts of directories, inode numbers, blocks,
/// other times.
fn compare_attributes(image: &Image, mount: &Mount) {
    let found = succeeds(["find".as_ref(), image.file.as_os_str(), "--json".as_ref()]);
    let mut seen = 0;
    for line in common::text(&found).lines() {
        let ours: Value = serde_json::from_str(line).unwrap();
        let path = path_of(&ours);
        let theirs = fs::symlink_metadata(mount.at.join(Path::new(path.strip_prefix("/").unwrap()))).unwrap();
        let number = |key: &str| ours[key].as_u64().unwrap();
        let show = |seconds: i64, nanos: i64| (seconds, nanos);
        assert_eq!(number("ino"), theirs.ino(), "{line}");
        assert_eq!(number("nlink"), theirs.nlink(), "{line}");
        assert_eq!(number("size"), theirs.size(), "{line}");
        assert_eq!(number("blocks"), theirs.blocks(), "{line}");
        assert_eq!((number("uid"), number("gid")), (theirs.uid().into(), theirs.gid().into()), "{line}");
        assert_eq!(time(&ours["atime"]), show(theirs.atime(), theirs.atime_nsec()), "{line}");
        assert_eq!(time(&ours["mtime"]), show(theirs.mtime(), theirs.mtime_nsec()), "{line}");
        assert_eq!(time(&ours["ctime"]), show(theirs.ctime(), theirs.ctime_nsec()), "{line}");
        seen += 1;
    }
    assert!(seen > 1);
}

fn path_of(file: &Value) -> std::path::PathBuf {
    use std::os::unix::ffi::OsStringExt;
    let bytes = match file["path_hex"].as_str() {
        Some(hex) => {
            (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
        }
        None => file["path"].as_str().unwrap().as_bytes().to_vec(),
    };
    std::ffi::OsString::from_vec(bytes).into()
}

/// Seconds and nanoseconds of a decimal string.
fn time(value: &Value) -> (i64, i64) {
    let (seconds, nanos) = value.as_str().unwrap().split_once('.').unwrap();
    let (whole, nanos): (i64, i64) = (seconds.parse().unwrap(), nanos.parse().unwrap());
    if seconds.starts_with('-') && nanos > 0 { (whole - 1, 1_000_000_000 - nanos) } else { (whole, nanos) }
}

macro_rules! matrix {
    ($($name:ident: $($field:ident $value:expr),+;)*) => {$(
        #[test]
        fn $name() {
            kernel_and_dentree_agree(&Case { $($field: &$value,)+ ..PLAIN });
        }
    )*};
}

matrix! {
    ext2: mke2fs ["-t", "ext2"];
    ext2_with_1k_blocks_and_128_byte_inodes: mke2fs ["-t", "ext2", "-b", "1024", "-I", "128"];
    ext3: mke2fs ["-t", "ext3"];
    ext3_with_1k_blocks: mke2fs ["-t", "ext3", "-b", "1024"];
    ext4: mke2fs ["-t", "ext4"];
    ext4_with_1k_blocks: mke2fs ["-t", "ext4", "-b", "1024"];
    ext4_with_2k_blocks: mke2fs ["-t", "ext4", "-b", "2048"];
    ext4_with_4k_blocks: mke2fs ["-t", "ext4", "-b", "4096"];
    ext4_with_64k_blocks: mke2fs ["-t", "ext4", "-b", "65536"];
    upstream_defaults: mke2fs ["-t", "ext4", "-O", "orphan_file,metadata_csum_seed"];
    without_64bit: mke2fs ["-t", "ext4", "-O", "^64bit"];
    meta_bg: mke2fs ["-t", "ext4", "-b", "1024", "-O", "meta_bg,^resize_inode"];
    sparse_super2: mke2fs ["-t", "ext4", "-O", "sparse_super2"];
    without_extents: mke2fs ["-t", "ext4", "-O", "^extent,^64bit"];
    without_dir_index: mke2fs ["-t", "ext4", "-O", "^dir_index"];
    large_dir: mke2fs ["-t", "ext4", "-b", "1024", "-O", "large_dir"];
    inline_data: mke2fs ["-t", "ext4", "-O", "inline_data"];
    inline_data_in_big_inodes: mke2fs ["-t", "ext4", "-b", "1024", "-I", "1024", "-O", "inline_data"];
    ea_inode: mke2fs ["-t", "ext4", "-O", "ea_inode"];
    bigalloc: mke2fs ["-t", "ext4", "-O", "bigalloc", "-C", "16384"];
    bigalloc_with_1k_blocks: mke2fs ["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "8192"];
    gdt_csum: mke2fs ["-t", "ext4", "-O", "^metadata_csum,uninit_bg"];
    no_checksums: mke2fs ["-t", "ext4", "-O", "^metadata_csum,^uninit_bg"];
    without_flex_bg: mke2fs ["-t", "ext4", "-b", "1024", "-O", "^flex_bg"];
    without_journal: mke2fs ["-t", "ext4", "-O", "^has_journal"];
    without_filetype: mke2fs ["-t", "ext4", "-O", "^filetype"];
    casefold: mke2fs ["-t", "ext4", "-O", "casefold"];
    legacy_hash: mke2fs ["-t", "ext4", "-b", "1024"], tune2fs ["-E", "hash_alg=legacy"];
    tea_hash: mke2fs ["-t", "ext4", "-b", "1024"], tune2fs ["-E", "hash_alg=tea"];
    unsigned_hash: mke2fs ["-t", "ext4", "-b", "1024"], debugfs ["set_super_value flags 2"];
    inodes_of_128_bytes: mke2fs ["-t", "ext4", "-I", "128"];
    without_ro_compat: mke2fs ["-t", "ext4", "-O", "^dir_nlink,^extra_isize,^huge_file,^sparse_super,^resize_inode"];
    quota_and_project: mke2fs ["-t", "ext4", "-O", "quota,project"];
    encrypt_and_verity: mke2fs ["-t", "ext4", "-O", "encrypt,verity,stable_inodes"];
    fast_commit: mke2fs ["-t", "ext4", "-O", "fast_commit"];
    mmp: mke2fs ["-t", "ext4", "-O", "mmp"];
}

#[test]
fn a_tree_of_ten_thousand_files() {
    if !can_mount() {
        return;
    }
    let image = Image::new(128, &["-t", "ext4", "-N", "20000"]);
    population::many_files(&image.mount("rw").unwrap().at, 10_000);
    compare(&image);
}

fn two_hundred_thousand_entries(options: &[&str]) {
    if !can_mount() {
        return;
    }
    let image = Image::new(256, &[&["-t", "ext4", "-N", "210000"], options].concat());
    let mount = image.mount("rw").unwrap();
    population::many_names(&mount.at.join("big"), 200_000);
    drop(mount);
    compare(&image);
    let looked_up = succeeds(["stat", "--json", &image.at("/big/n-199999-a-name-of-some-length")]);
    assert!(common::text(&looked_up).contains("regular file"));
}

#[test]
fn a_directory_of_two_hundred_thousand_entries() {
    two_hundred_thousand_entries(&["-b", "4096"]);
}

#[test]
fn a_directory_of_two_hundred_thousand_entries_with_a_deep_index() {
    two_hundred_thousand_entries(&["-b", "1024", "-O", "large_dir"]);
}

#[test]
fn an_image_copied_while_mounted_shows_what_its_journal_says() {
    if !can_mount() {
        return;
    }
    for options in [&["-t", "ext4"][..], &["-t", "ext3"], &["-t", "ext4", "-b", "1024", "-O", "^64bit"]] {
        let image = Image::new(64, options);
        let copies = ["first.img", "second.img"].map(|name| image.dir.path().join(name));
        {
            // syncfs commits the journal; checkpoints come much later.
            let mount = image.mount("rw,commit=300").unwrap();
            population::many_files(&mount.at, 300);
            common::tool("sync", ["-f".as_ref(), mount.at.as_os_str()]);
            for n in 0..100 {
                fs::rename(mount.at.join(format!("d{}/f{n}", n / 50)), mount.at.join(format!("renamed-{n}")))
                    .unwrap();
                fs::write(mount.at.join(format!("late-{n}")), format!("{n}")).unwrap();
            }
            fs::remove_dir_all(mount.at.join("d3")).unwrap();
            fs::File::open(mount.at.join("late-99")).unwrap().sync_all().unwrap();
            for copy in &copies {
                fs::copy(&image.file, copy).unwrap();
            }
        }
        let [ours, theirs] = copies;
        let info = common::dentree(["info".as_ref(), ours.as_os_str()]);
        assert!(common::text(&info.stdout).contains("needs recovery"));
        assert!(common::text(&info.stderr).contains("replayed in memory"));
        let before = fs::read(&ours).unwrap();
        let shown = common::dentree(["checksum".as_ref(), ours.as_os_str()]).stdout;
        let mount = Mount::new(&theirs, image.dir.path().join("replayed"), "rw").unwrap();
        assert_same_lines(&shown, &succeeds(["checksum".as_ref(), mount.at.as_os_str()]));
        assert!(fs::read(&ours).unwrap() == before, "the image was changed");
        let names: HashSet<String> =
            common::text(&shown).lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect();
        assert!(names.contains("./late-99") && !names.contains("./d3"));
    }
}
