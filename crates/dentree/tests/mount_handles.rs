//! File handles through the mount: `name_to_handle_at(2)` and `open_by_handle_at(2)`, for file
//! servers.
//!
//! The bug: the kernel asks for a forgotten node by LOOKUP of `.`, which was refused, so every
//! handle of an uncached file was stale (`xfstests` generic/426, 467, 477, 756, 777).

mod common;
mod mounts;
mod oracle;

use common::{assert_clean, text};
use mounts::{Mounted, mountable};
use oracle::{KINDS, Maker};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;

/// `take PATH…` prints a handle for each path; `open MOUNT HANDLE…` what each leads to.
const HANDLES: &str = r#"
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("data", ctypes.c_ubyte * 128)]
def take(path):
    handle, mount = Handle(bytes=128), ctypes.c_int()
    if libc.name_to_handle_at(-100, os.fsencode(path), ctypes.byref(handle), ctypes.byref(mount), 0):
        raise OSError(ctypes.get_errno(), path)
    return "%d:%s" % (handle.type, bytes(handle.data[:handle.bytes]).hex())
def open_handle(mount, words):
    kind, data = words.split(":")
    data = bytes.fromhex(data)
    handle = Handle(bytes=len(data), type=int(kind))
    ctypes.memmove(handle.data, data, len(data))
    fd = libc.open_by_handle_at(mount, ctypes.byref(handle), os.O_RDONLY)
    if fd < 0:
        return os.strerror(ctypes.get_errno())
    path = os.readlink("/proc/self/fd/%d" % fd)
    try:
        return "dir %s: %s" % (os.path.relpath(path, sys.argv[2]), " ".join(sorted(os.listdir(fd))))
    except NotADirectoryError:
        return "file: " + os.read(fd, 100).decode()
if sys.argv[1] == "take":
    print("\n".join(take(path) for path in sys.argv[2:]))
else:
    mount = os.open(sys.argv[2], os.O_RDONLY | os.O_DIRECTORY)
    print("\n".join(open_handle(mount, words) for words in sys.argv[3:]))
"#;

const STALE: &str = "Stale file handle";

fn has_python() -> bool {
    let has = Command::new("python3").arg("-c").arg("import ctypes").status().is_ok_and(|s| s.success());
    if !has {
        println!("skipped: python3 is not installed");
    }
    has
}

fn python<'a>(args: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let output = Command::new("python3").arg("-c").arg(HANDLES).args(args).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).lines().map(str::to_owned).collect()
}

/// Handles of `paths` below `root`.
fn take(root: &Path, paths: &[&str]) -> Vec<String> {
    let full: Vec<_> = paths.iter().map(|path| root.join(path).to_str().unwrap().to_owned()).collect();
    python(std::iter::once("take").chain(full.iter().map(String::as_str)))
}

/// What the handles lead to, after the kernel was asked to forget the nodes.
fn open(root: &Path, handles: &[String]) -> Vec<String> {
    dentree_testing::drop_caches(&dentree_testing::Global::caches_go());
    python(["open", root.to_str().unwrap()].into_iter().chain(handles.iter().map(String::as_str)))
}

#[test]
fn a_handle_leads_to_its_file_when_the_kernel_has_forgotten_it_and_after_another_mount() {
    if !mountable() || !has_python() {
        return;
    }
    const PATHS: [&str; 5] = ["", "a", "a/b/c", "a/b/c/file", "hard"];
    const EXPECTED: [&str; 5] =
        ["dir .: a hard lost+found", "dir a: b", "dir a/b/c: file", "file: content", "file: content"];
    for (name, maker) in KINDS {
        println!("on {name}");
        let image = maker.make(32);
        let ours = Mounted::new(&image.file, &[]);
        fs::create_dir_all(ours.path().join("a/b/c")).unwrap();
        fs::write(ours.path().join("a/b/c/file"), "content").unwrap();
        fs::hard_link(ours.path().join("a/b/c/file"), ours.path().join("hard")).unwrap();
        let handles = take(ours.path(), &PATHS);
        assert_eq!(handles[3], handles[4], "two names of one file");
        assert_eq!(open(ours.path(), &handles), EXPECTED);
        end(ours);
        for options in [&[][..], &["-o", "ro"]] {
            let again = Mounted::new(&image.file, options);
            assert_eq!(open(again.path(), &handles), EXPECTED, "{options:?}");
            end(again);
        }
        assert_clean(&image.file);
    }
}

fn end(mut mounted: Mounted) {
    dentree_testing::unmount(mounted.path());
    assert!(mounted.wait().success());
}

#[test]
fn a_handle_of_a_removed_file_is_stale_also_when_its_number_is_used_again() {
    if !mountable() || !has_python() {
        return;
    }
    let image = Maker::Ours(&[]).make(32);
    let ours = Mounted::new(&image.file, &[]);
    let (file, dir) = (ours.path().join("file"), ours.path().join("dir"));
    fs::write(&file, "old").unwrap();
    fs::create_dir(&dir).unwrap();
    let handles = take(ours.path(), &["file", "dir"]);
    fs::remove_file(&file).unwrap();
    fs::remove_dir(&dir).unwrap();
    assert_eq!(open(ours.path(), &handles), [STALE; 2]);
    // One of them reuses the number, with another generation.
    (0..20).for_each(|n| fs::write(ours.path().join(format!("new {n}")), "new").unwrap());
    let found = open(ours.path(), &handles);
    assert_eq!(found, [STALE; 2]);

    // A handle does not lead to an open file without a name; the file is readable to its end.
    let mut open_file = File::create(&file).unwrap();
    open_file.write_all(b"open").unwrap();
    let of_open = take(ours.path(), &["file"]);
    fs::remove_file(&file).unwrap();
    let found = open(ours.path(), &of_open);
    assert!(found == ["file: open"] || found == [STALE], "{found:?}");
    drop(open_file);
    end(ours);
    assert_clean(&image.file);
}

#[test]
fn a_made_up_handle_leads_nowhere() {
    if !mountable() || !has_python() {
        return;
    }
    for (name, maker) in KINDS {
        println!("on {name}");
        let image = maker.make(32);
        let ours = Mounted::new(&image.file, &[]);
        fs::write(ours.path().join("file"), "content").unwrap();
        // Type 0x81: upper and lower half of the node, and its generation.
        let handle = take(ours.path(), &["file"]).remove(0);
        let (kind, data) = handle.split_once(':').unwrap();
        let forged = |node: u64, generation: u32| {
            let words = [(node >> 32) as u32, node as u32, generation];
            let hex: String =
                words.iter().flat_map(|word| word.to_ne_bytes()).map(|b| format!("{b:02x}")).collect();
            assert_eq!(hex.len(), data.len(), "the kernel's handle has another form");
            format!("{kind}:{hex}")
        };
        // Reserved, free, past the last, and invalid inode numbers.
        let nodes = (0..=10).filter(|&node| node != 1).chain([
            12,
            500,
            1 << 20,
            u64::from(u32::MAX),
            1 << 40,
            u64::MAX,
        ]);
        let handles: Vec<_> =
            nodes.flat_map(|node| [0, 1].map(|generation| forged(node, generation))).collect();
        let found = open(ours.path(), &handles);
        for (handle, found) in handles.iter().zip(found) {
            assert!(
                found == STALE || found == "file: content" && handle == &take(ours.path(), &["file"])[0],
                "{handle}: {found}"
            );
        }
        assert_eq!(fs::read(ours.path().join("file")).unwrap(), b"content");
        end(ours);
        assert_clean(&image.file);
    }
}
