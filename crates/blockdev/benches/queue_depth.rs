//! Rate of random uncached 4 KiB reads by queue and depth: `cargo bench -p dentree-blockdev --bench
//! queue_depth -- [FOLDER]`. The last two columns are a ring driven by one thread, through the page
//! cache and with O_DIRECT; at depth 1 they are plain reads.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Instant;

use compio_buf::{BufResult, IntoInner, IoBuf, Slice};
use compio_driver::op::ReadAt;
use compio_driver::{Key, Proactor, PushEntry};
use dentree_blockdev::{Access, BlockDevice, FileDevice, Queue};
use rustix::fs::{Advice, OFlags, fadvise};
use rustix::time::{ClockId, Timespec, clock_gettime};

const BLOCK: usize = 4096;
const BLOCKS: u64 = 128 << 10;
const READS: u64 = 3000;
const REPEATS: usize = 9;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args_os().skip(1).find(|word| word != "--bench");
    let folder = folder.map_or_else(std::env::temp_dir, Into::into);
    let path = folder.join(format!("queue-depth-{}", std::process::id()));
    let printed = prepare(&path).and_then(|()| print(&path));
    std::fs::remove_file(&path)?;
    printed
}

fn prepare(path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let mut file = File::create(path)?;
    for block in 0..BLOCKS {
        std::io::Write::write_all(&mut file, &[block as u8; BLOCK])?;
    }
    Ok(file.sync_all()?)
}

fn print(path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let open =
        |queue| FileDevice::open(path, Access::ReadOnly).map(|device| Arc::new(device.with_queue(queue)));
    let (ring, threads) = (open(Queue::Ring)?, open(Queue::Threads)?);
    println!(
        "thousand reads/s and µs of processor time per read: medians of {REPEATS}; the ring is {:?}",
        ring.queue()
    );
    println!("depth  {:>26} {:>26} {:>26} {:>26} {:>26}", "read_at", "ring", "threads", "bare", "direct");
    for depth in [1, 2, 4, 8, 16, 32, 64, 128] {
        let mut rates = [const { Vec::new() }; 5];
        for repeat in 0..REPEATS as u64 {
            let seed = repeat * 1000 + depth;
            if depth == 1 {
                rates[0].push(plain(path, &ring, seed)?);
            }
            rates[1].push(queued(path, &ring, depth, seed)?);
            rates[2].push(queued(path, &threads, depth, seed)?);
            for (column, flags) in [(3, OFlags::empty()), (4, OFlags::DIRECT)] {
                rates[column].push(bare(path, flags, depth, seed)?);
            }
        }
        let columns = rates.map(|runs| {
            let (mut rates, mut costs): (Vec<f64>, Vec<f64>) = runs.into_iter().unzip();
            rates.sort_by(f64::total_cmp);
            costs.sort_by(f64::total_cmp);
            match (rates[..].first(), costs.get(costs.len() / 2), rates.last()) {
                (Some(least), Some(cost), Some(most)) => {
                    format!("{:.1} [{least:.1} {most:.1}] {cost:.1}", rates[rates.len() / 2])
                }
                _ => String::new(),
            }
        });
        let [plain, ring, threads, bare, direct] = columns;
        println!("{depth:>5}  {plain:>26} {ring:>26} {threads:>26} {bare:>26} {direct:>26}");
    }
    Ok(())
}

/// Thousands per second, and CPU time in µs per read.
fn figures(start: Instant, cpu: Timespec) -> (f64, f64) {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    let micros = (now.tv_sec - cpu.tv_sec) as f64 * 1e6 + (now.tv_nsec - cpu.tv_nsec) as f64 / 1e3;
    (READS as f64 / start.elapsed().as_secs_f64() / 1000.0, micros / READS as f64)
}

/// Drops the file from the page cache.
fn forget(path: &Path) -> std::io::Result<()> {
    let file = File::open(path)?;
    fadvise(&file, 0, None, Advice::DontNeed)?;
    Ok(())
}

fn offsets(seed: u64) -> impl Iterator<Item = u64> {
    let mut at = seed;
    std::iter::repeat_with(move || {
        at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (at >> 33) % BLOCKS * BLOCK as u64
    })
}

fn plain(path: &Path, device: &FileDevice, seed: u64) -> std::io::Result<(f64, f64)> {
    forget(path)?;
    let (start, cpu) = (Instant::now(), clock_gettime(ClockId::ProcessCPUTime));
    for offset in offsets(seed).take(READS as usize) {
        device.read_at(offset, &mut [0; BLOCK])?;
    }
    Ok(figures(start, cpu))
}

fn queued(path: &Path, device: &Arc<FileDevice>, depth: u64, seed: u64) -> std::io::Result<(f64, f64)> {
    forget(path)?;
    let (sender, receiver) = channel();
    let (start, cpu) = (Instant::now(), clock_gettime(ClockId::ProcessCPUTime));
    let mut flying = 0;
    for (offset, buf) in offsets(seed).take(READS as usize).zip(std::iter::repeat(vec![0; BLOCK])) {
        if flying == depth {
            receiver.recv().map_err(std::io::Error::other)??;
            flying -= 1;
        }
        let sender = sender.clone();
        let done = move |read: std::io::Result<Vec<u8>>| drop(sender.send(read.map(drop)));
        Arc::clone(device).submit(offset, buf, Box::new(done));
        flying += 1;
    }
    for _ in 0..flying {
        receiver.recv().map_err(std::io::Error::other)??;
    }
    Ok(figures(start, cpu))
}

type Op = ReadAt<Slice<Vec<u8>>, Arc<File>>;

/// Offset of the aligned block in a buffer of two.
fn aligned(buf: &[u8]) -> usize {
    buf.as_ptr().align_offset(BLOCK)
}

fn bare(path: &Path, flags: OFlags, depth: u64, seed: u64) -> std::io::Result<(f64, f64)> {
    forget(path)?;
    let file = Arc::new(OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?);
    let mut ring = Proactor::builder().capacity(128).build()?;
    let mut free = vec![vec![0; 2 * BLOCK]; depth as usize];
    let mut flying: Vec<Key<Op>> = Vec::new();
    let (start, cpu) = (Instant::now(), clock_gettime(ClockId::ProcessCPUTime));
    let mut wanted = offsets(seed).take(READS as usize).peekable();
    while wanted.peek().is_some() || !flying.is_empty() {
        while let Some(mut buf) = free.pop() {
            let Some(offset) = wanted.next() else { break };
            let at = aligned(&buf);
            if depth == 1 {
                file.read_exact_at(&mut buf[at..at + BLOCK], offset)?;
                free.push(buf);
                continue;
            }
            match ring.push(ReadAt::new(Arc::clone(&file), offset, buf.slice(at..at + BLOCK))) {
                PushEntry::Pending(key) => flying.push(key),
                PushEntry::Ready(read) => free.push(landed(read)?),
            }
        }
        if flying.is_empty() {
            continue;
        }
        ring.poll(None)?;
        for key in std::mem::take(&mut flying) {
            match ring.pop(key) {
                PushEntry::Pending(key) => flying.push(key),
                PushEntry::Ready(read) => free.push(landed(read)?),
            }
        }
    }
    Ok(figures(start, cpu))
}

fn landed(BufResult(read, op): BufResult<usize, Op>) -> std::io::Result<Vec<u8>> {
    assert_eq!(read?, BLOCK);
    Ok(op.into_inner().into_inner())
}
