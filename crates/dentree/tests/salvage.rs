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
