//! `dentree diff`, against diff(1) on the kernel's mounts of the same images.

mod common;

use common::{Image, can_mount, dentree, succeeds, text, tool};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A copy of the image as it is now.
fn copy(image: &Image) -> Image {
    let copy = Image::new(64, &["-t", "ext4"]);
    fs::copy(&image.file, &copy.file).unwrap();
    copy
}

fn change(image: &Image, change: impl FnOnce(&Path)) {
    let mount = image.mount("rw").unwrap();
    change(&mount.at);
}

fn diff(old: &Image, new: &Image, options: &[&str]) -> Output {
    dentree(["diff"].iter().chain(options).copied().chain([&*old.at("/"), &*new.at("/")]))
}

fn lines(output: &Output) -> Vec<String> {
    assert_eq!(text(&output.stderr), "");
    text(&output.stdout).lines().map(str::to_owned).collect()
}

/// Files, directories and links of few names, at random.
fn grow(root: &Path, random: &mut Xoshiro256PlusPlus, steps: usize) {
    let found = text(&tool("find", [root.to_str().unwrap(), "-type", "d"]));
    let mut dirs: Vec<PathBuf> = found.lines().map(PathBuf::from).collect();
    for _ in 0..steps {
        let at = dirs[random.random_range(0..dirs.len())].join(format!("n{}", random.random_range(0..12)));
        if at.symlink_metadata().is_ok() {
            match random.random_range(0..4) {
                0 if !at.is_dir() || at.is_symlink() => fs::remove_file(&at).unwrap(),
                1 if at.is_dir() && !at.is_symlink() && at.read_dir().unwrap().count() < 3 => {
                    fs::remove_dir_all(&at).unwrap();
                    dirs.retain(|dir| !dir.starts_with(&at));
                }
                2 if at.is_file() && !at.is_symlink() => {
                    let content = vec![random.random_range(0..3); random.random_range(0..9000)];
                    fs::write(&at, content).unwrap();
                }
                _ => fs::set_permissions(&at, fs::Permissions::from_mode(0o700)).unwrap_or_default(),
            }
            continue;
        }
        match random.random_range(0..6) {
            0 => symlink(format!("target {}", random.random_range(0..3)), &at).unwrap(),
            1 | 2 => {
                fs::create_dir(&at).unwrap();
                dirs.push(at);
            }
            _ => fs::write(&at, vec![random.random_range(0..3); random.random_range(0..9000)]).unwrap(),
        }
    }
}

/// What diff(1) says of two trees, as our letters and paths.
fn by_diff(old: &Path, new: &Path) -> BTreeSet<(char, String)> {
    let output = Command::new("diff")
        .args(["-rq", "--no-dereference"])
        .args([old, new])
        .env("LC_ALL", "C")
        .output()
        .unwrap();
    let (old, new) = (old.to_str().unwrap(), new.to_str().unwrap());
    let below = |path: &str, root: &str| format!(".{}", path.strip_prefix(root).unwrap());
    let said = text(&output.stdout);
    said.lines()
        .map(|line| {
            if let Some(only) = line.strip_prefix("Only in ") {
                let (dir, name) = only.split_once(": ").unwrap();
                let letter = if dir.starts_with(old) { 'D' } else { 'A' };
                let root = if letter == 'D' { old } else { new };
                return (letter, format!("{}/{name}", below(dir, root)));
            }
            let at = line.find(old).unwrap_or_else(|| panic!("{line}"));
            ('M', below(line[at..].split(' ').next().unwrap(), old))
        })
        .collect()
}

#[test]
fn what_differs_is_what_diff_of_the_system_finds() {
    if !can_mount() {
        return;
    }
    for seed in 0..4 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let old = Image::filled(&["-t", "ext4"], |root| grow(root, &mut random, 500));
        let new = copy(&old);
        change(&new, |root| grow(root, &mut random, 300));
        // Another file system: all is compared, and nothing moves.
        tool("e2fsck", ["-fp", new.file.to_str().unwrap()]);
        tool("tune2fs", ["-U", "random", new.file.to_str().unwrap()]);
        let output = diff(&old, &new, &[]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let mut ours = BTreeSet::new();
        let mut tops: Vec<(char, String)> = Vec::new();
        for line in lines(&output) {
            let fields: Vec<&str> = line.split('\t').collect();
            let (letter, path) = (fields[0].chars().next().unwrap(), fields[1].to_owned());
            // diff(1) compares no modes and owners, and names the top of what one tree has alone.
            let is_content = |what: &str| ["type", "content", "target"].contains(&what);
            let is_below =
                |(top, dir): &(char, String)| *top == letter && path.starts_with(&format!("{dir}/"));
            match letter {
                'M' if !fields[2].split(',').any(is_content) => continue,
                'M' => {}
                _ if tops.iter().any(is_below) => continue,
                _ => tops.push((letter, path.clone())),
            }
            ours.insert((letter, path));
        }
        let (old, new) = (old.mount("ro").unwrap(), new.mount("ro").unwrap());
        let theirs = by_diff(&old.at, &new.at);
        // Of a directory that became a file, or a file that became one, diff(1) names no contents.
        let is_type = |path: &str| theirs.contains(&('M', path.to_owned()));
        ours.retain(|(_, path)| {
            !Path::new(path).ancestors().skip(1).any(|above| is_type(above.to_str().unwrap()))
        });
        assert!(theirs.len() > 20, "{theirs:?}");
        assert_eq!(ours, theirs, "seed {seed}");
    }
}

#[test]
fn in_two_states_of_a_file_system_moves_are_found() {
    if !can_mount() {
        return;
    }
    let old = Image::filled(&["-t", "ext4"], |root| {
        let at = |name: &str| root.join(name);
        fs::create_dir_all(at("dir/below")).unwrap();
        for name in ["dir/a", "dir/b", "dir/below/c", "file", "gone", "mode", "same", "same-size", "x"] {
            fs::write(at(name), name).unwrap();
        }
        fs::hard_link(at("same"), at("same-too")).unwrap();
    });
    let new = copy(&old);
    change(&new, |root| {
        let at = |name: &str| root.join(name);
        fs::rename(at("file"), at("dir/below/file")).unwrap();
        fs::rename(at("dir"), at("moved")).unwrap();
        fs::write(at("moved/b"), "other").unwrap();
        fs::remove_file(at("gone")).unwrap();
        fs::set_permissions(at("mode"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(at("new"), "").unwrap();
        fs::rename(at("same-too"), at("same-three")).unwrap();
        fs::write(at("same-size"), "some-size").unwrap();
        fs::write(at("x.tmp"), "x").unwrap();
        fs::rename(at("x.tmp"), at("x")).unwrap();
    });
    let output = diff(&old, &new, &[]);
    let expected = [
        "D\t./gone",
        "M\t./mode\tmode",
        "R\t./dir\t./moved",
        "M\t./moved/b\tcontent",
        "R\t./file\t./moved/below/file",
        "A\t./new",
        "M\t./same-size\tcontent",
        "R\t./same-too\t./same-three",
    ];
    assert_eq!((output.status.code(), lines(&output)), (Some(1), expected.map(str::to_owned).to_vec()));
    let json = text(&diff(&old, &new, &["--json"]).stdout);
    assert!(
        json.contains(r#"{"change":"moved","path":"./moved/below/file","from":{"path":"./file"}}"#),
        "{json}"
    );
    assert!(json.contains(r#"{"change":"changed","path":"./moved/b","what":["content"]}"#), "{json}");
}

#[test]
fn of_what_did_not_change_metadata_alone_is_read() {
    if !can_mount() {
        return;
    }
    let old = Image::filled(&["-t", "ext4"], |root| {
        fs::write(root.join("large"), vec![7; 30 << 20]).unwrap();
    });
    let new = copy(&old);
    change(&new, |root| fs::write(root.join("new"), "x").unwrap());
    let output = dentree(["--stats", "diff", &old.at("/"), &new.at("/")]);
    assert_eq!(text(&output.stdout), "A\t./new\n");
    let stats = text(&output.stderr);
    let reads: Vec<&str> = stats.lines().filter(|line| line.trim_start().starts_with("device")).collect();
    assert_eq!(reads.len(), 2, "{stats}");
    assert!(reads.iter().all(|line| line.contains("K in all")), "{stats}");
}

#[test]
fn an_image_is_compared_with_the_directory_that_it_was_made_of() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, image) = (folder.path().join("dir"), folder.path().join("image"));
    fs::create_dir_all(dir.join("etc")).unwrap();
    fs::write(dir.join("etc/hosts"), "localhost").unwrap();
    symlink("etc/hosts", dir.join("link")).unwrap();
    let [dir, image] = [&dir, &image].map(|path| path.to_str().unwrap());
    succeeds(["mkfs", "-q", "--from", dir, image]);
    succeeds(["rm", "-rf", &format!("{image}:/lost+found")]);
    let same = dentree(["diff", dir, image]);
    assert_eq!((same.status.code(), text(&same.stdout), text(&same.stderr)), (Some(0), "".into(), "".into()));
    // Times do not count, unless contents are not to be read.
    tool("touch", ["-d", "2001-01-01", &format!("{dir}/etc/hosts")]);
    assert_eq!(dentree(["diff", image, dir]).status.code(), Some(0));
    let quick = dentree(["diff", "--quick", image, dir]);
    assert_eq!((quick.status.code(), text(&quick.stdout)), (Some(1), "M\t./etc/hosts\tcontent\n".into()));
    fs::write(format!("{dir}/etc/hosts"), "LOCALHOST").unwrap();
    fs::write(format!("{dir}/etc/a\tb\u{1}"), "").unwrap();
    let output = dentree(["diff", image, dir]);
    assert_eq!(lines(&output), ["A\t./etc/a\\tb\\x01", "M\t./etc/hosts\tcontent"]);
}

#[test]
fn trouble_is_told_from_differences() {
    let image = Image::new(8, &["-t", "ext4"]);
    let folder = tempfile::tempdir().unwrap();
    let zeros = folder.path().join("zeros");
    fs::write(&zeros, vec![0; 1 << 20]).unwrap();
    let missing = folder.path().join("missing");
    let others = [(zeros.to_str().unwrap(), 4), (missing.to_str().unwrap(), 2), (&image.at("/no"), 2)];
    for (other, status) in others {
        let output = dentree(["diff", &image.at("/"), other]);
        assert_eq!(output.status.code(), Some(status), "{output:?}");
        assert!(!output.stderr.is_empty(), "{other}");
    }
    assert_eq!(dentree(["diff", &image.at("/"), &image.at("/")]).status.code(), Some(0));
}
