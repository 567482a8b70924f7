//! Operations on paths, and the initial tree.

use super::kernel::Kernel;
use super::model;
use dentree_vfs::{Allocate, Identity, MemoryFs, OnExisting, SetXattr, Vfs, WalkOptions};
use proptest::prelude::*;

/// Id of an ordinary user and group.
pub const NOBODY: u32 = 65534;
/// Another user's.
pub const OTHER: u32 = 1234;

/// Paths are relative to the top.
#[derive(Clone, Debug)]
pub enum Op {
    Create {
        path: String,
        exclusive: bool,
        mode: u16,
    },
    Mkdir {
        path: String,
        mode: u16,
    },
    Mknod {
        path: String,
        fifo: bool,
        mode: u16,
    },
    Symlink {
        target: String,
        path: String,
    },
    Link {
        from: String,
        to: String,
    },
    Unlink {
        path: String,
    },
    Rmdir {
        path: String,
    },
    Rename {
        from: String,
        to: String,
        how: OnExisting,
    },
    Chmod {
        path: String,
        mode: u16,
    },
    Chown {
        path: String,
        uid: Option<u32>,
        gid: Option<u32>,
    },
    /// `None` keeps, `Some(None)` is now, else seconds.
    Utimes {
        path: String,
        atime: Option<Option<i64>>,
        mtime: Option<Option<i64>>,
    },
    Truncate {
        path: String,
        size: u64,
    },
    Write {
        path: String,
        offset: u64,
        len: usize,
        append: bool,
    },
    Allocate {
        path: String,
        offset: u64,
        len: u64,
        how: Allocate,
    },
    SetXattr {
        path: String,
        name: &'static str,
        len: usize,
        how: SetXattr,
    },
    RemoveXattr {
        path: String,
        name: &'static str,
    },
    /// Existence and permissions.
    Stat {
        path: String,
    },
    List {
        path: String,
    },
}

const NAMES: [&str; 6] = ["a", "b", "c", "shared", "sticky", "group"];
const XATTRS: [&str; 5] = ["user.one", "user.two", "trusted.x", "nothing.x", "user."];

fn any_path() -> impl Strategy<Value = String> {
    // `..` could leave the kernel's directory.
    let name = prop_oneof![16 => prop::sample::select(&NAMES[..]), 1 => Just(".")];
    prop::collection::vec(name, 1..4).prop_map(|parts| parts.join("/"))
}

fn any_mode() -> impl Strategy<Value = u16> {
    prop_oneof![
        4 => prop::sample::select(vec![0o777, 0o755, 0o700, 0o644, 0o600, 0o000, 0o1777, 0o2775, 0o6755, 0o2766]),
        1 => 0_u16..0o10000
    ]
}

fn any_id() -> impl Strategy<Value = Option<u32>> {
    prop::sample::select(vec![None, Some(0), Some(NOBODY), Some(OTHER), Some(7)])
}

fn any_time() -> impl Strategy<Value = Option<Option<i64>>> {
    prop::sample::select(vec![None, Some(None), Some(Some(1)), Some(Some(1_700_000_000))])
}

fn any_op() -> impl Strategy<Value = Op> {
    let path = any_path;
    let existing = prop::sample::select(vec![OnExisting::Replace, OnExisting::Fail, OnExisting::Exchange]);
    let xattr = || prop::sample::select(&XATTRS[..]);
    let how = prop::sample::select(vec![SetXattr::Any, SetXattr::Create, SetXattr::Replace]);
    let space = prop::sample::select(vec![
        Allocate::Reserve,
        Allocate::ReserveKeepSize,
        Allocate::PunchHole,
        Allocate::ZeroRange,
        Allocate::ZeroRangeKeepSize,
    ]);
    prop_oneof![
        4 => (path(), any::<bool>(), any_mode()).prop_map(|(path, exclusive, mode)| Op::Create { path, exclusive, mode }),
        4 => (path(), any_mode()).prop_map(|(path, mode)| Op::Mkdir { path, mode }),
        1 => (path(), any::<bool>(), any_mode()).prop_map(|(path, fifo, mode)| Op::Mknod { path, fifo, mode }),
        2 => (path(), path()).prop_map(|(target, path)| Op::Symlink { target, path }),
        3 => (path(), path()).prop_map(|(from, to)| Op::Link { from, to }),
        3 => path().prop_map(|path| Op::Unlink { path }),
        3 => path().prop_map(|path| Op::Rmdir { path }),
        6 => (path(), path(), existing).prop_map(|(from, to, how)| Op::Rename { from, to, how }),
        3 => (path(), any_mode()).prop_map(|(path, mode)| Op::Chmod { path, mode }),
        3 => (path(), any_id(), any_id()).prop_map(|(path, uid, gid)| Op::Chown { path, uid, gid }),
        2 => (path(), any_time(), any_time()).prop_map(|(path, atime, mtime)| Op::Utimes { path, atime, mtime }),
        2 => (path(), 0_u64..20_000).prop_map(|(path, size)| Op::Truncate { path, size }),
        3 => (path(), 0_u64..20_000, 1_usize..9000, any::<bool>())
            .prop_map(|(path, offset, len, append)| Op::Write { path, offset, len, append }),
        2 => (path(), 0_u64..20_000, 1_u64..20_000, space)
            .prop_map(|(path, offset, len, how)| Op::Allocate { path, offset, len, how }),
        2 => (path(), xattr(), 0_usize..40, how)
            .prop_map(|(path, name, len, how)| Op::SetXattr { path, name, len, how }),
        1 => (path(), xattr()).prop_map(|(path, name)| Op::RemoveXattr { path, name }),
        2 => path().prop_map(|path| Op::Stat { path }),
        1 => path().prop_map(|path| Op::List { path }),
    ]
}

pub fn any_ops(most: usize) -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(any_op(), 1..most)
}

/// The same initial tree on both sides, with sticky and setgid directories and another user's.
pub fn prepare(kernel: &Kernel, vfs: &Vfs<MemoryFs>) {
    let dir = |path: &str, mode| Op::Mkdir { path: path.into(), mode };
    let file = |path: &str, mode| Op::Create { path: path.into(), exclusive: true, mode };
    let own = |path: &str, uid, gid| Op::Chown { path: path.into(), uid: Some(uid), gid: Some(gid) };
    let bits = |path: &str, mode| Op::Chmod { path: path.into(), mode };
    let ops = [
        own(".", NOBODY, NOBODY),
        dir("shared", 0o777),
        dir("sticky", 0o1777),
        dir("group", 0o777),
        own("group", OTHER, OTHER),
        bits("group", 0o2777),
        file("shared/a", 0o666),
        own("shared/a", OTHER, OTHER),
        file("sticky/a", 0o666),
        own("sticky/a", OTHER, 7),
        file("sticky/b", 0o666),
        own("sticky/b", NOBODY, NOBODY),
        dir("sticky/c", 0o777),
        own("sticky/c", OTHER, OTHER),
        dir("shared/b", 0o755),
        file("shared/b/a", 0o600),
        file("group/a", 0o755),
        own("group/a", NOBODY, 7),
        bits("group/a", 0o6755),
    ];
    for op in &ops {
        assert_eq!(model::apply(vfs, &Identity::Superuser, op), kernel.apply(op), "{op:?}");
    }
}

impl Op {
    /// Linux deviates from POSIX with `fs.protected_hardlinks`: users may not link others' files.
    pub fn is_comparable(&self, vfs: &Vfs<MemoryFs>, caller: &Identity) -> bool {
        let Op::Link { from, .. } = self else { return true };
        let Identity::User { uid, .. } = caller else { return true };
        let found = vfs.walk(&Identity::Superuser, vfs.root(), from.as_bytes(), WalkOptions::KEEP_LINK);
        found.is_ok_and(|inode| inode.attr().uid == *uid)
    }

    /// Rarely reached by random operations.
    pub fn special() -> Vec<Op> {
        let rename = |from: &str, to: &str, how| Op::Rename { from: from.into(), to: to.into(), how };
        let long = "n".repeat(256);
        vec![
            Op::Mkdir { path: "a".into(), mode: 0o755 },
            Op::Mkdir { path: "a/b".into(), mode: 0o7777 },
            Op::Mkdir { path: "a/b/c".into(), mode: 0o700 },
            rename("a", "a/b/c/d", OnExisting::Replace),
            rename("a", "a/b", OnExisting::Replace),
            rename("a/b/c", "a", OnExisting::Replace),
            rename("a", "a/b", OnExisting::Exchange),
            rename("a/b/c", "a", OnExisting::Exchange),
            rename("a/b/c", "a/b", OnExisting::Fail),
            rename(".", "x", OnExisting::Replace),
            rename("a", "..", OnExisting::Replace),
            rename("a", ".", OnExisting::Fail),
            rename("none", "a", OnExisting::Fail),
            rename("a", &long, OnExisting::Replace),
            Op::Create { path: long.clone(), exclusive: false, mode: 0o644 },
            Op::Mkdir { path: ".".into(), mode: 0o755 },
            Op::Rmdir { path: ".".into() },
            Op::Rmdir { path: "a/..".into() },
            Op::Rmdir { path: "a/b/..".into() },
            Op::Unlink { path: ".".into() },
            Op::Unlink { path: "a".into() },
            Op::Create { path: "f".into(), exclusive: true, mode: 0o7777 },
            Op::Mkdir { path: "f/x".into(), mode: 0o755 },
            Op::Mkdir { path: "made/".into(), mode: 0o755 },
            Op::Rmdir { path: "f".into() },
            rename("f", "a", OnExisting::Replace),
            rename("made", "f", OnExisting::Replace),
            rename("made", "f", OnExisting::Exchange),
            Op::Symlink { target: "nowhere".into(), path: "dangling".into() },
            Op::Symlink { target: String::new(), path: "empty".into() },
            Op::Create { path: "dangling".into(), exclusive: true, mode: 0o644 },
            Op::Link { from: "dangling".into(), to: "again".into() },
            Op::Link { from: "a".into(), to: "directory".into() },
            Op::Chmod { path: "dangling".into(), mode: 0o600 },
            Op::Chown { path: "group/a".into(), uid: None, gid: Some(7) },
            Op::Chown { path: "group/a".into(), uid: None, gid: Some(OTHER) },
            Op::Chmod { path: "group/a".into(), mode: 0o6755 },
            Op::Write { path: "group/a".into(), offset: 3, len: 5, append: false },
            Op::Truncate { path: "a".into(), size: 0 },
            Op::Truncate { path: "shared/a".into(), size: 1 << 40 },
            Op::SetXattr { path: "shared/a".into(), name: "user.one", len: 3, how: SetXattr::Replace },
            Op::SetXattr { path: "sticky".into(), name: "user.one", len: 3, how: SetXattr::Any },
            Op::SetXattr { path: "a".into(), name: "nothing.x", len: 3, how: SetXattr::Any },
        ]
    }
}
