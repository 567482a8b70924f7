//! Shrinking: whether a size is large enough, and its steps.

use super::evacuate::session;
use super::renumber::{Names, Renumbering};
use super::smaller::{self, Shape};
use super::{Size, journal, open, refuse};
use crate::{CheckOptions, Error, Ext4, Finding, Result, Scope, Structure};
use dentree_blockdev::BlockDevice;
use dentree_ext4_format::{GroupNumber, Incompat, Inode, InodeNumber, InodeTime, Problem, Superblock};
use dentree_sync::Mutex;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Blocks for nodes of maps, besides those that fragments need.
const SPARE: u64 = 16;

/// Rounds after which nothing more is worth its copies.
const MOST_ROUNDS: usize = 8;

const BAD_BLOCKS: InodeNumber = InodeNumber(1);

/// The superblock that [`shrink`] would make. Nothing is written.
///
/// # Errors
/// What prevents it: too small a size, with the smallest one; damage; a journal that needs recovery
/// or is too small.
pub fn shrunk(device: &Arc<dyn BlockDevice>, size: Option<Size>) -> Result<Superblock> {
    let fs = open(device)?;
    Ok(rounds(&fs, size)?.pop().map_or(fs.sb.clone(), |shape| shape.sb))
}

/// Makes the file system on `device`, which has no other user, as small as `size`, or as small as
/// its content allows. A last group that would hold little but its own metadata is left out.
/// Returns the superblock. The device may then be cut to its size.
///
/// It is checked first, as by [`check`](Ext4::check). Numbers of inodes may change.
///
/// # Errors
/// Before anything is written those of [`shrunk`], and what the check finds. Then errors of the
/// device, or [`Error::NoSpace`] where fragments need more space than was expected: the file system
/// then has its old size, and some of it lies elsewhere.
///
/// ```
/// use dentree_blockdev::{BlockDevice, MemoryDevice};
/// use dentree_ext4::mkfs::{MkfsOptions, mkfs};
/// use dentree_ext4::{InodeTime, Size, shrink};
/// use std::sync::Arc;
///
/// let disk: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(64 << 20));
/// mkfs(&*disk, &MkfsOptions::new([7; 16], [1, 2, 3, 4], InodeTime::default()))?;
/// let sb = shrink(&disk, Some(Size::Bytes(32 << 20)), InodeTime::default())?;
/// assert_eq!((sb.blocks_count, sb.groups), (32 << 10, 4));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn shrink(device: &Arc<dyn BlockDevice>, size: Option<Size>, now: InodeTime) -> Result<Superblock> {
    let fs = open(device)?;
    let rounds = rounds(&fs, size)?;
    if rounds.is_empty() {
        return Ok(fs.sb.clone());
    }
    check(&fs)?;
    drop(fs);
    for round in &rounds {
        let end = round.sb.blocks_count;
        journal::move_below(device, end, now)?;
        evacuate(device, round, now)?;
        let fs = open(device)?;
        let shape = Shape::of(&fs)?;
        let mut change = smaller::plan(&fs, &shape, &shape.cut(end)?)?;
        change.sb.write_time = InodeTime { nanos: 0, ..now };
        change.make(|_| Ok(()))?;
    }
    Ok(open(device)?.sb.clone())
}

/// Refuses a file system in which something is wrong.
fn check(fs: &Ext4) -> Result<()> {
    let first: Mutex<Option<Finding>> = Mutex::default();
    let options = CheckOptions {
        scope: Scope::All,
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        found: &|finding| {
            first.lock().get_or_insert(finding);
        },
        progress: &|_| first.lock().is_none(),
    };
    fs.check(&options)?;
    match first.into_inner() {
        Some(finding) => refuse(&format!("shrinking a damaged file system: {finding}. `e2fsck` repairs it")),
        None => Ok(()),
    }
}

/// What the sizes depend on.
struct Content {
    /// Blocks in use that can lie anywhere.
    blocks: u64,
    /// Inodes in use, or the number of one that must not move.
    inodes: u64,
}

impl Content {
    fn of(fs: &Ext4, shape: &Shape) -> Result<Content> {
        let sb = &fs.sb;
        let free: u64 = shape.descs.iter().map(|desc| u64::from(desc.free_blocks)).sum();
        let free_inodes: u64 = shape.descs.iter().map(|desc| u64::from(desc.free_inodes)).sum();
        let blocks = sb.blocks_count.checked_sub(free + shape.system_blocks(sb.blocks_count));
        let inodes = u64::from(sb.inodes_count).checked_sub(free_inodes);
        let (Some(blocks), Some(inodes)) = (blocks, inodes) else {
            let problem = Problem::Missing { what: "right counts of what is free" };
            return Err(Structure::Superblock.at(fs.superblock_at).corrupt(problem));
        };
        let fixed = u64::from(sb.first_ino.max(sb.orphan_file_inum));
        Ok(Content { blocks, inodes: inodes.max(fixed) })
    }
}

/// The shapes to go through, the last of them of the wanted size; none where it has that.
fn rounds(fs: &Ext4, size: Option<Size>) -> Result<Vec<Shape>> {
    let mut now = Shape::of(fs)?;
    let mut content = Content::of(fs, &now)?;
    let wanted = size.map(|size| now.without_short_group(size.in_blocks(&fs.sb)));
    if wanted.is_some_and(|wanted| wanted >= fs.sb.blocks_count) {
        return Ok(Vec::new());
    }
    let least = now.least(content.blocks, content.inodes);
    content.blocks += spare(fs, least)?;
    let mut rounds: Vec<Shape> = Vec::new();
    loop {
        let least = now.least(content.blocks, content.inodes);
        let next = match wanted {
            Some(wanted) if least <= wanted && now.lowest_from(wanted, content.inodes) == wanted => wanted,
            _ => least,
        };
        let is_worth_it = next < now.sb.blocks_count && rounds.len() < MOST_ROUNDS;
        if is_worth_it {
            let shape = now.cut(next)?;
            check_log(fs, &now, &shape)?;
            now = shape.clone();
            rounds.push(shape);
        }
        match wanted {
            Some(wanted) if next == wanted => return Ok(rounds),
            None if !is_worth_it => return Ok(rounds),
            Some(wanted) if !is_worth_it => {
                let least = now.sb.blocks_count;
                return refuse(&format!(
                    "{wanted} blocks are too few for what the file system holds: it needs {least}"
                ));
            }
            _ => {}
        }
    }
}

/// Refuses a journal that cannot take the last step.
fn check_log(fs: &Ext4, now: &Shape, smaller: &Shape) -> Result<()> {
    let Some(location) = fs.journal_location()? else { return Ok(()) };
    let log: u64 = location.runs.iter().map(|(_, len)| len).sum();
    let groups = u64::try_from(now.groups_with_freed(smaller)).unwrap_or(u64::MAX) + 1;
    let sb = &smaller.sb;
    let all = groups + u64::from(sb.desc_blocks()) + u64::from(sb.reserved_gdt_blocks) + 4;
    let needed = all * 17 / 16 + 16;
    if log < needed {
        return refuse(&format!("the journal has {log} blocks, and the change may take {needed}"));
    }
    Ok(())
}

/// Blocks for nodes of maps that become longer, as content goes into free runs before `end`.
fn spare(fs: &Ext4, end: u64) -> Result<u64> {
    let journal = fs.journal_location()?;
    // The journal's new map exists beside its old one.
    let log: u64 = journal.iter().flat_map(|journal| &journal.runs).map(|(_, len)| len).sum();
    if !fs.sb.incompat.has(Incompat::EXTENTS) {
        return Ok(SPARE + log.div_ceil(u64::from(fs.sb.block_size.bytes() / 4)) + 2);
    }
    let mut runs = 0;
    fs.layout()?.free_extents(&mut |range| {
        runs += 1;
        if range.end < end { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    // A run that is used up ends an extent; a node is needed for the fifth, and for many.
    Ok(SPARE + runs / 4 + runs / u64::from(fs.sb.block_size.bytes() / 24))
}

/// Moves all blocks and inodes below the end of `smaller`.
fn evacuate(device: &Arc<dyn BlockDevice>, smaller: &Shape, now: InodeTime) -> Result<()> {
    let (end, last) = (smaller.sb.blocks_count, smaller.sb.inodes_count);
    let fs = open(device)?;
    let (blocks, inodes, names) = what_goes(&fs, end, last)?;
    drop(fs);
    if blocks.is_empty() && inodes.is_empty() {
        return Ok(());
    }
    let fs = session(device, end, now)?;
    let mut renumbering = Renumbering::new(&fs, names);
    for ino in inodes {
        renumbering.renumber(ino)?;
    }
    for ino in blocks {
        fs.move_blocks(renumbering.number(ino), end)?;
    }
    fs.close()
}

/// The inodes with blocks from `end` on, those with numbers beyond `last`, and what names them.
fn what_goes(fs: &Ext4, end: u64, last: u32) -> Result<(Vec<InodeNumber>, Vec<InodeNumber>, Names)> {
    let (mut blocks, mut inodes, mut names) = (Vec::new(), Vec::new(), Names::default());
    let layout = fs.layout()?;
    let has_names = last < fs.sb.inodes_count;
    for group in (0..fs.sb.groups).map(GroupNumber) {
        for ino in layout.inodes_in_use(group)? {
            let (bytes, place) = fs.inode_bytes(ino)?;
            if Inode::head(&bytes).is_none_or(|head| head.mode == 0) {
                refuse_bad_blocks(ino, &bytes)?;
                continue;
            }
            let snapshot = fs.parse_inode(ino, &bytes, place)?;
            if ino.0 > last {
                inodes.push(ino);
            }
            if has_names {
                names.add(fs, &snapshot, last)?;
            }
            if ino != fs.sb.journal_inum && fs.reaches(ino, end)? {
                blocks.push(ino);
            }
        }
    }
    Ok((blocks, inodes, names))
}

fn refuse_bad_blocks(ino: InodeNumber, bytes: &[u8]) -> Result<()> {
    let has_blocks = Inode::head(bytes).is_some_and(|head| head.blocks != 0);
    if ino == BAD_BLOCKS && has_blocks { refuse("shrinking a file system with bad blocks") } else { Ok(()) }
}

impl Ext4 {
    /// Whether an inode has blocks from `end` on. Of the resize inode only the first one counts.
    fn reaches(&self, ino: InodeNumber, end: u64) -> Result<bool> {
        let (mut reaches, mut failed) = (false, None::<Error>);
        let mut each = |part: crate::layout::Part| {
            reaches = part.blocks().end > end;
            let is_enough = reaches || ino == super::reserved::RESIZE;
            if is_enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        self.inode_blocks(ino, &mut each, &mut |error| failed = failed.take().or(Some(error)))?;
        failed.map_or(Ok(reaches), Err)
    }
}
