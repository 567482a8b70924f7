//! A file system in memory, mounted, seen through the kernel.

use crate::common::{Mounted, ROOT, Tree, can_mount, mount, offered, ring};
use dentree_fuse::{MountError, Options, Ownership, Visibility};
use dentree_testing::{Global, drop_caches, is_mount_point, unmount, wait_until};
use dentree_vfs::Vfs;
use rustix::fs::{SeekFrom, XattrFlags};
use rustix::io::Errno;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::thread;

/// An ordinary user's id.
const NOBODY: &str = "65534";
const MANY: usize = 200_000;

/// A directory `many` of `count` empty files.
fn crowded(count: usize) -> Tree {
    let mut tree = Tree::new();
    let many = tree.dir(ROOT, "many");
    for number in 0..count {
        tree.file(many, &format!("file-{number:06}"), b"");
    }
    tree
}

fn as_nobody(command: &[&str], path: &Path) -> Output {
    Command::new("setpriv")
        .args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--"])
        .args(command)
        .arg(path)
        .output()
        .expect("setpriv is part of util-linux")
}

/// Lets `path` be reached by others: the directories of a test are its owner's alone.
fn open_to_all(mounted: &Mounted) {
    let above = mounted.path.parent().unwrap();
    fs::set_permissions(above, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn names_attributes_contents_and_links_come_through() {
    let mut tree = Tree::new();
    let dir = tree.dir(ROOT, "dir");
    let content: Vec<u8> = (0..3_000_000_u32).map(|n| ((n * 7) >> 5) as u8).collect();
    let file = tree.file(dir, "file", &content);
    let attr = tree.attr_mut(file);
    (attr.permissions, attr.uid, attr.gid, attr.nlink) = (0o4751, 1000, 100, 3);
    attr.mtime.seconds = -5;
    tree.link(ROOT, "link", "dir/file");
    let Some(mounted) = mount(tree, &Options::default()) else { return };

    let found = fs::metadata(mounted.path.join("link")).unwrap();
    assert_eq!((found.mode(), found.uid(), found.gid()), (0o104_751, 1000, 100));
    assert_eq!((found.nlink(), found.size(), found.ino()), (3, 3_000_000, file.0));
    assert_eq!((found.mtime(), found.mtime_nsec()), (-5, 123_456_789));
    assert_eq!(fs::read(mounted.path.join("dir/file")).unwrap(), content);
    assert_eq!(fs::read_link(mounted.path.join("link")).unwrap(), Path::new("dir/file"));
    assert_eq!(fs::metadata(&mounted.path).unwrap().ino(), ROOT.0);
    let missing = fs::metadata(mounted.path.join("dir/none")).unwrap_err();
    assert_eq!(missing.raw_os_error(), Some(Errno::NOENT.raw_os_error()));

    let stat = rustix::fs::statvfs(&mounted.path).unwrap();
    assert_eq!((stat.f_blocks, stat.f_bfree, stat.f_bavail), (1000, 300, 200));
    assert_eq!((stat.f_files, stat.f_ffree, stat.f_namemax, stat.f_frsize), (500, 400, 255, 4096));
}

#[test]
fn a_directory_of_200_000_entries_is_listed_whole_and_once() {
    let Some(mounted) = mount(crowded(MANY), &Options::default()) else { return };
    for round in ["asked for", "from the kernel's cache"] {
        let names: Vec<_> = fs::read_dir(mounted.path.join("many"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names.len(), MANY, "{round}");
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), MANY, "{round}");
    }
}

#[test]
fn what_the_kernel_was_told_it_does_not_ask_again() {
    let mut tree = crowded(500);
    tree.link(ROOT, "link", "many");
    tree.file(ROOT, "file", &[1; 100_000]);
    let Some(mounted) = mount(tree, &Options::default()) else { return };
    let _caches = Global::caches_stay();
    let visit = || {
        for entry in fs::read_dir(mounted.path.join("many")).unwrap() {
            fs::metadata(entry.unwrap().path()).unwrap();
        }
        fs::metadata(mounted.path.join("many/missing")).unwrap_err();
        fs::metadata(mounted.path.join("link/file-000007")).unwrap();
        fs::read(mounted.path.join("file")).unwrap();
    };
    visit();
    let asked = mounted.handle.requests().total();
    visit();
    assert_eq!(mounted.handle.requests().total(), asked);
}

#[test]
fn a_listing_brings_the_attributes_along() {
    let Some(mounted) = mount(crowded(10_000), &Options::default()) else { return };
    let _caches = Global::caches_stay();
    for entry in fs::read_dir(mounted.path.join("many")).unwrap() {
        entry.unwrap().metadata().unwrap();
    }
    let asked = mounted.handle.requests().total();
    assert!(asked < 1_000, "{asked} requests for 10,000 entries");
}

#[test]
fn the_kernel_forgets_everything_but_the_root() {
    let Some(mounted) = mount(crowded(MANY), &Options::default()) else { return };
    let alone = Global::caches_go();
    let many = mounted.path.join("many");
    // Both ways of being told: listings and lookups, each name more than once.
    for _ in 0..2 {
        assert_eq!(
            fs::read_dir(&many).unwrap().filter(|entry| entry.as_ref().unwrap().metadata().is_ok()).count(),
            MANY
        );
        drop_caches(&alone);
        thread::scope(|scope| {
            for from in 0..4 {
                let many = &many;
                scope.spawn(move || {
                    for number in (from..MANY).step_by(16) {
                        fs::metadata(many.join(format!("file-{number:06}"))).unwrap();
                    }
                });
            }
        });
    }
    assert!(mounted.handle.known_inodes() > 1);
    // The kernel may still hold a batch, or a reference for a moment: ask until it lets go.
    wait_until("forgotten", || {
        drop_caches(&alone);
        mounted.handle.known_inodes() == 1
    });
}

#[test]
fn holes_are_found_by_seeking() {
    let mut tree = Tree::new();
    let size = 1 << 40;
    tree.sparse(ROOT, "sparse", size, vec![(4096, vec![1; 4096]), (1 << 30, vec![2; 8192])]);
    tree.sparse(ROOT, "hole", 5000, Vec::new());
    let Some(mounted) = mount(tree, &Options::default()) else { return };
    let seek = |name: &str, to| rustix::fs::seek(File::open(mounted.path.join(name)).unwrap(), to);
    assert_eq!(seek("sparse", SeekFrom::Data(0)), Ok(4096));
    assert_eq!(seek("sparse", SeekFrom::Data(5000)), Ok(5000));
    assert_eq!(seek("sparse", SeekFrom::Hole(4096)), Ok(8192));
    assert_eq!(seek("sparse", SeekFrom::Data(8192)), Ok(1 << 30));
    assert_eq!(seek("sparse", SeekFrom::Data((1 << 30) + 8192)), Err(Errno::NXIO));
    assert_eq!(seek("sparse", SeekFrom::Hole((1 << 30) + 8191)), Ok((1 << 30) + 8192));
    assert_eq!(seek("sparse", SeekFrom::Hole(size)), Err(Errno::NXIO));
    assert_eq!(seek("hole", SeekFrom::Data(0)), Err(Errno::NXIO));
    assert_eq!(seek("hole", SeekFrom::Hole(17)), Ok(17));
    let mut byte = [0];
    File::open(mounted.path.join("sparse")).unwrap().read_exact_at(&mut byte, (1 << 30) + 5).unwrap();
    assert_eq!(byte, [2]);
}

#[test]
fn attributes_answer_probes_and_too_small_buffers() {
    let mut tree = Tree::new();
    let file = tree.file(ROOT, "file", b"x");
    tree.xattr(file, "user.colour", b"green");
    tree.xattr(file, "user.empty", b"");
    tree.xattr(file, "trusted.secret", b"1");
    let Some(mounted) = mount(tree, &Options { visibility: Visibility::Everyone, ..Options::default() })
    else {
        return;
    };
    let path = mounted.path.join("file");
    let get = |name: &str, room: usize| {
        let mut value = vec![0; room];
        rustix::fs::getxattr(&path, name, &mut value[..]).map(|len| {
            value.truncate(len);
            value
        })
    };
    assert_eq!(get("user.colour", 100), Ok(b"green".to_vec()));
    assert_eq!(rustix::fs::getxattr_query(&path, "user.colour"), Ok(5));
    assert_eq!(get("user.colour", 4), Err(Errno::RANGE));
    assert_eq!(get("user.empty", 4), Ok(Vec::new()));
    assert_eq!(get("user.none", 4), Err(Errno::NODATA));

    let mut names = [0; 100];
    let len = rustix::fs::listxattr(&path, &mut names).unwrap();
    assert_eq!(&names[..len], b"user.colour\0user.empty\0trusted.secret\0");
    assert_eq!(rustix::fs::listxattr_query(&path), Ok(len));
    assert_eq!(rustix::fs::listxattr(&path, &mut [0; 3]), Err(Errno::RANGE));
    open_to_all(&mounted);
    let seen = as_nobody(&["getfattr", "--absolute-names", "-d", "-m", "-"], &path);
    let seen = String::from_utf8_lossy(&seen.stdout).into_owned();
    assert!(seen.contains("user.colour") && !seen.contains("trusted"), "{seen}");
}

#[test]
fn nothing_can_be_written_even_where_root_remounts_it_writable() {
    let mut tree = Tree::new();
    tree.file(ROOT, "file", b"x");
    let Some(mounted) = mount(tree, &Options::default()) else { return };
    let file = mounted.path.join("file");
    let refused = |result: std::io::Result<()>, what: &str| {
        let errno = result.expect_err(what).raw_os_error();
        assert_eq!(errno, Some(Errno::ROFS.raw_os_error()), "{what}");
    };
    for _ in ["as mounted", "remounted"] {
        refused(fs::create_dir(mounted.path.join("new")), "mkdir");
        refused(fs::write(mounted.path.join("new"), "x"), "create");
        refused(fs::remove_file(&file), "unlink");
        refused(fs::rename(&file, mounted.path.join("new")), "rename");
        refused(fs::hard_link(&file, mounted.path.join("new")), "link");
        refused(std::os::unix::fs::symlink("x", mounted.path.join("new")), "symlink");
        refused(fs::set_permissions(&file, fs::Permissions::from_mode(0o777)), "chmod");
        let set = rustix::fs::setxattr(&file, "user.a", b"b", XattrFlags::empty());
        refused(set.map_err(Into::into), "setxattr");
        refused(fs::write(&file, "longer"), "write");
        let remount =
            Command::new("mount").args(["-i", "-o", "remount,rw"]).arg(&mounted.path).output().unwrap();
        assert!(remount.status.success(), "{remount:?}");
    }
}

#[test]
fn programs_run_from_the_mount_unless_forbidden() {
    let mut tree = Tree::new();
    let program = tree.file(ROOT, "program", &fs::read("/bin/cat").unwrap());
    tree.attr_mut(program).permissions = 0o755;
    tree.file(ROOT, "text", b"mapped");
    let Some(mounted) = mount(tree, &Options::default()) else { return };
    // Programs are mapped, not read.
    let ran = Command::new(mounted.path.join("program")).arg(mounted.path.join("text")).output().unwrap();
    assert_eq!(ran.stdout, b"mapped");
    let forbid =
        Command::new("mount").args(["-i", "-o", "remount,noexec"]).arg(&mounted.path).output().unwrap();
    assert!(forbid.status.success());
    assert!(Command::new(mounted.path.join("program")).output().is_err());
}

#[test]
fn many_threads_read_and_list_at_once() {
    let mut tree = Tree::new();
    for dir in 0..20 {
        let at = tree.dir(ROOT, &format!("dir-{dir}"));
        for file in 0..50 {
            tree.file(at, &format!("file-{file}"), &vec![(dir * 50 + file) as u8; 40_000 + file]);
        }
    }
    let Some(mounted) = mount(tree, &Options::default()) else { return };
    thread::scope(|scope| {
        for reader in 0..8 {
            let path = &mounted.path;
            scope.spawn(move || {
                for dir in (0..20).map(|dir| (dir + reader) % 20) {
                    let listed = fs::read_dir(path.join(format!("dir-{dir}"))).unwrap();
                    assert_eq!(listed.count(), 50);
                    for file in 0..50 {
                        let content = fs::read(path.join(format!("dir-{dir}/file-{file}"))).unwrap();
                        assert_eq!(content, vec![(dir * 50 + file) as u8; 40_000 + file]);
                    }
                }
            });
        }
    });
}

#[test]
fn unmounting_hides_the_mount_at_once_and_waits_for_open_files() {
    let mut tree = Tree::new();
    tree.file(ROOT, "file", &[9; 1_000_000]);
    let Some(mut mounted) = mount(tree, &Options::default()) else { return };
    let mut open = File::open(mounted.path.join("file")).unwrap();
    mounted.handle.unmount().unwrap();
    assert!(!is_mount_point(&mounted.path));
    open.seek(std::io::SeekFrom::Start(500_000)).unwrap();
    let mut rest = Vec::new();
    open.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, [9; 500_000]);
    assert!(mounted.handle.is_alive());
    drop(open);
    mounted.join().unwrap();
    assert!(!mounted.handle.is_alive());
}

// Unmounting a path at a session's end would unmount whatever stands there by then.
#[test]
fn a_session_that_was_unmounted_from_outside_leaves_the_next_mount_alone() {
    let Some(mut mounted) = mount(Tree::new(), &Options::default()) else { return };
    let second = crowded(3);
    unmount(&mounted.path);
    let session =
        dentree_fuse::mount(Arc::new(Vfs::new(second).unwrap()), &mounted.path, &Options::default());
    let session = session.unwrap();
    let next = session.handle();
    let serving = thread::spawn(move || session.serve());
    mounted.join().unwrap();
    mounted.handle.unmount().unwrap();
    assert!(is_mount_point(&mounted.path));
    assert_eq!(fs::read_dir(mounted.path.join("many")).unwrap().count(), 3);
    next.unmount().unwrap();
    serving.join().unwrap().unwrap();
}

#[test]
fn a_damaged_inode_is_listed_and_answers_its_error_when_asked_for() {
    let mut tree = Tree::new();
    tree.file(ROOT, "good", b"x");
    tree.damaged(ROOT, "bad");
    tree.file(ROOT, "last", b"x");
    let Some(mounted) = mount(tree, &Options::default()) else { return };
    let mut names: Vec<_> =
        fs::read_dir(&mounted.path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["bad", "good", "last"]);
    for _ in 0..2 {
        let error = fs::metadata(mounted.path.join("bad")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::UCLEAN.raw_os_error()));
    }
    assert!(fs::metadata(mounted.path.join("last")).is_ok());
}

#[test]
fn permission_bits_hold_for_others() {
    let mut tree = Tree::new();
    let secret = tree.file(ROOT, "secret", b"x");
    tree.attr_mut(secret).permissions = 0o600;
    tree.file(ROOT, "public", b"x");
    let Some(mounted) = mount(tree, &Options { visibility: Visibility::Everyone, ..Options::default() })
    else {
        return;
    };
    open_to_all(&mounted);
    fs::read(mounted.path.join("secret")).unwrap();
    assert!(as_nobody(&["cat"], &mounted.path.join("public")).status.success());
    assert!(!as_nobody(&["cat"], &mounted.path.join("secret")).status.success());
}

#[test]
fn others_see_nothing_that_is_not_for_them_even_after_the_owner_looked() {
    for visibility in [Visibility::Owner, Visibility::OwnerAndRoot] {
        let mut tree = Tree::new();
        tree.file(ROOT, "public", b"x");
        let Some(mounted) = mount(tree, &Options { visibility, ..Options::default() }) else { return };
        open_to_all(&mounted);
        let public = mounted.path.join("public");
        fs::read(&public).unwrap();
        assert_eq!(fs::read_dir(&mounted.path).unwrap().count(), 1);
        for command in [["cat"], ["stat"], ["ls"]] {
            let seen = as_nobody(&command, &public);
            assert!(!seen.status.success(), "{visibility:?} {command:?}: {seen:?}");
        }
        assert!(!as_nobody(&["ls"], &mounted.path).status.success());
    }
}

#[test]
fn everything_belongs_to_whom_the_options_say() {
    let mut tree = Tree::new();
    let file = tree.file(ROOT, "file", b"x");
    (tree.attr_mut(file).uid, tree.attr_mut(file).gid) = (5, 6);
    let ownership = Ownership { uid: Some(1234), gid: None };
    let Some(mounted) = mount(tree, &Options { ownership, ..Options::default() }) else { return };
    let found = fs::metadata(mounted.path.join("file")).unwrap();
    assert_eq!((found.uid(), found.gid()), (1234, 6));
    assert_eq!(fs::metadata(&mounted.path).unwrap().uid(), 1234);
}

#[test]
fn mount_tables_show_source_type_and_options() {
    let options = Options { source: "disk image,1.img".into(), ..Options::default() };
    let Some(mounted) = mount(Tree::new(), &options) else { return };
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table.lines().find(|line| line.contains(mounted.path.to_str().unwrap())).unwrap();
    for part in ["fuse.dentree", r"disk\040image,1.img", "ro,nosuid,nodev", "default_permissions"] {
        assert!(line.contains(part), "{part} in {line}");
    }
}

#[test]
fn a_mount_point_that_cannot_be_used_is_named_with_the_reason() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "x").unwrap();
    let missing = dir.path().join("missing");
    for (path, reason) in
        [(missing.as_path(), "does not exist"), (&file, "is not a directory"), (dir.path(), "is not empty")]
    {
        let vfs = Arc::new(Vfs::new(Tree::new()).unwrap());
        let error = dentree_fuse::mount(vfs, path, &Options::default()).err().unwrap();
        assert!(matches!(error, MountError::MountPoint { .. }));
        let said = error.to_string();
        assert!(said.contains(path.to_str().unwrap()) && said.contains(reason), "{said}");
    }
    let vfs = Arc::new(Vfs::new(Tree::new()).unwrap());
    let over =
        dentree_fuse::mount(vfs, dir.path(), &Options { nonempty: true, ..Options::default() }).unwrap();
    assert!(is_mount_point(dir.path()));
    drop(over);
    assert!(!is_mount_point(dir.path()));
}

#[test]
fn a_session_that_is_never_served_unmounts_when_dropped() {
    if !can_mount() {
        return;
    }
    let Some(_ring) = ring() else { return };
    let dir = tempfile::tempdir().unwrap();
    let vfs = Arc::new(Vfs::new(Tree::new()).unwrap());
    let session = dentree_fuse::mount(vfs, dir.path(), &offered()).unwrap();
    assert!(is_mount_point(dir.path()));
    let _held_elsewhere = session.handle();
    drop(session);
    assert!(!is_mount_point(dir.path()));
}

#[test]
fn a_session_that_is_unmounted_before_it_is_served_ends_well() {
    if !can_mount() {
        return;
    }
    let Some(_ring) = ring() else { return };
    let dir = tempfile::tempdir().unwrap();
    let vfs = Arc::new(Vfs::new(Tree::new()).unwrap());
    let session = dentree_fuse::mount(vfs, dir.path(), &offered()).unwrap();
    unmount(dir.path());
    session.serve().unwrap();
}
