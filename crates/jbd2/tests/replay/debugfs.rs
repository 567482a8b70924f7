//! Journals written by debugfs, intact and damaged.

use std::fs;

use crate::common::{Image, Judges, assert_same_replay, run, text};
use dentree_jbd2::{Damage, Error, Recovered, Tid};

const BLOCK: usize = 1024;
const MAGIC: [u8; 4] = [0xC0, 0x3B, 0x39, 0x98];

/// Unused blocks of a new 16 MiB image.
const A: u64 = 5000;
const B: u64 = 5001;
const C: u64 = 5002;

/// Writes these transactions: A as 1 and B as the magic number; a revoke of A; C as 3; B as 4; a
/// revoke of C; and A as 5, without a commit block.
///
/// The log: 1 descriptor, 2 A, 3 B, 4 commit; 5 revoke, 6 commit; 7 descriptor, 8 C, 9 commit; 10
/// descriptor, 11 B, 12 commit; 13 revoke, 14 commit; 15 descriptor, 16 A. (debugfs omits the
/// commit block of a transaction that writes and revokes.)
fn journal(features: &str, open: &str) -> Result<Image, String> {
    let image = Image::new(&["-t", "ext4", "-b", "1024", "-J", "size=1", "-O", features])?;
    let mut lines = vec![format!("journal_open {open}")];
    let mut write = |args: &str, fills: &[u8]| {
        let path = image.path.with_extension(lines.len().to_string());
        let block =
            |&fill: &u8| if fill == 0 { [&MAGIC[..], &[0; BLOCK - 4]].concat() } else { vec![fill; BLOCK] };
        fs::write(&path, fills.iter().flat_map(block).collect::<Vec<u8>>()).unwrap();
        lines.push(format!("journal_write {args} {}", text(&path)));
    };
    write(&format!("-b {A},{B}"), &[1, 0]);
    write(&format!("-r {A}"), &[]);
    write(&format!("-b {C}"), &[3]);
    write(&format!("-b {B}"), &[4]);
    write(&format!("-r {C}"), &[]);
    write(&format!("-c -b {A}"), &[5]);
    lines.push("journal_close".to_owned());
    let script = image.path.with_extension("script");
    fs::write(&script, lines.join("\n")).unwrap();
    let output = run("debugfs", &["-w", "-f", text(&script), text(&image.path)])?;
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!log.to_lowercase().contains("error") && !log.contains("invalid"), "{log}");
    Ok(image)
}

fn first_bytes(recovered: &Recovered, block: u64) -> [u8; 4] {
    let mut bytes = [0; 4];
    recovered.device.read_at(block * BLOCK as u64, &mut bytes).unwrap();
    bytes
}

/// Checksums: name, features, option of `journal_open`.
const KINDS: [(&str, &str, &str); 6] = [
    ("no sums", "^metadata_csum,^64bit", ""),
    ("no sums, 64 bits", "^metadata_csum,64bit", ""),
    ("version 2", "metadata_csum,^64bit", "-c -v 2"),
    ("version 2, 64 bits", "metadata_csum,64bit", "-c -v 2"),
    ("version 3", "metadata_csum,^64bit", "-c -v 3"),
    ("version 3, 64 bits", "metadata_csum,64bit", "-c -v 3"),
];

#[test]
fn every_layout_of_tags_and_sums_replays_with_its_revokes_and_escapes() {
    for (what, features, open) in KINDS {
        let image = match journal(features, open) {
            Ok(image) => image,
            Err(reason) => return println!("skipped: {reason}"),
        };
        let recovered = assert_same_replay(&image, what, Judges::Both);
        assert_eq!((recovered.transactions, recovered.blocks, recovered.revoked), (5, 1, 2), "{what}");
        let found = [A, B, C].map(|block| first_bytes(&recovered, block));
        assert_eq!(found, [[0; 4], [4; 4], [0; 4]], "{what}");
    }
}

#[test]
fn damage_inside_a_committed_transaction_is_named_and_the_kernel_refuses_it_too() {
    for (_, features, open) in [KINDS[2], KINDS[5]] {
        let image = match journal(features, open) {
            Ok(image) => image,
            Err(reason) => return println!("skipped: {reason}"),
        };
        // If it mounts the intact image.
        let kernel_judges = image.mounts();
        let check = "checksum mismatch";
        let block = |structure, tid, block| Damage::Block { tid: Tid(tid), structure, block, check };
        let cases = [
            (1, block("descriptor", 1, 1)),
            (5, block("revoke block", 2, 5)),
            (9, block("commit block", 3, 9)),
            (13, block("revoke block", 5, 13)),
            (11, Damage::Copy { tid: Tid(4), target: B, block: 11, check }),
        ];
        for (log_block, expected) in cases {
            // `h_commit_nsec` in a commit block.
            let damaged = image.patched("damaged", log_block, 0x38, &[0xEE]);
            match damaged.recover() {
                Err(Error::Corrupt { damage }) => assert_eq!(damage, expected),
                Err(other) => panic!("{open}, block {log_block}: {other}"),
                Ok(_) => panic!("{open}, block {log_block}: replayed"),
            }
            assert!(!damaged.mounts(), "{open}, block {log_block}: the kernel mounts it");
        }
        let damaged = image.patched("superblock", 0, 0xF0, &[1]);
        assert!(matches!(damaged.recover(), Err(Error::Corrupt { damage: Damage::Superblock { .. } })));
        // Revoked copies, an uncommitted transaction, and a commit block's padding are not checked.
        for log_block in [2, 8, 15, 16, 9] {
            let damaged = image.patched("harmless", log_block, 900, &[0xEE]);
            assert_eq!(damaged.recover().unwrap().transactions, 5, "{open}, block {log_block}");
            assert_eq!(damaged.mounts(), kernel_judges, "{open}, block {log_block}: the kernel differs");
        }
    }
}

#[test]
fn a_bad_block_of_an_older_round_ends_the_log_instead_of_being_damage() {
    let (_, features, open) = KINDS[5];
    let image = match journal(features, open) {
        Ok(image) => image,
        Err(reason) => return println!("skipped: {reason}"),
    };
    // Commit 4 is older than 3, and its checksum is wrong.
    let stale = image.patched("stale", 12, 0x30, &[0; 12]);
    assert_same_replay(&stale, "stale commit", Judges::Both);
    assert_eq!(stale.recover().unwrap().transactions, 3);
    let stale = stale.patched("stale2", 10, 900, &[0xEE]);
    assert_eq!(stale.recover().unwrap().transactions, 3);
}

#[test]
fn features_that_nobody_knows_and_shared_journals_are_refused_by_name() {
    let image = match journal(KINDS[0].1, KINDS[0].2) {
        Ok(image) => image,
        Err(reason) => return println!("skipped: {reason}"),
    };
    for (at, value, expected) in
        [(0x28, 0x40_u32, "0x40"), (0x2C, 1, "read-only compatible"), (0x40, 2, "external journal")]
    {
        let patched = image.patched("feature", 0, at, &value.to_be_bytes());
        let error = patched.recover().err().unwrap();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}
