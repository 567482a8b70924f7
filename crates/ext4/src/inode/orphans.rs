//! Orphans: after a crash, inodes without links are freed and truncations finished. On disk they
//! are a list from the superblock through `i_dtime`, or slots of the orphan file (`orphan_file`),
//! then a list if no slot is free.

use crate::map::{MapCache, Mapping};
use crate::{Ext4, Place, Result, Structure};
use dentree_ext4_format::{
    BlockNumber, ChecksumSeed, Compat, Inode, InodeNumber, LogicalBlock, Problem, Superblock, orphan_slots,
    set_orphan, verify_orphan_block, write_orphan_tail,
};
use dentree_jbd2::Handle;
use dentree_sync::{Mutex, MutexGuard};
use std::collections::HashMap;

/// The superblock or a block of the orphan file, the inode, and its neighbour in the list.
pub(crate) const ORPHAN_CREDITS: u32 = 3;

#[derive(Default)]
pub(crate) struct Orphans {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    newest: Option<InodeNumber>,
    places: HashMap<InodeNumber, OrphanPlace>,
    file: Option<OrphanFile>,
}

#[derive(Clone, Copy)]
enum OrphanPlace {
    List { newer: Option<InodeNumber>, older: Option<InodeNumber> },
    File(Slot),
}

#[derive(Clone, Copy)]
struct Slot {
    block: BlockNumber,
    at: usize,
}

struct OrphanFile {
    ino: InodeNumber,
    /// `None` without checksums.
    seed: Option<ChecksumSeed>,
    free: Vec<Slot>,
}

impl OrphanFile {
    fn place(&self, block: BlockNumber) -> Place {
        Structure::OrphanFile.of(self.ino).at(block)
    }
}

impl Orphans {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(crate) fn all(&self) -> Vec<InodeNumber> {
        self.lock().places.keys().copied().collect()
    }
}

impl Ext4 {
    pub(crate) fn read_orphans(&self) -> Result<Orphans> {
        let mut state = State::default();
        let mut next = self.sb.last_orphan;
        let mut newer = None;
        while next != 0 {
            let ino = InodeNumber(next);
            let place = Structure::Superblock.of(ino);
            let (first, last) = (u64::from(self.sb.first_ino), u64::from(self.sb.inodes_count));
            Problem::check_range("s_last_orphan", u64::from(next), first, last)
                .map_err(|problem| place.corrupt(problem))?;
            let (bytes, _) = self.inode_bytes(ino)?;
            next = Inode::dtime(&bytes);
            let older = (next != 0).then_some(InodeNumber(next));
            if state.places.insert(ino, OrphanPlace::List { newer, older }).is_some() {
                let missing = Problem::Missing { what: "the end of the orphan list" };
                return Err(place.corrupt(missing));
            }
            state.newest = state.newest.or(Some(ino));
            newer = Some(ino);
        }
        if self.sb.compat.has(Compat::ORPHAN_FILE) {
            self.read_orphan_file(&mut state)?;
        }
        // Unreadable ones fail the mount before any change.
        state.places.keys().try_for_each(|&ino| self.read_orphan(ino).map(drop))?;
        Ok(Orphans { state: Mutex::new(state) })
    }

    fn read_orphan_file(&self, state: &mut State) -> Result<()> {
        let ino = InodeNumber(self.sb.orphan_file_inum);
        let checked = self.sb.check_inode("s_orphan_file_inum", ino);
        checked.map_err(|problem| Structure::Superblock.at(self.superblock_at).corrupt(problem))?;
        let file = self.read_inode(ino)?;
        let seed = self.sb.has_metadata_csum().then_some(file.inode.checksum_seed);
        let mut free = Vec::new();
        let blocks = self.sb.block_size.blocks_for(file.inode.size);
        // A longer file would read some blocks many times.
        let max = self.sb.blocks_count.min(u64::from(u32::MAX));
        let place = file.place(Structure::OrphanFile);
        Problem::check_range("the orphan file's blocks", blocks, 1, max).map_err(|p| place.corrupt(p))?;
        let (blocks, mut maps) = (u32::try_from(blocks).unwrap_or(u32::MAX), MapCache::default());
        for logical in (0..blocks).map(LogicalBlock) {
            let Mapping::Data(block) = maps.next(self, &file, logical, blocks)? else {
                return Err(place.corrupt(Problem::Missing { what: "a block" }));
            };
            let bytes = self.metadata(block, place)?;
            let corrupt = |problem| place.at(block).corrupt(problem);
            verify_orphan_block(&bytes, block, seed).map_err(corrupt)?;
            for (at, number) in orphan_slots(&bytes).enumerate() {
                let slot = Slot { block, at };
                if number == 0 {
                    free.push(slot);
                    continue;
                }
                self.sb.check_inode("an orphan", InodeNumber(number)).map_err(corrupt)?;
                state.places.insert(InodeNumber(number), OrphanPlace::File(slot));
            }
        }
        // Pop the lowest slot first.
        free.reverse();
        state.file = Some(OrphanFile { ino: file.ino, seed, free });
        Ok(())
    }

    pub(crate) fn add_orphan(&self, handle: &mut Handle<'_>, ino: InodeNumber) -> Result<()> {
        let mut state = self.writer()?.orphans.lock();
        if state.places.contains_key(&ino) {
            return Ok(());
        }
        if let Some(file) = &mut state.file
            && let Some(slot) = file.free.pop()
        {
            self.write_slot(handle, file, slot, ino.0)?;
            state.places.insert(ino, OrphanPlace::File(slot));
            return Ok(());
        }
        let older = state.newest;
        self.set_dtime(handle, ino, older.map_or(0, |older| older.0))?;
        self.set_last_orphan(handle, Some(ino))?;
        if let Some(OrphanPlace::List { newer, .. }) = older.and_then(|older| state.places.get_mut(&older)) {
            *newer = Some(ino);
        }
        state.newest = Some(ino);
        state.places.insert(ino, OrphanPlace::List { newer: None, older });
        Ok(())
    }

    /// `dtime`: the time of freeing, or 0.
    pub(crate) fn remove_orphan(&self, handle: &mut Handle<'_>, ino: InodeNumber, dtime: u32) -> Result<()> {
        let mut state = self.writer()?.orphans.lock();
        match state.places.get(&ino).copied() {
            None => {}
            Some(OrphanPlace::File(slot)) => {
                if let Some(file) = &mut state.file {
                    self.write_slot(handle, file, slot, 0)?;
                    file.free.push(slot);
                }
            }
            Some(OrphanPlace::List { newer, older }) => {
                match newer {
                    Some(newer) => self.set_dtime(handle, newer, older.map_or(0, |older| older.0))?,
                    None => self.set_last_orphan(handle, older)?,
                }
                if let Some(OrphanPlace::List { older: link, .. }) =
                    newer.and_then(|newer| state.places.get_mut(&newer))
                {
                    *link = older;
                }
                if let Some(OrphanPlace::List { newer: link, .. }) =
                    older.and_then(|older| state.places.get_mut(&older))
                {
                    *link = newer;
                }
                if newer.is_none() {
                    state.newest = older;
                }
            }
        }
        state.places.remove(&ino);
        self.set_dtime(handle, ino, dtime)
    }

    fn write_slot(&self, handle: &mut Handle<'_>, file: &OrphanFile, slot: Slot, number: u32) -> Result<()> {
        self.update(handle, slot.block, file.place(slot.block), |bytes| {
            set_orphan(bytes, slot.at, number);
            write_orphan_tail(bytes, slot.block, file.seed);
        })
    }

    /// Snapshots do not hold it.
    fn set_dtime(&self, handle: &mut Handle<'_>, ino: InodeNumber, dtime: u32) -> Result<()> {
        let (block, within) = self.find_inode(ino)?;
        let place = Structure::Inode.of(ino).at(block);
        let size = usize::try_from(self.sb.inode_size).unwrap_or(usize::MAX);
        self.update(handle, block, place, |bytes| match bytes.chunks_exact_mut(size).nth(within) {
            Some(bytes) => Inode::set_dtime(bytes, ino, dtime, &self.sb),
            None => Ok(()),
        })?
        .map_err(|problem| place.corrupt(problem))
    }

    fn set_last_orphan(&self, handle: &mut Handle<'_>, ino: Option<InodeNumber>) -> Result<()> {
        self.update_superblock(handle, |bytes| Superblock::set_last_orphan(bytes, ino.map_or(0, |ino| ino.0)))
    }
}
