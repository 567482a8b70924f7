//! System calls on a `Vfs`, by path.

use super::ops::Op;
use dentree_vfs::*;
use std::sync::Arc;

pub type Outcome = std::result::Result<Vec<u64>, i32>;

pub fn apply<F: FileSystem>(vfs: &Vfs<F>, caller: &Identity, op: &Op) -> Outcome {
    run(vfs, caller, op).map_err(|error| error.errno().raw_os_error())
}

fn run<F: FileSystem>(vfs: &Vfs<F>, caller: &Identity, op: &Op) -> Result<Vec<u64>> {
    let root = vfs.root();
    let parent = |path: &str| -> Result<(Arc<Inode<F>>, Vec<u8>)> {
        let last = vfs.walk_parent(caller, root, path.as_bytes())?;
        Ok((last.dir.clone(), last.name.to_vec()))
    };
    let follow = |path: &str| vfs.walk(caller, root, path.as_bytes(), WalkOptions::FOLLOW);
    let make = |path: &str, kind, mode| -> Result<()> {
        let (dir, name) = parent(path)?;
        vfs.create(caller, &dir, &name, kind, mode).map(drop)
    };
    match op {
        Op::Create { path, exclusive: true, mode } => make(path, NewKind::Regular, *mode)?,
        Op::Create { path, exclusive: false, mode } => {
            let (dir, name) = parent(path)?;
            let (inode, new) = vfs.open_or_create(caller, &dir, &name, *mode)?;
            if !new {
                open_for_writing(vfs, caller, &inode)?;
            }
        }
        Op::Mkdir { path, mode } => make(path, NewKind::Directory, *mode)?,
        Op::Mknod { path, fifo, mode } => {
            make(path, if *fifo { NewKind::Fifo } else { NewKind::CharDevice { major: 1, minor: 3 } }, *mode)?
        }
        Op::Symlink { target, path } => make(path, NewKind::Symlink(target.as_bytes()), 0)?,
        Op::Link { from, to } => {
            let inode = vfs.walk(caller, root, from.as_bytes(), WalkOptions::KEEP_LINK)?;
            let (dir, name) = parent(to)?;
            vfs.link(caller, &inode, &dir, &name)?;
        }
        Op::Unlink { path } => {
            let (dir, name) = parent(path)?;
            vfs.unlink(caller, &dir, &name)?;
        }
        Op::Rmdir { path } => {
            let (dir, name) = parent(path)?;
            vfs.rmdir(caller, &dir, &name)?;
        }
        Op::Rename { from, to, how } => {
            let ((old_dir, old), (new_dir, new)) = (parent(from)?, parent(to)?);
            vfs.rename(caller, &old_dir, &old, &new_dir, &new, *how)?;
        }
        Op::Chmod { path, mode } => {
            vfs.set_attr(
                caller,
                &*follow(path)?,
                &SetAttr { permissions: Some(*mode), ..SetAttr::default() },
            )?;
        }
        Op::Chown { path, uid, gid } => {
            vfs.set_attr(caller, &*follow(path)?, &SetAttr { uid: *uid, gid: *gid, ..SetAttr::default() })?;
        }
        Op::Utimes { path, atime, mtime } => {
            let time = |wanted: Option<Option<i64>>| {
                wanted.map(|time| match time {
                    Some(seconds) => SetTime::At(Timestamp { seconds, nanos: 0 }),
                    None => SetTime::Now,
                })
            };
            let changes = SetAttr { atime: time(*atime), mtime: time(*mtime), ..SetAttr::default() };
            vfs.set_attr(caller, &*follow(path)?, &changes)?;
        }
        Op::Truncate { path, size } => {
            let inode = follow(path)?;
            open_for_writing(vfs, caller, &inode)?;
            vfs.set_attr(caller, &inode, &SetAttr { size: Some(*size), ..SetAttr::default() })?;
        }
        Op::Write { path, offset, len, append } => {
            let inode = follow(path)?;
            open_for_writing(vfs, caller, &inode)?;
            let data = vec![*len as u8; *len];
            let written = if *append {
                vfs.append(caller, &inode, &data)?.1
            } else {
                vfs.write(caller, &inode, *offset, &data)?
            };
            return Ok(vec![written as u64]);
        }
        Op::Allocate { path, offset, len, how } => {
            let inode = follow(path)?;
            open_for_writing(vfs, caller, &inode)?;
            vfs.allocate(caller, &inode, *offset, *len, *how)?;
        }
        Op::SetXattr { path, name, len, how } => {
            vfs.setxattr(caller, &*follow(path)?, name.as_bytes(), &vec![b'v'; *len], *how)?;
        }
        Op::RemoveXattr { path, name } => vfs.removexattr(caller, &*follow(path)?, name.as_bytes())?,
        Op::Stat { path } => {
            let attr = follow(path)?.attr();
            return Ok(vec![attr.mode().into(), attr.uid.into(), attr.gid.into()]);
        }
        Op::List { path } => {
            let mut count = 0;
            vfs.readdir(caller, &*follow(path)?, ReaddirStart::First, &mut |_| {
                count += 1;
                std::ops::ControlFlow::Continue(())
            })?;
            return Ok(vec![count]);
        }
    }
    Ok(Vec::new())
}

/// `O_WRONLY | O_NOFOLLOW` on an existing inode.
fn open_for_writing<F: FileSystem>(vfs: &Vfs<F>, caller: &Identity, inode: &Inode<F>) -> Result<()> {
    match inode.kind() {
        FileType::Symlink => Err(Error::Loop),
        FileType::Directory => Err(Error::IsADirectory),
        _ => vfs.check(caller, inode, Access::WRITE),
    }
}
