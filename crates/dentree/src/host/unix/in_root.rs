//! `openat2(RESOLVE_IN_ROOT)` one component at a time, for hosts without it.

#![cfg(any(test, not(target_os = "linux")))]

use rustix::fs::{Mode, OFlags, openat, readlinkat};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Links in one path, as in the kernel.
const MOST_LINKS: usize = 40;

/// Opens a directory. Links in the path resolve with `root` as `/`.
pub(crate) fn open_in_root(root: BorrowedFd<'_>, path: &[u8]) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = |dir: BorrowedFd<'_>, name: &[u8]| openat(dir, name, flags, Mode::empty());
    let mut links = 0;
    // The directories from below the root to the current one: `..` needs no system call.
    let mut dirs: Vec<OwnedFd> = Vec::new();
    let mut rest = reversed(path);
    while let Some(name) = rest.pop() {
        let dir = dirs.last().map_or(root, AsFd::as_fd);
        match &*name {
            b"" | b"." => {}
            b".." => drop(dirs.pop()),
            name => match open(dir, name) {
                Ok(below) => dirs.push(below),
                Err(Errno::LOOP | Errno::NOTDIR) => {
                    let target = readlinkat(dir, name, Vec::new()).map_err(|error| match error {
                        Errno::INVAL => Errno::NOTDIR,
                        error => error,
                    })?;
                    links += 1;
                    if links > MOST_LINKS {
                        return Err(Errno::LOOP.into());
                    }
                    if target.as_bytes().starts_with(b"/") {
                        dirs.clear();
                    }
                    rest.extend(reversed(target.as_bytes()));
                }
                Err(error) => return Err(error.into()),
            },
        }
    }
    Ok(dirs.pop().map_or_else(|| open(root, b"."), Ok)?)
}

/// The components, the first one last.
fn reversed(path: &[u8]) -> Vec<Vec<u8>> {
    path.split(|&byte| byte == b'/').rev().map(<[u8]>::to_vec).collect()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;

    #[test]
    fn a_path_leads_where_openat2_leads() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().join("root");
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::create_dir(scratch.path().join("outside")).unwrap();
        fs::write(root.join("file"), "").unwrap();
        for (target, name) in [
            ("/a/b", "top"),
            ("../../..", "a/up"),
            ("b/.", "a/near"),
            ("loop", "loop"),
            ("/../outside", "out"),
        ] {
            symlink(target, root.join(name)).unwrap();
        }
        let root = File::open(&root).unwrap();
        let identity = |opened: io::Result<OwnedFd>| {
            let found = rustix::fs::fstat(opened.map_err(|error| error.raw_os_error())?).unwrap();
            Ok::<_, Option<i32>>((found.st_dev, found.st_ino))
        };
        for path in [
            ".",
            "/",
            "a",
            "./a//b/",
            "a/b/..",
            "../a",
            "top",
            "top/../near",
            "a/up/a",
            "a/near/../up",
            "loop",
            "loop/a",
            "out",
            "file",
            "file/..",
            "none",
            "none/..",
            "a/b/../../top",
        ] {
            let ours = identity(open_in_root(root.as_fd(), path.as_bytes()));
            let theirs = identity(crate::host::unix::own::open_in_root(root.as_fd(), path.as_bytes()));
            assert_eq!(ours, theirs, "{path}");
        }
    }
}
