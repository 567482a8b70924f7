//! An NBD server loses power again and again. The client continues; each cut leaves a clean image
//! with all that was acknowledged.

use crate::common::cuts::{Work, check, left, writable};
use crate::common::fsck;
use crate::common::ops::{OpMix, reference};
use crate::common::story::Story;
use crate::common::writing::{Dice, SMALL, new_image};
use dentree_blockdev::{Access, BlockDevice, RecordingDevice, Survivors};
use dentree_ext4::Ext4;
use dentree_source_nbd::{NbdDevice, Patience};
use dentree_testing::NbdExport;
use dentree_vfs::Vfs;
use std::fs;
use std::sync::{Arc, Mutex};

/// mke2fs options, size.
const KINDS: [(&str, &str); 3] = [
    ("-t ext4 -b 4096 -O metadata_csum_seed,orphan_file -J size=4", "12M"),
    ("-t ext4 -b 1024 -O inline_data -I 256 -J size=1", "8M"),
    ("-t ext3 -b 1024 -J size=1", "8M"),
];

const OPERATIONS: usize = 250;
const MOST_REQUESTS: usize = 12;

struct One(Story);

impl Work for One {
    fn compare(&self, fs: Ext4, cut: usize) -> Result<(), String> {
        let vfs = Vfs::with_budgets(fs, SMALL).map_err(|error| error.to_string())?;
        self.0.compare(&vfs, cut)?;
        let fs = vfs.into_fs().ok_or("an inode is held")?;
        fs.close().map_err(|error| format!("closing: {error}"))
    }
}

struct Disk {
    now: Arc<RecordingDevice>,
    /// Position at the last power cut.
    before: usize,
    dice: Dice,
    /// Until the next power cut.
    left: usize,
    /// Position and image of each.
    images: Vec<(usize, Vec<u8>)>,
}

impl Disk {
    fn position(&self) -> usize {
        self.before + self.now.position()
    }

    fn cut(&mut self) -> Option<Arc<dyn BlockDevice>> {
        self.left -= 1;
        if self.left > 0 {
            return None;
        }
        let (seed, position) = (self.dice.roll(1 << 30) as u64, self.position());
        let survivors = match seed % 4 {
            0 => Survivors::None,
            1 => Survivors::Writes { seed },
            _ => Survivors::Sectors { seed },
        };
        let image = left(&mut self.now.recording().replay(), usize::MAX, survivors);
        self.images.push((position, image.clone()));
        self.now = Arc::new(RecordingDevice::new(image));
        (self.before, self.left) = (position, 1 + self.dice.roll(MOST_REQUESTS));
        Some(self.now.clone())
    }
}

/// Returns the number of power cuts, and the problems.
fn work(options: &str, size: &str, seed: u64) -> (usize, Vec<String>) {
    let image = fs::read(new_image(options, size).path()).unwrap();
    let now = Arc::new(RecordingDevice::new(image));
    let dice = Dice(seed + 1);
    let disk = Disk { now: now.clone(), before: 0, dice, left: MOST_REQUESTS, images: Vec::new() };
    let disk = Arc::new(Mutex::new(disk));
    let cut_disk = disk.clone();
    let export = NbdExport::new(now, Box::new(move || cut_disk.lock().unwrap().cut()));
    let address = export.address().parse().unwrap();
    let device = NbdDevice::open(&address, Access::ReadWrite, Patience::default()).unwrap();

    let position = || disk.lock().unwrap().position();
    let ours = Vfs::with_budgets(Ext4::open(Arc::new(device), writable()).unwrap(), SMALL).unwrap();
    let mut story = Story::new("", reference());
    let mix = OpMix { top: String::new(), allocates: options.contains("ext4"), durable_one_of: 4 };
    let errors = story.go_on(&ours, &mix, &mut Dice(seed * 100 + 7), OPERATIONS, &position);
    assert!(errors.is_empty(), "{errors:?}");
    ours.into_fs().expect("no inode is held").close().unwrap();
    story.synced(position());
    drop(export);

    let mut disk = disk.lock().unwrap();
    let end = (disk.position(), disk.now.recording().replay().image(usize::MAX, Survivors::None));
    let (work, scratch) = (One(story), fsck::scratch());
    let cuts = disk.images.len();
    let images = disk.images.drain(..).chain([end]);
    let problem = |(cut, image)| {
        let found = check(&work, image, cut, scratch.path()).err()?;
        Some(format!("{options}, seed {seed}, position {cut}: {found}"))
    };
    (cuts, images.filter_map(problem).collect())
}

fn cut(wanted: usize) {
    let runs = (0..).flat_map(|seed| KINDS.map(|kind| (kind, seed)));
    let mut done = 0;
    for ((options, size), seed) in runs {
        let (cuts, problems) = work(options, size, seed);
        assert!(problems.is_empty(), "{}", problems.join("\n\n"));
        done += cuts;
        if done >= wanted {
            break;
        }
    }
    println!("{done} power cuts");
}

#[test]
fn a_server_that_loses_power_again_and_again_loses_nothing_that_was_acknowledged() {
    cut(100);
}

#[test]
#[ignore = "long: make crash"]
fn a_thousand_power_cuts_of_a_server_lose_nothing_that_was_acknowledged() {
    cut(1_000);
}
