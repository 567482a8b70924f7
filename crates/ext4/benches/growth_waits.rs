//! Waits and processor time of threads that fill one directory: `cargo bench -p dentree-ext4
//! --bench growth_waits -- [THREADS] [FILES] [IMAGE]`. Without IMAGE the image is in memory.
//!
//! The kernel reports running, runnable and sleeping time, so other programs' load does not count
//! as waits.

use std::iter::Sum;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fs, io};

use dentree_blockdev::{Access, BlockDevice, FileDevice, MemoryDevice};
use dentree_ext4::mkfs::{MkfsOptions, mkfs};
use dentree_ext4::{Ext4, InodeTime, Options};
use dentree_lockmeter::Recording;
use dentree_vfs::{Identity, NewKind, Vfs};

const IMAGE_BYTES: usize = 1 << 30;

#[derive(Clone, Copy, Default)]
struct Spent {
    running: Duration,
    /// Time runnable without a processor.
    ready: Duration,
    asleep: Duration,
}

impl Spent {
    /// Reads the thread's directory in `/proc`, which lacks `asleep`.
    fn of(thread: &Path) -> io::Result<Spent> {
        let text = fs::read_to_string(thread.join("schedstat"))?;
        let mut nanos = text.split_whitespace().map_while(|word| word.parse().ok()).map(Duration::from_nanos);
        let mut next = || nanos.next().ok_or(io::ErrorKind::InvalidData);
        Ok(Spent { running: next()?, ready: next()?, ..Spent::default() })
    }
}

impl Sum for Spent {
    fn sum<I: Iterator<Item = Spent>>(all: I) -> Spent {
        all.fold(Spent::default(), |sum, spent| Spent {
            running: sum.running + spent.running,
            ready: sum.ready + spent.ready,
            asleep: sum.asleep + spent.asleep,
        })
    }
}

fn others() -> io::Result<Vec<(String, Duration)>> {
    let threads = fs::read_dir("/proc/self/task")?.map(|thread| {
        let thread = thread?.path();
        let name = fs::read_to_string(thread.join("comm"))?;
        Ok((name.trim_end().to_owned(), Spent::of(&thread)?.running))
    });
    threads.collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).filter(|word| word != "--bench");
    let threads = arguments.next().map_or(Ok(8), |number| number.parse())?;
    let files = arguments.next().map_or(Ok(60_000), |number| number.parse::<usize>())?;
    let device: Arc<dyn BlockDevice> = match arguments.next() {
        Some(path) => {
            fs::File::create(&path)?.set_len(IMAGE_BYTES as u64)?;
            Arc::new(FileDevice::open(&path, Access::ReadWrite)?)
        }
        None => Arc::new(MemoryDevice::new(IMAGE_BYTES)),
    };
    mkfs(&*device, &MkfsOptions::new([7; 16], [1, 2, 3, 4], InodeTime::default()))?;
    let image = Ext4::open(device, Options { writable: true, ..Options::default() })?;
    let vfs = Vfs::new(image)?;
    let who = Identity::Superuser;
    let dir = vfs.create(&who, vfs.root(), b"dir", NewKind::Directory, 0o755)?;
    let (before, blocks_before) = (others()?, vfs.fs().buffer_stats());
    let recording = Recording::start();
    let fill = &|thread| -> io::Result<Spent> {
        let began = Instant::now();
        for number in (thread..files).step_by(threads) {
            let name = format!("a file of one directory {number:07}");
            if let Err(error) = vfs.create(&who, &dir, name.as_bytes(), NewKind::Regular, 0o644) {
                panic!("{name}: {error}");
            }
        }
        let spent = Spent::of(Path::new("/proc/thread-self"))?;
        Ok(Spent { asleep: began.elapsed().saturating_sub(spent.running + spent.ready), ..spent })
    };
    let began = Instant::now();
    let makers = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(move || fill(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).sum::<Result<Spent, _>>()
    })?;
    let (elapsed, recording) = (began.elapsed(), recording.finish());
    let blocks = vfs.fs().buffer_stats();
    let each = |time: Duration| time.as_secs_f64() * 1e6 / files as f64;
    println!("{threads} threads, {files} files: {elapsed:.2?}, {:.2} µs a file; µs a file", each(elapsed));
    let Spent { running, ready, asleep } = makers;
    let [running, ready, asleep] = [running, ready, asleep].map(each);
    println!("  who make them: on a processor {running:.2}, ready for one {ready:.2}, asleep {asleep:.2}");
    for (name, spent) in others()? {
        let earlier =
            before.iter().find(|(earlier, _)| *earlier == name).map_or(Duration::ZERO, |(_, spent)| *spent);
        println!("  {name}: {:.2}", each(spent.saturating_sub(earlier)));
    }
    let per_file = |after: u64, before: u64| (after - before) as f64 / files as f64;
    let (changes, copies) =
        (per_file(blocks.changes, blocks_before.changes), per_file(blocks.copies, blocks_before.copies));
    println!("blocks a file: {changes:.2} changed, {copies:.3} copied for that");
    println!("{}", recording.text());
    Ok(())
}
