//! The power is cut at every flush of random work, and anywhere between: after the replay of `e2fsck`, and after ours, the image is clean, and
//! holds what was acknowledged.

mod common;

use common::ops::{Wishes, reference};
use common::story::Story;
use common::writing::{Dice, OURS, SMALL, new_image, open};
use common::{Image, fsck};
use dentree_blockdev::{Access, FileDevice, MemoryDevice, Recording, RecordingDevice, Replay, Survivors};
use dentree_ext4::{Clock, Ext4, InodeTime, Options};
use dentree_vfs::{FileSystem, Identity, NewKind, Vfs};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Kinds of image: mke2fs options, size. All have a journal: without one a cut leaves what `e2fsck` must repair.
const KINDS: [(&str, &str); 6] = [
    ("-t ext4 -b 4096 -J size=4", "12M"),
    ("-t ext4 -b 4096 -O metadata_csum_seed,orphan_file -J size=4", "12M"),
    ("-t ext4 -b 1024 -J size=1", "8M"),
    ("-t ext3 -b 1024 -J size=1", "8M"),
    ("-t ext4 -b 1024 -O inline_data -I 256 -J size=1", "8M"),
    (OURS, "8M"),
];

/// Operations of each run.
const WORK: usize = 250;

/// Work on an image, which can be cut.
struct Run {
    what: String,
    recording: Recording,
    /// One for each thread.
    stories: Vec<Story>,
}

fn writable() -> Options {
    Options { writable: true, clock: Clock::Fixed(InodeTime::default()), ..Options::default() }
}

/// What is there before anything is done: a directory for those who work together, and for each a file and a directory with a file,
/// which lie in their inodes where there is inline data.
fn begin<F: FileSystem>(vfs: &Vfs<F>) {
    let who = &Identity::Superuser;
    let make = |path: &str, kind, permissions| {
        let at = vfs.walk_parent(who, vfs.root(), path.as_bytes()).unwrap();
        vfs.make(who, &at.dir, at.name, kind, permissions).unwrap()
    };
    make("shared", NewKind::Directory, 0o755);
    for top in TOPS {
        make(&format!("{top}a"), NewKind::Directory, 0o755);
        for file in ["file 1", "a/file 2"] {
            let made = make(&format!("{top}{file}"), NewKind::Regular, 0o644);
            assert_eq!(vfs.write(who, &made, 0, FIRST_CONTENT).unwrap(), FIRST_CONTENT.len());
        }
    }
}

/// What names begin with, of one who is alone and of some who work together.
const TOPS: [&str; 4] = ["", "shared/0 ", "shared/1 ", "shared/2 "];

const FIRST_CONTENT: &[u8] = b"short enough for an inode";

/// A new image that is as [`begin`] leaves one.
fn new_begun_image(options: &str, size: &str) -> Vec<u8> {
    let image = if options == OURS {
        let image = new_image(options, size);
        let ours = Vfs::new(open(&image)).unwrap();
        begin(&ours);
        ours.into_fs().expect("nobody holds an inode").close().unwrap();
        image
    } else {
        Image::new(options, size, |tree| {
            fs::create_dir(tree.join("shared")).unwrap();
            for top in TOPS {
                fs::create_dir(tree.join(format!("{top}a"))).unwrap();
                for file in ["file 1", "a/file 2"] {
                    fs::write(tree.join(format!("{top}{file}")), FIRST_CONTENT).unwrap();
                }
            }
        })
    };
    fs::read(image.path()).unwrap()
}

/// One thread works on a new image, all over it, or several, each on names of its own that begin in one directory.
fn work(options: &str, size: &str, seed: u64, threads: usize) -> Run {
    let device = Arc::new(RecordingDevice::new(new_begun_image(options, size)));
    let ours = Vfs::with_budgets(Ext4::open(device.clone(), writable()).unwrap(), SMALL).unwrap();
    let tops = if threads == 1 { &TOPS[..1] } else { &TOPS[1..][..threads] };
    let allocates = options.contains("ext4") || options == OURS;
    let mut stories = std::thread::scope(|scope| {
        let work = tops.iter().zip(0..).map(|(&top, thread)| {
            let (ours, device) = (&ours, &device);
            scope.spawn(move || {
                let model = reference();
                begin(&model);
                let mut story = Story::new(top, model);
                let mut dice = Dice(0x5851_F42D * (seed * 100 + thread) + 1);
                let wishes = Wishes { top: top.to_owned(), allocates, durable_one_of: 8 };
                let errors = story.go_on(ours, &wishes, &mut dice, WORK / threads, &|| device.position());
                assert!(errors.is_empty(), "{errors:?}");
                story
            })
        });
        let work: Vec<_> = work.collect();
        work.into_iter().map(|work| work.join().unwrap()).collect::<Vec<_>>()
    });
    ours.into_fs().expect("nobody holds an inode").close().unwrap();
    stories.iter_mut().for_each(|story| story.synced(device.position()));
    let what = format!("{options} {size}, {threads} threads, seed {seed}");
    Run { what, recording: device.recording(), stories }
}

/// Where the power goes: at every flush, or evenly so many, and then as often anywhere.
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

/// What a cut leaves.
///
/// The superblock's 1024 bytes arrive whole or not at all: its checksum stands in the second of two sectors, and what tells that
/// the journal is in use in the first, so that ext4 counts on a disk (of 4 KiB sectors, as most are) for that. `e2fsck` has the
/// backups where it fails.
fn left(replay: &mut Replay<'_>, cut: usize, survivors: Survivors) -> Vec<u8> {
    replay.image_where(cut, |step, sector| survivors.has(step, if sector == 3 { 2 } else { sector }))
}

/// Writes an image into a file; zeros are left out.
fn put(path: &Path, image: &[u8]) {
    let file = fs::File::create(path).unwrap();
    file.set_len(image.len() as u64).unwrap();
    for (n, block) in image.chunks(4096).enumerate() {
        if block != &[0; 4096][..block.len()] {
            file.write_all_at(block, n as u64 * 4096).unwrap();
        }
    }
}

/// What one cut leaves is right after every way to recover it.
fn check(run: &Run, image: Vec<u8>, cut: usize, scratch: &Path) -> Result<(), String> {
    let theirs = scratch.join("theirs");
    put(&theirs, &image);
    fsck::recover(&theirs, &[]).map_err(|text| format!("e2fsck repairs: {text}"))?;
    fsck::is_clean(&theirs).map_err(|text| format!("after e2fsck's replay: {text}"))?;
    let device = FileDevice::open(&theirs, Access::ReadOnly).unwrap();
    compare(run, Ext4::open(Arc::new(device), Options::default()), cut, "after e2fsck's replay")?;

    let device = Arc::new(MemoryDevice::from(image));
    compare(run, Ext4::open(device.clone(), Options::default()), cut, "replayed in memory")?;
    compare(run, Ext4::open(device.clone(), writable()), cut, "after our replay")?;
    let ours = scratch.join("ours");
    put(&ours, &device.to_vec());
    fsck::is_clean(&ours).map_err(|text| format!("after our replay: {text}"))
}

fn compare(run: &Run, fs: dentree_ext4::Result<Ext4>, cut: usize, what: &str) -> Result<(), String> {
    let fs = fs.map_err(|error| format!("{what}: {error}"))?;
    let vfs = Vfs::with_budgets(fs, SMALL).map_err(|error| format!("{what}: {error}"))?;
    for story in &run.stories {
        story.compare(&vfs, cut).map_err(|text| format!("{what}: {text}"))?;
    }
    let fs = vfs.into_fs().ok_or("somebody holds an inode")?;
    fs.close().map_err(|error| format!("{what}: closing: {error}"))
}

/// Looks at some cuts; answers what was wrong with the first that were not right.
fn check_all(run: &Run, cuts: &[(usize, Survivors)]) -> Vec<String> {
    let scratch = fsck::scratch();
    let mut replay = run.recording.replay();
    let mut problems = Vec::new();
    for &(cut, survivors) in cuts {
        let image = left(&mut replay, cut, survivors);
        if let Err(problem) = check(run, image, cut, scratch.path()) {
            let kept = std::env::temp_dir().join(format!("dentree-power-cut-{cut}.img"));
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

/// Looks at so many cuts of each kind of image, of work from one seed: of one thread, and then of several at once. Answers how many,
/// and what was wrong.
fn cut(seed: u64, count: usize) -> (usize, Vec<String>) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (mut done, mut problems) = (0, Vec::new());
    for ((options, size), workers) in KINDS.into_iter().flat_map(|kind| [(kind, 1), (kind, 3)]) {
        let run = &work(options, size, seed, workers);
        let cuts = cuts(&run.recording, count, seed);
        std::thread::scope(|scope| {
            let parts = cuts.chunks(cuts.len().div_ceil(threads));
            let checks: Vec<_> = parts.map(|part| scope.spawn(move || check_all(run, part))).collect();
            problems.extend(checks.into_iter().flat_map(|check| check.join().unwrap()));
        });
        done += cuts.len();
    }
    (done, problems)
}

#[test]
fn whenever_the_power_goes_the_image_is_clean_and_holds_what_was_acknowledged() {
    let (done, problems) = cut(1, 50);
    println!("{done} power cuts");
    assert!(problems.is_empty(), "{}", problems.join("\n\n"));
}

/// From seed `SEED` on, until `CUTS` are done: to go on where a run was ended, give it the seed that it printed last.
#[test]
#[ignore = "long: make crash"]
fn whenever_the_power_goes_in_tens_of_thousands_of_cuts() {
    let number = |name: &str| std::env::var(name).ok().map(|value| value.parse::<u64>().expect(name));
    let (first, wanted) = (number("SEED").unwrap_or(100), number("CUTS").unwrap_or(30_000));
    let begin = Instant::now();
    let mut done = 0;
    let mut seed = first;
    while done < wanted {
        let (count, problems) = cut(seed, 250);
        done += count as u64;
        let minutes = begin.elapsed().as_secs_f64() / 60.0;
        println!("{done} power cuts in {minutes:.1} minutes, seeds {first} to {seed}");
        assert!(problems.is_empty(), "{}", problems.join("\n\n"));
        seed += 1;
    }
}
