//! Salvage and the other commands for damaged images end well on any image: no panic, no more
//! memory and content than an image of that size justifies.

use crate::damage::images::{self, Image};
use crate::damage::salvaged::{self, Salvaged};
use crate::damaged_blocks::Random;
use dentree_blockdev::MemoryDevice;
use std::sync::Arc;

const BLOCK: usize = 1024;
/// Most memory above that of the image.
const BYTES_MAX: u64 = 48 << 20;

/// How often each image is damaged: `ROUNDS`, or a few times.
fn rounds() -> u64 {
    std::env::var("ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(40)
}

/// Damages an image: a few fields, many blocks, its superblocks, its end. Returns how.
fn damage(bytes: &mut Vec<u8>, random: &mut Random) -> String {
    let blocks = bytes.len() / BLOCK;
    let used: Vec<usize> =
        (0..blocks).filter(|block| bytes[block * BLOCK..][..BLOCK].iter().any(|byte| *byte != 0)).collect();
    if used.is_empty() {
        return "nothing left".to_owned();
    }
    let byte = |random: &mut Random| random.next(256).to_le_bytes()[0];
    match random.next(6) {
        0 => {
            for _ in 0..=random.next(40) {
                let at = random.pick(&used) * BLOCK + random.next(BLOCK);
                bytes[at] = byte(random);
            }
            "bytes changed".to_owned()
        }
        1 => {
            let percent = random.pick(&[1, 10, 50, 90]);
            for block in &used {
                if random.next(100) < percent {
                    bytes[block * BLOCK..][..BLOCK].fill_with(|| byte(random));
                }
            }
            format!("{percent}% of the blocks overwritten")
        }
        2 => {
            for _ in 0..=random.next(60) {
                let (from, to) = (random.pick(&used) * BLOCK, random.pick(&used) * BLOCK);
                bytes.copy_within(from..from + BLOCK, to);
            }
            "blocks copied".to_owned()
        }
        3 => {
            for superblock in bytes.chunks_exact_mut(BLOCK).filter(|block| block[0x38..0x3A] == [0x53, 0xEF])
            {
                superblock.fill(0);
            }
            "superblocks zeroed".to_owned()
        }
        4 => {
            bytes.iter_mut().take(4096).for_each(|byte| *byte = 0);
            "start zeroed".to_owned()
        }
        _ => {
            bytes.truncate(random.next(blocks) * BLOCK);
            "cut".to_owned()
        }
    }
}

/// Salvages an image within its bounds.
fn salvage(bytes: Vec<u8>, what: &str) -> Option<Salvaged> {
    let len = bytes.len() as u64;
    let device = Arc::new(MemoryDevice::from(bytes));
    let mut found = None;
    let memory = allocation_counter::measure(|| {
        let run = std::panic::AssertUnwindSafe(|| {
            salvaged::other_commands(device.clone());
            salvaged::everything(device.clone())
        });
        found = std::panic::catch_unwind(run).unwrap_or_else(|_| panic!("panicked above: {what}"));
    });
    assert!(memory.bytes_max <= BYTES_MAX + 4 * len, "{what}: {} bytes of memory", memory.bytes_max);
    if let Some(found) = &found {
        assert!(found.bytes <= 2 * len + (64 << 20), "{what}: {} bytes of content", found.bytes);
    }
    found
}

fn damage_and_salvage(image: &Image) {
    for round in 0..rounds() {
        let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ (round + 1).wrapping_mul(0xd134_2543_de82_ef95));
        let mut bytes = image.bytes.clone();
        let changes: Vec<String> = (0..=random.next(3)).map(|_| damage(&mut bytes, &mut random)).collect();
        salvage(bytes, &format!("{}, round {round}: {}", image.name, changes.join(", ")));
    }
}

#[test]
fn all_of_an_intact_image_is_whole() {
    for image in images::all() {
        let found = salvage(image.bytes.clone(), image.name).unwrap();
        assert_eq!((found.lost, found.partial), (0, 0), "{}", image.name);
        assert!(!found.files.is_empty(), "{}", image.name);
        assert!(found.files.iter().all(|(path, _)| !path.starts_with("lost+found/#")), "{}", image.name);
    }
}

#[test]
fn any_damaged_image_comes_to_an_end() {
    images::all().iter().for_each(damage_and_salvage);
}
