//! Attribute values in inodes (`ea_inode`). Such an inode has no name and counts its entries. It is
//! created as an orphan, which a crash frees, and becomes a value with its first entry. The removal
//! of the last makes it an orphan again.

use super::XattrCaches;
use crate::file::Times;
use crate::inode::ORPHAN_CREDITS;
use crate::inode::Snapshot;
use crate::{Error, Ext4, Node, Result, Structure};
use dentree_ext4_format::xattr::{XattrEntry, XattrValue};
use dentree_ext4_format::{Inode, InodeFlags, InodeNumber, InodeTime, Problem};
use dentree_jbd2::Handle;
use dentree_mbcache::{EntryRef, Users};
use dentree_vfs::{NewInode, NewKind};

/// Adding or removing a user.
pub(super) const VALUE_CREDITS: u32 = 1 + ORPHAN_CREDITS;

pub(super) fn inodes_of(entries: &[XattrEntry<'_>]) -> impl Iterator<Item = InodeNumber> {
    entries.iter().filter_map(|entry| match entry.value {
        XattrValue::Inode { inode, .. } => Some(inode),
        XattrValue::Inline(_) => None,
    })
}

impl Ext4 {
    /// While the entry is held, the inode is not freed.
    pub(super) fn find_value(
        &self,
        hash: u32,
        value: &[u8],
        is_wanted: impl Fn(InodeNumber) -> bool,
    ) -> Result<Option<EntryRef<'_>>> {
        let mut candidate = self.writer()?.xattr_caches.values.find_first(hash);
        while let Some(entry) = candidate {
            if let Ok(ino) = u32::try_from(entry.value()).map(InodeNumber)
                && is_wanted(ino)
                && self.holds_value(ino, hash, value)?
            {
                entry.touch();
                return Ok(Some(entry));
            }
            candidate = entry.find_next();
        }
        Ok(None)
    }

    fn holds_value(&self, ino: InodeNumber, hash: u32, value: &[u8]) -> Result<bool> {
        let Ok((holder, users)) = self.value_inode(ino) else { return Ok(false) };
        let len = u64::try_from(value.len()).unwrap_or(u64::MAX);
        if users == 0 || holder.inode.size != len || holder.inode.raw_times[0] != hash {
            return Ok(false);
        }
        let mut content = vec![0; value.len()];
        self.read_content(&holder, 0, &mut content)?;
        Ok(content == value)
    }

    pub(super) fn value_inode(&self, ino: InodeNumber) -> Result<(Snapshot, u64)> {
        let holder = self.read_inode(ino)?;
        if !holder.has(InodeFlags::EA_INODE) || holder.has(InodeFlags::INLINE_DATA) {
            let because = "lacks the flag of attribute values (EA_INODE)";
            let value = u64::from(holder.inode.flags.0);
            let problem = Problem::Value { field: "i_flags", value, because };
            return Err(Structure::XattrValue.of(ino).corrupt(problem));
        }
        let (bytes, _) = self.inode_bytes(ino)?;
        Ok((holder, Inode::value_users(&bytes)))
    }

    /// The new inode is an orphan. The caller has no open handle.
    pub(super) fn create_value_file(&self, owner: &Node, value: &[u8]) -> Result<Node> {
        let inode = &owner.snapshot().inode;
        let kind = NewKind::Regular;
        let new = NewInode { kind, permissions: 0o600, uid: inode.uid, gid: inode.gid, xattrs: &[] };
        let new_inode = self.make_unnamed(owner, &new)?;
        let written = self.write_file(&new_inode, Some(0), value, Times::Now).and_then(|(_, len)| {
            if len < value.len() { Err(Error::NoSpace) } else { self.write_back(&new_inode) }
        });
        match written {
            Ok(()) => Ok(new_inode),
            Err(error) => {
                self.free_orphan(&new_inode)?;
                Err(error)
            }
        }
    }

    pub(super) fn turn_into_value(&self, handle: &mut Handle<'_>, new_inode: &Node, hash: u32) -> Result<()> {
        let ino = self.change_inode(handle, new_inode, |snapshot| {
            let inode = &mut snapshot.inode;
            inode.links = 1;
            inode.flags = inode.flags.with(InodeFlags::EA_INODE);
            (inode.atime, inode.ctime) = (InodeTime::default(), InodeTime::default());
            inode.raw_times[0] = hash;
            snapshot.ino
        })?;
        self.change_value_inode(handle, ino, |bytes| Inode::set_value_users(bytes, ino, 1, &self.sb))?;
        self.remove_orphan(handle, ino, 0)?;
        self.writer()?.xattr_caches.cache_value(hash, ino);
        Ok(())
    }

    /// The value has another user, or the caller holds its cache entry.
    pub(super) fn add_value_user(&self, handle: &mut Handle<'_>, ino: InodeNumber) -> Result<()> {
        self.change_value_inode(handle, ino, |bytes| {
            let users = Inode::value_users(bytes).checked_add(1).ok_or(TOO_MANY)?;
            Inode::set_value_users(bytes, ino, users, &self.sb)
        })
    }

    /// The last one makes the inode an orphan, which the caller [frees](Ext4::free_values) after
    /// stopping the handle.
    pub(super) fn remove_value_user(
        &self,
        handle: &mut Handle<'_>,
        ino: InodeNumber,
        unused: &mut Vec<InodeNumber>,
    ) -> Result<()> {
        let hash = self.value_inode(ino)?.0.inode.raw_times[0];
        let values = &self.writer()?.xattr_caches.values;
        let is_unused = values.leave(hash, u64::from(ino.0), |is_hidden| {
            self.change_value_inode(handle, ino, |bytes| match Inode::value_users(bytes) {
                0 => Err(Problem::Missing { what: "a user of the value" }),
                1 if !is_hidden => Ok(Users::Alone),
                1 => {
                    let mut inode = Inode::parse(bytes, ino, &self.sb)?;
                    inode.flags = inode.flags.without(InodeFlags::EA_INODE);
                    inode.links = 0;
                    inode.encode(bytes, &self.sb);
                    Inode::set_value_users(bytes, ino, 0, &self.sb).map(|()| Users::Alone)
                }
                _ if is_hidden => Ok(Users::Others { reusable: true }),
                users => Inode::set_value_users(bytes, ino, users - 1, &self.sb)
                    .map(|()| Users::Others { reusable: true }),
            })
        })?;
        if !is_unused {
            return Ok(());
        }
        unused.push(ino);
        self.add_orphan(handle, ino)
    }

    fn change_value_inode<R>(
        &self,
        handle: &mut Handle<'_>,
        ino: InodeNumber,
        change: impl FnOnce(&mut [u8]) -> Result<R, Problem>,
    ) -> Result<R> {
        let (block, within) = self.find_inode(ino)?;
        let place = Structure::XattrValue.of(ino).at(block);
        let size = usize::try_from(self.sb.inode_size).unwrap_or(usize::MAX);
        let missing = Problem::Missing { what: "the inode in its table" };
        self.update(handle, block, place, |bytes| {
            bytes.chunks_exact_mut(size).nth(within).map_or(Err(missing), change)
        })?
        .map_err(|problem| place.corrupt(problem))
    }
}

const TOO_MANY: Problem =
    Problem::Value { field: "the value's reference count", value: u64::MAX, because: "is the maximum" };

impl XattrCaches {
    /// The caller's attribute uses it.
    pub(super) fn cache_value(&self, hash: u32, ino: InodeNumber) {
        if self.values.get(hash, u64::from(ino.0)).is_none() {
            self.values.insert(hash, u64::from(ino.0), true);
        }
    }
}
