//! Power cuts of random work: after replay by `e2fsck` and by this crate, the image is clean and
//! holds what was acknowledged.

use crate::common::Image;
use crate::common::cuts::{Run, Work, check_all, go_on, writable};
use crate::common::ops::{OpMix, reference};
use crate::common::story::Story;
use crate::common::writing::{Dice, OURS, SMALL, new_image, open};
use dentree_blockdev::RecordingDevice;
use dentree_ext4::Ext4;
use dentree_vfs::{FileSystem, Identity, NewKind, Vfs};
use std::fs;
use std::sync::Arc;

/// Without a journal, a cut leaves damage to repair.
const KINDS: [(&str, &str); 6] = [
    ("-t ext4 -b 4096 -J size=4", "12M"),
    ("-t ext4 -b 4096 -O metadata_csum_seed,orphan_file -J size=4", "12M"),
    ("-t ext4 -b 1024 -J size=1", "8M"),
    ("-t ext3 -b 1024 -J size=1", "8M"),
    ("-t ext4 -b 1024 -O inline_data -I 256 -J size=1", "8M"),
    (OURS, "8M"),
];

const WORK: usize = 250;

struct Stories(Vec<Story>);

impl Work for Stories {
    fn compare(&self, fs: Ext4, cut: usize) -> Result<(), String> {
        let vfs = Vfs::with_budgets(fs, SMALL).map_err(|error| error.to_string())?;
        self.0.iter().try_for_each(|story| story.compare(&vfs, cut))?;
        let fs = vfs.into_fs().ok_or("an inode is in use")?;
        fs.close().map_err(|error| format!("closing: {error}"))
    }
}

/// A directory for concurrent stories; for each story a file, and a directory with a file.
fn begin<F: FileSystem>(vfs: &Vfs<F>) {
    let who = &Identity::Superuser;
    let make = |path: &str, kind, permissions| {
        let at = vfs.walk_parent(who, vfs.root(), path.as_bytes()).unwrap();
        vfs.create(who, &at.dir, at.name, kind, permissions).unwrap()
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

/// A single story, then concurrent ones.
const TOPS: [&str; 4] = ["", "shared/0 ", "shared/1 ", "shared/2 "];

const FIRST_CONTENT: &[u8] = b"short enough for an inode";

fn new_begun_image(options: &str, size: &str) -> Vec<u8> {
    let image = if options == OURS {
        let image = new_image(options, size);
        let ours = Vfs::new(open(&image)).unwrap();
        begin(&ours);
        ours.into_fs().expect("no inode is in use").close().unwrap();
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

/// Threads work on their own names in a shared directory.
fn work(options: &str, size: &str, seed: u64, threads: usize) -> Run<Stories> {
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
                let mix = OpMix { top: top.to_owned(), allocates, durable_one_of: 8 };
                let errors = story.go_on(ours, &mix, &mut dice, WORK / threads, &|| device.position());
                assert!(errors.is_empty(), "{errors:?}");
                story
            })
        });
        let work: Vec<_> = work.collect();
        work.into_iter().map(|work| work.join().unwrap()).collect::<Vec<_>>()
    });
    ours.into_fs().expect("no inode is in use").close().unwrap();
    stories.iter_mut().for_each(|story| story.synced(device.position()));
    let what = format!("{options} {size}, {threads} threads, seed {seed}");
    Run { what, recording: device.recording(), work: Stories(stories) }
}

/// Returns how many there were, and the problems.
fn cut(seed: u64, count: usize) -> (usize, Vec<String>) {
    let (mut done, mut problems) = (0, Vec::new());
    for ((options, size), workers) in KINDS.into_iter().flat_map(|kind| [(kind, 1), (kind, 3)]) {
        let (cuts, wrong) = check_all(&work(options, size, seed, workers), count, seed);
        done += cuts;
        problems.extend(wrong);
    }
    (done, problems)
}

#[test]
fn after_a_power_cut_the_image_is_clean_and_holds_what_was_acknowledged() {
    let (done, problems) = cut(1, 50);
    println!("{done} power cuts");
    assert!(problems.is_empty(), "{}", problems.join("\n\n"));
}

#[test]
#[ignore = "long: make crash"]
fn tens_of_thousands_of_power_cuts_leave_clean_images() {
    go_on(|seed| cut(seed, 250));
}
