//! Questions about blocks, answered as filefrag, e2freefrag, debugfs and blkls answer them.

mod common;
mod population;

use common::{Image, can_mount, dentree, succeeds, text, tool};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

const KINDS: [&[&str]; 5] = [
    &["-t", "ext4"],
    &["-t", "ext4", "-b", "1024"],
    &["-t", "ext2", "-b", "1024"],
    &["-t", "ext4", "-O", "inline_data"],
    &["-t", "ext4", "-b", "1024", "-O", "bigalloc,^resize_inode", "-C", "8192"],
];

/// Files in pieces, with holes, never written, in inodes, long and short.
fn fill(root: &Path) {
    population::small(root);
    let [one, other] = ["one", "other"].map(|name| File::create(root.join(name)).unwrap());
    for n in 0..40_u64 {
        one.write_all_at(&[1; 20_000], n * 20_000).unwrap();
        one.sync_data().unwrap();
        other.write_all_at(&[2; 9_000], n * 30_000).unwrap();
        other.sync_data().unwrap();
    }
    File::create(root.join("hole")).unwrap().set_len(3 << 30).unwrap();
    rustix::fs::fsync(File::open(root).unwrap()).unwrap();
}

fn files(mount: &Path) -> Vec<PathBuf> {
    let found = tool("find", [mount.to_str().unwrap(), "-type", "f", "-not", "-path", "*/many/*", "-print0"]);
    text(&found).split_terminator('\0').map(PathBuf::from).collect()
}

#[test]
fn extents_are_those_of_filefrag() {
    if !can_mount() {
        return;
    }
    for options in KINDS {
        let image = Image::filled(options, fill);
        let mount = image.mount("ro").unwrap();
        let mut compared = 0;
        for file in files(&mount.at) {
            let Some(name) = file.to_str().filter(|name| name.is_ascii() && !name.contains(['\n', '\\']))
            else {
                continue;
            };
            let theirs = text(&tool("filefrag", ["-v", name])).replace(name, "NAME");
            // Its comma stands there also where eof is the only flag.
            let theirs = theirs[theirs.find("File size").unwrap()..].replace(" ,eof", "  eof");
            let at = image.at(name.strip_prefix(mount.at.to_str().unwrap()).unwrap());
            let ours = text(&succeeds(["blocks", &at])).replace(&at, "NAME");
            common::assert_same_lines(ours.as_bytes(), theirs.as_bytes());
            compared += 1;
        }
        assert!(compared > 30, "{compared}");
    }
}

#[test]
fn free_space_is_that_of_e2freefrag_and_dumpe2fs() {
    if !can_mount() {
        return;
    }
    for options in KINDS {
        let image = Image::filled(options, fill);
        let file = image.file.to_str().unwrap();
        // It takes bits of clusters for bits of blocks.
        if !options.contains(&"-C") {
            let theirs = text(&tool("e2freefrag", [file]));
            let ours = text(&succeeds(["frag", file]));
            let ours = ours.split("\nFiles with blocks").next().unwrap();
            assert_eq!(ours.trim_end(), theirs.trim_end(), "{options:?}");
        }
        let ours: u64 = text(&succeeds(["free", file]))
            .lines()
            .map(|line| line.rsplit('\t').next().unwrap().parse::<u64>().unwrap())
            .sum();
        let dump = text(&tool("dumpe2fs", ["-h", file]));
        let line = dump.lines().find_map(|line| line.strip_prefix("Free blocks:")).unwrap();
        assert_eq!(ours.to_string(), line.trim(), "{options:?}");
    }
}

#[test]
fn a_dump_of_free_blocks_is_that_of_blkls() {
    if !can_mount() || Command::new("blkls").arg("-V").output().is_err() {
        println!("skipped: needs blkls");
        return;
    }
    // blkls takes groups without a written bitmap for empty.
    let plain = ["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^uninit_bg,^resize_inode"];
    let image = Image::filled(&plain, |root| {
        fs::write(root.join("removed"), vec![b'r'; 300_000]).unwrap();
        rustix::fs::fsync(File::open(root.join("removed")).unwrap()).unwrap();
        fs::remove_file(root.join("removed")).unwrap();
    });
    let ours = succeeds(["free".as_ref(), "--dump".as_ref(), image.file.as_os_str()]);
    let theirs = tool("blkls", [image.file.as_os_str()]);
    assert!(ours == theirs, "{} bytes, {} of blkls", ours.len(), theirs.len());
    assert!(ours.windows(1000).any(|window| window.iter().all(|byte| *byte == b'r')));
}

/// The second column of debugfs's answers.
fn debugfs(image: &Image, request: &str) -> Vec<(u64, String)> {
    let answer = text(&tool("debugfs", ["-R", request, image.file.to_str().unwrap()]));
    let rows = answer.lines().skip(1).filter_map(|line| line.split_once('\t'));
    rows.map(|(key, value)| (key.parse().unwrap(), value.to_owned())).collect()
}

#[test]
fn blocks_and_inodes_belong_to_what_debugfs_says() {
    if !can_mount() {
        return;
    }
    for options in KINDS {
        let image = Image::filled(options, fill);
        let mount = image.mount("ro").unwrap();
        let blocks: Vec<String> = (1..60).map(|n: u64| (n * 137).to_string()).collect();
        let mut words = vec!["which".to_owned(), image.file.display().to_string()];
        words.extend(blocks.iter().flat_map(|block| ["--block".to_owned(), block.clone()]));
        let ours = text(&succeeds(words));
        for (block, theirs) in debugfs(&image, &format!("icheck {}", blocks.join(" "))) {
            let lines: Vec<Vec<&str>> = ours
                .lines()
                .map(|line| line.split('\t').collect())
                .filter(|line: &Vec<_>| line[0] == block.to_string())
                .collect();
            assert!(!lines.is_empty(), "{block}");
            let inode = lines.iter().find_map(|line| line[1].parse::<u32>().ok());
            let theirs = theirs.parse::<u32>().ok();
            assert_eq!(inode, theirs, "{options:?} block {block}: {lines:?}");
        }
        let ino = fs::metadata(mount.at.join("links/one")).unwrap().ino();
        let ours = text(&succeeds(["which", image.file.to_str().unwrap(), "--inode", &ino.to_string()]));
        let mut names: Vec<&str> = ours.lines().map(|line| line.split_once('\t').unwrap().1).collect();
        let found = text(&tool("find", [mount.at.to_str().unwrap(), "-inum", &ino.to_string()]));
        let mut theirs: Vec<&str> =
            found.lines().map(|line| line.strip_prefix(mount.at.to_str().unwrap()).unwrap()).collect();
        names.sort_unstable();
        theirs.sort_unstable();
        assert_eq!(names, theirs);
        assert!(names.len() > 10);
    }
}

#[test]
fn what_is_no_block_or_inode_is_refused() {
    let image = Image::new(8, &["-t", "ext4"]);
    let which = |words: [&str; 2]| {
        let output =
            dentree(["which".as_ref(), image.file.as_os_str(), words[0].as_ref(), words[1].as_ref()]);
        (output.status.code(), text(&output.stderr))
    };
    let (code, said) = which(["--block", "999999"]);
    assert!(code == Some(2) && said.contains("blocks are 0 to"), "{said}");
    let (code, said) = which(["--inode", "999999"]);
    assert!(code == Some(2) && said.contains("inodes are 1 to"), "{said}");
    let (code, said) = which(["--inode", "900"]);
    assert!(code == Some(1) && said.contains("has no name"), "{said}");
}
