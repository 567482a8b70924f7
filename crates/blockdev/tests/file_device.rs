//! `FileDevice`: complete positioned access, one writer, errors with the file's name.

use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::channel;

use dentree_blockdev::{Access, BlockDevice, Error, FileDevice, Queue};
use dentree_testing::LoopDevice;
use tempfile::NamedTempFile;

fn image(len: usize) -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    let bytes: Vec<u8> = (0..len).map(|at| (at / 7) as u8).collect();
    std::fs::write(file.path(), bytes).unwrap();
    file
}

fn open(path: &Path, access: Access) -> FileDevice {
    FileDevice::open(path, access).unwrap()
}

#[test]
fn a_read_past_the_end_fails_naming_offset_length_and_size() {
    let file = image(1000);
    let device = open(file.path(), Access::ReadOnly);
    let error = device.read_at(990, &mut [0; 11]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    let message = error.to_string();
    assert!(["990", "11", "1000"].iter().all(|number| message.contains(number)), "{message}");
    assert!(device.read_at(u64::MAX, &mut [0; 11]).is_err());
    assert!(device.read_at(1000, &mut []).is_ok());
}

#[test]
fn vectored_access_takes_more_slices_than_the_system_call_does() {
    let file = image(9000);
    let device = open(file.path(), Access::ReadWrite);
    let mut parts = vec![[0u8; 3]; 2500];
    let mut bufs: Vec<IoSliceMut<'_>> = parts.iter_mut().map(|part| IoSliceMut::new(part)).collect();
    device.read_vectored_at(500, &mut bufs).unwrap();
    let expected = std::fs::read(file.path()).unwrap();
    assert_eq!(parts.concat(), expected[500..8000]);

    let bufs: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    device.write_vectored_at(1500, &bufs).unwrap();
    device.flush().unwrap();
    assert_eq!(std::fs::read(file.path()).unwrap()[1500..], expected[500..8000]);
    assert_eq!(device.write_vectored_at(1501, &bufs).unwrap_err().kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn what_is_written_out_is_there_at_once_and_ends_where_the_device_does() {
    // On disk and in tmpfs.
    for folder in [std::env::temp_dir(), "/dev/shm".into()].into_iter().filter(|folder| folder.is_dir()) {
        let file = NamedTempFile::new_in(&folder).unwrap();
        file.as_file().set_len(4 << 20).unwrap();
        let device = open(file.path(), Access::ReadWrite);
        let parts: Vec<Vec<u8>> = (0..2000_u32).map(|part| vec![(part % 251) as u8; 1000]).collect();
        let bufs: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        for offset in [100, 2_000_100] {
            device.write_out_at(offset, &bufs).unwrap();
        }
        let mut read = vec![0; 4_000_200];
        device.read_at(0, &mut read).unwrap();
        device.flush().unwrap();
        let expected = parts.concat();
        assert!(read[100..2_000_100] == expected && read[2_000_100..4_000_100] == expected, "{folder:?}");
        assert!(read[..100].iter().chain(&read[4_000_100..]).all(|&byte| byte == 0));
        let error = device.write_out_at((4 << 20) - 1_999_999, &bufs).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        let reader = open(file.path(), Access::ReadOnly);
        assert_eq!(reader.write_out_at(0, &bufs).unwrap_err().kind(), ErrorKind::PermissionDenied);
    }
}

#[test]
fn filling_holes_takes_space_and_changes_no_byte() {
    let file = NamedTempFile::new().unwrap();
    file.as_file().set_len(8 << 20).unwrap();
    let device = open(file.path(), Access::ReadWrite);
    device.write_at(3 << 20, &[7; 100_000]).unwrap();
    let hole_behind = |at| rustix::fs::seek(file.as_file(), rustix::fs::SeekFrom::Hole(at)).unwrap();
    let sparse = hole_behind(1 << 20) == 1 << 20;
    let before = std::fs::read(file.path()).unwrap();
    device.fill_holes(1 << 20, 5 << 20).unwrap();
    assert!(hole_behind(1 << 20) >= 6 << 20, "a hole at {}", hole_behind(1 << 20));
    // The rest is untouched.
    assert!(!sparse || (hole_behind(0) == 0 && hole_behind(7 << 20) == 7 << 20));
    assert!(std::fs::read(file.path()).unwrap() == before);
    assert_eq!(device.fill_holes((8 << 20) - 1, 2).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    let reader = open(file.path(), Access::ReadOnly);
    assert_eq!(reader.fill_holes(0, 1).unwrap_err().kind(), ErrorKind::PermissionDenied);
}

#[test]
fn a_second_writer_is_refused_by_the_name_of_the_first_and_readers_are_not() {
    let file = image(100);
    let first = open(file.path(), Access::ReadWrite);
    let error = FileDevice::open(file.path(), Access::ReadWrite).err().unwrap();
    let message = error.to_string();
    assert!(message.contains(&file.path().display().to_string()), "{message}");
    assert!(matches!(error, Error::Locked { .. }), "{message}");
    if Path::new("/proc/locks").exists() {
        // The file system may report another device number to /proc/locks.
        println!("{message}");
    }
    let reader = open(file.path(), Access::ReadOnly);
    assert_eq!(reader.write_at(0, b"x").unwrap_err().kind(), ErrorKind::PermissionDenied);
    drop(first);
    open(file.path(), Access::ReadWrite);
}

#[test]
fn the_lock_ends_with_the_device_even_after_reads_by_others_and_while_programs_are_started() {
    let file = image(100_000);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Until its `exec`, a child holds all open files.
        let start = || {
            while !is_over.load(Relaxed) {
                assert!(Command::new("true").status().unwrap().success());
            }
        };
        let starters = [scope.spawn(start), scope.spawn(start)];
        for _ in 0..300 {
            let opened = FileDevice::open(file.path(), Access::ReadWrite);
            // Stops the starters in both cases.
            is_over.store(opened.is_err(), Relaxed);
            let device = Arc::new(opened.unwrap().with_queue(Queue::Ring));
            for offset in 0..20 {
                Arc::clone(&device).submit(offset * 4096, vec![0; 4096], Box::new(drop));
            }
            drop(device);
        }
        is_over.store(true, Relaxed);
        starters.into_iter().for_each(|starter| starter.join().unwrap());
    });
}

#[test]
fn reads_that_are_submitted_read_what_plain_reads_do() {
    let file = image(100_000);
    let device = Arc::new(open(file.path(), Access::ReadOnly));
    let (sender, receiver) = channel();
    for offset in (0..100).map(|n| n * 1009) {
        let sender = sender.clone();
        let done = move |read| sender.send((offset, read)).unwrap();
        Arc::clone(&device).submit(offset, vec![0; 500], Box::new(done));
    }
    for (offset, read) in receiver.iter().take(100) {
        let mut expected = vec![0; 500];
        match device.read_at(offset, &mut expected) {
            Ok(()) => assert_eq!(read.unwrap(), expected),
            Err(error) => assert_eq!(read.unwrap_err().kind(), error.kind()),
        }
    }
}

#[test]
fn directories_pipes_and_character_devices_are_refused_without_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for path in [dir.path(), &pipe, Path::new("/dev/null")] {
        let error = FileDevice::open(path, Access::ReadOnly).err().unwrap();
        assert!(matches!(error, Error::NotADevice { .. }), "{error}");
    }
    let error = FileDevice::open(dir.path().join("none"), Access::ReadOnly).err().unwrap();
    assert!(error.to_string().contains("none"), "{error}");
}

#[test]
fn a_block_device_has_its_size_and_is_read_and_written() {
    let file = image(1 << 20);
    let device = match LoopDevice::new(file.path(), &[]) {
        Ok(device) => device,
        Err(reason) => return println!("skipped: no loop device here: {reason}"),
    };
    let writer = open(device.path(), Access::ReadWrite);
    assert_eq!(writer.size(), 1 << 20);
    writer.write_at(4096, &[7; 512]).unwrap();
    writer.flush().unwrap();
    let mut buf = [0; 512];
    writer.read_at(4096, &mut buf).unwrap();
    assert_eq!(buf, [7; 512]);
    drop(writer);
}
