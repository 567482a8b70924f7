//! Directory hashes equal those of `debugfs dx_hash`, recorded and computed.

use dentree_ext4_format::hash::{CharSign, HashSeed, HashVersion, half_md4_batch};
use proptest::prelude::*;
use std::io::Write as _;
use std::ops::Range;
use std::process::Command;

/// `debugfs -R "dx_hash -h VERSION -s SEED NAME"`: version, name, major, minor. Versions 3 to 5 are
/// unsigned. The seed is 01020304-0506-0708-090a-0b0c0d0e0f10.
const SEEDED: &[(u8, &[u8], u32, u32)] = &[
    (0, b"seeded", 0xa19d_44f4, 0),
    (1, b"seeded", 0x9247_07b0, 0x7c1e_a7f0),
    (2, b"seeded", 0x2040_90ea, 0x0350_934f),
];

/// With the default seed.
const KNOWN: &[(u8, &[u8], u32, u32)] = &[
    (0, b"a", 0xe74b_53e2, 0),
    (0, b"ab", 0xda0d_8cd0, 0),
    (0, b"abcd", 0xfafa_23ca, 0),
    (0, b"readme.txt", 0xec3b_2f76, 0),
    (0, b"abcdefghijklmnopqrstuvwxyz012345", 0x8be2_2c02, 0),
    (0, b"abcdefghijklmnopqrstuvwxyz0123456", 0xcfbc_04f6, 0),
    (0, b"na\xc3\xafve", 0x442f_7420, 0),
    (0, b"\xff\xfe\x80\x81", 0xe762_93b4, 0),
    (0, &LONG, 0x5fdf_8876, 0),
    (1, b"a", 0xd5fa_7d7a, 0xacb4_8187),
    (1, b"ab", 0xee5e_f564, 0x4bcb_e18e),
    (1, b"abcd", 0xad75_57a8, 0xb1da_437c),
    (1, b"readme.txt", 0x0447_1772, 0xdab4_4f73),
    (1, b"abcdefghijklmnopqrstuvwxyz012345", 0x1964_3b1a, 0xdde3_a0bf),
    (1, b"abcdefghijklmnopqrstuvwxyz0123456", 0x16ed_9a9c, 0x2fb8_454f),
    (1, b"na\xc3\xafve", 0x1b42_012a, 0xfcf9_d17a),
    (1, b"\xff\xfe\x80\x81", 0x36df_17d2, 0x0117_3133),
    (1, &LONG, 0x184b_5f02, 0x2cec_4185),
    (2, b"a", 0x6d0e_a4c0, 0xc189_22df),
    (2, b"ab", 0xd27d_8658, 0xb845_8267),
    (2, b"abcd", 0x5a24_112e, 0x9544_2076),
    (2, b"readme.txt", 0xbf91_66de, 0xb792_a5f7),
    (2, b"abcdefghijklmnopqrstuvwxyz012345", 0xe78c_76dc, 0x94dd_872b),
    (2, b"abcdefghijklmnopqrstuvwxyz0123456", 0x521e_ac64, 0xffc9_9004),
    (2, b"na\xc3\xafve", 0x784c_5732, 0x9013_03be),
    (2, b"\xff\xfe\x80\x81", 0xb890_8e52, 0xe338_25fd),
    (2, &LONG, 0xbde3_2564, 0xe0bb_a7cb),
    (3, b"na\xc3\xafve", 0x275d_661a, 0),
    (3, b"\xff\xfe\x80\x81", 0x255b_fbaa, 0),
    (3, &LONG, 0xae3a_2022, 0),
    (4, b"na\xc3\xafve", 0x8262_460a, 0xcd3f_58e1),
    (4, b"\xff\xfe\x80\x81", 0xd8df_5c4c, 0xea07_6ea6),
    (4, &LONG, 0xe5c6_1c0c, 0xb357_da2b),
    (5, b"na\xc3\xafve", 0x6811_c436, 0x0ce9_8207),
    (5, b"\xff\xfe\x80\x81", 0x39f5_bd88, 0x2339_4e2f),
    (5, &LONG, 0xecc0_05ce, 0x7fc9_8f53),
];

/// Bytes above 0x80.
const LONG: [u8; 255] = {
    let mut name = [0; 255];
    let mut i = 0;
    while i < 255 {
        name[i] = [0xc3, 0xc4, 0xc5][i % 3];
        i += 1;
    }
    name
};

const SEED_BYTES: [u8; 16] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];

fn seed(bytes: [u8; 16]) -> HashSeed {
    let mut words = [0; 4];
    for (word, chunk) in words.iter_mut().zip(bytes.chunks(4)) {
        *word = u32::from_le_bytes(chunk.try_into().unwrap());
    }
    HashSeed::new(words)
}

/// As debugfs expects it.
fn uuid(bytes: [u8; 16]) -> String {
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

fn ours(version: u8, name: &[u8], seed: HashSeed) -> (u32, u32) {
    let hash = HashVersion::from_disk(version, CharSign::Signed).unwrap().hash(name, seed).unwrap();
    (hash.major.get(), hash.minor)
}

#[test]
fn hashes_equal_those_of_debugfs() {
    for &(version, name, major, minor) in KNOWN {
        assert_eq!(
            ours(version, name, HashSeed::DEFAULT),
            (major, minor),
            "{version} {}",
            name.escape_ascii()
        );
    }
    for &(version, name, major, minor) in SEEDED {
        assert_eq!(ours(version, name, seed(SEED_BYTES)), (major, minor), "{version} seeded");
    }
}

/// Concatenated names, and their ranges.
fn one_behind_another<'a>(names: impl Iterator<Item = &'a [u8]>) -> (Vec<u8>, Vec<Range<usize>>) {
    let (mut bytes, mut places) = (Vec::new(), Vec::new());
    for name in names {
        places.push(bytes.len()..bytes.len() + name.len());
        bytes.extend_from_slice(name);
    }
    (bytes, places)
}

fn together(bytes: &[u8], names: Vec<Range<usize>>, sign: CharSign, seed: HashSeed) -> Vec<(u32, u32)> {
    let mut hashes = Vec::new();
    half_md4_batch(bytes, names, sign, seed, &mut hashes);
    hashes.into_iter().map(|hash| (hash.major.get(), hash.minor)).collect()
}

#[test]
fn parallel_hashes_equal_those_of_debugfs() {
    for (version, sign) in [(1, CharSign::Signed), (4, CharSign::Unsigned)] {
        let known = || KNOWN.iter().filter(move |&&(of, ..)| of == version);
        for count in 0..=known().count() {
            let names = known().take(count).map(|&(_, name, ..)| name);
            let (bytes, names) = one_behind_another(names);
            let hashes = together(&bytes, names, sign, HashSeed::DEFAULT);
            assert!(hashes.into_iter().eq(known().take(count).map(|&(_, _, major, minor)| (major, minor))));
        }
    }
}

proptest! {
    #[test]
    fn parallel_hashes_equal_single_ones(
        names in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..=255), 0..40),
        unsigned in any::<bool>(),
        bytes in any::<[u8; 16]>(),
    ) {
        let (version, sign) = if unsigned { (4, CharSign::Unsigned) } else { (1, CharSign::Signed) };
        let (all, places) = one_behind_another(names.iter().map(|name| &**name));
        let hashes = together(&all, places, sign, seed(bytes));
        prop_assert!(hashes.into_iter().eq(names.iter().map(|name| ours(version, name, seed(bytes)))));
    }
}

#[test]
fn the_superblock_decides_the_sign_of_versions_0_to_2() {
    let name = "na\u{ef}ve".as_bytes();
    for version in 0..3 {
        let by_flag = HashVersion::from_disk(version, CharSign::Unsigned).unwrap();
        assert_eq!(Some(by_flag), HashVersion::from_disk(version + 3, CharSign::Signed));
        assert_ne!(ours(version, name, HashSeed::DEFAULT), ours(version + 3, name, HashSeed::DEFAULT));
    }
}

/// Names without blanks, quotes and NUL, not like an option.
fn names() -> Vec<Vec<u8>> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (1..=255_usize)
        .flat_map(|len| [len; 4])
        .map(|len| {
            let mut name = vec![b'n'];
            while name.len() < len {
                let byte = next().to_le_bytes()[3];
                if byte > b' ' && byte != 0x7f && !b"\"'\\#".contains(&byte) && byte != 0x85 && byte != 0xa0 {
                    name.push(byte);
                }
            }
            name
        })
        .collect()
}

#[test]
fn hashes_of_a_thousand_names_in_all_versions_equal_those_of_debugfs() {
    let mut script = tempfile::NamedTempFile::new().unwrap();
    let mut asked = Vec::new();
    for (i, name) in names().into_iter().enumerate() {
        for version in 0..6 {
            write!(script, "dx_hash -h {version} ").unwrap();
            let mut bytes = SEED_BYTES;
            bytes[0] = i.to_le_bytes()[0];
            if i % 2 == 1 {
                write!(script, "-s {}", uuid(bytes)).unwrap();
            }
            script.write_all(b" ").unwrap();
            script.write_all(&name).unwrap();
            script.write_all(b"\n").unwrap();
            asked.push((version, name.clone(), if i % 2 == 1 { seed(bytes) } else { HashSeed::DEFAULT }));
        }
    }
    script.flush().unwrap();
    let Ok(answer) = Command::new("debugfs").arg("-f").arg(script.path()).output() else {
        eprintln!("skipped: debugfs is not installed");
        return;
    };
    let mut answers = answer
        .stdout
        .split(|&b| b == b'\n')
        .filter(|line| line.starts_with(b"Hash of "))
        .map(|line| String::from_utf8_lossy(line).into_owned());
    for (version, name, seed) in asked {
        let line = answers.next().expect("debugfs answers every command");
        let (major, minor) = ours(version, &name, seed);
        let expected = format!(" is {major:#x} (minor {minor:#x})");
        assert!(line.ends_with(&expected), "version {version}: we say{expected}, debugfs: {line}");
    }
}

proptest! {
    #[test]
    fn every_hash_is_even_and_below_the_end_of_directory(
        name in proptest::collection::vec(any::<u8>(), 0..300),
        version in 0_u8..6,
        words in any::<[u32; 4]>(),
    ) {
        let (major, _) = ours(version, &name, HashSeed::new(words));
        prop_assert_eq!(major & 1, 0);
        prop_assert!(major < 0xffff_fffe);
    }
}
