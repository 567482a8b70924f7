//! A busy mount is killed again and again: its image replays, by us and by `e2fsck`, is consistent,
//! and has what fsync acknowledged.

mod mounts;
mod writing;

use dentree_testing::said;
use mounts::Mounted;
use rustix::process::Signal;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use writing::{Dice, Image, end};

const WRITERS: u64 = 3;
/// Files that each writer replaces in turn.
const REPLACED: u64 = 5;
/// Bytes per record of a log.
const RECORD: usize = 100;

/// What fsync has acknowledged to one writer.
#[derive(Default)]
struct Acknowledged {
    /// The oldest version that each name may have.
    versions: HashMap<String, u64>,
    /// Records of the log.
    records: u64,
}

/// The content of version `version`, derived from the number.
fn content(version: u64) -> Vec<u8> {
    let mut dice = Dice(version);
    let len = 8 + dice.roll(60_000);
    let mut bytes = version.to_le_bytes().to_vec();
    bytes.resize_with(len, || dice.roll(256) as u8);
    bytes
}

fn record(number: u64) -> [u8; RECORD] {
    [number.wrapping_mul(31).to_le_bytes()[0]; RECORD]
}

/// Writes until the mount is gone. Sends a message for each acknowledgement.
fn write(top: &Path, dice: &mut Dice, known: &mut Acknowledged, tell: &Sender<()>) -> io::Result<()> {
    fs::create_dir_all(top)?;
    let mut log = File::options().append(true).create(true).open(top.join("log"))?;
    log.sync_all()?;
    File::open(top)?.sync_all()?;
    // Without a name from here on.
    let unnamed = File::create(top.join("unnamed"))?;
    fs::remove_file(top.join("unnamed"))?;
    for step in 0.. {
        let name = format!("file-{}", dice.roll(REPLACED as usize));
        // A complete new version replaces the old one.
        let version = known.versions.get(&name).copied().unwrap_or_default() + 1;
        let mut file = File::create(top.join("new"))?;
        file.write_all(&content(version))?;
        file.sync_all()?;
        fs::rename(top.join("new"), top.join(&name))?;
        if dice.roll(2) == 0 {
            File::open(top)?.sync_all()?;
            known.versions.insert(name, version);
            let _ = tell.send(());
        }
        log.write_all(&record(known.records))?;
        log.sync_data()?;
        known.records += 1;
        let _ = tell.send(());
        noise(top, step, dice, &unnamed)?;
    }
    Ok(())
}

/// Operations without fsync.
fn noise(top: &Path, step: u64, dice: &mut Dice, mut unnamed: &File) -> io::Result<()> {
    let dir = top.join(format!("noise-{}", step % 7));
    match dice.roll(5) {
        0 if dir.exists() => fs::remove_dir_all(&dir)?,
        0 => fs::create_dir(&dir)?,
        1 => unnamed.write_all(&[1; 30_000])?,
        2 => fs::write(top.join("big"), vec![2; dice.roll(1 << 20)])?,
        _ => {
            fs::create_dir_all(&dir)?;
            for number in 0..dice.roll(40) {
                fs::write(dir.join(format!("a file with quite a long name {number}")), [3; 300])?;
            }
        }
    }
    Ok(())
}

/// Lets the writers write, and kills the mount after some acknowledgements.
fn kill_after(
    acknowledgements: usize,
    mut mounted: Mounted,
    dice: &mut Dice,
    known: &mut HashMap<u64, Acknowledged>,
) {
    let killed = AtomicBool::new(false);
    let (tell, told): (_, Receiver<()>) = channel();
    thread::scope(|scope| {
        for (&writer, known) in known.iter_mut() {
            let (tell, killed) = (tell.clone(), &killed);
            let top = mounted.path().join(format!("writer-{writer}"));
            let mut dice = Dice(dice.next());
            scope.spawn(move || {
                let ended = write(&top, &mut dice, known, &tell);
                assert!(killed.load(SeqCst), "before it was killed: {ended:?}");
            });
        }
        drop(tell);
        let enough = told.iter().take(acknowledgements).count() == acknowledgements;
        killed.store(true, SeqCst);
        mounted.signal(Signal::KILL);
        assert!(enough, "the writers gave up");
    });
    assert!(!mounted.wait().success());
}

/// Checks that acknowledged data is there, and that replaced files are whole.
fn find_all(top: &Path, known: &HashMap<u64, Acknowledged>) {
    for (writer, known) in known {
        let top = top.join(format!("writer-{writer}"));
        for (name, &version) in &known.versions {
            let found = fs::read(top.join(name)).unwrap();
            let number = u64::from_le_bytes(found[..8].try_into().unwrap());
            assert!(number >= version, "{writer}/{name} went back from version {version} to {number}");
            assert!(found == content(number), "{writer}/{name} is not all of version {number}");
        }
        let log = fs::read(top.join("log")).unwrap_or_default();
        assert!(
            log.len() as u64 >= known.records * RECORD as u64,
            "records are missing of {}",
            known.records
        );
        for (number, found) in log.chunks_exact(RECORD).enumerate() {
            assert!(found == record(number as u64), "{writer}: record {number}");
        }
    }
}

/// As at boot: e2fsck replays the journal and frees orphans. Nothing else may need repair.
fn recover_by_e2fsck(image: &Image) {
    let check = Command::new("e2fsck").arg("-fp").arg(image.path()).output().unwrap();
    let text = said(&check);
    // Free counts of the superblock lag while a file system is in use.
    let expected = ["recovering journal", "rphan", "CLEARED.", "count wrong (", "non-contiguous"];
    let rest: Vec<_> =
        text.lines().filter(|line| !expected.iter().any(|words| line.contains(words))).collect();
    assert!(matches!(check.status.code(), Some(0 | 1)) && rest.is_empty(), "e2fsck repairs: {text}");
}

fn kill(times: usize, options: &str) {
    let Some(image) = Image::new(options, "64M") else { return };
    let mut dice = Dice(times as u64);
    let mut known: HashMap<u64, Acknowledged> =
        (0..WRITERS).map(|writer| (writer, Acknowledged::default())).collect();
    for time in 0..times {
        kill_after(1 + dice.roll(40), image.mount(), &mut dice, &mut known);
        let theirs = image.copy();
        recover_by_e2fsck(&theirs);
        theirs.check();
        let mounted = theirs.mount();
        find_all(mounted.path(), &known);
        drop(mounted);
        let mounted = image.mount();
        find_all(mounted.path(), &known);
        count_versions(mounted.path(), &mut known);
        // Every other time the next writers start on an unclean file system.
        if time % 2 == 0 {
            end(mounted);
            image.check();
        } else {
            drop(mounted);
        }
    }
    println!("killed {times} times ({options})");
}

/// Counts unacknowledged versions that survived: the writers go on from there.
fn count_versions(top: &Path, known: &mut HashMap<u64, Acknowledged>) {
    for (writer, known) in known {
        let top = top.join(format!("writer-{writer}"));
        for number in 0..REPLACED {
            let name = format!("file-{number}");
            if let Ok(found) = fs::read(top.join(&name)) {
                known.versions.insert(name, u64::from_le_bytes(found[..8].try_into().unwrap()));
            }
        }
        let log = File::options().write(true).open(top.join("log"));
        if let Ok(log) = log {
            let records = log.metadata().unwrap().len() / RECORD as u64;
            log.set_len(records * RECORD as u64).unwrap();
            known.records = records;
        }
    }
}

// A hundred kills in all.

#[test]
fn a_killed_busy_mount_leaves_a_sound_image_with_all_acknowledged_data() {
    kill(50, "-t ext4");
}

#[test]
fn a_killed_mount_leaves_its_orphans_in_the_orphan_file() {
    kill(30, "-t ext4 -O metadata_csum_seed,orphan_file -b 1024");
}

#[test]
fn a_killed_mount_of_ext3_is_sound_too() {
    kill(20, "-t ext3");
}
