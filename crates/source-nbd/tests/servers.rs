//! Real servers: killed, restarted, slow, failing, with block sizes.

use dentree_blockdev::{Access, BlockDevice};
use dentree_source_nbd::{NbdDevice, Patience};
use dentree_testing::NbdServer;
use std::fs;
use std::io::{ErrorKind, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

const SIZE: usize = 8 << 20;

/// File with different bytes everywhere.
struct Disk {
    dir: TempDir,
    bytes: Vec<u8>,
}

impl Disk {
    fn new() -> Disk {
        let (dir, bytes) = (tempfile::tempdir().unwrap(), pattern(0, SIZE));
        fs::write(dir.path().join("disk"), &bytes).unwrap();
        Disk { dir, bytes }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("disk")
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    fn nbdkit(&self, filters: &[&str], settings: &[&str]) -> Option<NbdServer> {
        let file = format!("file={}", self.path().display());
        NbdServer::nbdkit(&self.socket(), &[filters, &["file", &file], settings].concat())
    }
}

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (seed..seed + len).map(|at| (at / 512 * 7 + at) as u8).collect()
}

fn open(server: &NbdServer, patience: Patience) -> NbdDevice {
    NbdDevice::open(&server.address().parse().unwrap(), Access::ReadWrite, patience).unwrap()
}

fn read(device: &NbdDevice, offset: usize, len: usize) -> Vec<u8> {
    let mut found = vec![0; len];
    device.read_at(offset as u64, &mut found).unwrap();
    found
}

#[test]
fn a_server_that_is_killed_and_back_is_not_noticed() {
    let disk = Disk::new();
    let Some(mut server) = disk.nbdkit(&[], &[]) else { return };
    let device = &open(&server, Patience::default());
    let (tell, told) = channel();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let tell = tell.clone();
                scope.spawn(move || {
                    for round in 0..100 {
                        let (at, data) = (thread * (1 << 20), pattern(round, 300_000));
                        device.write_at(at as u64, &data).unwrap();
                        assert!(read(device, at, data.len()) == data, "thread {thread}, round {round}");
                        device.flush().unwrap();
                        let _ = tell.send(());
                    }
                })
            })
            .collect();
        for _ in 0..8 {
            assert_eq!(told.iter().take(20).count(), 20);
            server.kill();
            server = disk.nbdkit(&[], &[]).unwrap();
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    let found = fs::read(disk.path()).unwrap();
    assert!((0..4).all(|thread| found[thread << 20..][..300_000] == pattern(99, 300_000)));
    assert!(found[5 << 20..] == disk.bytes[5 << 20..]);
}

#[test]
fn a_server_that_stays_away_ends_every_request_and_what_may_be_lost_is_told() {
    let disk = Disk::new();
    let Some(mut server) = disk.nbdkit(&[], &[]) else { return };
    let patience = Patience { absence: Duration::from_millis(50), ..Patience::default() };
    let device = open(&server, patience);
    device.write_at(0, &[1; 4096]).unwrap();
    server.kill();
    let error = device.flush().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotConnected);
    assert!(error.to_string().contains("1 writes since the last flush may be lost"), "{error}");
    for ended in [device.read_at(0, &mut [0]), device.write_at(0, &[0]), device.flush()] {
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::NotConnected);
    }
}

#[test]
fn another_export_in_place_of_the_first_is_refused() {
    let disk = Disk::new();
    let Some(mut server) = disk.nbdkit(&[], &[]) else { return };
    let device = open(&server, Patience::default());
    server.kill();
    let _other = NbdServer::nbdkit(&disk.socket(), &["memory", "1M"]).unwrap();
    let error = device.read_at(0, &mut [0; 512]).unwrap_err();
    assert!(error.to_string().contains("another size"), "{error}");
}

#[test]
fn requests_are_split_and_aligned_as_the_server_wants_them() {
    let disk = Disk::new();
    // The filter rejects other requests.
    let settings = [
        "blocksize-minimum=4096",
        "blocksize-preferred=65536",
        "blocksize-maximum=1M",
        "blocksize-error-policy=error",
    ];
    let Some(server) = disk.nbdkit(&["--filter=blocksize-policy"], &settings) else { return };
    let device = Arc::new(open(&server, Patience::default()));
    let mut expected = disk.bytes.clone();
    assert!(read(&device, 0, SIZE) == expected, "as a whole");
    for (at, len) in
        [(1, 1), (4095, 2), (511, 4097), (3 << 20, 3 << 20), ((1 << 20) - 7, (2 << 20) + 9), (SIZE - 1, 1)]
    {
        let data = pattern(at + 3, len);
        let (first, second) = data.split_at(len / 2);
        device.write_vectored_at(at as u64, &[IoSlice::new(first), IoSlice::new(second)]).unwrap();
        expected[at..][..len].copy_from_slice(&data);
        assert!(read(&device, at, len) == data, "{len} bytes at {at}");
        let (tell, told) = channel();
        let done = Box::new(move |read| tell.send(read).unwrap());
        device.clone().submit(at as u64, vec![0; len], done);
        assert!(told.recv().unwrap().unwrap() == data, "{len} bytes at {at}, submitted");
    }
    device.discard(5000, 8192).unwrap();
    let kept = read(&device, 0, 8192);
    assert!(kept == expected[..8192], "only whole blocks within the range are given back");
    assert!(read(&device, 12288, SIZE - 12288) == expected[12288..]);
}

#[test]
fn a_server_that_takes_its_time_answers_many_requests_at_once() {
    let disk = Disk::new();
    let Some(server) = disk.nbdkit(&["--filter=delay"], &["rdelay=10ms", "wdelay=10ms"]) else { return };
    let device = Arc::new(open(&server, Patience::default()));
    let (tell, told) = channel();
    for at in (0..SIZE - 100).step_by(SIZE / 200) {
        let tell = tell.clone();
        let done = Box::new(move |read| tell.send((at, read)).unwrap());
        device.clone().submit(at as u64, vec![0; 100], done);
    }
    drop(tell);
    let all: Vec<_> = told.iter().collect();
    assert!(all.len() >= 200);
    for (at, read) in all {
        assert!(read.unwrap() == disk.bytes[at..][..100], "at {at}");
    }
}

#[test]
fn an_error_of_the_server_names_the_request_and_spoils_no_other() {
    let disk = Disk::new();
    let settings = ["error=ENOSPC", "error-pwrite-rate=100%"];
    let Some(server) = disk.nbdkit(&["--filter=error"], &settings) else { return };
    let device = open(&server, Patience::default());
    let error = device.write_at(8192, &[1; 512]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    assert!(error.to_string().contains("write 512 bytes at 8192: no space left"), "{error}");
    assert!(read(&device, 0, SIZE) == disk.bytes);
    device.flush().unwrap();
}

#[test]
fn an_export_that_is_only_read_is_read_in_few_requests() {
    let disk = Disk::new();
    let log = disk.dir.path().join("log");
    let logfile = format!("logfile={}", log.display());
    let Some(server) = disk.nbdkit(&["--filter=log"], &[&logfile]) else { return };
    let device =
        NbdDevice::open(&server.address().parse().unwrap(), Access::ReadOnly, Patience::default()).unwrap();
    let blocks = device.in_blocks().unwrap();
    for at in (0..SIZE).step_by(4096) {
        let mut found = vec![0; 4096];
        blocks.read_at(at as u64, &mut found).unwrap();
        assert!(found == disk.bytes[at..][..4096], "at {at}");
    }
    let transfers = blocks.transfers().unwrap();
    assert_eq!(transfers.used_bytes, SIZE as u64);
    assert!(transfers.requests <= 10, "{transfers:?}");
    let log = fs::read_to_string(log).unwrap();
    let reads = log.lines().filter(|line| line.contains(" Read ")).count();
    assert_eq!(reads as u64, transfers.requests, "{log}");
}

#[test]
fn a_bad_sector_of_an_export_that_is_only_read_spoils_no_other() {
    let dir = tempfile::tempdir().unwrap();
    // The second 16 MiB have a bad sector at 1.5 MiB.
    let read = "end=$(($4 + $3))
        if [ $4 -lt 1573376 ] && [ $end -gt 1572864 ]; then echo EIO bad sector >&2; exit 1; fi
        head -c $3 /dev/zero | tr '\\0' x";
    let settings = ["eval", "get_size=echo 16777216", &format!("pread={read}")];
    let Some(server) = NbdServer::nbdkit(&dir.path().join("socket"), &settings) else { return };
    let device =
        NbdDevice::open(&server.address().parse().unwrap(), Access::ReadOnly, Patience::default()).unwrap();
    let blocks = device.in_blocks().unwrap();
    let mut all = vec![0; 1_500_000];
    blocks.read_at(0, &mut all).unwrap();
    assert!(all.iter().all(|byte| *byte == b'x'));
    for at in [1_572_864_u64 - 512, 1_572_864 + 512] {
        let mut found = [0; 512];
        blocks.read_at(at, &mut found).unwrap_or_else(|error| panic!("at {at}: {error}"));
        assert_eq!(found, [b'x'; 512]);
    }
    let error = blocks.read_at(1_572_864, &mut [0; 512]).unwrap_err();
    assert!(error.to_string().contains("read 512 bytes at 1572864"), "{error}");
}

#[test]
fn a_closed_device_leaves_no_socket_and_no_thread_of_the_sender() {
    let disk = Disk::new();
    let Some(server) = disk.nbdkit(&["--filter=exitlast"], &[]) else { return };
    let device = open(&server, Patience::default());
    assert_eq!(read(&device, 0, 512), disk.bytes[..512]);
    drop(device);
    // nbdkit ends with its last client.
    dentree_testing::wait_until("ended", || !answers(&disk.socket()));
}

fn answers(socket: &Path) -> bool {
    std::os::unix::net::UnixStream::connect(socket).is_ok()
}
