//! Power cuts of a recorded device. The image must be right after every way to recover it.

use super::fsck;
use super::writing::Dice;
use dentree_blockdev::{Access, FileDevice, MemoryDevice, Recording, Replay, Survivors};
use dentree_ext4::{Clock, Ext4, InodeTime, Options};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

pub trait Work: Sync {
    /// After a cut at a recorded position.
    fn compare(&self, fs: Ext4, cut: usize) -> Result<(), String>;
}

pub struct Run<W> {
    pub what: String,
    pub recording: Recording,
    pub work: W,
}

pub fn writable() -> Options {
    Options { writable: true, clock: Clock::Fixed(InodeTime::default()), ..Options::default() }
}

/// Half at flushes, half anywhere.
fn cuts(recording: &Recording, count: usize, seed: u64) -> Vec<(usize, Survivors)> {
    let boundaries = recording.flush_boundaries();
    let mut dice = Dice(0x9E37_79B9 * seed + 1);
    let at_flushes = boundaries.iter().copied().step_by(boundaries.len().div_ceil(count / 2));
    let anywhere = (0..count / 2).map(|_| dice.roll(recording.steps().len() + 1));
    let cuts = at_flushes.chain(anywhere).zip(seed * 7..);
    let mut cuts: Vec<(usize, Survivors)> = cuts
        .map(|(cut, n)| match n % 4 {
            0 => (cut, Survivors::Sectors { seed: n }),
            1 => (cut, Survivors::Writes { seed: n }),
            2 => (cut, Survivors::None),
            _ => (cut, Survivors::All),
        })
        .collect();
    cuts.sort_by_key(|&(cut, _)| cut);
    cuts
}

/// The superblock's 1024 bytes survive or vanish together: ext4 relies on sectors of 4 KiB.
pub fn left(replay: &mut Replay<'_>, cut: usize, survivors: Survivors) -> Vec<u8> {
    replay.image_where(cut, |step, sector| survivors.has(step, if sector == 3 { 2 } else { sector }))
}

/// Skips zeros.
fn put(path: &Path, image: &[u8]) {
    let file = fs::File::create(path).unwrap();
    file.set_len(image.len() as u64).unwrap();
    for (n, block) in image.chunks(4096).enumerate() {
        if block != &[0; 4096][..block.len()] {
            file.write_all_at(block, n as u64 * 4096).unwrap();
        }
    }
}

pub fn check(work: &impl Work, image: Vec<u8>, cut: usize, scratch: &Path) -> Result<(), String> {
    let compare = |fs: dentree_ext4::Result<Ext4>, what: &str| {
        let fs = fs.map_err(|error| format!("{what}: {error}"))?;
        work.compare(fs, cut).map_err(|text| format!("{what}: {text}"))
    };
    let theirs = scratch.join("theirs");
    put(&theirs, &image);
    fsck::recover(&theirs, &[]).map_err(|text| format!("e2fsck repairs: {text}"))?;
    fsck::is_clean(&theirs).map_err(|text| format!("after e2fsck's replay: {text}"))?;
    let device = FileDevice::open(&theirs, Access::ReadOnly).unwrap();
    compare(Ext4::open(Arc::new(device), Options::default()), "after e2fsck's replay")?;

    let device = Arc::new(MemoryDevice::from(image));
    compare(Ext4::open(device.clone(), Options::default()), "replayed in memory")?;
    compare(Ext4::open(device.clone(), writable()), "after our replay")?;
    let ours = scratch.join("ours");
    put(&ours, &device.to_vec());
    fsck::is_clean(&ours).map_err(|text| format!("after our replay: {text}"))
}

/// Stops after three problems.
fn check_some<W: Work>(run: &Run<W>, cuts: &[(usize, Survivors)]) -> Vec<String> {
    let scratch = fsck::scratch();
    let mut replay = run.recording.replay();
    let mut problems = Vec::new();
    for &(cut, survivors) in cuts {
        let image = left(&mut replay, cut, survivors);
        if let Err(problem) = check(&run.work, image, cut, scratch.path()) {
            let kept = tempfile::Builder::new().prefix("dentree-power-cut-").suffix(".img").tempfile();
            let (_, kept) = kept.unwrap().keep().unwrap();
            put(&kept, &left(&mut replay, cut, survivors));
            let problem = format!("{}, cut {cut}, {survivors:?} (kept in {kept:?}): {problem}", run.what);
            eprintln!("{problem}");
            problems.push(problem);
        }
        if problems.len() == 3 {
            break;
        }
    }
    problems
}

/// Returns how many there were, and the problems.
pub fn check_all<W: Work>(run: &Run<W>, count: usize, seed: u64) -> (usize, Vec<String>) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let cuts = cuts(&run.recording, count, seed);
    let problems = std::thread::scope(|scope| {
        let parts = cuts.chunks(cuts.len().div_ceil(threads));
        let checks: Vec<_> = parts.map(|part| scope.spawn(move || check_some(run, part))).collect();
        checks.into_iter().flat_map(|check| check.join().unwrap()).collect()
    });
    (cuts.len(), problems)
}

/// Runs seeds from `SEED` on until `CUTS` cuts are checked. To continue, pass the last printed
/// seed.
pub fn go_on(cut: impl Fn(u64) -> (usize, Vec<String>)) {
    let number = |name: &str| std::env::var(name).ok().map(|value| value.parse::<u64>().expect(name));
    let (first, wanted) = (number("SEED").unwrap_or(100), number("CUTS").unwrap_or(30_000));
    let begin = Instant::now();
    let (mut done, mut seed) = (0, first);
    while done < wanted {
        let (count, problems) = cut(seed);
        done += count as u64;
        let minutes = begin.elapsed().as_secs_f64() / 60.0;
        println!("{done} power cuts in {minutes:.1} minutes, seeds {first} to {seed}");
        assert!(problems.is_empty(), "{}", problems.join("\n\n"));
        seed += 1;
    }
}
