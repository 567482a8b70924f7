//! `--files-from` of `checksum` and `cp`; `commands.rs` tests that of `stat` and `cat`.

mod common;

use common::{Image, assert_clean, can_mount, dentree, succeeds, text};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn fill(root: &Path) {
    fs::create_dir_all(root.join("etc/conf.d")).unwrap();
    fs::create_dir(root.join("etc/conf-x")).unwrap();
    fs::write(root.join("etc/hosts"), "127.0.0.1 localhost\n").unwrap();
    fs::write(root.join("etc/conf.d/a b"), vec![b'x'; 5000]).unwrap();
    fs::hard_link(root.join("etc/hosts"), root.join("hard")).unwrap();
    symlink("/etc", root.join("link")).unwrap();
    symlink("hosts", root.join("etc/to-hosts")).unwrap();
    fs::set_permissions(root.join("etc/conf.d"), fs::Permissions::from_mode(0o2751)).unwrap();
    rustix::fs::chown(root.join("etc"), Some(rustix::fs::Uid::from_raw(12)), None).unwrap();
    // More paths than a batch.
    fs::create_dir(root.join("many")).unwrap();
    for n in 0..600 {
        fs::write(root.join(format!("many/{n}")), n.to_string()).unwrap();
    }
}

/// One tree in an image and in a directory, a list of all its paths, and scratch space.
struct Trees {
    image: Image,
    local: TempDir,
    list: PathBuf,
    dir: TempDir,
}

fn trees() -> Option<Trees> {
    can_mount().then(|| {
        let [local, dir] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        fill(local.path());
        let image = Image::filled(&["-t", "ext4"], |root| {
            common::tool("cp", [Path::new("-a"), &local.path().join("."), root]);
        });
        let list = dir.path().join("list");
        fs::write(&list, succeeds(["find", &image.at("/"), "-print0"])).unwrap();
        Trees { image, local, list, dir }
    })
}

impl Trees {
    /// Options for the list.
    fn all(&self) -> [&str; 3] {
        ["--null", "--files-from", self.list.to_str().unwrap()]
    }

    /// Options for another list, of lines.
    fn lines(&self, lines: &str) -> [String; 2] {
        let list = self.dir.path().join("lines");
        fs::write(&list, lines).unwrap();
        ["--files-from".into(), list.to_str().unwrap().into()]
    }

    fn target(&self) -> PathBuf {
        let target = self.dir.path().join("target");
        fs::create_dir(&target).unwrap();
        target
    }
}

/// Checksum lines, sorted, without the root.
fn checksums(args: &[&str], tree: &str) -> Vec<String> {
    let printed = text(&succeeds([&["checksum"], args, &[tree]].concat()));
    let mut lines: Vec<String> = printed.lines().map(str::to_owned).collect();
    lines.retain(|line| !line.starts_with(".\t") && !line.starts_with("./lost+found\t"));
    lines.sort_unstable();
    lines
}

#[test]
fn checksums_of_listed_paths_are_those_of_the_tree() {
    let Some(trees) = trees() else { return };
    let local = trees.local.path().to_str().unwrap();
    let whole = checksums(&[], local);
    assert!(whole.len() > 600);
    assert_eq!(checksums(&trees.all(), &trees.image.at("/")), whole);
    fs::create_dir(trees.local.path().join("lost+found")).unwrap();
    assert_eq!(checksums(&trees.all(), local), whole);

    // In the order of the list; directories without contents; links in the middle resolve in the
    // tree.
    let lines = trees.lines("etc/to-hosts\nnone\netc//conf.d/.\nlink/hosts\n");
    let names = ["./etc/to-hosts", "./etc/conf.d", "./link/hosts"];
    for tree in [local, &trees.image.at("/")] {
        let output = dentree(["checksum", &lines[0], &lines[1], tree]);
        let printed = text(&output.stdout);
        let found: Vec<&str> = printed.lines().map(|line| line.split('\t').next().unwrap()).collect();
        assert_eq!(found, names, "{tree}");
        assert!(text(&output.stderr).contains("/none: ") && output.status.code() == Some(1));
    }
}

#[test]
fn a_listed_tree_is_copied_out_and_in_as_a_whole() {
    let Some(trees) = trees() else { return };
    let local = trees.local.path().to_str().unwrap();
    let whole = checksums(&[], local);
    let target = trees.target();
    let [null, option, list] = trees.all();
    let args = ["cp", "-a", null, option, list];
    succeeds([&args[..], &[&trees.image.at("/"), target.to_str().unwrap()]].concat());
    assert_eq!(checksums(&[], target.to_str().unwrap()), whole);

    fs::create_dir(trees.local.path().join("lost+found")).unwrap();
    let other = Image::new(64, &["-t", "ext4"]);
    succeeds(["mkdir", &other.at("/in")]);
    succeeds([&args[..], &[local, &other.at("/in")]].concat());
    assert_eq!(checksums(&[], &other.at("/in")), whole);
    assert_clean(&other.file);
}

#[test]
fn only_listed_paths_are_copied_each_once_with_the_directories_above_them() {
    let Some(trees) = trees() else { return };
    let target = trees.target();
    let other = Image::new(64, &["-t", "ext4"]);
    let [option, list] =
        trees.lines("etc/conf.d/a b\nnone\n./etc//conf.d/a b\n../hard\nlink/hosts\netc/conf-x\n");
    let expected = "etc\netc/conf-x\netc/conf.d\netc/conf.d/a b\nlink\nlink/hosts\n";
    let out = [&*option, &list, &trees.image.at("/"), target.to_str().unwrap()];
    // An absolute link leads out of a local tree here.
    fs::remove_file(trees.local.path().join("link")).unwrap();
    symlink("etc", trees.local.path().join("link")).unwrap();
    let into = [&*option, &list, trees.local.path().to_str().unwrap(), &other.at("/")];
    for args in [out, into] {
        let output = dentree([&["cp"], &args[..]].concat());
        let told = text(&output.stderr);
        assert!(output.status.code() == Some(1) && told.lines().count() == 2, "{told}");
        assert!(told.contains("none: ") && told.contains("may not contain `..`"), "{told}");
    }
    let found = |top: &Path| {
        let find = common::tool(
            "find",
            [top.as_os_str(), "-mindepth".as_ref(), "1".as_ref(), "-printf".as_ref(), "%P\n".as_ref()],
        );
        let find = text(&find);
        let mut names: Vec<&str> = find.lines().filter(|name| *name != "lost+found").collect();
        names.sort_unstable();
        names.iter().map(|name| format!("{name}\n")).collect::<String>()
    };
    assert_eq!(found(&target), expected);
    assert_eq!(fs::metadata(target.join("etc/conf.d")).unwrap().permissions().mode() & 0o777, 0o751);
    let mount = other.mount("ro").unwrap();
    assert_eq!(found(&mount.at), expected);
    assert_eq!(fs::metadata(mount.at.join("etc/conf.d")).unwrap().permissions().mode() & 0o777, 0o751);
}

#[test]
fn a_listed_path_follows_no_link_of_the_target() {
    let Some(trees) = trees() else { return };
    let (target, elsewhere) = (trees.target(), tempfile::tempdir().unwrap());
    symlink(elsewhere.path(), target.join("etc")).unwrap();
    let [option, list] = trees.lines("etc/hosts\nhard\n");
    let output = dentree(["cp", &option, &list, &trees.image.at("/"), target.to_str().unwrap()]);
    assert!(
        text(&output.stderr).contains("other than a directory is in the way")
            && output.status.code() == Some(1)
    );
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    assert_eq!(fs::read(target.join("hard")).unwrap(), b"127.0.0.1 localhost\n");
}

#[test]
fn a_list_needs_one_source_and_a_directory() {
    let Some(trees) = trees() else { return };
    let [option, list] = trees.lines("hard\n");
    let target = trees.target();
    let target = target.to_str().unwrap();
    let two = dentree(["cp", &option, &list, &trees.image.at("/"), &trees.image.at("/etc"), target]);
    assert!(two.status.code() == Some(2) && text(&two.stderr).contains("takes one SOURCE"));
    let no_directory = dentree(["cp", &option, &list, &trees.image.at("/"), &format!("{target}/none")]);
    assert_eq!(no_directory.status.code(), Some(1));
}
