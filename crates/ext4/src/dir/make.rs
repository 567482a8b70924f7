//! Creation of inodes.

use super::DirUpdate;
use super::insert::NEW_BLOCK_CREDITS;
use super::lock::Insertion;
use crate::alloc::INODE_CREDITS;
use crate::inode::ORPHAN_CREDITS;
use crate::inode::Snapshot;
use crate::map::write::Mapped;
use crate::{Ext4, Node, Result};
use dentree_ext4_format::{DeviceNumber, Inode, InodeFlags, InodeNumber, NewEntry};
use dentree_jbd2::Handle;
use dentree_vfs::{FileType, NewInode, NewKind};

impl Ext4 {
    /// On an error nothing has changed.
    pub(crate) fn make(&self, dir: &Node, name: &[u8], new: &NewInode<'_>) -> Result<Node> {
        self.retry_after_commit(|| self.try_make(dir, name, new))
    }

    fn try_make(&self, dir: &Node, name: &[u8], new: &NewInode<'_>) -> Result<Node> {
        let kind = kind_of(&new.kind);
        let Insertion { plan, guard: _guard } =
            self.lock_for_insert(dir, name, kind == FileType::Directory)?;
        let mut updated = DirUpdate::of(dir);
        if kind == FileType::Directory {
            self.count_subdirectory(&mut updated)?;
        }
        let of_attributes = self.initial_credits(new.xattrs);
        let mut handle = self.start(plan.credits() + INODE_CREDITS + NEW_BLOCK_CREDITS + of_attributes)?;
        let mut made = self.new_inode(&mut handle, &updated, new)?;
        let entry = NewEntry { name, inode: made.ino, file_type: self.entry_type(kind) };
        if let Err(error) = self.insert_entry(&mut handle, dir, &mut updated, plan, &entry) {
            let undone = self.discard_inode(&mut handle, &mut made);
            self.all_or_abort(undone)?;
            return Err(error);
        }
        let done = self
            .write_new_inode(&mut handle, &made)
            .and_then(|()| self.publish_directory(&mut handle, dir, &updated));
        self.all_or_abort(done)?;
        Ok(Node::new(made, Some(handle.stop())))
    }

    pub(crate) fn make_unnamed(&self, dir: &Node, new: &NewInode<'_>) -> Result<Node> {
        self.retry_after_commit(|| {
            let of_attributes = self.initial_credits(new.xattrs);
            let mut handle =
                self.start(INODE_CREDITS + NEW_BLOCK_CREDITS + ORPHAN_CREDITS + of_attributes)?;
            let mut made = self.new_inode(&mut handle, &dir.snapshot(), new)?;
            made.inode.links = 0;
            let done = self
                .write_new_inode(&mut handle, &made)
                .and_then(|()| self.add_orphan(&mut handle, made.ino));
            self.all_or_abort(done)?;
            Ok(Node::new(made, Some(handle.stop())))
        })
    }

    fn new_inode(&self, handle: &mut Handle<'_>, parent: &Snapshot, new: &NewInode<'_>) -> Result<Snapshot> {
        let kind = kind_of(&new.kind);
        let mode = u16::try_from(kind.mode_bits()).unwrap_or(0) | new.permissions & 0o7777;
        let now = self.writer()?.now();
        let (ino, generation) = self.allocate_inode(handle, parent, kind)?;
        let mut inode = Inode::new(ino, mode, generation, now, &self.sb);
        inode.uid = new.uid;
        inode.gid = new.gid;
        inode.flags = inherited(parent.inode.flags, kind);
        let mut made =
            Snapshot { ino, kind, inode, tail: Box::default(), has_acl: false, disk_size: None, reserved: 0 };
        if let Err(error) = self.init_attributes(handle, &mut made, new.xattrs) {
            let undone = self.free_inode(handle, ino, kind);
            self.all_or_abort(undone)?;
            return Err(error);
        }
        match self.init_content(handle, &mut made, parent.ino, new.kind) {
            Ok(()) => Ok(made),
            Err(error) => {
                let undone = self.undo_init_attributes(handle, &made);
                let undone = undone.and_then(|()| self.free_inode(handle, ino, kind));
                self.all_or_abort(undone)?;
                Err(error)
            }
        }
    }

    /// On an error nothing has changed.
    fn init_content(
        &self,
        handle: &mut Handle<'_>,
        made: &mut Snapshot,
        parent: InodeNumber,
        kind: NewKind<'_>,
    ) -> Result<()> {
        match kind {
            NewKind::Regular => self.init_map(made),
            NewKind::Directory => {
                self.init_map(made);
                made.inode.links = 2;
                self.init_directory(handle, made, parent)?;
            }
            NewKind::Symlink(target) => self.init_symlink(handle, made, target)?,
            NewKind::Fifo | NewKind::Socket => {}
            NewKind::CharDevice { major, minor } | NewKind::BlockDevice { major, minor } => {
                made.inode.set_device(DeviceNumber { major, minor });
            }
        }
        Ok(())
    }

    fn init_directory(
        &self,
        handle: &mut Handle<'_>,
        made: &mut Snapshot,
        parent: InodeNumber,
    ) -> Result<()> {
        if self.init_inline(made, parent)? {
            return Ok(());
        }
        let file_type = self.entry_type(FileType::Directory);
        let dots =
            [(&b"."[..], made.ino), (b"..", parent)].map(|(name, inode)| NewEntry { name, inode, file_type });
        let fresh = self.append_blocks(handle, made, 1)?;
        let filled = fresh.iter().try_for_each(|&(_, at)| {
            self.create_leaf(handle, made, at, |area| {
                area.fill(&dots);
                Ok(())
            })
        });
        self.all_or_abort(filled)
    }

    fn discard_inode(&self, handle: &mut Handle<'_>, made: &mut Snapshot) -> Result<()> {
        self.undo_init_attributes(handle, made)?;
        let of_attributes = made.inode.xattr_block.map_or(0, |_| u64::from(self.sb.block_size.bytes()) / 512);
        if made.inode.sectors > of_attributes {
            let mut file = Mapped { ino: made.ino, inode: &mut made.inode };
            self.remap(handle, &mut file, 0..1, None)?;
        }
        self.free_inode(handle, made.ino, made.kind)
    }
}

fn kind_of(new: &NewKind<'_>) -> FileType {
    match new {
        NewKind::Regular => FileType::Regular,
        NewKind::Directory => FileType::Directory,
        NewKind::Symlink(_) => FileType::Symlink,
        NewKind::Fifo => FileType::Fifo,
        NewKind::Socket => FileType::Socket,
        NewKind::CharDevice { .. } => FileType::CharDevice,
        NewKind::BlockDevice { .. } => FileType::BlockDevice,
    }
}

fn inherited(parent: InodeFlags, kind: FileType) -> InodeFlags {
    let flags = InodeFlags(parent.0 & InodeFlags::INHERITED.0);
    match kind {
        FileType::Directory => flags,
        FileType::Regular => flags.without(InodeFlags::DIRECTORIES_ONLY),
        _ => InodeFlags(flags.0 & InodeFlags::OTHERS_ALSO.0),
    }
}
