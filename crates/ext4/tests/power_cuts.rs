//! The power is cut at every flush of random work, and anywhere between: after the replay of `e2fsck`, and after ours, the image is clean, and
//! holds what was acknowledged.

mod common;

use common::ops::Wishes;
use common::story::Story;
use common::writing::Dice;
use common::{Image, fsck};
use dentree_blockdev::{Access, FileDevice, MemoryDevice, Recording, RecordingDevice, Survivors};
use dentree_ext4::{Clock, Ext4, InodeTime, Options};
use dentree_vfs::Vfs;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Kinds of image: mke2fs options, size. All have a journal: without one a cut leaves what `e2fsck` must repair.
const KINDS: [(&str, &str); 5] = [
    ("-t ext4 -J size=4", "20M"),
    ("-t ext4 -O metadata_csum_seed,orphan_file -J size=4", "20M"),
    ("-t ext4 -b 1024 -J size=1", "12M"),
    ("-t ext3 -b 1024 -J size=1", "12M"),
    ("-t ext4 -b 1024 -O inline_data -I 256 -J size=1", "12M"),
];

const WORK: usize = 250;

/// Work on an image, which can be cut.
struct Run {
    what: String,
    recording: Recording,
    story: Story,
}

fn writable() -> Options {
    Options { writable: true, clock: Clock::Fixed(InodeTime::default()), ..Options::default() }
}

/// Works on a new image.
fn work(options: &str, size: &str, seed: u64) -> Run {
    let image = Image::new(options, size, |_| {});
    let device = Arc::new(RecordingDevice::new(fs::read(image.path()).unwrap()));
    let ours = Vfs::new(Ext4::open(device.clone(), writable()).unwrap()).unwrap();
    let mut story = Story::new();
    let wishes = Wishes { top: String::new(), allocates: options.contains("ext4"), durable_one_of: 12 };
    let errors = story.go_on(&ours, &wishes, &mut Dice(0x5851_F42D * seed + 1), WORK, &|| device.position());
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(story.ops(), WORK);
    ours.into_fs().expect("nobody holds an inode").close().unwrap();
    story.synced(device.position());
    Run { what: format!("{options} {size}, seed {seed}"), recording: device.recording(), story }
}

/// Where the power goes: every flush first, as often as there are cuts for; then anywhere.
fn cuts(recording: &Recording, count: usize, seed: u64) -> Vec<(usize, Survivors)> {
    let boundaries = recording.flush_boundaries();
    let mut dice = Dice(0x9E37_79B9 * seed + 1);
    let mut cuts: Vec<(usize, Survivors)> = (0..count)
        .map(|n| {
            let survivors = match n % 4 {
                0 => Survivors::Sectors { seed: n as u64 },
                1 => Survivors::Writes { seed: n as u64 },
                2 => Survivors::None,
                _ => Survivors::All,
            };
            let anywhere = dice.roll(recording.steps().len() + 1);
            let cut = if n % 3 == 0 { anywhere } else { boundaries[dice.roll(boundaries.len())] };
            (cut, survivors)
        })
        .collect();
    cuts.sort_by_key(|&(cut, _)| cut);
    cuts
}

/// Writes an image into a file; zeros are left out.
fn put(path: &Path, image: &[u8]) {
    let file = fs::File::create(path).unwrap();
    file.set_len(image.len() as u64).unwrap();
    for (n, block) in image.chunks(4096).enumerate() {
        if block.iter().any(|&byte| byte != 0) {
            file.write_all_at(block, n as u64 * 4096).unwrap();
        }
    }
}

/// What one cut leaves is right after every way to recover it.
fn check(run: &Run, image: Vec<u8>, cut: usize, scratch: &Path) -> Result<(), String> {
    let theirs = scratch.join("theirs");
    put(&theirs, &image);
    fsck::recover(&theirs).map_err(|text| format!("e2fsck repairs: {text}"))?;
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
    let vfs = Vfs::new(fs).map_err(|error| format!("{what}: {error}"))?;
    run.story.compare(&vfs, cut).map_err(|text| format!("{what}: {text}"))?;
    let fs = vfs.into_fs().ok_or("somebody holds an inode")?;
    fs.close().map_err(|error| format!("{what}: closing: {error}"))
}

/// Looks at so many cuts of each kind of image, from so many seeds.
fn cut(kinds: &[(&str, &str)], seeds: std::ops::RangeInclusive<u64>, count: usize) {
    let done = AtomicUsize::new(0);
    for (options, size) in kinds {
        for seed in seeds.clone() {
            let run = work(options, size, seed);
            let cuts = cuts(&run.recording, count, seed);
            let threads = std::thread::available_parallelism().map_or(1, usize::from);
            std::thread::scope(|scope| {
                for part in cuts.chunks(cuts.len().div_ceil(threads)) {
                    let (run, done) = (&run, &done);
                    scope.spawn(move || {
                        let scratch = fsck::scratch();
                        let mut replay = run.recording.replay();
                        for &(cut, survivors) in part {
                            let image = replay.image(cut, survivors);
                            if let Err(problem) = check(run, image.clone(), cut, scratch.path()) {
                                let kept = std::env::temp_dir().join("dentree-power-cut.img");
                                put(&kept, &image);
                                panic!(
                                    "{}, cut {cut}, {survivors:?} (kept in {kept:?}): {problem}",
                                    run.what
                                );
                            }
                            done.fetch_add(1, Relaxed);
                        }
                    });
                }
            });
        }
    }
    println!("{} power cuts", done.into_inner());
}

#[test]
fn whenever_the_power_goes_the_image_is_clean_and_holds_what_was_acknowledged() {
    cut(&KINDS, 1..=1, 100);
}

#[test]
#[ignore = "long: make crash"]
fn whenever_the_power_goes_in_tens_of_thousands_of_cuts() {
    cut(&KINDS, 100..=119, 200);
}
