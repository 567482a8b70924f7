//! How much comes out of damaged images, by this program and by those that people use.
//!
//! `ROUNDS=10 cargo test -p dentree --test salvage_compared -- --nocapture` prints the table of
//! `docs/internals/salvage.md`. Programs that are not installed are left out.

mod common;

use common::{Image, Mount, can_mount, dentree, text, tool};
use flate2::Compression;
use flate2::write::GzEncoder;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, RngExt, SeedableRng};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

const BLOCK: u64 = 1024;
const MIB: u64 = 64;
/// The descriptors: a block at the start of each group with a superblock.
const GROUPS_WITH_COPIES: [u64; 5] = [0, 1, 3, 5, 7];

fn random(rng: &mut Xoshiro256PlusPlus, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    rng.fill_bytes(&mut bytes);
    bytes
}

/// A file of a type that photorec knows by its first bytes, or text, or bytes.
fn content(rng: &mut Xoshiro256PlusPlus) -> (&'static str, Vec<u8>) {
    let len = [100, 1500, 6000, 20_000, 100_000][rng.random_range(0..5)];
    let body = random(rng, len);
    let words = || body.iter().map(|byte| b"etaoin shrdlu\n"[usize::from(*byte) % 14]).collect::<Vec<u8>>();
    match rng.random_range(0..5) {
        0 => {
            let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
            packed.write_all(&body).unwrap();
            ("gz", packed.finish().unwrap())
        }
        1 => {
            let size = |more: usize| u32::try_from(body.len() + more).unwrap().to_le_bytes();
            let format = [16, 0, 0, 0, 1, 0, 1, 0, 0x44, 0xAC, 0, 0, 0x44, 0xAC, 0, 0, 1, 0, 8, 0];
            ("wav", [b"RIFF", &size(36)[..], b"WAVEfmt ", &format, b"data", &size(0), &body].concat())
        }
        2 => ("txt", words()),
        3 => {
            let text: String = words().iter().map(|byte| char::from(*byte)).collect();
            ("html", format!("<!DOCTYPE html>\n<html><body>{text}</body></html>\n").into_bytes())
        }
        _ => ("bin", body),
    }
}

/// Fills three quarters of an image through the kernel. Returns the contents, each with how often
/// it is there.
fn fill(root: &Path, rng: &mut Xoshiro256PlusPlus) -> HashMap<Vec<u8>, usize> {
    let mut made = HashMap::new();
    for dir in 0..30 {
        let dir = root.join(format!("dir-{dir}{}", ["", "/below", "/below/deep"][dir % 3]));
        fs::create_dir_all(&dir).unwrap();
        for n in 0..60 {
            let (kind, bytes) = content(rng);
            fs::write(dir.join(format!("file-{n}.{kind}")), &bytes).unwrap();
            *made.entry(bytes).or_default() += 1;
        }
    }
    made
}

/// How many of the contents are below a directory.
fn count(made: &HashMap<Vec<u8>, usize>, dir: &Path) -> usize {
    let found = tool("find", [dir.as_os_str(), "-type".as_ref(), "f".as_ref(), "-print0".as_ref()]);
    let mut left = made.clone();
    let paths = found.split(|byte| *byte == 0).filter(|path| !path.is_empty());
    let mut is_known = |path: &[u8]| {
        // The kernel refuses to read some of a damaged image.
        let Ok(bytes) = fs::read(OsStr::from_bytes(path)) else { return false };
        match left.get_mut(&bytes) {
            Some(count) if *count > 0 => {
                *count -= 1;
                true
            }
            _ => false,
        }
    };
    paths.filter(|path| is_known(path)).count()
}

/// A way in which an image is damaged.
type Damage = fn(&File, &mut Xoshiro256PlusPlus);

fn zero(image: &File, block: u64, count: u64) {
    let len = usize::try_from(count * BLOCK).unwrap();
    image.write_all_at(&vec![0; len], block * BLOCK).unwrap();
}

fn zero_superblocks(image: &File, _: &mut Xoshiro256PlusPlus) {
    GROUPS_WITH_COPIES.iter().for_each(|group| zero(image, group * 8192 + 1, 1));
}

fn zero_descriptors(image: &File, _: &mut Xoshiro256PlusPlus) {
    GROUPS_WITH_COPIES.iter().for_each(|group| zero(image, group * 8192 + 2, 1));
}

fn overwrite(image: &File, rng: &mut Xoshiro256PlusPlus, percent: u64) {
    let blocks = MIB << 10;
    for _ in 0..blocks * percent / 100 {
        let block = rng.random_range(0..blocks);
        image.write_all_at(&random(rng, 1024), block * BLOCK).unwrap();
    }
}

/// Groups whose tables lie together: as in a larger image, tables are in all parts of it.
const OPTIONS: [&str; 6] = ["-t", "ext4", "-b", "1024", "-G", "2"];

const DAMAGES: [(&str, Damage); 8] = [
    ("first superblock and descriptors zeroed", |image, _| zero(image, 0, 3)),
    ("all descriptors zeroed", zero_descriptors),
    ("all superblocks zeroed", zero_superblocks),
    ("all superblocks and descriptors zeroed", |image, rng| {
        zero_superblocks(image, rng);
        zero_descriptors(image, rng);
    }),
    ("1% of the blocks overwritten", |image, rng| overwrite(image, rng, 1)),
    ("10% of the blocks overwritten", |image, rng| overwrite(image, rng, 10)),
    ("the first half is there", |image, _| image.set_len(MIB << 19).unwrap()),
    ("the second half is there", |image, _| zero(image, 0, MIB << 9)),
];

fn ours(image: &Path, out: &Path) {
    let output = dentree(["salvage".as_ref(), image.as_os_str(), out.as_os_str()]);
    let code = output.status.code();
    assert!(matches!(code, Some(0 | 4 | 8)), "{code:?}: {}", text(&output.stderr));
}

/// Runs a program whose result counts, not its exit status. Returns whether it is installed.
fn run(program: &str, args: &[&OsStr]) -> bool {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("timeout");
    command.arg("120").arg(program).args(args).env("PATH", path).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.status().unwrap().code() != Some(127)
}

/// `debugfs rdump`, with the first superblock and then with a backup.
fn debugfs(image: &Path, out: &Path) -> bool {
    fs::create_dir(out).unwrap();
    let dump = format!("rdump / {}", out.display());
    let backup = ["-s", "8193", "-b", "1024"].map(OsStr::new);
    let request = ["-R".as_ref(), OsStr::new(&dump), image.as_os_str()];
    for more in [&[][..], &backup[..]] {
        if !run("debugfs", &[more, &request[..]].concat()) {
            return false;
        }
        // Without bitmaps.
        run("debugfs", &[more, &["-c".as_ref()][..], &request[..]].concat());
    }
    true
}

/// `e2fsck -fy` on a copy of full size, after `mke2fs -S` where no superblock is left, and then
/// what the kernel's mount shows.
fn e2fsck(image: &Path, out: &Path, made: &HashMap<Vec<u8>, usize>) -> Option<usize> {
    fs::create_dir(out).unwrap();
    let copy = out.join("copy.img");
    let repair = |options: &[&str]| {
        fs::copy(image, &copy).unwrap();
        File::options().write(true).open(&copy).unwrap().set_len(MIB << 20).unwrap();
        let options = options.iter().map(OsStr::new);
        let is_there = run("e2fsck", &options.chain([copy.as_os_str()]).collect::<Vec<_>>());
        let mount = Mount::new(&copy, out.join("mnt"), "ro").ok();
        is_there.then(|| mount.map_or(0, |mount| count(made, &mount.at)))
    };
    let by_check = repair(&["-fy"])?.max(repair(&["-fy", "-b", "8193", "-B", "1024"])?);
    fs::copy(image, &copy).unwrap();
    File::options().write(true).open(&copy).unwrap().set_len(MIB << 20).unwrap();
    if by_check > 0 {
        return Some(by_check);
    }
    // Otherwise it discards the inode tables, or calls them unused.
    let keep = ["-O", "^metadata_csum,^uninit_bg", "-E", "nodiscard"];
    let options = ["-S", "-F", "-q"].into_iter().chain(OPTIONS).chain(keep);
    let options: Vec<&OsStr> = options.map(OsStr::new).collect();
    run("mke2fs", &[&options[..], &[copy.as_os_str()][..]].concat());
    run("e2fsck", &["-fy".as_ref(), copy.as_os_str()]);
    let mount = Mount::new(&copy, out.join("mnt"), "ro").ok();
    Some(mount.map_or(0, |mount| count(made, &mount.at)))
}

fn photorec(image: &Path, out: &Path) -> bool {
    fs::create_dir(out).unwrap();
    let words: &str = "partition_none,options,paranoid,fileopt,everything,enable,wholespace,search";
    let found = out.join("found");
    let args = ["/d".as_ref(), found.as_os_str(), "/cmd".as_ref(), image.as_os_str(), words.as_ref()];
    run("photorec", &args)
}

/// Counts what comes out of one damaged image: all files, ours, debugfs, e2fsck, photorec.
fn row(damage: Damage, seed: u64) -> [Option<usize>; 5] {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let image = Image::new(MIB, &OPTIONS);
    let mount = image.mount("rw").unwrap();
    let made = fill(&mount.at, &mut rng);
    drop(mount);
    damage(&File::options().read(true).write(true).open(&image.file).unwrap(), &mut rng);
    let at = |name: &str| image.dir.path().join(name);
    ours(&image.file, &at("ours"));
    let all: usize = made.values().sum();
    let counted = |is_there: bool, name: &str| is_there.then(|| count(&made, &at(name)));
    [
        Some(all),
        counted(true, "ours"),
        counted(debugfs(&image.file, &at("debugfs")), "debugfs"),
        e2fsck(&image.file, &at("e2fsck"), &made),
        counted(photorec(&image.file, &at("photorec")), "photorec"),
    ]
}

#[test]
fn more_comes_out_than_by_the_programs_that_people_use() {
    if !can_mount() {
        return;
    }
    let rounds = std::env::var("ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(1);
    for (what, damage) in DAMAGES {
        let mut sums = [Some(0); 5];
        for seed in 0..rounds {
            for (sum, counted) in sums.iter_mut().zip(row(damage, 100 + seed)) {
                *sum = sum.zip(counted).map(|(sum, counted)| sum + counted);
            }
        }
        let shown = sums.map(|sum| sum.map_or_else(|| "not installed".to_owned(), |sum| sum.to_string()));
        println!("| {what} | {} |", shown.join(" | "));
        let [_, ours, rivals @ ..] = sums;
        assert!(rivals.into_iter().flatten().all(|rival| ours >= Some(rival)), "{what}: {shown:?}");
    }
}
