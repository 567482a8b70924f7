//! Files whose content lies in the inode: whoever changes one moves it out first.

use super::store::adopt_map;
use crate::remap::{Mapped, STEP_CREDITS, Target};
use crate::space::TAKE_CREDITS;
use crate::xattr::remove_inline_data;
use crate::{Ext4, Node, Result, Snapshot, Structure};
use dentree_ext4_format::{Extent, Incompat, InodeFlags, write_extent_leaf};

impl Ext4 {
    /// Moves a file's content from the inode into a block. The caller has the content lock.
    pub(super) fn move_inline_out(&self, node: &Node, snapshot: &Snapshot) -> Result<()> {
        let len = usize::try_from(snapshot.inode.size).unwrap_or(usize::MAX);
        let size = self.sb.block_size.in_memory();
        let mut bytes = vec![0; size];
        self.read_inline(snapshot, 0, bytes.get_mut(..len.min(size)).unwrap_or_default())?;
        let mut handle = self.start(TAKE_CREDITS + STEP_CREDITS + 1)?;
        let mut inode = snapshot.inode.clone();
        inode.flags = inode.flags.without(InodeFlags::INLINE_DATA);
        inode.block = [0; 60];
        if self.sb.incompat.has(Incompat::EXTENTS) {
            inode.flags = inode.flags.with(InodeFlags::EXTENTS);
            write_extent_leaf(&mut inode.block, &[] as &[Extent]);
        }
        if len > 0 {
            let goal = self.goal_of(snapshot.ino);
            let (start, _) = self.allocate_blocks(&mut handle, goal, 1, self.claim_of(node))?;
            let place = snapshot.place(Structure::Content).at(start);
            let written = self.device.write_at(start.0 << self.sb.block_size.log2(), &bytes);
            let mut file = Mapped { ino: snapshot.ino, inode: &mut inode };
            let mapped = written.map_err(|source| place.io_write(source)).and_then(|()| {
                self.remap(&mut handle, &mut file, 0..1, Some(Target { start, unwritten: false }))
            });
            if let Err(error) = mapped {
                self.free_blocks(&mut handle, start, 1, false)?;
                return Err(error);
            }
            file.count_blocks(self, 1);
        }
        let changed = self.change_inode(&mut handle, node, |now| {
            adopt_map(now, &inode, snapshot.inode.sectors);
            remove_inline_data(&mut now.tail)
        });
        let removed = changed.and_then(|removed| {
            removed.map_err(|problem| snapshot.place(Structure::InlineData).corrupt(problem))
        });
        self.all_or_abort(removed)
    }
}
