//! Tables by `sfdisk`, and damaged ones.

use dentree_testing::LoopDevice;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;

use dentree_blockdev::{
    Access, BlockDevice, Choice, Error, FileDevice, MemoryDevice, Partition, locate, partitions,
};
use proptest::prelude::*;
use tempfile::NamedTempFile;

const MIB: u64 = 1 << 20;

/// Partitioned by `sfdisk`, or the reason why not. `device` is the file or a loop device over it.
fn sfdisk(file: &NamedTempFile, device: &str, script: &str) -> Result<MemoryDevice, String> {
    let child = Command::new("sfdisk")
        .args(["--quiet", "--no-reread", "--no-tell-kernel", "--wipe=never", device])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.map_err(|error| format!("sfdisk (Debian package fdisk): {error}"))?;
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(MemoryDevice::from(std::fs::read(file.path()).unwrap()))
}

fn disk(mib: u64, script: &str) -> Option<MemoryDevice> {
    let file = NamedTempFile::new().unwrap();
    file.as_file().set_len(mib * MIB).unwrap();
    let path = file.path().to_str().unwrap().to_owned();
    sfdisk(&file, &path, script).map_err(|reason| println!("skipped: {reason}")).ok()
}

fn put_ext(device: &MemoryDevice, start: u64) {
    device.write_at(start + 1024 + 0x38, &[0x53, 0xEF]).unwrap();
}

fn ranges(found: &[Partition]) -> Vec<(u32, u64, u64)> {
    found.iter().map(|partition| (partition.number, partition.start / MIB, partition.len / MIB)).collect()
}

fn located(device: &MemoryDevice, choice: Choice) -> Result<(u64, u64), Error> {
    locate(Arc::new(device.clone()), choice).map(|slice| (slice.start() / MIB, slice.size() / MIB))
}

const MBR: &str = "label: dos
start=1MiB, size=2MiB, type=c
start=4MiB, size=16MiB, type=5
start=20MiB, size=4MiB, type=83
start=5MiB, size=3MiB, type=83
start=9MiB, size=2MiB, type=82
start=12MiB, size=4MiB, type=83
";

#[test]
fn primary_and_logical_partitions_of_an_mbr_have_linux_numbers() {
    let Some(device) = disk(32, MBR) else { return };
    let found = partitions(&device).unwrap();
    assert_eq!(ranges(&found), [(1, 1, 2), (3, 20, 4), (5, 5, 3), (6, 9, 2), (7, 12, 4)]);
    let kinds: Vec<_> = found.iter().map(|partition| partition.kind.as_str()).collect();
    assert_eq!(kinds, ["0x0c", "0x83", "0x83", "0x82", "0x83"]);
}

const GPT: &str = "label: gpt
start=1MiB, size=2MiB, type=uefi, name=boot
start=4MiB, size=8MiB, type=linux, name=\"root fs\"
";

fn assert_is_gpt(device: &MemoryDevice) {
    let found = partitions(device).unwrap();
    assert_eq!(ranges(&found), [(1, 1, 2), (2, 4, 8)]);
    assert_eq!(found[1].name, "root fs");
    assert_eq!(found[1].kind, "0fc63daf-8483-4772-8e79-3d69d8477de4");
}

#[test]
fn a_gpt_is_read_and_its_spare_copy_where_the_first_is_damaged() {
    let Some(device) = disk(16, GPT) else { return };
    assert_is_gpt(&device);
    device.write_at(512, &[0; 512]).unwrap();
    assert_is_gpt(&device);
    device.write_at(16 * MIB - 512, &[0; 512]).unwrap();
    let error = partitions(&device).unwrap_err();
    assert!(matches!(error, Error::PartitionTable { table: "GPT", .. }), "{error}");
}

#[test]
fn a_gpt_with_damaged_entries_falls_back_to_the_spare_ones() {
    let Some(device) = disk(16, GPT) else { return };
    device.write_at(2 * 512 + 40, &[0xFF]).unwrap();
    assert_is_gpt(&device);
}

#[test]
fn a_gpt_of_4096_byte_sectors_is_read() {
    let file = NamedTempFile::new().unwrap();
    file.as_file().set_len(16 * MIB).unwrap();
    let device = match LoopDevice::new(file.path(), &["--sector-size", "4096"]) {
        Ok(device) => device,
        Err(reason) => return println!("skipped: no loop device here: {reason}"),
    };
    match sfdisk(&file, device.path().to_str().unwrap(), GPT) {
        Ok(device) => assert_is_gpt(&device),
        Err(reason) => println!("skipped: {reason}"),
    }
}

#[test]
fn the_only_ext_partition_is_found_by_itself() {
    let Some(device) = disk(32, MBR) else { return };
    let error = located(&device, Choice::Auto).unwrap_err();
    assert!(matches!(error, Error::NoExt { .. }) && error.to_string().contains("partition 7"), "{error}");
    put_ext(&device, 9 * MIB);
    assert_eq!(located(&device, Choice::Auto).unwrap(), (9, 2));
    put_ext(&device, 20 * MIB);
    let error = located(&device, Choice::Auto).unwrap_err();
    let message = error.to_string();
    assert!(matches!(error, Error::SeveralExt { .. }), "{message}");
    assert!(message.contains("--partition") && !message.contains("partition 1:"), "{message}");
    assert_eq!(located(&device, Choice::Partition(6)).unwrap(), (9, 2));
    assert_eq!(located(&device, Choice::Offset(4 * MIB)).unwrap(), (4, 28));
    assert!(matches!(located(&device, Choice::Partition(2)), Err(Error::NoSuchPartition { number: 2, .. })));
    assert!(matches!(located(&device, Choice::Offset(33 * MIB)), Err(Error::OutOfRange { .. })));
    put_ext(&device, 0);
    assert_eq!(located(&device, Choice::Auto).unwrap(), (0, 32));
}

#[test]
fn a_file_system_made_at_an_offset_by_mke2fs_is_found() {
    let file = NamedTempFile::new().unwrap();
    file.as_file().set_len(32 * MIB).unwrap();
    let path = file.path().to_str().unwrap();
    if let Err(reason) = sfdisk(&file, path, MBR) {
        return println!("skipped: {reason}");
    }
    let mke2fs = Command::new("mke2fs").args(["-q", "-E", "offset=20971520", path, "4096k"]).status();
    match mke2fs {
        Ok(status) => assert!(status.success()),
        Err(error) => return println!("skipped: mke2fs (Debian package e2fsprogs): {error}"),
    }
    let device = Arc::new(FileDevice::open(path, Access::ReadOnly).unwrap());
    assert_eq!(locate(device, Choice::Auto).unwrap().start(), 20 * MIB);
}

#[test]
fn a_device_too_small_for_a_table_has_no_partition() {
    for size in [0, 1, 511, 512, 1081, 1082] {
        let device = MemoryDevice::new(size);
        assert_eq!(partitions(&device).unwrap(), []);
        assert!(matches!(located(&device, Choice::Auto), Err(Error::NoExt { .. })));
    }
}

/// A boot record with one partition, and a link in the second record.
fn boot_record(link: u32) -> [u8; 512] {
    let mut sector = [0; 512];
    for (at, kind, first) in [(446, 0x83, 1), (462, 0x05, link)] {
        sector[at + 4] = kind;
        sector[at + 8..at + 12].copy_from_slice(&u32::to_le_bytes(first));
        sector[at + 12] = 1;
    }
    sector[510..].copy_from_slice(&[0x55, 0xAA]);
    sector
}

#[test]
fn a_chain_of_boot_records_that_loops_or_never_ends_is_an_error() {
    let device = MemoryDevice::new(MIB as usize);
    device.write_at(0, &boot_record(10)).unwrap();
    device.write_at(10 * 512, &boot_record(5)).unwrap();
    device.write_at(15 * 512, &boot_record(0)).unwrap();
    let error = partitions(&device).unwrap_err();
    assert!(matches!(error, Error::PartitionTable { table: "MBR", .. }), "{error}");
    for link in 0..1000 {
        device.write_at(u64::from(10 + link) * 512, &boot_record(link + 1)).unwrap();
    }
    assert!(partitions(&device).is_err());
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, &byte| {
        (0..8).fold(
            crc ^ u32::from(byte),
            |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 },
        )
    })
}

proptest! {
    #[test]
    fn no_boot_records_make_the_reader_panic(sectors in prop::collection::vec((0u64..64, prop::collection::vec(any::<u8>(), 64)), 1..20)) {
        let device = MemoryDevice::new(64 * 512);
        for (sector, records) in sectors.iter().chain([&(0, sectors[0].1.clone())]) {
            device.write_at(sector * 512 + 446, records).unwrap();
            device.write_at(sector * 512 + 510, &[0x55, 0xAA]).unwrap();
        }
        let _ = partitions(&device);
        let _ = located(&device, Choice::Auto);
    }

    #[test]
    fn no_gpt_with_true_checksums_makes_the_reader_panic(
        entries_at: u64, count: u32, size in prop_oneof![Just(128u32), any::<u32>()],
        ranges in prop::collection::vec(any::<(u64, u64)>(), 4),
        sane: bool,
    ) {
        let (entries_at, count) = if sane { (2, 4) } else { (entries_at, count) };
        let mut disk = vec![0; 64 * 512];
        disk[..512].copy_from_slice(&boot_record(0));
        disk[446 + 4] = 0xEE;
        for (entry, (first, last)) in disk[1024..].chunks_exact_mut(128).zip(&ranges) {
            entry[..32].fill(1);
            entry[32..40].copy_from_slice(&first.to_le_bytes());
            entry[40..48].copy_from_slice(&last.to_le_bytes());
        }
        let entries_crc = crc32(&disk[1024..1024 + 4 * 128]);
        let header = &mut disk[512..512 + 92];
        header[..8].copy_from_slice(b"EFI PART");
        header[10] = 1;
        header[12] = 92;
        header[24] = 1;
        header[72..80].copy_from_slice(&entries_at.to_le_bytes());
        header[80..84].copy_from_slice(&count.to_le_bytes());
        header[84..88].copy_from_slice(&size.to_le_bytes());
        header[88..92].copy_from_slice(&entries_crc.to_le_bytes());
        let crc = crc32(header);
        header[16..20].copy_from_slice(&crc.to_le_bytes());
        let device = MemoryDevice::from(disk);
        let found = partitions(&device);
        if sane && size == 128 && ranges.iter().all(|&(first, last)| first <= last && last < 1 << 50) {
            prop_assert_eq!(found.unwrap().len(), 4);
        }
        let _ = located(&device, Choice::Auto);
    }
}
