//! Threads set attributes of their files, from few values, so that the files come to share blocks and values of each other; wherever
//! the power goes, every file has the attributes that it had after one of its changes, none older than what was synced, and
//! `e2fsck` finds every count of users right.

mod common;

use common::writing::Dice;
use common::{Image, fsck};
use dentree_blockdev::{BlockDevice, MemoryDevice, RecordingDevice, Survivors};
use dentree_ext4::{Clock, Ext4, InodeTime, Node, Options};
use dentree_vfs::{Error, FileSystem, SetXattr};
use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

const KINDS: [(&str, &str); 4] = [
    ("-t ext4 -I 128 -b 1024 -J size=1", "10M"),
    ("-t ext4 -O ea_inode,orphan_file -b 1024 -J size=1", "12M"),
    ("-t ext4 -I 256 -O inline_data -J size=4", "20M"),
    ("-t ext3 -b 1024 -I 128 -J size=1", "10M"),
];

const THREADS: usize = 4;
const FILES: usize = 6;
const WORK: usize = 120;
const NAMES: [&str; 3] = ["user.a", "user.longer-name", "trusted.t"];

type Attributes = BTreeMap<&'static str, Vec<u8>>;

/// What a file's attributes were, one after the other, and from which position of the device on the n-th of them was durable.
#[derive(Default)]
struct History {
    states: Vec<Attributes>,
    durable: Vec<(usize, usize)>,
}

fn writable() -> Options {
    Options { writable: true, clock: Clock::Fixed(InodeTime::default()), ..Options::default() }
}

fn name(thread: usize, file: usize) -> String {
    format!("t{thread}f{file}")
}

fn value(dice: &mut Dice, has_inodes: bool) -> Vec<u8> {
    let letter = b'a' + u8::try_from(dice.roll(3)).unwrap();
    let longest = if has_inodes { 9_000 } else { 300 };
    vec![letter; [0, 5, 30, 200, longest][dice.roll(5)]]
}

/// One thread's work on its files.
fn work(fs: &Ext4, device: &RecordingDevice, thread: usize, seed: u64, has_inodes: bool) -> Vec<History> {
    let mut dice = Dice(0x5851_F42D * (seed * 16 + thread as u64 + 1));
    let nodes: Vec<Node> = (0..FILES).map(|file| common::writing::node(fs, &name(thread, file))).collect();
    let mut histories: Vec<History> = (0..FILES).map(|_| History::default()).collect();
    histories.iter_mut().for_each(|history| history.states.push(Attributes::new()));
    for _ in 0..WORK {
        if dice.roll(12) == 0 {
            let done: Vec<usize> = histories.iter().map(|history| history.states.len() - 1).collect();
            fs.sync().unwrap();
            let position = device.position();
            histories.iter_mut().zip(done).for_each(|(history, done)| history.durable.push((position, done)));
            continue;
        }
        let file = dice.roll(FILES);
        let name = NAMES[dice.roll(NAMES.len())];
        let mut next = histories[file].states.last().unwrap().clone();
        let done = if dice.roll(4) == 0 {
            next.remove(name);
            fs.removexattr(&nodes[file], name.as_bytes())
        } else {
            let value = value(&mut dice, has_inodes);
            next.insert(name, value.clone());
            fs.setxattr(&nodes[file], name.as_bytes(), &value, SetXattr::Any)
        };
        match done {
            Ok(()) => histories[file].states.push(next),
            Err(Error::NoSpace | Error::NoAttribute) => {}
            Err(error) => panic!("{error}"),
        }
    }
    histories
}

fn attributes(fs: &Ext4, node: &Node) -> Result<Attributes, Error> {
    let mut found = Attributes::new();
    let mut count = 0;
    for name in NAMES {
        if let Some(value) = fs.getxattr(node, name.as_bytes())? {
            found.insert(name, value);
            count += 1;
        }
    }
    assert_eq!(fs.listxattr(node)?.len(), count);
    Ok(found)
}

/// Every file has a state of its history, and none older than was durable.
fn compare(fs: &Ext4, all: &[Vec<History>], cut: usize, what: &str) {
    for (thread, histories) in all.iter().enumerate() {
        for (file, history) in histories.iter().enumerate() {
            let node = common::writing::node(fs, &name(thread, file));
            let found = attributes(fs, &node).unwrap_or_else(|error| panic!("{what}: {error}"));
            let durable = history.durable.iter().filter(|(position, _)| *position <= cut);
            let first = durable.map(|(_, state)| *state).max().unwrap_or(0);
            assert!(
                history.states[first..].contains(&found),
                "{what}: {}: {found:?} is none of its states from {first} on",
                name(thread, file)
            );
        }
    }
}

fn cut(options: &str, size: &str, seed: u64, count: usize) {
    let image = Image::new(options, size, |tree| {
        for (thread, file) in (0..THREADS).flat_map(|thread| (0..FILES).map(move |file| (thread, file))) {
            fs::write(tree.join(name(thread, file)), vec![b'x'; file * 20]).unwrap();
        }
    });
    let device = Arc::new(RecordingDevice::new(fs::read(image.path()).unwrap()));
    let fs = Ext4::open(device.clone(), writable()).unwrap();
    let opened = device.position();
    let work = |thread| work(&fs, &device, thread, seed, options.contains("ea_inode"));
    let work = &work;
    let all: Vec<Vec<History>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    compare(&fs, &all, usize::MAX, "before any cut");
    // Opening and closing mark the superblock outside of the journal; there a torn sector is for e2fsck.
    let worked = device.position();
    fs.close().unwrap();
    drop(fs);
    let recording = device.recording();
    let mut boundaries = recording.flush_boundaries();
    boundaries.retain(|boundary| (opened..=worked).contains(boundary));
    let mut dice = Dice(0x9E37_79B9 * seed + 1);
    let mut cuts: Vec<usize> = (0..count)
        .map(|n| match n % 3 {
            0 => opened + dice.roll(worked + 1 - opened),
            _ => boundaries[dice.roll(boundaries.len())],
        })
        .collect();
    cuts.sort_unstable();
    let scratch = fsck::scratch();
    let path = scratch.path().join("image");
    let mut replay = recording.replay();
    for (n, cut) in cuts.into_iter().enumerate() {
        let survivors = match n % 4 {
            0 => Survivors::Sectors { seed: n as u64 },
            1 => Survivors::Writes { seed: n as u64 },
            2 => Survivors::None,
            _ => Survivors::All,
        };
        let what = format!("{options}, seed {seed}, cut {cut}, {survivors:?}");
        let bytes = replay.image(cut, survivors);
        let device = Arc::new(MemoryDevice::from(bytes));
        compare(&Ext4::open(device.clone(), Options::default()).unwrap(), &all, cut, &what);
        let fs = Ext4::open(device.clone(), writable()).unwrap();
        compare(&fs, &all, cut, &what);
        fs.close().unwrap();
        drop(fs);
        assert!(device.size() > 0);
        fs::write(&path, device.to_vec()).unwrap();
        fsck::is_clean(&path).unwrap_or_else(|text| panic!("{what}: {text}"));
    }
}

#[test]
fn whenever_the_power_goes_files_have_attributes_that_they_had_and_every_count_is_right() {
    for (options, size) in KINDS {
        cut(options, size, 1, 30);
    }
}

#[test]
#[ignore = "long: make crash"]
fn whenever_the_power_goes_in_thousands_of_cuts() {
    for (options, size) in KINDS {
        (2..=20).for_each(|seed| cut(options, size, seed, 60));
    }
}
