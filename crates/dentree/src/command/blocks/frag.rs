//! `dentree frag`: fragmentation of free space, as of e2freefrag(8), and of files.

use super::each_inode;
use crate::args::FragArgs;
use crate::host::OsStrExt;
use crate::image::{Image, Session};
use crate::output::{Output, json};
use crate::report::Stop;
use dentree_ext4::{InodeNumber, Layout, Part};
use dentree_sync::Mutex;
use serde::Serialize;
use std::io::{self, Write};
use std::ops::{AddAssign, ControlFlow};

/// Sizes of free extents by powers of two, in KiB.
const CLASSES: usize = 32;

#[derive(Serialize)]
struct Free {
    block_size: u32,
    blocks: u64,
    free_blocks: u64,
    extents: u64,
    /// In blocks.
    shortest: u64,
    longest: u64,
    histogram: Vec<Class>,
}

/// Extents of at least so many KiB, and of less than twice as many.
#[derive(Clone, Copy, Default, Serialize)]
struct Class {
    from_kib: u64,
    extents: u64,
    blocks: u64,
}

/// Files with blocks of their own.
#[derive(Clone, Copy, Default, Serialize)]
struct Files {
    files: u64,
    extents: u64,
    fragmented: u64,
}

impl AddAssign for Files {
    fn add_assign(&mut self, other: Files) {
        self.files += other.files;
        self.extents += other.extents;
        self.fragmented += other.fragmented;
    }
}

#[derive(Serialize)]
struct Report {
    free: Free,
    files: Files,
}

pub(crate) fn run(session: &Session, args: &FragArgs) -> Result<(), Stop> {
    let at = session.locate(&args.image)?;
    let layout = at.image.vfs.fs().layout().map_err(|error| at.problem(&error.into()))?;
    let free = free(&at.image, &layout).map_err(|error| at.problem(&error.into()))?;
    let files = files(&at.image, &layout);
    let mut out = Output::new();
    if args.json {
        json::line(&mut out, &Report { free, files })?;
    } else {
        write!(out, "Device: ")?;
        out.write_all(&out.names().show(args.image.as_bytes()))?;
        print(&mut out, &free, files)?;
    }
    Ok(out.flush()?)
}

fn free(image: &Image, layout: &Layout<'_>) -> dentree_ext4::Result<Free> {
    let sb = image.vfs.fs().superblock();
    let mut classes = [Class::default(); CLASSES];
    let (mut free_blocks, mut extents, mut shortest, mut longest) = (0, 0, u64::MAX, 0);
    layout.free_extents(&mut |run| {
        let len = run.end - run.start;
        let kib = (len << sb.block_size.log2()) >> 10;
        let class = usize::try_from(kib.max(1).ilog2()).unwrap_or(0).min(CLASSES - 1);
        classes[class].extents += 1;
        classes[class].blocks += len;
        free_blocks += len;
        extents += 1;
        (shortest, longest) = (shortest.min(len), longest.max(len));
        ControlFlow::Continue(())
    })?;
    let used = (0_u32..).zip(classes).filter(|(_, class)| class.extents > 0);
    let histogram = used.map(|(log, class)| Class { from_kib: 1 << log, ..class }).collect();
    let shortest = if extents == 0 { 0 } else { shortest };
    let (block_size, blocks) = (sb.block_size.bytes(), sb.blocks_count);
    Ok(Free { block_size, blocks, free_blocks, extents, shortest, longest, histogram })
}

fn files(image: &Image, layout: &Layout<'_>) -> Files {
    let all = Mutex::new(Files::default());
    each_inode(image, layout, |ino| *all.lock() += pieces(image, ino));
    all.into_inner()
}

/// In how many pieces one inode's content is.
fn pieces(image: &Image, ino: InodeNumber) -> Files {
    let (mut end, mut count) = (0, 0);
    let mut each = |part: Part| {
        if let Part::Content(extent) = part {
            count += u64::from(extent.start.0 != end);
            end = extent.start.0 + extent.len;
        }
        ControlFlow::Continue(())
    };
    if ino.0 < image.vfs.fs().superblock().first_ino && ino != InodeNumber::ROOT {
        return Files::default();
    }
    // Damaged inodes are for `dentree check`.
    let _ = image.vfs.fs().inode_blocks(ino, &mut each, &mut |_| {});
    Files { files: u64::from(count > 0), extents: count, fragmented: u64::from(count > 1) }
}

fn print(out: &mut Output, free: &Free, files: Files) -> io::Result<()> {
    let kib = |blocks: u64| (blocks * u64::from(free.block_size)) >> 10;
    let percent = |part: u64, all: u64| part as f64 * 100.0 / all.max(1) as f64;
    writeln!(out, "\nBlocksize: {} bytes", free.block_size)?;
    writeln!(out, "Total blocks: {}", free.blocks)?;
    writeln!(out, "Free blocks: {} ({:.1}%)", free.free_blocks, percent(free.free_blocks, free.blocks))?;
    writeln!(out, "\nMin. free extent: {} KB ", kib(free.shortest))?;
    writeln!(out, "Max. free extent: {} KB", kib(free.longest))?;
    writeln!(out, "Avg. free extent: {} KB", kib(free.free_blocks) / free.extents.max(1))?;
    writeln!(out, "Num. free extent: {}", free.extents)?;
    writeln!(out, "\nHISTOGRAM OF FREE EXTENT SIZES:")?;
    writeln!(
        out,
        "{:>15} :  {:>12}  {:>12}  {:>7}",
        "Extent Size Range", "Free extents", "Free Blocks", "Percent"
    )?;
    for class in &free.histogram {
        // Both in the unit of the first.
        let (from, unit) = size(class.from_kib);
        let (from, to) = (format!("{from}{unit}"), format!("{}{unit}", 2 * from));
        let (extents, blocks) = (class.extents, class.blocks);
        let share = percent(blocks, free.free_blocks);
        writeln!(out, "{from:>6}...{to:>6}-  :  {extents:>12}  {blocks:>12}  {share:>6.2}%")?;
    }
    let Files { files, extents, fragmented } = files;
    let average = extents as f64 / files.max(1) as f64;
    writeln!(out, "\nFiles with blocks: {files}, in {extents} pieces ({average:.2} each)")?;
    writeln!(out, "In more than one piece: {fragmented} ({:.1}%)", percent(fragmented, files))
}

/// `4K` and `512M`, in two parts.
fn size(kib: u64) -> (u64, char) {
    match kib {
        kib if kib < 1 << 10 => (kib, 'K'),
        kib if kib < 1 << 20 => (kib >> 10, 'M'),
        kib if kib < 1 << 30 => (kib >> 20, 'G'),
        kib => (kib >> 30, 'T'),
    }
}
