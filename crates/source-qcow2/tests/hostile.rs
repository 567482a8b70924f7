//! Malicious images: errors, no panic, hang or unbounded memory.

use dentree_blockdev::{Access, BlockDevice, FileDevice, MemoryDevice};
use dentree_source_qcow2::{Base, Qcow2Device};
use proptest::prelude::*;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// With data, tables and a backing file.
fn overlay(dir: &Path) -> PathBuf {
    let file = dir.join("overlay");
    let device = Arc::new(MemoryDevice::from(vec![3; 4 << 20]));
    let base = Base { device, name: "base".to_owned(), format: "raw" };
    let disk = Qcow2Device::overlay(&file, base, Access::ReadWrite).unwrap();
    for at in [0, 70_000, 1 << 20, 3 << 20] {
        disk.write_at(at, &[9; 70_000]).unwrap();
    }
    disk.flush().unwrap();
    file
}

/// By qemu-img; `None`: not installed.
fn compressed(dir: &Path) -> Option<PathBuf> {
    let [raw, file] = ["raw", "compressed"].map(|name| dir.join(name));
    fs::write(&raw, (0..1 << 20).map(|at: u32| (at / 1000) as u8).collect::<Vec<_>>()).unwrap();
    let made = Command::new("qemu-img").args(["convert", "-c", "-O", "qcow2"]).arg(&raw).arg(&file).status();
    made.ok()?.success().then_some(file)
}

/// Reads all and writes some; errors are expected.
fn try_everything(file: &Path) {
    for access in [Access::ReadOnly, Access::ReadWrite] {
        let Ok(file) = FileDevice::open(file, access) else { return };
        let Ok(disk) = Qcow2Device::open(Arc::new(file), access) else { continue };
        let disk = Arc::new(disk);
        let size = disk.size();
        for at in (0..size.min(4 << 20)).step_by(65_536) {
            let mut buf = vec![0; 65_536.min(size - at) as usize];
            let _ = disk.read_at(at, &mut buf);
            disk.clone().submit(at, buf, Box::new(drop));
        }
        if access == Access::ReadWrite {
            for at in [0, 65_000, 2 << 20] {
                let _ = disk.write_at(at, &[1; 10_000]);
                let _ = disk.discard(at, 70_000);
            }
            let _ = disk.flush();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damage_is_an_error(
        damage in prop::collection::vec((0..8usize, 0..65_536usize, any::<u64>(), 1..=8usize), 1..8),
        is_compressed in any::<bool>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let made = if is_compressed { compressed(dir.path()) } else { None };
        let file = made.unwrap_or_else(|| {
            fs::write(dir.path().join("base"), vec![3; 4 << 20]).unwrap();
            overlay(dir.path())
        });
        let mut bytes = fs::read(&file).unwrap();
        for (cluster, within, value, len) in damage {
            // Prefers the header and first table entries.
            let within = if value % 3 == 0 { within } else { within % 128 };
            let at = cluster * 65_536 + within;
            if at + len <= bytes.len() {
                bytes[at..at + len].copy_from_slice(&value.to_be_bytes()[8 - len..]);
            }
        }
        fs::write(&file, bytes).unwrap();
        try_everything(&file);
    }
}

#[test]
fn an_image_without_refcounts_is_read_and_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let file = overlay(dir.path());
    fs::write(dir.path().join("base"), vec![3; 4 << 20]).unwrap();
    let whole = fs::read(&file).unwrap();
    let be = |at: usize| u64::from_be_bytes(whole[at..at + 8].try_into().unwrap());
    // Refcount table: offset, clusters, first entry.
    let (table, clusters) = (be(48) as usize, 56);
    let open = |access| {
        let device = FileDevice::open(&file, access).unwrap();
        Qcow2Device::open(Arc::new(device), access).map(drop).map_err(|error| error.to_string())
    };
    open(Access::ReadWrite).unwrap();
    let damages: [(usize, &[u8]); 5] = [
        (clusters, &[0; 4]),
        (table, &[0; 8]),
        (table, &[0, 0, 0, 0, 0, 0, 0, 1]),
        (table, &[0, 0, 0, 0, 0, 1, 2, 0]),
        (table, &[0, 0x7f, 0, 0, 0, 0, 0, 0]),
    ];
    for (at, damage) in damages {
        let mut bytes = whole.clone();
        bytes[at..at + damage.len()].copy_from_slice(damage);
        fs::write(&file, bytes).unwrap();
        let refusal = open(Access::ReadWrite).unwrap_err();
        assert!(refusal.contains("qemu-img check -r all"), "{refusal}");
        open(Access::ReadOnly).unwrap();
    }
}

#[test]
fn a_chain_without_end_and_names_that_are_no_files_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let file = overlay(dir.path());
    let fifo = dir.path().join("base");
    let refusal = || {
        let file = Arc::new(FileDevice::open(&file, Access::ReadOnly).unwrap());
        Qcow2Device::open(file, Access::ReadOnly).err().unwrap().to_string()
    };
    assert!(refusal().contains("base"), "{}", refusal());
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    assert!(refusal().contains("no regular file"), "{}", refusal());
    fs::remove_file(&fifo).unwrap();

    // An extension names the format `raw`; without it the content decides.
    let mut bytes = fs::read(&file).unwrap();
    let at = bytes.windows(8).position(|part| part == [0xe2, 0x79, 0x2a, 0xca, 0, 0, 0, 3]).unwrap();
    bytes[at..at + 16]
        .copy_from_slice(&[0xe2, 0x79, 0x2a, 0xca, 0, 0, 0, 5, b'q', b'c', b'o', b'w', b'2', 0, 0, 0]);
    fs::write(&file, bytes).unwrap();
    fs::hard_link(&file, &fifo).unwrap();
    assert!(refusal().contains("64 backing files"), "{}", refusal());
}

#[test]
fn an_image_on_another_device_may_not_name_a_file_of_this_machine() {
    let dir = tempfile::tempdir().unwrap();
    let device = Arc::new(MemoryDevice::from(fs::read(overlay(dir.path())).unwrap()));
    let refusal = Qcow2Device::over(device, "https://example.org/disk.qcow2").err().unwrap().to_string();
    assert!(refusal.contains("needs another file"), "{refusal}");
}
