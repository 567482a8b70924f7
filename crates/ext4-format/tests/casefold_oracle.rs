//! Folded names hash as in e2fsprogs: single code points, and random difficult ones.

use dentree_ext4_format::casefold::FoldedName;
use dentree_ext4_format::hash::{CharSign, HashSeed, HashVersion};
use std::io::{BufWriter, Write as _};
use std::process::Command;

/// From `debugfs dx_hash -c -e utf8`; `None` without debugfs. Names have no blanks or quotes.
fn debugfs_hashes(names: &[String]) -> Option<Vec<(u32, u32)>> {
    let mut script = BufWriter::new(tempfile::NamedTempFile::new().unwrap());
    for name in names {
        writeln!(script, "dx_hash -h half_md4 -c -e utf8 {name}").unwrap();
    }
    let script = script.into_inner().unwrap();
    let Ok(answer) = Command::new("debugfs").arg("-f").arg(script.path()).output() else {
        eprintln!("skipped: debugfs is not installed");
        return None;
    };
    let hex = |text: &str| u32::from_str_radix(text, 16).unwrap();
    let hashes: Vec<_> = String::from_utf8_lossy(&answer.stdout)
        .lines()
        .filter(|line| line.starts_with("Hash of "))
        .map(|line| {
            let (_, values) = line.rsplit_once(" is 0x").unwrap();
            let (major, minor) = values.split_once(" (minor 0x").unwrap();
            (hex(major), hex(minor.trim_end_matches(')')))
        })
        .collect();
    assert_eq!(hashes.len(), names.len(), "debugfs answers every command");
    Some(hashes)
}

fn assert_same_hashes(names: &[String]) {
    let version = HashVersion::from_disk(1, CharSign::Signed).unwrap();
    let differing: Vec<String> = names
        .iter()
        .zip(debugfs_hashes(names).unwrap_or_default())
        .filter(|(name, expected)| {
            let folded = FoldedName::new(name.as_bytes(), false).unwrap();
            let ours = version.hash(folded.hash_input(), HashSeed::DEFAULT).unwrap();
            (ours.major.get(), ours.minor) != *expected
        })
        .map(|(name, _)| name.escape_unicode().to_string())
        .collect();
    assert!(
        differing.is_empty(),
        "{} names differ: {:?}",
        differing.len(),
        &differing[..differing.len().min(40)]
    );
}

#[test]
fn every_code_point_folds_as_in_e2fsprogs() {
    let assigned_and_a_sample = ('\u{a1}'..'\u{20000}')
        .chain(('\u{20000}'..'\u{e0000}').step_by(997))
        .chain('\u{e0000}'..'\u{e0200}')
        .chain(('\u{f0000}'..char::MAX).step_by(997));
    let names: Vec<String> = assigned_and_a_sample.map(|c| format!("x{c}\u{327}y")).collect();
    assert_same_hashes(&names);
}

#[test]
fn runs_of_marks_ignorables_and_capitals_fold_as_in_e2fsprogs() {
    const AWKWARD: &[char] = &[
        'a',
        'E',
        'ß',
        'ſ',
        'İ',
        'ı',
        'Å',
        '\u{345}',
        '\u{300}',
        '\u{323}',
        '\u{327}',
        '\u{308}',
        '\u{301}',
        '\u{34f}',
        '\u{ad}',
        '\u{200d}',
        '\u{fe0f}',
        '\u{1f88}',
        '\u{1fb3}',
        '\u{1fb7}',
        '\u{390}',
        '\u{3d3}',
        '\u{fb03}',
        '\u{1e9b}',
        '\u{212b}',
        '\u{2126}',
        '\u{ac01}',
        '\u{1100}',
        '\u{1161}',
        '\u{11a8}',
        '\u{13a0}',
        '\u{ab70}',
        '\u{10400}',
        '\u{1d15e}',
        '\u{f71}',
        '\u{f73}',
        '\u{f81}',
        '\u{5b0}',
        '\u{e0041}',
        '\u{3164}',
    ];
    let mut state = 0x9e37_79b9_u64;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    };
    let names: Vec<String> = (0..20_000)
        .map(|_| {
            let len = 1 + next(12);
            let run: String = (0..len).map(|_| AWKWARD[next(AWKWARD.len())]).collect();
            format!("n{run}")
        })
        .collect();
    assert_same_hashes(&names);
}
