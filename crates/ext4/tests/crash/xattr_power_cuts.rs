//! Threads set attributes to few values, so files share blocks and values. After a power cut each
//! file has a state of its history, none before the last sync, and user counts are right.

use crate::common::Image;
use crate::common::cuts::{Run, Work, check_all, go_on, writable};
use crate::common::writing::Dice;
use dentree_blockdev::RecordingDevice;
use dentree_ext4::{Ext4, Node};
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

/// States, and the position from which the n-th is durable.
#[derive(Default)]
struct History {
    states: Vec<Attributes>,
    durable: Vec<(usize, usize)>,
}

fn name(thread: usize, file: usize) -> String {
    format!("t{thread}f{file}")
}

fn value(dice: &mut Dice, has_inodes: bool) -> Vec<u8> {
    let letter = b'a' + u8::try_from(dice.roll(3)).unwrap();
    let longest = if has_inodes { 9_000 } else { 300 };
    vec![letter; [0, 5, 30, 200, longest][dice.roll(5)]]
}

fn work(fs: &Ext4, device: &RecordingDevice, thread: usize, seed: u64, has_inodes: bool) -> Vec<History> {
    let mut dice = Dice(0x5851_F42D * (seed * 16 + thread as u64 + 1));
    let nodes: Vec<Node> =
        (0..FILES).map(|file| crate::common::writing::node(fs, &name(thread, file))).collect();
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
    for name in NAMES {
        if let Some(value) = fs.getxattr(node, name.as_bytes())? {
            found.insert(name, value);
        }
    }
    assert_eq!(fs.listxattr(node)?.len(), found.len());
    Ok(found)
}

/// Histories by thread and file.
struct Histories(Vec<Vec<History>>);

impl Work for Histories {
    fn compare(&self, fs: Ext4, cut: usize) -> Result<(), String> {
        for (thread, histories) in self.0.iter().enumerate() {
            for (file, history) in histories.iter().enumerate() {
                let name = name(thread, file);
                let node = crate::common::writing::node(&fs, &name);
                let found = attributes(&fs, &node).map_err(|error| format!("{name}: {error}"))?;
                let durable = history.durable.iter().filter(|(position, _)| *position <= cut);
                let first = durable.map(|(_, state)| *state).max().unwrap_or(0);
                if !history.states[first..].contains(&found) {
                    return Err(format!("{name}: {found:?} is none of its states from {first} on"));
                }
            }
        }
        fs.close().map_err(|error| format!("closing: {error}"))
    }
}

fn run(options: &str, size: &str, seed: u64) -> Run<Histories> {
    let image = Image::new(options, size, |tree| {
        for (thread, file) in (0..THREADS).flat_map(|thread| (0..FILES).map(move |file| (thread, file))) {
            fs::write(tree.join(name(thread, file)), vec![b'x'; file * 20]).unwrap();
        }
    });
    let device = Arc::new(RecordingDevice::new(fs::read(image.path()).unwrap()));
    let fs = Ext4::open(device.clone(), writable()).unwrap();
    let work = |thread| work(&fs, &device, thread, seed, options.contains("ea_inode"));
    let work = &work;
    let all: Vec<Vec<History>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    fs.close().unwrap();
    let what = format!("{options}, seed {seed}");
    Run { what, recording: device.recording(), work: Histories(all) }
}

fn cut(seed: u64, count: usize) -> (usize, Vec<String>) {
    let (mut done, mut problems) = (0, Vec::new());
    for (options, size) in KINDS {
        let (cuts, wrong) = check_all(&run(options, size, seed), count, seed);
        done += cuts;
        problems.extend(wrong);
    }
    (done, problems)
}

#[test]
fn after_a_power_cut_attributes_and_user_counts_are_right() {
    let (done, problems) = cut(1, 75);
    println!("{done} power cuts");
    assert!(problems.is_empty(), "{}", problems.join("\n\n"));
}

#[test]
#[ignore = "long: make crash"]
fn thousands_of_power_cuts_keep_attributes_and_user_counts() {
    go_on(|seed| cut(seed, 250));
}
