//! Damaged images give an error that names the place, or a right result: never a panic, nor more
//! reads or memory than their size justifies. Damage is fixed: bits and fields that a reader
//! touches, zeroed or swapped blocks, truncation.

use crate::damage::images::{self, Image};
use crate::examine::{BLOCK, Outcome, examine};
use dentree_blockdev::MemoryDevice;
use dentree_ext4::{Ext4, Options};
use std::sync::Arc;

/// Damaged copies of each image.
const ROUNDS: u64 = 500;

pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).unwrap() % below
    }

    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.next(of.len())]
    }
}

/// Returns what was damaged.
fn damage(bytes: &mut [u8], touched: &[usize], random: &mut Random) -> String {
    let block = random.pick(touched);
    let at = block * BLOCK + random.next(BLOCK);
    match random.next(12) {
        0..=3 => {
            let bit = random.next(8);
            bytes[at] ^= 1 << bit;
            format!("bit {bit} of byte {at:#x} flipped")
        }
        4 | 5 => {
            let value = random.pick(&[0_u16, 1, 2, 4, 8, 0x7fff, 0x8000, 0xffff, 1023, 1024, 1025]);
            let at = at & !1;
            bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
            format!("16 bits at {at:#x} set to {value:#x}")
        }
        6..=8 => {
            let blocks = u32::try_from(bytes.len() / BLOCK).unwrap();
            let target = u32::try_from(random.pick(touched)).unwrap();
            let own = u32::try_from(block).unwrap();
            let value =
                random.pick(&[0, 1, 2, own, target, target, blocks - 1, blocks, 0x7fff_ffff, 0xffff_ffff]);
            let at = at & !3;
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            format!("32 bits at {at:#x} set to {value:#x}")
        }
        9 => {
            bytes[block * BLOCK..][..BLOCK].fill(0);
            format!("block {block} zeroed")
        }
        10 => {
            let len = 1 + random.next(32);
            for _ in 0..len {
                let at = block * BLOCK + random.next(BLOCK);
                bytes[at] = random.next(256).to_le_bytes()[0];
            }
            format!("{len} bytes of block {block} changed")
        }
        _ => {
            let source = random.pick(touched);
            bytes.copy_within(source * BLOCK..(source + 1) * BLOCK, block * BLOCK);
            format!("block {source} copied over block {block}")
        }
    }
}

fn damage_and_examine(image: &Image, each: impl Fn(&Outcome, &Outcome, &str)) {
    let intact = examine(image.bytes.clone());
    let touched: Vec<usize> = intact.touched.iter().copied().collect();
    for round in 0..ROUNDS {
        let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ (round + 1).wrapping_mul(0xd134_2543_de82_ef95));
        let mut bytes = image.bytes.clone();
        let count = 1 + random.next(3);
        let changes: Vec<_> = (0..count).map(|_| damage(&mut bytes, &touched, &mut random)).collect();
        let what = format!("{}, round {round}: {}", image.name, changes.join(", "));
        let outcome =
            std::panic::catch_unwind(|| examine(bytes)).unwrap_or_else(|_| panic!("panicked above: {what}"));
        outcome.check(&intact, &what);
        each(&intact, &outcome, &what);
    }
}

#[test]
fn intact_images_are_read_without_an_error() {
    for image in images::all() {
        let outcome = examine(image.bytes);
        assert!(outcome.findings.errors.is_empty(), "{}: {:?}", image.name, outcome.findings.errors);
        assert!(!outcome.findings.facts.is_empty());
        println!("{}: {} reads, {} bytes at most", image.name, outcome.reads, outcome.memory);
        outcome.check(&outcome, image.name);
    }
}

#[test]
fn damaged_images_give_errors_or_results() {
    for image in images::all() {
        damage_and_examine(&image, |_, _, _| {});
    }
}

#[test]
fn with_checksums_damaged_metadata_is_an_error_or_changes_nothing() {
    damage_and_examine(&images::named("ext4-sums"), |intact, outcome, what| {
        if outcome.findings.errors.is_empty() {
            for (expected, found) in intact.findings.facts.iter().zip(&outcome.findings.facts) {
                assert_eq!(expected, found, "{what}");
            }
            assert_eq!(intact.findings.facts.len(), outcome.findings.facts.len(), "{what}");
        }
    });
}

#[test]
fn truncated_images_give_errors_or_results() {
    for image in images::all() {
        let intact = examine(image.bytes.clone());
        for blocks in (0..image.bytes.len() / BLOCK).step_by(7) {
            for odd in [0, 1, 1000] {
                let len = blocks * BLOCK + odd;
                let what = format!("{} cut to {len} bytes", image.name);
                let bytes = image.bytes[..len].to_vec();
                let outcome =
                    std::panic::catch_unwind(|| examine(bytes)).unwrap_or_else(|_| panic!("{what}"));
                outcome.check(&intact, &what);
                assert!(
                    blocks > 4 || !outcome.findings.errors.is_empty(),
                    "{what}: what is missing is an error"
                );
            }
        }
    }
}

#[test]
fn images_of_one_byte_value_are_no_file_system() {
    for byte in [0, 0xff, 0x53] {
        for len in [0, 1, 1023, 1024, 2047, 2048, 1 << 20] {
            assert!(Ext4::open(Arc::new(MemoryDevice::from(vec![byte; len])), Options::default()).is_err());
        }
    }
}
