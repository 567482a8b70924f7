//! Large writes bypass the memory: their blocks are contiguous, and data of a failed write stays in
//! memory.

use crate::common::writing::{check, new_image, node, read_all};
use dentree_blockdev::{
    Access, BlockDevice, Failure, Fault, FaultDevice, FileDevice, MeteredDevice, Operation,
};
use dentree_ext4::{Ext4, Node, Options};
use dentree_vfs::{Durability, FileSystem, NewInode, NewKind};
use std::sync::Arc;

const PIECE: usize = 128 << 10;

/// From here on large writes are direct.
const FAR: usize = 8 << 20;

fn writable(device: Arc<dyn BlockDevice>) -> Ext4 {
    Ext4::open(device, Options { writable: true, ..Options::default() }).unwrap()
}

fn make(fs: &Ext4, name: &str) -> Node {
    let root = fs.load(fs.root()).unwrap();
    let new = NewInode { kind: NewKind::Regular, permissions: 0o644, uid: 0, gid: 0, xattrs: &[] };
    fs.create(&root, name.as_bytes(), &new).unwrap()
}

#[test]
fn large_writes_slightly_out_of_order_are_direct_and_in_one_run() {
    let image = new_image("-t ext4 -b 4096", "32M");
    let file = FileDevice::open(image.path(), Access::ReadWrite).unwrap();
    let device = Arc::new(MeteredDevice::new(Arc::new(file)));
    let fs = writable(device.clone());
    let file = make(&fs, "file");
    let mut content = vec![0; FAR + 20 * PIECE];
    let before = device.counts().written_bytes;
    // Several threads may deliver one program's writes in such an order.
    for at in [0, 3, 1, 2, 4, 6, 5, 7, 11, 10, 9, 8, 12, 14, 13, 18, 15, 16, 17, 19] {
        let begin = FAR + at * PIECE;
        let piece = &mut content[begin..begin + PIECE];
        piece.fill(u8::try_from(at).unwrap() + 1);
        assert_eq!(fs.write(&file, begin as u64, piece).unwrap(), PIECE);
    }
    let written = device.counts().written_bytes - before;
    assert!(written >= 20 * PIECE as u64, "{written} bytes are on the device before anybody syncs");
    fs.fsync(&file, Durability::Full).unwrap();
    assert!(read_all(&fs, &file) == content);
    drop(file);
    fs.close().unwrap();
    drop(fs);
    check(&image, &[("file", &content)], "in pieces");
    let extents = image.debugfs("dump_extents -l /file\n");
    let lines = extents.lines().filter(|line| line.contains(" - ")).count();
    assert_eq!(lines, 1, "{extents}");
}

#[test]
fn data_of_a_failed_write_stays_in_memory_and_fsync_reports_it() {
    let image = new_image("-t ext4 -b 4096", "32M");
    let mut content = vec![0; FAR];
    for times in [1, 2, u64::MAX] {
        let file = FileDevice::open(image.path(), Access::ReadWrite).unwrap();
        let device = Arc::new(FaultDevice::new(Arc::new(file)));
        let fs = writable(device.clone());
        let file = if times == 1 { make(&fs, "file") } else { node(&fs, "file") };
        fs.fsync(&file, Durability::Full).unwrap();
        device.inject(Fault { operation: Operation::Write, after: 0, times, failure: Failure::Io });
        // The write covers content, and passes its end.
        let at = FAR + (content.len() - FAR) / 2 / PIECE * PIECE;
        content.truncate(at);
        content.resize(at + 4 * PIECE, u8::try_from(times % 100).unwrap());
        assert_eq!(fs.write(&file, at as u64, &content[at..]).unwrap(), 4 * PIECE);
        assert!(read_all(&fs, &file) == content, "{times} failures");
        assert_eq!(fs.fsync(&file, Durability::Full).is_err(), times > 1, "{times} failures");
        device.heal();
        assert!(read_all(&fs, &file) == content, "{times} failures");
        fs.fsync(&file, Durability::Full).unwrap();
        drop(file);
        fs.close().unwrap();
        drop((fs, device));
        check(&image, &[("file", &content)], &format!("{times} failures"));
    }
}

#[test]
fn small_writes_and_the_start_of_a_file_stay_in_memory() {
    let image = new_image("-t ext4 -b 4096", "32M");
    let file = FileDevice::open(image.path(), Access::ReadWrite).unwrap();
    let device = Arc::new(MeteredDevice::new(Arc::new(file)));
    let fs = writable(device.clone());
    let file = make(&fs, "file");
    let before = device.counts().written_bytes;
    fs.write(&file, (FAR - PIECE) as u64, &vec![1; PIECE]).unwrap();
    fs.write(&file, FAR as u64, &vec![2; PIECE - 4096]).unwrap();
    assert_eq!(device.counts().written_bytes, before);
    // Dirty data first: the length on disk never passes it.
    fs.write(&file, (FAR + PIECE) as u64, &vec![3; PIECE]).unwrap();
    assert!(device.counts().written_bytes - before >= 3 * PIECE as u64 - 4096);
    drop(file);
    fs.close().unwrap();
    drop(fs);
    let mut content = vec![0; FAR + 2 * PIECE];
    content[FAR - PIECE..FAR].fill(1);
    content[FAR..FAR + PIECE - 4096].fill(2);
    content[FAR + PIECE..].fill(3);
    check(&image, &[("file", &content)], "after small ones");
}
