//! Access control lists: the same operations through the kernel and `Vfs` leave the same lists, and
//! allow the same.

mod common;

use common::writing::{Dice, check, open};
use common::{Image, run};
use dentree_ext4::Ext4;
use dentree_vfs::{Access, Error, Identity, Inode, Mode, NewKind, SetAttr, SetXattr, Vfs, WalkOptions};
use rustix::fs::{Mode as KernelMode, OFlags, XattrFlags};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";
const USERS: [u32; 3] = [1001, 1002, 1003];
const GROUPS: [u32; 3] = [2001, 2002, 2003];

/// User, group, supplementary groups.
const ASKING: [(u32, u32, &[u32]); 5] = [
    (1001, 2001, &[]),
    (1002, 2002, &[2001]),
    (1002, 2003, &[2002, 2001]),
    (1003, 100, &[]),
    (1004, 100, &[2003]),
];

fn acl(dice: &mut Dice) -> Vec<u8> {
    let mut value = vec![2, 0, 0, 0];
    let mut put = |tag: u16, permissions: usize, id: u32| {
        value.extend_from_slice(&tag.to_le_bytes());
        value.extend_from_slice(&u16::try_from(permissions).unwrap().to_le_bytes());
        value.extend_from_slice(&id.to_le_bytes());
    };
    put(1, dice.roll(8), !0);
    let named = dice.roll(3);
    (0..named).for_each(|n| put(2, dice.roll(8), USERS[n]));
    put(4, dice.roll(8), !0);
    let groups = dice.roll(3);
    (0..groups).for_each(|n| put(8, dice.roll(8), GROUPS[n]));
    if named + groups > 0 || dice.roll(3) == 0 {
        put(0x10, dice.roll(8), !0);
    }
    put(0x20, dice.roll(8), !0);
    value
}

struct Both<'a> {
    vfs: &'a Vfs<Ext4>,
    kernel: &'a Path,
}

impl Both<'_> {
    fn ours(&self, path: &str) -> Arc<Inode<Ext4>> {
        let root = self.vfs.root();
        self.vfs.walk(&Identity::Superuser, root, path.as_bytes(), WalkOptions::KEEP_LINK).unwrap()
    }

    fn make(&self, dir: &str, name: &str, is_dir: bool, permissions: u16, umask: u16) {
        let kind = if is_dir { NewKind::Directory } else { NewKind::Regular };
        let mode = Mode { permissions, umask };
        self.vfs.create(&Identity::Superuser, &self.ours(dir), name.as_bytes(), kind, mode).unwrap();
        let at = self.kernel.join(dir).join(name);
        let permissions = KernelMode::from_raw_mode(u32::from(permissions));
        let before = rustix::process::umask(KernelMode::from_raw_mode(u32::from(umask)));
        if is_dir {
            rustix::fs::mkdir(&at, permissions).unwrap();
        } else {
            rustix::fs::open(&at, OFlags::CREATE | OFlags::WRONLY, permissions).unwrap();
        }
        rustix::process::umask(before);
    }

    fn change_mode(&self, path: &str, permissions: u16) {
        let changes = SetAttr { permissions: Some(permissions), ..SetAttr::default() };
        self.vfs.set_attr(&Identity::Superuser, &self.ours(path), &changes).unwrap();
        let mode = KernelMode::from_raw_mode(u32::from(permissions));
        rustix::fs::chmod(self.kernel.join(path), mode).unwrap();
    }

    fn change_owner(&self, path: &str, uid: u32, gid: u32) {
        let changes = SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
        self.vfs.set_attr(&Identity::Superuser, &self.ours(path), &changes).unwrap();
        std::os::unix::fs::chown(self.kernel.join(path), Some(uid), Some(gid)).unwrap();
    }

    fn set(&self, path: &str, name: &str, value: &[u8]) {
        let ours =
            self.vfs.setxattr(&Identity::Superuser, &self.ours(path), name.as_bytes(), value, SetXattr::Any);
        let theirs = rustix::fs::setxattr(self.kernel.join(path), name, value, XattrFlags::empty());
        assert_eq!(ours.map_err(|error| error.errno()), theirs, "{path}: {name} = {value:?}");
    }

    fn remove(&self, path: &str, name: &str) {
        let ours = self.vfs.removexattr(&Identity::Superuser, &self.ours(path), name.as_bytes());
        let theirs = rustix::fs::removexattr(self.kernel.join(path), name);
        assert_eq!(ours.map_err(|error| error.errno()), theirs, "{path}: removing {name}");
    }

    fn compare(&self, paths: &[String], what: &str) {
        for path in paths {
            let inode = self.ours(path);
            let theirs = self.kernel.join(path);
            let stat = rustix::fs::stat(&theirs).unwrap();
            let permissions = inode.attr().permissions;
            assert_eq!(u32::from(permissions), stat.st_mode & 0o7777, "{what}: {path}");
            for name in [ACCESS, DEFAULT] {
                let ours = match self.vfs.getxattr(&inode, name.as_bytes()) {
                    Err(Error::NoAttribute) => None,
                    value => Some(value.unwrap()),
                };
                let mut value = vec![0; 1000];
                let len = rustix::fs::getxattr(&theirs, name, &mut value[..]).ok();
                assert_eq!(ours.as_deref(), len.map(|len| &value[..len]), "{what}: {path}: {name}");
            }
        }
        for (uid, gid, groups) in ASKING {
            let who = Identity::User { uid, gid, groups: groups.to_vec() };
            let ours: String = paths.iter().map(|path| self.ask_us(&who, path)).collect();
            let theirs = self.ask_them((uid, gid, groups), paths);
            assert_eq!(ours, theirs, "{what}: {who:?} of {paths:?}");
        }
    }

    /// Three digits: read, write, execute.
    fn ask_us(&self, who: &Identity, path: &str) -> String {
        let found = self.vfs.walk(who, self.vfs.root(), path.as_bytes(), WalkOptions::KEEP_LINK);
        let may = |access| matches!(&found, Ok(found) if self.vfs.check(who, found, access).is_ok());
        let digit = |access| if may(access) { '1' } else { '0' };
        [Access::READ, Access::WRITE, Access::EXECUTE].into_iter().map(digit).collect()
    }

    fn ask_them(&self, (uid, gid, groups): (u32, u32, &[u32]), paths: &[String]) -> String {
        let groups = groups.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let ask = "cd \"$0\" || exit 1; for path; do for what in r w x; do \
                   if test -$what \"$path\"; then printf 1; else printf 0; fi; done; done";
        let mut command = Command::new("setpriv");
        command.arg(format!("--reuid={uid}")).arg(format!("--regid={gid}"));
        match groups.as_str() {
            "" => command.arg("--clear-groups"),
            groups => command.arg(format!("--groups={groups}")),
        };
        run(command.args(["sh", "-c", ask]).arg(self.kernel).args(paths))
    }
}

#[test]
fn acls_are_inherited_changed_and_enforced_as_by_the_kernel() {
    for (options, seed) in [("-t ext4", 11), ("-t ext4 -I 128", 12), ("-t ext4 -I 128 -b 1024", 13)] {
        let theirs = Image::new(options, "16M", |_| {});
        let ours = Image::new(options, "16M", |_| {});
        let Some(mount) = theirs.mount_and_replay() else { return };
        // Other users must reach the mount.
        let all = std::env::temp_dir();
        let parents = mount.path().ancestors().skip(1).take_while(|path| *path != all);
        for path in parents {
            rustix::fs::chmod(path, KernelMode::from_raw_mode(0o755)).unwrap();
        }
        let vfs = Vfs::new(open(&ours)).unwrap();
        let both = Both { vfs: &vfs, kernel: mount.path() };
        let mut dice = Dice(0x9E37_79B9_7F4A_7C15 ^ seed);
        let mut dirs = vec!["top".to_owned()];
        both.make(".", "top", true, 0o777, 0);
        let mut paths = dirs.clone();
        for step in 0..160 {
            let path = paths[dice.roll(paths.len())].clone();
            let dir = dirs[dice.roll(dirs.len())].clone();
            let permissions = u16::try_from(dice.roll(0o1000)).unwrap();
            match dice.roll(9) {
                0 | 1 if paths.len() < 40 => {
                    let (is_dir, name) = (dice.roll(2) == 0, format!("n{step}"));
                    both.make(&dir, &name, is_dir, permissions, [0, 0o022, 0o077][dice.roll(3)]);
                    let made = format!("{dir}/{name}");
                    dirs.extend(is_dir.then(|| made.clone()));
                    paths.push(made);
                }
                2 => both.change_mode(&path, permissions),
                3 => both.change_owner(&path, USERS[dice.roll(3)], GROUPS[dice.roll(3)]),
                4 | 5 => both.set(&path, ACCESS, &acl(&mut dice)),
                6 => both.set(&dir, DEFAULT, &acl(&mut dice)),
                7 => both.remove(&path, [ACCESS, DEFAULT][dice.roll(2)]),
                _ => both.set(&path, [ACCESS, DEFAULT][dice.roll(2)], &acl(&mut dice)[..20]),
            }
            if step % 10 == 9 {
                both.compare(&paths, &format!("{options}, step {step}"));
            }
        }
        vfs.into_fs().unwrap().close().unwrap();
        check(&ours, &[], options);
        // Both read the other's lists.
        ours.agrees_with_the_kernel();
        drop(mount);
        theirs.agrees_with_the_kernel();
    }
}
