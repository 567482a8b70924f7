//! Setting or removing an attribute, in one transaction.

use super::block::{AttrBlock, BLOCK_CREDITS, NewBlock};
use super::fields::ExtendedFields;
use super::lists::{Lists, Location};
use super::value::{VALUE_CREDITS, inodes_of};
use crate::inode::Snapshot;
use crate::inode::apply;
use crate::{Error, Ext4, Node, Result, Structure};
use dentree_ext4_format::xattr::{
    Namespace, XattrEntry, XattrList, XattrValue, fits_in_block, fits_in_inode, remove_in_inode,
    write_in_inode,
};
use dentree_ext4_format::{Compat, Incompat, InodeNumber, Problem, Superblock, acl_from_xattr};
use dentree_jbd2::Handle;
use dentree_mbcache::EntryRef;
use dentree_vfs::{SetAttr, SetXattr};
use std::borrow::Cow;

struct Change<'a> {
    namespace: Namespace,
    name: &'a [u8],
    /// `None` removes it.
    value: Option<&'a [u8]>,
    how: SetXattr,
    attributes: SetAttr,
    /// Moves the value from this inode to one with a lower number, if any.
    moves_from: Option<InodeNumber>,
}

struct ChangePlan<'a> {
    next: Lists<'a>,
    from: Option<(Location, XattrEntry<'a>)>,
    to: Option<Location>,
    fields_len: usize,
    /// Others move to the block, for space for fields.
    moves_others: bool,
    /// Value inodes of entries that stay in the block.
    remaining_values: Vec<InodeNumber>,
    /// Value inodes of entries that move to the block.
    moved_values: Vec<InodeNumber>,
    /// Hash for a value inode, whose number the entry lacks yet.
    value_hash: Option<u32>,
    old_values: Vec<InodeNumber>,
    /// Share of attributes in `i_blocks`.
    old_sectors: u64,
}

struct ValueInode<'a, 'c> {
    /// A new value inode without users.
    new_inode: &'a mut Option<Node>,
    /// A value inode with users.
    cached: Option<EntryRef<'c>>,
}

impl ChangePlan<'_> {
    fn changes_block(&self) -> bool {
        self.moves_others
            || self.to == Some(Location::Block)
            || matches!(self.from, Some((Location::Block, _)))
    }
}

impl Ext4 {
    /// `name`: with its prefix.
    pub(crate) fn setxattr(&self, node: &Node, name: &[u8], value: &[u8], how: SetXattr) -> Result<()> {
        let (namespace, rest) = settable(name)?;
        let value = &*on_disk(namespace, value)?;
        self.change_xattr(node, &Change::of(namespace, rest, Some(value), how))
    }

    /// `name`: with its prefix; must exist.
    pub(crate) fn removexattr(&self, node: &Node, name: &[u8]) -> Result<()> {
        let (namespace, rest) = settable(name)?;
        self.change_xattr(node, &Change::of(namespace, rest, None, SetXattr::Replace))
    }

    pub(crate) fn set_acl(&self, node: &Node, acl: Option<&[u8]>, attributes: &SetAttr) -> Result<()> {
        let disk = acl.map(acl_from_xattr).transpose().map_err(Error::InvalidValue)?;
        let change = Change::of(Namespace::PosixAclAccess, b"", disk.as_deref(), SetXattr::Any);
        self.change_xattr(node, &Change { attributes: *attributes, ..change })
    }

    /// Moves a value to a cached inode with a lower number.
    pub(super) fn share_value(
        &self,
        node: &Node,
        (namespace, name): (Namespace, &[u8]),
        value: &[u8],
        holder: InodeNumber,
    ) -> Result<()> {
        let change = Change::of(namespace, name, Some(value), SetXattr::Replace);
        self.change_xattr(node, &Change { moves_from: Some(holder), ..change })
    }

    fn change_xattr(&self, node: &Node, change: &Change<'_>) -> Result<()> {
        let (mut new_inode, mut unused) = (None, Vec::new());
        let outcome = self.retry_after_commit(|| {
            let _attributes = node.attributes_mut();
            match self.try_change(node, change, true, &mut new_inode, &mut unused) {
                // The change may fit without the missing fields.
                Err(Error::NoSpace) if self.lacks_fields(&node.snapshot()) => {
                    self.try_change(node, change, false, &mut new_inode, &mut unused)
                }
                done => done,
            }
        });
        if let Some(new_inode) = new_inode {
            self.free_orphan(&new_inode)?;
        }
        if outcome.is_ok() {
            self.free_values(unused);
        }
        outcome
    }

    /// `may_grow`: extend the fields at the expense of attributes. `new_inode`: for the value.
    /// `unused`: values to free.
    fn try_change(
        &self,
        node: &Node,
        change: &Change<'_>,
        may_grow: bool,
        new_inode: &mut Option<Node>,
        unused: &mut Vec<InodeNumber>,
    ) -> Result<()> {
        let snapshot = node.snapshot();
        let mut text = Vec::new();
        let (lists, old) = self.lists(&snapshot, &mut text)?;
        let from = lists.find(|entry| change.matches(entry));
        match (from, change.how) {
            (Some(_), SetXattr::Create) => return Err(Error::AttributeExists),
            (None, SetXattr::Replace) => return Err(Error::NoAttribute),
            (Some((_, entry)), _) if change.value.map(XattrValue::Inline) == Some(entry.value) => {
                return self.set_inode_attributes(node, change);
            }
            (None, _) if change.value.is_none() => return self.set_inode_attributes(node, change),
            _ => {}
        }
        let values = self.check_values(&lists)?;
        let mut plan = self.plan(&snapshot, lists, old.is_some(), from, change, may_grow)?;
        let values = if plan.value_hash.is_some() || values > 0 { 2 * (values + 1) } else { 0 };
        let block_credits = if plan.changes_block() { BLOCK_CREDITS } else { 0 };
        // The inode, and the superblock for the first attribute.
        let credits = 2 + block_credits + VALUE_CREDITS * values;
        let mut handle = self.start(credits)?;
        let mut inode = ValueInode { new_inode, cached: None };
        if let (Some(hash), Some(value)) = (plan.value_hash, change.value) {
            if inode.new_inode.is_none() {
                let is_wanted = |ino| change.moves_from.is_none_or(|holder| ino < holder);
                inode.cached = self.find_value(hash, value, is_wanted)?;
            }
            if inode.new_inode.is_none() && inode.cached.is_none() {
                if change.moves_from.is_some() {
                    return Ok(());
                }
                handle.stop();
                *inode.new_inode = Some(self.create_value_file(node, value)?);
                handle = self.start(credits)?;
            }
            plan.set_value_inode(change, inode.number(), hash, value.len());
        }
        let block = match (plan.changes_block(), &old) {
            (true, old) => self.choose_block(&mut handle, &snapshot, old.as_ref(), &plan.next.in_block)?,
            (false, Some(old)) => NewBlock::Rewritten(old.number),
            (false, None) => NewBlock::None,
        };
        let done = self
            .add_new_value_users(&mut handle, &plan, block, inode)
            .and_then(|()| self.release_old(&mut handle, &plan, block, old.as_ref(), unused))
            .and_then(|()| self.set_ext_attr_feature(&mut handle));
        // Else the next change copies it.
        drop(snapshot);
        let done = done.and_then(|()| self.write_lists(&mut handle, node, change, &plan, block));
        self.all_or_abort(done)?;
        handle.stop();
        Ok(())
    }

    /// The attribute is now at `from`.
    fn plan<'a>(
        &self,
        snapshot: &Snapshot,
        lists: Lists<'a>,
        has_block: bool,
        from: Option<(Location, XattrEntry<'a>)>,
        change: &Change<'a>,
        may_grow: bool,
    ) -> Result<ChangePlan<'a>> {
        let old_values = inodes_of(&lists.in_block).collect();
        let old_sectors = self.sectors_of(&lists, has_block);
        let mut next = lists;
        next.in_inode.retain(|entry| !change.matches(entry));
        next.in_block.retain(|entry| !change.matches(entry));
        let remaining_values = inodes_of(&next.in_block).collect();
        let ExtendedFields { fields_len, moved } = self.extend_fields(snapshot, &mut next, may_grow)?;
        let mut plan = ChangePlan {
            next,
            from,
            to: None,
            fields_len,
            moves_others: !moved.is_empty(),
            remaining_values,
            moved_values: inodes_of(&moved).collect(),
            value_hash: None,
            old_values,
            old_sectors,
        };
        let Some(value) = change.value else { return Ok(plan) };
        let index = change.namespace.index();
        let has_inodes = self.sb.incompat.has(Incompat::EA_INODE);
        let size = u32::try_from(value.len()).unwrap_or(u32::MAX);
        for in_own_inode in [false, true] {
            let is_allowed = if in_own_inode { has_inodes } else { change.moves_from.is_none() };
            if !is_allowed {
                continue;
            }
            let entry = match in_own_inode {
                true => XattrEntry::new_in_inode(index, change.name, InodeNumber(0), size, 0),
                false => XattrEntry::new(index, change.name, value),
            };
            for location in [Location::Inode, Location::Block] {
                let list = plan.next.of(location);
                list.push(entry);
                let fits = match location {
                    Location::Inode => fits_in_inode(self.space_after_fields(fields_len), list),
                    Location::Block => fits_in_block(self.sb.block_size.in_memory(), list),
                };
                if fits {
                    // Damage may have left it unsorted.
                    plan.next.in_block.sort_by(XattrEntry::order_in_block);
                    plan.to = Some(location);
                    plan.value_hash = in_own_inode.then(|| self.sb.checksum_seed.sum(value));
                    return Ok(plan);
                }
                list.pop();
            }
        }
        Err(Error::NoSpace)
    }

    /// Adds users of values that another list now names.
    fn add_new_value_users(
        &self,
        handle: &mut Handle<'_>,
        plan: &ChangePlan<'_>,
        block: NewBlock,
        inode: ValueInode<'_, '_>,
    ) -> Result<()> {
        let in_shared = plan.to == Some(Location::Block) && matches!(block, NewBlock::Shared(_));
        if let Some(hash) = plan.value_hash.filter(|_| !in_shared) {
            match &inode.cached {
                Some(_) => self.add_value_user(handle, inode.number())?,
                None => {
                    if let Some(new_inode) = inode.new_inode.take() {
                        self.turn_into_value(handle, &new_inode, hash)?;
                    }
                }
            }
        }
        drop(inode);
        if matches!(block, NewBlock::Created(_)) {
            // The old block names them too, until it is released.
            plan.remaining_values.iter().try_for_each(|&ino| self.add_value_user(handle, ino))?;
        }
        Ok(())
    }

    /// Also releases values that are no longer named.
    fn release_old(
        &self,
        handle: &mut Handle<'_>,
        plan: &ChangePlan<'_>,
        block: NewBlock,
        old: Option<&AttrBlock>,
        unused: &mut Vec<InodeNumber>,
    ) -> Result<()> {
        let stays = matches!(block, NewBlock::Rewritten(_));
        let mut released: Vec<InodeNumber> = match plan.from {
            Some((Location::Block, _)) if !stays => Vec::new(),
            Some((_, entry)) => inodes_of(&[entry]).collect(),
            None => Vec::new(),
        };
        if matches!(block, NewBlock::Shared(_)) {
            // The shared block uses them already; the inode's entry was another user.
            released.extend(&plan.moved_values);
        }
        if let Some(old) = old.filter(|_| !stays)
            && self.release_block(handle, old)?
        {
            released.extend(&plan.old_values);
        }
        released.into_iter().try_for_each(|ino| self.remove_value_user(handle, ino, unused))
    }

    fn write_lists(
        &self,
        handle: &mut Handle<'_>,
        node: &Node,
        change: &Change<'_>,
        plan: &ChangePlan<'_>,
        block: NewBlock,
    ) -> Result<()> {
        let mut tail = vec![0; self.space_after_fields(plan.fields_len)];
        write_in_inode(&mut tail, &plan.next.in_inode);
        let now = self.writer()?.now();
        let after = self.sectors_of(&plan.next, block.number().is_some());
        let changed = self.change_inode(handle, node, |snapshot| {
            let adopted = adopt_inline_data(&mut tail, &snapshot.tail);
            snapshot.tail = if tail.iter().all(|&byte| byte == 0) { Box::default() } else { tail.into() };
            let inode = &mut snapshot.inode;
            inode.fields_len = plan.fields_len;
            inode.sectors = inode.sectors.saturating_add(after).saturating_sub(plan.old_sectors);
            inode.xattr_block = block.number();
            apply(&change.attributes, now, inode);
            if change.namespace == Namespace::PosixAclAccess {
                snapshot.has_acl = change.value.is_some();
            }
            adopted
        })?;
        changed.map_err(|problem| node.snapshot().place(Structure::InodeXattrs).corrupt(problem))
    }

    fn set_inode_attributes(&self, node: &Node, change: &Change<'_>) -> Result<()> {
        if change.attributes == SetAttr::default() { Ok(()) } else { self.set_attr(node, &change.attributes) }
    }

    pub(super) fn set_ext_attr_feature(&self, handle: &mut Handle<'_>) -> Result<()> {
        if self.sb.compat.has(Compat::EXT_ATTR) {
            return Ok(());
        }
        self.update_superblock(handle, Superblock::set_has_attributes)
    }

    /// Fails on damaged attributes.
    pub(crate) fn release_credits(&self, snapshot: &Snapshot) -> Result<u32> {
        let mut text = Vec::new();
        let (lists, old) = self.lists(snapshot, &mut text)?;
        let values = self.check_values(&lists)?;
        Ok(if old.is_some() { BLOCK_CREDITS } else { 0 } + VALUE_CREDITS * values)
    }

    /// The caller frees the values added to `unused`.
    pub(crate) fn release_attributes(
        &self,
        handle: &mut Handle<'_>,
        snapshot: &Snapshot,
        unused: &mut Vec<InodeNumber>,
    ) -> Result<()> {
        let mut text = Vec::new();
        let (lists, old) = self.lists(snapshot, &mut text)?;
        let mut released: Vec<InodeNumber> = inodes_of(&lists.in_inode).collect();
        if let Some(old) = &old
            && self.release_block(handle, old)?
        {
            released.extend(inodes_of(&lists.in_block));
        }
        released.into_iter().try_for_each(|ino| self.remove_value_user(handle, ino, unused))
    }
}

impl ValueInode<'_, '_> {
    fn number(&self) -> InodeNumber {
        let cached =
            self.cached.as_ref().and_then(|cached| u32::try_from(cached.value()).ok()).map(InodeNumber);
        let new_inode = self.new_inode.as_ref().map(|new_inode| new_inode.snapshot().ino);
        // One of them exists.
        cached.or(new_inode).unwrap_or(InodeNumber(0))
    }
}

impl<'a> Change<'a> {
    fn of(namespace: Namespace, name: &'a [u8], value: Option<&'a [u8]>, how: SetXattr) -> Change<'a> {
        Change { namespace, name, value, how, attributes: SetAttr::default(), moves_from: None }
    }

    fn matches(&self, entry: &XattrEntry<'_>) -> bool {
        entry.name_index == self.namespace.index() && entry.name == self.name
    }
}

impl<'a> ChangePlan<'a> {
    fn set_value_inode(&mut self, change: &Change<'a>, ino: InodeNumber, hash: u32, len: usize) {
        let size = u32::try_from(len).unwrap_or(u32::MAX);
        let entry = XattrEntry::new_in_inode(change.namespace.index(), change.name, ino, size, hash);
        let list = self.next.of(self.to.unwrap_or(Location::Inode));
        list.iter_mut().filter(|entry| change.matches(entry)).for_each(|place| *place = entry);
    }
}

pub(super) fn on_disk(namespace: Namespace, value: &[u8]) -> Result<Cow<'_, [u8]>> {
    match namespace {
        Namespace::PosixAclAccess | Namespace::PosixAclDefault => {
            acl_from_xattr(value).map(Cow::Owned).map_err(Error::InvalidValue)
        }
        _ => Ok(Cow::Borrowed(value)),
    }
}

/// `name` has its prefix.
pub(super) fn settable(name: &[u8]) -> Result<(Namespace, &[u8])> {
    let found = Namespace::split(name).filter(|(namespace, _)| namespace.is_listed());
    found.ok_or_else(|| {
        let what =
            "extended attributes have names in user., trusted. or security., or are system.posix_acl_…";
        Error::Unsupported(what.to_owned())
    })
}

/// Inline content may have changed since `to` was built.
pub(crate) fn adopt_inline_data(to: &mut [u8], from: &[u8]) -> Result<(), Problem> {
    let place = |bytes: &[u8]| match XattrList::in_inode(bytes) {
        Some(list) => list.place_in_inode(Namespace::System, b"data"),
        None => Ok(None),
    };
    match (place(to)?, place(from)?) {
        (Some(new), Some(old)) => {
            let old = from.get(old).unwrap_or_default();
            let new = to.get_mut(new).unwrap_or_default();
            new.iter_mut().zip(old).for_each(|(to, from)| *to = *from);
            Ok(())
        }
        (Some(_), None) => remove_inline_data(to),
        (None, _) => Ok(()),
    }
}

pub(crate) fn remove_inline_data(tail: &mut [u8]) -> Result<(), Problem> {
    remove_in_inode(tail, Namespace::System, b"data")
}
