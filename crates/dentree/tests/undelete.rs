//! Files that the kernel and we have deleted come back.

mod common;

use common::{Image, can_mount, dentree, succeeds, text};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, RngExt, SeedableRng};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

fn content(rng: &mut Xoshiro256PlusPlus, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    rng.fill_bytes(&mut bytes);
    bytes
}

/// Makes files of many lengths in some directories. Returns their contents by path.
fn fill(root: &Path, rng: &mut Xoshiro256PlusPlus) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut made = BTreeMap::new();
    for dir in ["", "a", "a/b", "c"] {
        fs::create_dir_all(root.join(dir)).unwrap();
        for n in 0..12 {
            let path = Path::new(dir).join(format!("file-{n}"));
            let len = [0, 1, 100, 4096, 20_000, 300_000][rng.random_range(0..6)];
            let bytes = content(rng, len);
            fs::write(root.join(&path), &bytes).unwrap();
            made.insert(path, bytes);
        }
    }
    sync(root);
    made
}

fn sync(root: &Path) {
    rustix::fs::syncfs(File::open(root).unwrap()).unwrap();
}

/// Brings back everything below `out`. Returns the listing.
fn undelete(image: &Image, out: &Path) -> String {
    let listed = text(&succeeds(["undelete".as_ref(), image.file.as_os_str()]));
    let words =
        ["undelete".as_ref(), image.file.as_os_str(), "--all".as_ref(), "-o".as_ref(), out.as_os_str()];
    succeeds(words);
    listed
}

#[test]
fn removed_files_come_back_with_their_names_and_contents() {
    if !can_mount() {
        return;
    }
    for options in [
        &["-t", "ext4"][..],
        &["-t", "ext4", "-b", "1024"],
        &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"],
        &["-t", "ext3", "-b", "1024"],
        &["-t", "ext2"],
        &["-t", "ext4", "-O", "inline_data", "-I", "256"],
    ] {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
        let image = Image::new(64, options);
        let mount = image.mount("rw").unwrap();
        let made = fill(&mount.at, &mut rng);
        let (kept, gone): (BTreeMap<_, _>, BTreeMap<_, _>) =
            made.into_iter().partition(|_| rng.random_bool(0.5));
        for (n, path) in gone.keys().enumerate() {
            fs::remove_file(mount.at.join(path)).unwrap();
            if n % 7 == 0 {
                sync(&mount.at);
            }
        }
        drop(mount);
        let out = image.dir.path().join("out");
        let listed = undelete(&image, &out);
        let filled: Vec<_> = gone.iter().filter(|(_, bytes)| !bytes.is_empty()).collect();
        let back = filled
            .iter()
            .filter(|(path, bytes)| fs::read(out.join(path)).is_ok_and(|found| found == **bytes));
        let back = back.count();
        println!("{options:?}: {back} of {} files are back", filled.len());
        // Without a journal the kernel leaves no trace of the block map.
        let least = if options.contains(&"ext2") { 0 } else { filled.len() * 9 / 10 };
        assert!(back >= least, "{options:?}: {back} of {}\n{listed}", filled.len());
        for path in kept.keys() {
            assert!(!out.join(path).exists(), "{} was never deleted", path.display());
        }
        common::assert_clean(&image.file);
    }
}

#[test]
fn one_file_comes_back_by_path_and_by_inode_and_what_is_reused_is_said() {
    if !can_mount() {
        return;
    }
    let image = Image::new(16, &["-t", "ext4", "-b", "1024"]);
    let mount = image.mount("rw").unwrap();
    fs::create_dir(mount.at.join("dir")).unwrap();
    fs::write(mount.at.join("dir/letter"), vec![b'l'; 5000]).unwrap();
    fs::write(mount.at.join("dir/overwritten"), vec![b'o'; 3 << 20]).unwrap();
    sync(&mount.at);
    fs::remove_file(mount.at.join("dir/letter")).unwrap();
    fs::remove_file(mount.at.join("dir/overwritten")).unwrap();
    sync(&mount.at);
    drop(mount);
    let copy = image.dir.path().join("letter");
    let words =
        |what: String, to: &Path| ["undelete".into(), what.into(), "-o".into(), to.as_os_str().to_owned()];
    succeeds(words(image.at("/dir/letter"), &copy));
    assert!(fs::read(&copy).unwrap() == vec![b'l'; 5000]);
    let refused = dentree(words(image.at("/dir/letter"), &copy));
    assert!(text(&refused.stderr).contains("File exists"), "{}", text(&refused.stderr));
    let refused = dentree(words(image.at("/dir/none"), &copy));
    assert!(text(&refused.stderr).contains("no deleted file of this name"));
    let listed = text(&succeeds(["undelete", "--json", image.file.to_str().unwrap()]));
    assert!(listed.contains("\"path\":\"/dir/letter\""), "{listed}");
    let ino: u32 = listed
        .lines()
        .find(|line| line.contains("/dir/letter"))
        .and_then(|line| line.split("\"inode\":").nth(1)?.split(',').next()?.parse().ok())
        .unwrap();
    fs::remove_file(&copy).unwrap();
    succeeds(words(format!("{}:<{ino}>", image.file.display()), &copy));
    assert!(fs::read(&copy).unwrap() == vec![b'l'; 5000]);
    // A file that takes all blocks.
    let mount = image.mount("rw").unwrap();
    let mut all = File::create(mount.at.join("all")).unwrap();
    while std::io::Write::write_all(&mut all, &[b'n'; 65_536]).is_ok() {}
    drop(all);
    drop(mount);
    let output = dentree(words(image.at("/dir/overwritten"), &image.dir.path().join("overwritten")));
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("used again"), "{said}");
}

/// A way in which files are lost.
type Loss = fn(&Image, &[PathBuf]);

fn with_mount(image: &Image, work: impl FnOnce(&Path)) {
    let mount = image.mount("rw").unwrap();
    work(&mount.at);
    sync(&mount.at);
}

fn remove(image: &Image, paths: &[PathBuf]) {
    with_mount(image, |root| paths.iter().for_each(|path| fs::remove_file(root.join(path)).unwrap()));
}

fn replace(image: &Image, paths: &[PathBuf]) {
    with_mount(image, |root| {
        for path in paths {
            fs::write(root.join("new"), "new").unwrap();
            fs::rename(root.join("new"), root.join(path)).unwrap();
        }
    });
}

fn move_and_remove(image: &Image, paths: &[PathBuf]) {
    with_mount(image, |root| {
        for (n, path) in paths.iter().enumerate() {
            fs::rename(root.join(path), root.join(format!("c/moved-{n}"))).unwrap();
        }
        sync(root);
        (0..paths.len()).for_each(|n| fs::remove_file(root.join(format!("c/moved-{n}"))).unwrap());
    });
}

/// Writes so many percent of the space behind the removal.
fn write_on(image: &Image, percent: usize) {
    with_mount(image, |root| {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(99);
        for n in 0..percent {
            fs::write(root.join(format!("later-{n}")), content(&mut rng, 48 << 14)).unwrap();
        }
    });
}

const LOSSES: [(&str, Loss); 6] = [
    ("rm", remove),
    ("rename over", replace),
    ("mv, then rm", move_and_remove),
    ("rm, then 1% written", |image, paths| {
        remove(image, paths);
        write_on(image, 1);
    }),
    ("rm, then 10% written", |image, paths| {
        remove(image, paths);
        write_on(image, 7);
    }),
    ("rm, then 50% written", |image, paths| {
        remove(image, paths);
        write_on(image, 34);
    }),
];

/// The contents of all files below a directory that are not empty.
fn contents(dir: &Path) -> Vec<Vec<u8>> {
    let found = common::tool("find", [dir.to_str().unwrap(), "-type", "f", "-size", "+0", "-print0"]);
    let paths = found.split(|byte| *byte == 0).filter(|path| !path.is_empty());
    paths.map(|path| fs::read(std::ffi::OsStr::from_bytes(path)).unwrap()).collect()
}

/// Runs a tool that brings back what it can; `None` where it is not installed.
fn rival(tool: &str, image: &Image, out: &Path) -> Option<Vec<Vec<u8>>> {
    fs::create_dir(out).unwrap();
    let mut command = Command::new(tool);
    command.current_dir(out).env("PATH", format!("{}:/usr/sbin", std::env::var("PATH").unwrap()));
    match tool {
        "extundelete" => command.arg("--restore-all").arg(&image.file),
        "ext4magic" => command.arg(&image.file).args(["-R", "-d"]).arg(out),
        _ => command.arg(&image.file).arg(out),
    };
    match command.output() {
        Ok(_) => Some(contents(out)),
        Err(_) => {
            println!("skipped: {tool} is not installed");
            None
        }
    }
}

#[test]
fn more_comes_back_than_by_the_tools_that_people_use() {
    if !can_mount() {
        return;
    }
    for (what, lose) in LOSSES {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(11);
        let image = Image::new(64, &["-t", "ext4", "-b", "4096"]);
        let mount = image.mount("rw").unwrap();
        let made = fill(&mount.at, &mut rng);
        drop(mount);
        let lost: Vec<PathBuf> = made
            .iter()
            .filter(|(path, bytes)| !bytes.is_empty() && !path.starts_with("c"))
            .map(|(path, _)| path.clone())
            .collect();
        lose(&image, &lost);
        let is_back = |found: &[Vec<u8>]| lost.iter().filter(|path| found.contains(&made[*path])).count();
        let out = image.dir.path().join("ours");
        undelete(&image, &out);
        let found = contents(&out);
        let ours = is_back(&found);
        let wrong =
            found.iter().filter(|bytes| !made.values().any(|made| made == *bytes) && bytes.len() > 3).count();
        let mut line = format!("{what}: {} lost, {ours} are back, {wrong} others", lost.len());
        for tool in ["extundelete", "ext4magic", "tsk_recover"] {
            if let Some(found) = rival(tool, &image, &image.dir.path().join(tool)) {
                let theirs = is_back(&found);
                line += &format!("; {tool} {theirs}");
                assert!(ours >= theirs, "{line}");
            }
        }
        println!("{line}");
        assert!(wrong <= lost.len() / 20, "{line}");
    }
}

#[test]
fn a_truncated_file_comes_back_as_it_was_before() {
    if !can_mount() {
        return;
    }
    let image = Image::new(32, &["-t", "ext4", "-b", "1024"]);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
    let (emptied, halved) = (content(&mut rng, 90_000), content(&mut rng, 81_920));
    let mount = image.mount("rw").unwrap();
    fs::create_dir(mount.at.join("dir")).unwrap();
    fs::write(mount.at.join("dir/emptied"), &emptied).unwrap();
    fs::write(mount.at.join("dir/halved"), &halved).unwrap();
    sync(&mount.at);
    File::create(mount.at.join("dir/emptied")).unwrap();
    File::options().write(true).open(mount.at.join("dir/halved")).unwrap().set_len(40_960).unwrap();
    sync(&mount.at);
    drop(mount);
    let listed = text(&succeeds(["undelete".as_ref(), image.file.as_os_str()]));
    for (name, before) in [("emptied", &emptied), ("halved", &halved)] {
        let line = listed.lines().find(|line| line.contains(&format!("/dir/{name} (truncated)")));
        assert!(line.is_some_and(|line| line.starts_with("free\t")), "{listed}");
        let out = image.dir.path().join(name);
        let what = image.at(&format!("/dir/{name}"));
        succeeds(["undelete".as_ref(), what.as_ref(), "-o".as_ref(), out.as_os_str()]);
        assert!(fs::read(&out).unwrap() == *before, "{name}");
    }
}

#[test]
fn removed_names_are_listed_with_what_is_left_of_their_files() {
    if !can_mount() {
        return;
    }
    let image = Image::new(32, &["-t", "ext4", "-b", "1024"]);
    let mount = image.mount("rw").unwrap();
    let dir = mount.at.join("dir");
    fs::create_dir(&dir).unwrap();
    for name in ["kept", "removed", "moved"] {
        fs::write(dir.join(name), vec![b'x'; 3000]).unwrap();
    }
    sync(&mount.at);
    fs::remove_file(dir.join("removed")).unwrap();
    fs::rename(dir.join("moved"), mount.at.join("elsewhere")).unwrap();
    drop(mount);
    let listed = text(&succeeds(["ls", "--deleted", &image.at("/dir")]));
    let line = |name: &str| listed.lines().find(|line| line.ends_with(&format!("\t{name}"))).unwrap_or("");
    assert!(line("removed").starts_with("free\t") && line("removed").contains("\t3000\t"), "{listed}");
    assert!(line("moved").starts_with("in use\t"), "{listed}");
    assert_eq!(line("kept"), "", "{listed}");
    let json = text(&succeeds(["ls", "--deleted", "--json", &image.at("/dir")]));
    assert!(json.contains("\"path\":\"/dir/removed\"") && json.contains("\"state\":\"free\""), "{json}");
}

#[test]
fn what_we_removed_ourselves_comes_back_with_its_content_or_not_at_all() {
    const HOLES: usize = 9999;
    for options in [
        &["-t", "ext4"][..],
        &["-t", "ext3", "-b", "1024"],
        &["-t", "ext4", "-O", "^has_journal"],
        &["-t", "ext2"],
        &["-t", "ext4", "-O", "inline_data", "-I", "256"],
    ] {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(11);
        let image = Image::new(64, options);
        let tree = image.dir.path().join("tree");
        fs::create_dir(&tree).unwrap();
        let made = fill(&tree, &mut rng);
        // One file of holes alone.
        File::create(tree.join("holes")).unwrap().set_len(HOLES as u64).unwrap();
        succeeds(["cp".as_ref(), "-aT".as_ref(), tree.as_os_str(), image.at("/").as_ref()]);
        for path in made.keys().map(PathBuf::as_path).chain([Path::new("holes")]) {
            succeeds(["rm", &image.at(&format!("/{}", path.display()))]);
        }
        let out = image.dir.path().join("out");
        undelete(&image, &out);
        // Without a journal nothing may come back.
        fs::create_dir_all(&out).unwrap();
        let mut contained: Vec<Vec<u8>> = made.into_values().collect();
        contained.push(vec![0; HOLES]);
        let back = contents(&out);
        assert!(back.iter().all(|bytes| contained.contains(bytes)), "{options:?}");
        assert!(back.len() > 10 || !has_journal(options), "{options:?}: {}", back.len());
    }
}

fn has_journal(options: &[&str]) -> bool {
    !options.contains(&"ext2") && !options.contains(&"^has_journal")
}
