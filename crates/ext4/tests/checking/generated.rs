//! Damages of every field of every structure, on every kind of file system: we call unclean what
//! e2fsck calls unclean, and by the same problem codes.
//!
//! `ROUNDS` damages a kind of file system, from seed `SEED` on; `SHOW=1` prints those that differ,
//! `ONLY` takes the kinds whose options contain it.

use crate::damage::Structures;
use crate::images::{Image, KINDS, fill, scratch};
use crate::oracle::{E2fsck, Report, check};
use std::collections::{BTreeMap, BTreeSet};
use std::env;

fn number(variable: &str, default: u64) -> u64 {
    env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn has_e2fsck() -> bool {
    let has = std::process::Command::new("e2fsck").arg("-V").output().is_ok();
    if !has {
        println!("skipped: needs e2fsck");
    }
    has
}

#[derive(Default)]
struct Tally {
    all: u64,
    unclean: u64,
    missed: Vec<String>,
    alarms: Vec<String>,
    /// Of the unclean ones.
    differ: u64,
    /// Codes that one of the two lacks.
    pairs: BTreeMap<String, u64>,
}

impl Tally {
    fn add(&mut self, what: &str, theirs: &Report, ours: &Report, shows: bool) {
        // e2fsck or we do not know a feature that the damage has set.
        if theirs.is_refused || ours.is_refused {
            return;
        }
        self.all += 1;
        self.unclean += u64::from(!theirs.is_clean);
        let show = || format!("{what}\n{}---\n{}\n", theirs.said, ours.said);
        match (theirs.is_clean, ours.is_clean) {
            (false, true) => self.missed.push(show()),
            (true, false) => self.alarms.push(show()),
            _ => {}
        }
        // Where e2fsck stops, we go on: only what comes before is compared.
        let last = theirs.codes.last().map_or(0, |code| code >> 16);
        let is_before = |code: &u32| !theirs.is_aborted || code >> 16 < last || theirs.codes.contains(code);
        let ours_before: BTreeSet<u32> = ours.codes.iter().copied().filter(is_before).collect();
        if theirs.codes != ours_before {
            self.differ += 1;
            let only = |one: &BTreeSet<u32>, other: &BTreeSet<u32>| -> Vec<String> {
                one.difference(other).map(|code| format!("{code:06x}")).collect()
            };
            let pair =
                format!("-{:?} +{:?}", only(&theirs.codes, &ours_before), only(&ours_before, &theirs.codes));
            if shows {
                println!("DIFFER {pair} {}", show());
            }
            *self.pairs.entry(pair).or_default() += 1;
        }
    }
}

#[test]
fn damage_of_every_field_is_found_as_e2fsck_finds_it() {
    if !has_e2fsck() {
        return;
    }
    let (rounds, first, shows) = (number("ROUNDS", 20), number("SEED", 1), env::var_os("SHOW").is_some());
    let only = env::var("ONLY").unwrap_or_default();
    let tree = scratch();
    fill(tree.path());
    let e2fsck = E2fsck::new();
    let mut tally = Tally::default();
    for (kind, options) in (0_u64..).zip(KINDS).filter(|(_, options)| options.contains(&only)) {
        let image = Image::new(options, "12M", tree.path());
        let (theirs, ours) = (e2fsck.check(&image.file), check(&image.file));
        assert!(theirs.is_clean && ours.is_clean, "{options}: {}---\n{}", theirs.said, ours.said);
        let structures = Structures::of(&image.file);
        for seed in first..first + rounds {
            let damage = structures.damage(kind << 32 | seed);
            let what = format!("{options}, seed {seed}: {}", damage.what);
            tally.add(&what, &e2fsck.check(&image.file), &check(&image.file), shows);
        }
    }
    let Tally { all, unclean, missed, alarms, differ, pairs } = tally;
    let (misses, false_alarms) = (missed.len(), alarms.len());
    println!(
        "{all} damages, {unclean} unclean: {misses} missed, {false_alarms} false alarms, codes of {differ} differ"
    );
    if shows {
        missed.iter().for_each(|text| println!("MISSED {text}"));
        alarms.iter().for_each(|text| println!("ALARM {text}"));
    }
    let mut pairs: Vec<(String, u64)> = pairs.into_iter().collect();
    pairs.sort_by_key(|pair| std::cmp::Reverse(pair.1));
    pairs.iter().for_each(|(pair, count)| println!("{count:5} {pair}"));
    assert!(misses as u64 * 50 <= all, "{}", missed.join("\n"));
    assert!(false_alarms as u64 * 100 <= all, "{}", alarms.join("\n"));
    assert!(differ * 5 <= unclean, "{differ} of {unclean}");
}
