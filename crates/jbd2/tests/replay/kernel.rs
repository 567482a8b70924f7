//! Journals written by the kernel, replayed by us, e2fsck and the kernel.

use std::fs;
use std::path::Path;

use crate::common::{Image, Judges, Mount, assert_same_replay, run, text};
use dentree_blockdev::BlockDevice;
use dentree_jbd2::{Damage, Error};

/// A mounted image, copied as after a crash.
struct Crash {
    image: Image,
    mount: Mount,
}

impl Crash {
    fn new(mke2fs: &[&str], options: &str) -> Result<Crash, String> {
        let image = Image::new(mke2fs)?;
        let mount = Mount::new(&image.path, &format!("commit=300,{options}"))?;
        Ok(Crash { image, mount })
    }

    fn dir(&self) -> &Path {
        self.mount.dir.path()
    }

    fn sync(&self) {
        run("sync", &["-f", text(self.dir())]).unwrap();
    }

    /// A copy of the image; the mount ends.
    fn now(self) -> Image {
        let mut image = self.image;
        image.path = image.copy("crashed");
        image
    }
}

/// Creates, deletes and recreates files and directories over several transactions.
fn churn(crash: &Crash) {
    for round in 0..4 {
        for name in 0..8 {
            let dir = crash.dir().join(format!("d{name}"));
            if round % 2 == 1 {
                fs::remove_dir_all(&dir).unwrap();
                continue;
            }
            fs::create_dir(&dir).unwrap();
            for file in 0..150 {
                fs::write(dir.join(format!("a file of round {round} with a long name {file}")), "x").unwrap();
            }
        }
        crash.sync();
        // Reuses blocks of the deleted directories.
        fs::write(crash.dir().join(format!("file{round}")), vec![round; 1 << 20]).unwrap();
        crash.sync();
    }
}

/// Replays a workload's journal. Its length depends on the kernel's checkpoints.
fn replayed(what: &str, mke2fs: &[&str], options: &str, work: fn(&Crash)) {
    replayed_for(Judges::Both, what, mke2fs, options, work);
}

fn replayed_for(judges: Judges, what: &str, mke2fs: &[&str], options: &str, work: fn(&Crash)) {
    let crash = match Crash::new(mke2fs, options) {
        Ok(crash) => crash,
        Err(reason) => return println!("skipped: {reason}"),
    };
    work(&crash);
    let recovered = assert_same_replay(&crash.now(), what, judges);
    println!("{what}: {} transactions, {} blocks", recovered.transactions, recovered.blocks);
    assert!(recovered.transactions > 0 && recovered.blocks > 0, "{what}: nothing to replay");
}

const PLAIN: &str = "^metadata_csum,^64bit";

#[test]
fn journals_without_checksums_and_their_revokes_replay_as_the_kernel_replays_them() {
    replayed("ext3", &["-t", "ext3"], "data=ordered", churn);
    replayed("64bit", &["-t", "ext4", "-b", "4096", "-O", "^metadata_csum,64bit"], "rw", churn);
}

#[test]
fn journals_with_checksums_of_version_1_replay() {
    let mke2fs = ["-t", "ext4", "-O", PLAIN];
    replayed("v1", &mke2fs, "journal_checksum", churn);
    replayed("v1, asynchronous", &mke2fs, "journal_async_commit,data=writeback", churn);
}

#[test]
fn journals_with_checksums_of_version_3_replay() {
    replayed("v3", &["-t", "ext4", "-b", "4096", "-O", "metadata_csum,64bit"], "rw", churn);
    replayed("v3, 32 bits", &["-t", "ext4", "-O", "metadata_csum,^64bit"], "rw", churn);
    replayed(
        "v3, asynchronous",
        &["-t", "ext4", "-O", "metadata_csum"],
        "journal_async_commit,data=writeback",
        churn,
    );
}

#[test]
fn a_damaged_copy_under_a_sum_of_version_1_is_damage_unless_commits_are_asynchronous() {
    for (options, is_async) in [("journal_checksum", false), ("journal_async_commit,data=writeback", true)] {
        let crash = match Crash::new(&["-t", "ext4", "-O", PLAIN], options) {
            Ok(crash) => crash,
            Err(reason) => return println!("skipped: {reason}"),
        };
        fs::create_dir(crash.dir().join("a")).unwrap();
        crash.sync();
        // Block 1 is a descriptor, 2 its first copy.
        let image = crash.now().patched("damaged", 2, 900, &[0xEE]);
        if is_async {
            assert_eq!(assert_same_replay(&image, "v1, damaged", Judges::Both).transactions, 0);
            continue;
        }
        match image.recover() {
            Err(Error::Corrupt { damage: Damage::Block { structure: "commit block", .. } }) => {}
            Err(error) => panic!("{error}"),
            Ok(_) => panic!("replayed"),
        }
        assert!(!image.mounts());
    }
}

/// File blocks that start with the magic number.
fn write_magic(crash: &Crash) {
    let block = [&[0xC0, 0x3B, 0x39, 0x98][..], &[7; 1020]].concat();
    fs::write(crash.dir().join("magic"), block.repeat(256)).unwrap();
    crash.sync();
}

#[test]
fn blocks_that_look_like_the_journals_own_are_unescaped() {
    for features in ["^metadata_csum", "metadata_csum"] {
        replayed("escapes", &["-t", "ext4", "-O", features], "data=journal", write_magic);
    }
}

/// Transactions that fill the smallest journal several times.
fn wind(crash: &Crash) {
    for round in 0..12 {
        fs::create_dir(crash.dir().join(format!("r{round}"))).unwrap();
        for file in 0..300 {
            fs::write(crash.dir().join(format!("r{round}/file {file}")), "").unwrap();
        }
        crash.sync();
    }
}

#[test]
fn a_log_that_winds_round_its_end_replays() {
    let small = |features| ["-t", "ext4", "-b", "1024", "-J", "size=1", "-O", features];
    for features in [PLAIN, "metadata_csum,64bit"] {
        replayed("wrap", &small(features), "rw", wind);
    }
    // e2fsck 1.47.0 follows the log into the fast commits, and misses what follows the wrap.
    replayed_for(Judges::Kernel, "wrap before fast commits", &small("fast_commit"), "rw", wind);
}

#[test]
fn transaction_numbers_that_wrap_replay_in_order() {
    let image = match Image::new(&["-t", "ext4", "-O", PLAIN]) {
        Ok(image) => image,
        Err(reason) => return println!("skipped: {reason}"),
    };
    // An empty journal may start at any number.
    let location = crate::common::location(&image.path);
    let at = usize::try_from(location.runs[0].0).unwrap() * location.block_size + 0x18;
    let mut bytes = fs::read(&image.path).unwrap();
    bytes[at..at + 4].copy_from_slice(&(u32::MAX - 2).to_be_bytes());
    fs::write(&image.path, bytes).unwrap();
    let mount = match Mount::new(&image.path, "commit=300") {
        Ok(mount) => mount,
        Err(reason) => return println!("skipped: {reason}"),
    };
    let crash = Crash { image, mount };
    churn(&crash);
    let recovered = assert_same_replay(&crash.now(), "tid wrap", Judges::Both);
    assert!(recovered.transactions > 0);
}

#[test]
fn fast_commits_that_wait_are_refused_and_an_area_without_them_is_not() {
    // Large enough not to wrap; see above.
    let mke2fs = ["-t", "ext4", "-J", "size=4", "-O", "fast_commit"];
    let make = |name: &str, crash: &Crash| fs::File::create(crash.dir().join(name)).unwrap();
    let crash = match Crash::new(&mke2fs, "rw") {
        Ok(crash) => crash,
        Err(reason) => return println!("skipped: {reason}"),
    };
    make("a", &crash);
    crash.sync();
    make("b", &crash).sync_all().unwrap();
    let image = crash.now();
    match image.recover() {
        Err(Error::Unsupported { feature }) => assert!(feature.contains("fast commit"), "{feature}"),
        Err(error) => panic!("{error}"),
        Ok(recovered) => println!("this kernel made no fast commit: {} transactions", recovered.transactions),
    }
    replayed("fast commits, none waiting", &mke2fs, "rw", churn);
}

#[test]
fn a_clean_journal_gives_the_device_as_it_is() {
    let image = match Image::new(&["-t", "ext4"]) {
        Ok(image) => image,
        Err(reason) => return println!("skipped: {reason}"),
    };
    let recovered = image.recover().unwrap();
    assert_eq!((recovered.transactions, recovered.blocks), (0, 0));
    assert_eq!(recovered.device.size(), image.open().size());
}

#[test]
fn damaged_journals_are_replayed_or_refused_as_the_kernel_does() {
    let mut seed = 1u64;
    let mut random = move |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let kinds = [
        (PLAIN, "journal_async_commit,data=writeback"),
        (PLAIN, "journal_checksum"),
        ("metadata_csum", "journal_async_commit,data=writeback"),
        ("metadata_csum", "rw"),
    ];
    for (features, options) in kinds {
        let crash = match Crash::new(&["-t", "ext4", "-O", features], options) {
            Ok(crash) => crash,
            Err(reason) => return println!("skipped: {reason}"),
        };
        churn(&crash);
        let image = crash.now();
        for _ in 0..25 {
            let (block, at) = (1 + random(400), random(1020) as usize);
            let damaged = image.patched("damaged", block, at, &[random(256) as u8; 4]);
            let what = format!("{features}, {options}: byte {at} of block {block}");
            match damaged.recover() {
                Ok(_) => {
                    assert!(damaged.mounts(), "{what}: the kernel refuses it");
                    assert_same_replay(&damaged, &what, Judges::Kernel);
                }
                Err(error) => assert!(!damaged.mounts(), "{what}: the kernel replays it: {error}"),
            }
        }
    }
}
