//! Extended attributes and access lists through the mount and on the command line, checked by the
//! kernel's mount of the same image and by e2fsck.

mod common;
mod mounts;

use common::{Image, assert_clean, can_mount, dentree, succeeds, text, tool};
use dentree_testing::{said, unmount};
use mounts::{Loop, Mounted, mountable};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Runs a shell command in `dir`; panics with its output where it fails.
fn shell(dir: &Path, command: &str) -> String {
    let output = Command::new("sh").args(["-ec", command]).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{command}: {}", said(&output));
    text(&output.stdout)
}

const ALL: &str = "find . -print0 | LC_ALL=C sort -z | xargs -0 getfattr -h -d -m - -e hex";

/// Modes, attributes and access lists of a tree.
fn description(top: &Path) -> String {
    shell(
        top,
        "find . -printf '%P %y %m %U %G\\n' | LC_ALL=C sort; \
         find . -print0 | LC_ALL=C sort -z | xargs -0 getfattr -h -d -m - -e hex; \
         find . ! -type l -print0 | LC_ALL=C sort -z | xargs -0 getfacl -n",
    )
}

/// Changes of attributes and lists by a shell. Of the last two copies one has labels only with
/// `--selinux`.
const STORY: &str = "
    umask 027
    mkdir -p src/dir/sub; echo x >src/dir/file; echo y >src/run; chmod 755 src/run; ln -s dir/file src/link
    setfattr -n user.comment -v 'some text' src/dir/file
    setfattr -n user.large -v $(head -c 500 /dev/zero | tr '\\0' v) src/dir/file
    setfattr -n user.other -v 0x00ff src/dir/file
    setfattr -x user.other src/dir/file
    setfattr -h -n trusted.link -v on src/link
    setfattr -n security.selinux -v system_u:object_r:etc_t:s0 src/run
    setfacl -m u:1001:rwx,g:2001:r,m::rx src/dir/file
    setfacl -d -m u:1002:rwx,g::rx,o::r src/dir
    mkdir src/dir/made; echo z >src/dir/made/inherited; mknod src/dir/pipe p
    chmod 640 src/dir/file; chmod g+w src/dir/made/inherited
    setfacl -b src/run; setfacl -m u:1001:r src/run; setfacl -x u:1001 src/run
    cp -a src by-cp
    rsync -aAX src/ by-rsync
    tar --xattrs --xattrs-include='*' --acls -cf all.tar src
    mkdir by-tar; tar --xattrs --xattrs-include='*' --acls -xpf all.tar -C by-tar
    tar --xattrs --acls --selinux -cf all.tar src
    mkdir by-selinux; tar --xattrs --acls --selinux -xpf all.tar -C by-selinux
    tar --selinux -cf all.tar src/run
    mkdir by-label; tar --selinux -xpf all.tar -C by-label
    rm all.tar";

/// Prints whether tar lacks labels with `--selinux`: some builds have no support.
fn note_labels(top: &Path) {
    let label =
        "getfattr --absolute-names -n security.selinux --only-values by-label/src/run 2>/dev/null || true";
    if shell(top, label) != "system_u:object_r:etc_t:s0" {
        println!("skipped: tar --selinux carries no labels here");
    }
}

#[test]
fn attribute_programs_work_as_on_the_kernels_mount() {
    if !mountable() {
        return;
    }
    for options in [&["-t", "ext4"][..], &["-t", "ext4", "-I", "128", "-b", "1024"]] {
        let (ours, theirs) = (Image::new(64, options), Image::new(64, options));
        let told = {
            let kernel = Loop::new(&theirs.file, "rw");
            shell(kernel.path(), STORY);
            note_labels(kernel.path());
            description(kernel.path())
        };
        let mut mounted = Mounted::new(&ours.file, &["-o", "allow_other"]);
        shell(mounted.path(), STORY);
        common::assert_same_lines(description(mounted.path()).as_bytes(), told.as_bytes());
        unmount(mounted.path());
        assert!(mounted.wait().success());
        assert_clean(&ours.file);
        let kernel = Loop::new(&ours.file, "ro");
        common::assert_same_lines(description(kernel.path()).as_bytes(), told.as_bytes());
        let copied = |at: &str| shell(&kernel.path().join(at), &format!("{ALL}; getfacl -nR ."));
        for copy in ["by-cp", "by-rsync", "by-tar/src"] {
            assert_eq!(copied("src"), copied(copy), "{options:?}: {copy}");
        }
    }
}

#[test]
fn attributes_are_set_listed_printed_and_removed() {
    let image = Image::new(16, &["-t", "ext4"]);
    succeeds(["touch", &image.at("/file")]);
    let file = image.at("/file");
    for (name, value) in [("user.text", "plain \"text\""), ("user.raw", "0x00ff"), ("trusted.b", "0sAAE=")] {
        succeeds(["xattr", "set", &file, name, value]);
    }
    assert_eq!(text(&succeeds(["xattr", "ls", &file])), "trusted.b\nuser.raw\nuser.text\n");
    assert_eq!(text(&succeeds(["xattr", "get", &file, "user.text"])), "plain \"text\"");
    assert_eq!(succeeds(["xattr", "get", &file, "user.raw"]), [0, 255]);
    assert_eq!(
        text(&succeeds(["xattr", "get", "--dump", &file])),
        "# file: file\ntrusted.b=0sAAE=\nuser.raw=0sAP8=\nuser.text=\"plain \\\"text\\\"\"\n\n"
    );
    succeeds(["xattr", "rm", &file, "user.raw", "trusted.b"]);
    assert_eq!(text(&succeeds(["xattr", "ls", &file])), "user.text\n");
    for wrong in [
        &["xattr", "get", &file, "user.raw"][..],
        &["xattr", "rm", &file, "user.raw"],
        &["xattr", "set", &file, "fancy.name", "x"],
        &["xattr", "set", &file, "user.raw", "0x0"],
        &["xattr", "set", &image.at("/missing"), "user.a", "x"],
    ] {
        let output = dentree(wrong);
        assert!(!output.status.success() && !output.stderr.is_empty(), "{wrong:?}");
    }
    assert_clean(&image.file);
}

#[test]
fn dumps_go_to_setfattr_and_come_from_getfattr() {
    if !can_mount() {
        return;
    }
    let fill = |top: &Path, attributes: bool| {
        for name in ["plain", "with space", "with\\backslash", "d/deep"] {
            fs::create_dir_all(top.join("d")).unwrap();
            fs::write(top.join(name), "x").unwrap();
            if attributes {
                let name = top.join(name);
                let set = |key, value| {
                    tool("setfattr", ["-n".as_ref(), key, "-v".as_ref(), value, name.as_os_str()]);
                };
                set("user.text".as_ref(), "a \"quoted\\\" one".as_ref());
                set("user.raw".as_ref(), "0x000aff5c".as_ref());
                set("trusted.e".as_ref(), "".as_ref());
            }
        }
    };
    let full = Image::filled(&["-t", "ext4"], |top| fill(top, true));
    let empty = Image::filled(&["-t", "ext4"], |top| fill(top, false));
    let ours = full.dir.path().join("ours.dump");
    fs::write(&ours, succeeds(["xattr", "get", "--dump", "-R", &full.at("/")])).unwrap();
    let mount = full.mount("ro").unwrap();
    let theirs = shell(&mount.at, ALL);
    drop(mount);
    // Our dump, by setfattr, on the kernel's mount.
    let mount = empty.mount("rw").unwrap();
    shell(&mount.at, &format!("setfattr -h --restore={}", ours.display()));
    assert_eq!(shell(&mount.at, ALL), theirs);
    drop(mount);
    // The dump of getfattr, by us, in an image.
    let other = Image::filled(&["-t", "ext4"], |top| fill(top, false));
    let dump = other.dir.path().join("theirs.dump");
    fs::write(&dump, &theirs).unwrap();
    succeeds(["xattr", "set", &other.at("/"), "--restore", dump.to_str().unwrap()]);
    let mount = other.mount("ro").unwrap();
    assert_eq!(shell(&mount.at, ALL), theirs);
    let wrong = other.dir.path().join("wrong.dump");
    fs::write(&wrong, "user.a=\"b\"\n").unwrap();
    drop(mount);
    let output = dentree(["xattr", "set", &other.at("/"), "--restore", wrong.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
}

#[test]
fn dedup_shares_equal_blocks_and_says_what_it_saved() {
    let files: Vec<String> = (0..30).map(|file| format!("file{file}")).collect();
    let image = Image::new(16, &["-t", "ext4", "-I", "128", "-b", "1024"]);
    // debugfs gives each file a block of its own.
    let commands: Vec<String> = std::iter::once("cd /".to_owned())
        .chain(files.iter().enumerate().flat_map(|(n, file)| {
            let value = format!("ea_set {file} user.kind value{}", n % 3);
            [format!("write /dev/null {file}"), value]
        }))
        .collect();
    image.debugfs(&commands.iter().map(String::as_str).collect::<Vec<_>>());
    let told = text(&succeeds(["dedup", image.file.to_str().unwrap()]));
    assert!(
        told.ends_with(": 30 files have attributes in blocks: 30 blocks before, 3 now, 27648 bytes saved\n"),
        "{told}"
    );
    assert_clean(&image.file);
    for (n, file) in files.iter().enumerate() {
        let value = succeeds(["xattr", "get", &image.at(file), "user.kind"]);
        assert_eq!(text(&value), format!("value{}", n % 3));
    }
    let again = text(&succeeds(["dedup", image.file.to_str().unwrap()]));
    assert!(again.ends_with("3 blocks before, 3 now, 0 bytes saved\n"), "{again}");
}

#[test]
fn dedup_shares_equal_long_values_and_the_blocks_that_name_them() {
    let image = Image::new(16, &["-t", "ext4", "-I", "128", "-b", "1024", "-O", "ea_inode"]);
    // debugfs gives each file a value inode and a block of its own. Later files share those of
    // earlier ones, also where a file in between had a higher number.
    let long = |kind: usize| vec![b'a' + kind as u8; 1024];
    let mut commands = vec!["cd /".to_owned()];
    for kind in 0..3 {
        fs::write(image.dir.path().join(kind.to_string()), long(kind)).unwrap();
    }
    for file in 0..12 {
        let value = image.dir.path().join((file % 3).to_string());
        commands.push(format!("write /dev/null file{file}"));
        commands.push(format!("ea_set -f {} file{file} user.long", value.display()));
    }
    image.debugfs(&commands.iter().map(String::as_str).collect::<Vec<_>>());
    // e2fsck does not count blocks of such values to files.
    let mended = Command::new("e2fsck").arg("-fy").arg(&image.file).output().unwrap();
    assert_eq!(mended.status.code(), Some(1), "{}", said(&mended));
    assert_clean(&image.file);
    let told = text(&succeeds(["dedup", image.file.to_str().unwrap()]));
    assert!(
        told.ends_with(
            ": 12 files have attributes in blocks: 12 blocks before, 3 now; 12 have long values: 12 inodes before, 3 now, \
             18432 bytes saved\n"
        ),
        "{told}"
    );
    assert_clean(&image.file);
    for file in 0..12 {
        assert_eq!(
            succeeds(["xattr", "get", &image.at(&format!("file{file}")), "user.long"]),
            long(file % 3)
        );
    }
    let again = text(&succeeds(["dedup", image.file.to_str().unwrap()]));
    assert!(
        again.ends_with(
            "3 blocks before, 3 now; 12 have long values: 3 inodes before, 3 now, 0 bytes saved\n"
        ),
        "{again}"
    );
}

/// Its blocks are those of the attribute's inode, and no map is in the link's.
#[test]
fn a_short_link_with_an_attribute_in_an_inode_is_read() {
    if !can_mount() {
        return;
    }
    let image = Image::filled(&["-t", "ext4", "-O", "ea_inode"], |root| {
        let link = root.join("link");
        std::os::unix::fs::symlink("target", &link).unwrap();
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::lsetxattr(&link, "trusted.large", &[b'x'; 9000], flags).unwrap();
    });
    assert_eq!(text(&succeeds(["stat", "-c", "%N", &image.at("/link")])), "'/link' -> 'target'\n");
}
