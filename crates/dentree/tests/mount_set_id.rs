//! Changes of a file clear setuid and setgid bits and capabilities, as on the kernel's mount: in
//! the mode that is shown, for the next execution, and in the image.

mod common;
mod mounts;

use common::{Image, assert_same_lines};
use mounts::{Loop, Mounted, mountable};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, StatxFlags, XattrFlags, copy_file_range, fallocate, removexattr, setxattr,
    statx,
};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;
use std::thread;

const ROOT: u32 = 0;
const USER: u32 = 1001;
/// A supplementary group of the user.
const SUPPLEMENTARY: u32 = 2000;
/// A group without the user.
const FOREIGN: u32 = 3000;

/// Bytes from here on can change without harm to the program.
const PADDING: u64 = 128 << 10;
const BLOCK: usize = 4096;

type Change = fn(&Path) -> std::io::Result<()>;

const CONTENT: [(&str, Change); 10] = [
    ("written", |path| for_writing(path)?.write_all_at(&head(path)?, 0)),
    ("appended", |path| OpenOptions::new().append(true).open(path)?.write_all(b"x")),
    ("written-directly", |path| {
        let (mut block, head) = (vec![0; 2 * BLOCK], head(path)?);
        let aligned = block.as_ptr().align_offset(BLOCK);
        block[aligned..][..BLOCK].copy_from_slice(&head);
        let flags = rustix::fs::OFlags::DIRECT.bits() as i32;
        let file = OpenOptions::new().write(true).custom_flags(flags).open(path)?;
        file.write_all_at(&block[aligned..][..BLOCK], 0)
    }),
    ("reserved", |path| change_space(path, FallocateFlags::empty())),
    ("reserved-behind", |path| change_space(path, FallocateFlags::KEEP_SIZE)),
    ("punched", |path| change_space(path, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE)),
    ("zeroed", |path| change_space(path, FallocateFlags::ZERO_RANGE)),
    ("copied-into", |path| {
        let (mut from, mut to) = (PADDING, PADDING + 2 * BLOCK as u64);
        copy_file_range(File::open(path)?, Some(&mut from), for_writing(path)?, Some(&mut to), BLOCK)?;
        Ok(())
    }),
    ("shortened", |path| for_writing(path)?.set_len(PADDING + 5)),
    ("emptied", |path| OpenOptions::new().write(true).truncate(true).open(path).map(drop)),
];

/// By the owner.
const ATTRIBUTES: [(&str, Change); 4] = [
    ("access-list-set", |path| {
        Ok(setxattr(path, "system.posix_acl_access", &access_list(), XattrFlags::empty())?)
    }),
    ("access-list-removed", |path| match removexattr(path, "system.posix_acl_access") {
        // On the kernel's ext4 the removal of a missing list succeeds.
        Err(Errno::NODATA) => Ok(()),
        done => Ok(done?),
    }),
    ("mode-set", |path| {
        let before = fs::metadata(path)?.permissions().mode();
        fs::set_permissions(path, fs::Permissions::from_mode(before))
    }),
    ("group-set", |path| chown(path, None, Some(USER))),
];

fn for_writing(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().write(true).open(path)
}

/// The first block of the program.
fn head(path: &Path) -> std::io::Result<[u8; BLOCK]> {
    let mut head = [0; BLOCK];
    File::open(path)?.read_exact(&mut head)?;
    Ok(head)
}

fn change_space(path: &Path, how: FallocateFlags) -> std::io::Result<()> {
    Ok(fallocate(for_writing(path)?, how, PADDING, 64 << 10)?)
}

/// rwx for the owner, r for user 0, r-x for the group, the mask and others.
fn access_list() -> Vec<u8> {
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in [(1, 7, !0), (2, 4, 0), (4, 5, !0), (16, 5, !0), (32, 5, !0)] {
        list.extend([u16::to_le_bytes(tag), u16::to_le_bytes(permissions)].concat());
        list.extend(u32::to_le_bytes(id));
    }
    list
}

/// Revision 2, effective: CAP_NET_RAW.
fn capability() -> Vec<u8> {
    [0x0200_0001_u32, 1 << 13, 0, 0, 0].into_iter().flat_map(u32::to_le_bytes).collect()
}

/// Runs `work` as the user.
fn as_user<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    let work = || {
        let (user, group) = (Uid::from_raw(USER), Gid::from_raw(USER));
        set_thread_groups(&[Gid::from_raw(SUPPLEMENTARY)]).unwrap();
        set_thread_res_gid(group, group, group).unwrap();
        set_thread_res_uid(user, user, user).unwrap();
        work()
    };
    thread::scope(|scope| scope.spawn(work).join().unwrap())
}

/// Makes a program that prints its identity.
fn make(path: &Path, (owner, group): (u32, u32), mode: u32) {
    let mut program = fs::read("/usr/bin/id").unwrap();
    assert!(program.len() < PADDING as usize);
    program.resize(PADDING as usize + 4 * BLOCK, 1);
    fs::write(path, program).unwrap();
    chown(path, Some(owner), Some(group)).unwrap();
    setxattr(path, "security.capability", &capability(), XattrFlags::empty()).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Asks for the mode alone: another query may fetch a newer mode.
fn mode_and_capability(path: &Path) -> String {
    let mode = statx(CWD, path, AtFlags::empty(), StatxFlags::MODE).unwrap().stx_mode;
    let capable = rustix::fs::getxattr(path, "security.capability", &mut [0; 64][..]).is_ok();
    format!("{mode:o} {}", if capable { "capable" } else { "plain" })
}

/// Makes a file, changes it and executes it; returns the observations.
fn observe(path: &Path, by: u32, change: Change) -> String {
    let before = mode_and_capability(path);
    let change = || change(path).map_err(|error| error.raw_os_error());
    let changed = if by == ROOT { change() } else { as_user(change) };
    // First, as a query of attributes could fetch newer ones.
    let ran = as_user(|| match Command::new(path).output() {
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Err(error) => format!("{error}\n"),
    });
    format!("{before}: {changed:?} {} {ran}", mode_and_capability(path))
}

/// All changes of files of all kinds below `top`, a line each.
fn observe_all(top: &Path) -> String {
    let mut lines = String::new();
    let mut each = |owner, modes: &[u32], changes: &[(&str, Change)]| {
        for by in [ROOT, USER] {
            for &mode in modes {
                for group in [USER, SUPPLEMENTARY, FOREIGN] {
                    for (name, change) in changes {
                        let name = format!("{name}-{mode:o}-group-{group}-by-{by}");
                        let path = top.join(&name);
                        make(&path, (owner, group), mode);
                        lines.push_str(&format!("{name}: {}", observe(&path, by, *change)));
                    }
                }
            }
        }
    };
    each(ROOT, &[0o6777, 0o2767, 0o4777], &CONTENT);
    each(USER, &[0o6755, 0o2745], &ATTRIBUTES);
    lines
}

/// The stored state of the files below `top`, a line each.
fn stored(top: &Path) -> String {
    let mut lines: Vec<_> = fs::read_dir(top)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .map(|path| format!("{}: {}\n", path.file_name().unwrap().display(), mode_and_capability(&path)))
        .collect();
    lines.sort();
    lines.concat()
}

#[test]
fn a_change_clears_set_id_bits_and_capabilities_as_on_the_kernels_mount() {
    if !mountable() {
        return;
    }
    let kind = ["-t", "ext4"];
    let (theirs, ours) = (Image::new(128, &kind), Image::new(128, &kind));
    let (expected, expected_stored) = {
        let kernel = Loop::new(&theirs.file, "suid");
        (observe_all(kernel.path()), stored(kernel.path()))
    };
    let mut mounted = Mounted::new(&ours.file, &["-o", "suid,allow_other"]);
    let observed = observe_all(mounted.path());
    dentree_testing::unmount(mounted.path());
    assert!(mounted.wait().success());
    assert_same_lines(observed.as_bytes(), expected.as_bytes());
    assert_same_lines(stored(Loop::new(&ours.file, "ro").path()).as_bytes(), expected_stored.as_bytes());
}
