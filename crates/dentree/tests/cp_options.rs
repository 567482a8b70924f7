//! The options of `dentree cp`, in both directions, against cp(1).

mod common;

use common::{Image, assert_same_lines, dentree, succeeds, text, tool};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

const SOURCE: &str = "
    mkdir -p s/dir/sub s/other; echo one > s/f; echo two > s/dir/g; ln s/dir/g s/other/hard; echo x > s/dir/sub/x
    ln -s f s/l; ln -s dir s/ld; ln -s ../f s/dir/up; ln -s none s/dangling
    head -c 20000 /dev/zero > s/zeros; chmod 751 s/f; chmod 4755 s/dir/g
    mkdir t; echo older > t/f; ln -s f t/link; mkdir t/dir; echo kept > t/dir/g
    touch -d 2001-01-01 s/f s/dir/g t/f; touch -d 2020-01-01 t/dir/g; touch -d 2002-02-02 s/dir/sub s/dir";

/// Each is run with cp(1) on one tree and with ours on a copy of it, out of and into an image.
const COMMANDS: &str = "\
-r s/dir t
-R s/dir t/new
-p s/f t
-p s/f s/zeros t
-a s/dir s/other t
-a s/dir/g s/other/hard t
-d s/dir/g s/other/hard s/l t
-r s/l s/ld t
-rL s/dir t/followed
-rH s/ld t/entered
-rP s/ld t
-n s/f t/f
-n -r s/dir t
-u s/f t/f
-u s/zeros s/f t
-r -u s/dir t
-T s/f t/f
-r -T s/dir t/dir
-t t s/f s/zeros
-r --parents s/dir/sub t
--parents s/dir/g s/f t
-p --parents s/dir/g t
--preserve=timestamps s/f t
--preserve=mode s/dir/g t/new
-a --no-preserve=mode s/f t/new
--attributes-only -p s/f t/new
-r --strip-trailing-slashes s/dir/ t
-f s/f t
--remove-destination s/f t/link
-x s/f t
-b s/f t
--backup=numbered s/f s/dir/g t
-S .old -r s/dir t";

/// A tree: names, types, modes, links, sizes, times that commands have set, and content.
fn described(root: &Path) -> Vec<u8> {
    let find = r"find . -printf '%P|%y|%m|%n|%l|' -type f -printf '%s|' , -newermt 2000-01-01 ! -newermt 2021-01-01 \
                 -printf '%TY' , -printf '\n' , -type f -exec sha256sum {} \; | LC_ALL=C sort";
    let output = Command::new("sh").args(["-ec", find]).current_dir(root).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    output.stdout
}

fn tree(dir: &Path) {
    fs::create_dir(dir).unwrap();
    let status = Command::new("sh").args(["-ec", &format!("umask 022; {SOURCE}")]).current_dir(dir).status();
    assert!(status.unwrap().success());
}

#[test]
fn each_option_does_what_cp_does_in_both_directions() {
    let image = Image::new(32, &["-t", "ext4"]);
    let dir = image.dir.path();
    for (number, line) in COMMANDS.lines().enumerate() {
        let [theirs, out, both, back] =
            ["theirs", "out", "both", "back"].map(|name| dir.join(format!("{name}-{number}")));
        tree(&theirs);
        tree(&out);
        let run = |command: &mut Command| command.current_dir(&theirs).output().unwrap();
        let cp = run(Command::new("cp").args(line.split(' ')));
        let expected = described(&theirs);

        // From the image to this machine.
        let at = format!("/{number}");
        succeeds(["mkdir", &image.at(&at)]);
        succeeds([
            "cp",
            "-a",
            out.join("s").to_str().unwrap(),
            out.join("t").to_str().unwrap(),
            &image.at(&at),
        ]);
        let words = |source: &str, target: &str| -> Vec<String> {
            let word = |word: &str| match word.as_bytes() {
                [b's', b'/', ..] => format!("{source}{word}"),
                [b't'] | [b't', b'/', ..] => format!("{target}{word}"),
                _ => word.to_owned(),
            };
            ["cp".to_owned()].into_iter().chain(line.split(' ').map(word)).collect()
        };
        let inside = image.at(&format!("{at}/"));
        // --parents takes the whole path of the source, which has one more directory here.
        if !line.contains("--parents") {
            let ours = dentree(words(&inside, &format!("{}/", out.display())));
            assert_eq!(ours.status.success(), cp.status.success(), "out: cp {line}: {}", text(&ours.stderr));
            println!("out: cp {line}");
            assert_same_lines(&described(&out), &expected);
        }

        // From this machine into the image, and within the image.
        for (name, source) in [("both", String::new()), ("back", inside.clone())] {
            if name == "back" && line.contains("--parents") {
                continue;
            }
            let place = format!("{at}-{name}");
            succeeds(["mkdir", &image.at(&place)]);
            let fresh = dir.join(format!("fresh-{name}-{number}"));
            tree(&fresh);
            succeeds([
                "cp",
                "-a",
                fresh.join("s").to_str().unwrap(),
                fresh.join("t").to_str().unwrap(),
                &image.at(&place),
            ]);
            let ours = Command::new(env!("CARGO_BIN_EXE_dentree"))
                .args(words(&source, &image.at(&format!("{place}/"))))
                .current_dir(&fresh)
                .output()
                .unwrap();
            assert_eq!(
                ours.status.success(),
                cp.status.success(),
                "{name}: cp {line}: {}",
                text(&ours.stderr)
            );
            let local = if name == "both" { &both } else { &back };
            succeeds(["cp", "-a", &image.at(&place), local.to_str().unwrap()]);
            println!("{name}: cp {line}");
            assert_same_lines(&described(local), &expected);
        }
    }
    tool("e2fsck", ["-fn".as_ref(), image.file.as_os_str()]);
}

#[test]
fn holes_are_made_kept_or_filled() {
    let image = Image::new(32, &["-t", "ext4"]);
    let zeros = image.dir.path().join("zeros");
    fs::write(&zeros, [vec![1; 4096], vec![0; 1 << 20], vec![1; 4096]].concat()).unwrap();
    let blocks = |path: &Path| fs::metadata(path).unwrap().blocks();
    for (when, is_sparse) in [("auto", false), ("always", true), ("never", false)] {
        succeeds(["cp", "--sparse", when, zeros.to_str().unwrap(), &image.at(&format!("/{when}"))]);
        let shown = text(&succeeds(["stat", "-c", "%b", &image.at(&format!("/{when}"))]));
        assert_eq!(shown.trim().parse::<u64>().unwrap() < 100, is_sparse, "{when}: {shown}");
    }
    for (when, is_sparse) in [("auto", true), ("always", true), ("never", false)] {
        let local = image.dir.path().join(when);
        succeeds(["cp", &format!("--sparse={when}"), &image.at("/always"), local.to_str().unwrap()]);
        assert_eq!(blocks(&local) < 100, is_sparse, "{when}: {}", blocks(&local));
        assert_eq!(fs::read(&local).unwrap(), fs::read(&zeros).unwrap());
    }
}

#[test]
fn owner_and_permissions_can_be_given_and_copies_are_told() {
    let image = Image::new(32, &["-t", "ext4"]);
    let file = image.dir.path().join("f");
    fs::write(&file, "").unwrap();
    fs::write(image.dir.path().join("passwd"), "ann:x:7:8::/:\n").unwrap();
    succeeds(["mkdir", &image.at("/etc")]);
    succeeds(["cp", image.dir.path().join("passwd").to_str().unwrap(), &image.at("/etc")]);
    let (from, to) = (file.to_str().unwrap(), image.at("/f"));
    let told = text(&succeeds(["cp", "-v", "--chown=ann:", "--chmod=u=rw,go=r", from, &to]));
    assert_eq!(told, format!("'{from}' -> '{to}'\n"));
    assert_eq!(text(&succeeds(["stat", "-c", "%U %u %g %a", &to])), "ann 7 8 644\n");
    let unknown = dentree(["cp", "--chown", "bob", from, &to]);
    assert!(text(&unknown.stderr).contains("no user \"bob\""), "{}", text(&unknown.stderr));
}

#[test]
fn operands_of_one_copy_keep_their_hard_links_and_cycles_of_links_end() {
    let image = Image::new(32, &["-t", "ext4"]);
    let dir = image.dir.path();
    fs::create_dir_all(dir.join("a")).unwrap();
    fs::create_dir_all(dir.join("b")).unwrap();
    fs::write(dir.join("a/x"), "x").unwrap();
    fs::hard_link(dir.join("a/x"), dir.join("b/y")).unwrap();
    std::os::unix::fs::symlink("..", dir.join("a/up")).unwrap();
    let local = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    succeeds(["cp", "-a", &local("a"), &local("b"), &image.at("/")]);
    fs::create_dir(dir.join("out")).unwrap();
    succeeds(["cp", "-a", &image.at("/[ab]"), &local("out")]);
    let ino = |name: &str| fs::metadata(dir.join(name)).unwrap().ino();
    assert_eq!(ino("out/a/x"), ino("out/b/y"));
    for target in [local("followed"), image.at("/followed")] {
        let output = dentree(["cp", "-L", &image.at("/a"), &target]);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains("a directory above"), "{}", text(&output.stderr));
    }
}
