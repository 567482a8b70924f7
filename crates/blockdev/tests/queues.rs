//! Submitted reads by ring and threads: each completes once.

use dentree_testing::wait_until;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use dentree_blockdev::{Access, BlockDevice, Done, FileDevice, Queue};
use proptest::prelude::*;
use tempfile::TempDir;

const BLOCK: usize = 4096;
const QUEUES: [Queue; 2] = [Queue::Ring, Queue::Threads];

/// Each block is full of its number.
fn image(blocks: usize) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    std::fs::write(&path, (0..blocks).flat_map(|block| [block as u8; BLOCK]).collect::<Vec<u8>>()).unwrap();
    (folder, path)
}

fn open(path: &PathBuf, queue: Queue) -> Arc<FileDevice> {
    Arc::new(FileDevice::open(path, Access::ReadOnly).unwrap().with_queue(queue))
}

type Answer = (u64, io::Result<Vec<u8>>);

fn answer(sender: &Sender<Answer>, tag: u64) -> Done {
    let sender = sender.clone();
    Box::new(move |read| sender.send((tag, read)).unwrap())
}

fn all(receiver: Receiver<Answer>) -> Vec<Answer> {
    let mut results: Vec<Answer> = receiver.into_iter().collect();
    results.sort_by_key(|(tag, _)| *tag);
    results
}

/// Prints if the kernel refuses rings.
fn has_ring(device: &FileDevice) -> bool {
    let has = device.queue() == Queue::Ring;
    if !has {
        eprintln!("skipped: no io_uring here");
    }
    has
}

#[test]
fn the_ring_is_there_where_the_kernel_has_one_and_threads_where_they_are_asked_for() {
    let (_folder, path) = image(1);
    assert_eq!(open(&path, Queue::Threads).queue(), Queue::Threads);
    // 0 allows all; other values and seccomp may refuse.
    let allowed = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
    let device = open(&path, Queue::Ring);
    if allowed.is_ok_and(|value| value.trim() == "0") && has_ring(&device) {
        let (sender, receiver) = channel();
        Arc::clone(&device).submit(0, vec![9; BLOCK], answer(&sender, 0));
        drop(sender);
        assert_eq!(*all(receiver)[0].1.as_ref().unwrap(), [0; BLOCK]);
    }
}

#[test]
fn a_thousand_reads_at_once_each_bring_their_own_bytes() {
    let (_folder, path) = image(200);
    for queue in QUEUES {
        let device = open(&path, queue);
        let (sender, receiver) = channel();
        for tag in 0..1000 {
            let len = 1 + (tag as usize * 37) % (3 * BLOCK);
            // Dirty, with spare capacity.
            let mut buf = Vec::with_capacity(4 * BLOCK);
            buf.resize(len, 0xAA);
            Arc::clone(&device).submit(tag * 771, buf, answer(&sender, tag));
        }
        drop(sender);
        let results = all(receiver);
        assert_eq!(results.len(), 1000);
        let file = std::fs::read(&path).unwrap();
        for (tag, read) in results {
            let read = read.unwrap();
            assert_eq!(read.len(), 1 + (tag as usize * 37) % (3 * BLOCK), "{queue:?}");
            assert!(read[..] == file[tag as usize * 771..][..read.len()], "{queue:?}, read {tag}");
        }
    }
}

#[test]
fn what_lies_behind_the_end_is_refused_and_nothing_at_all_is_read() {
    let (_folder, path) = image(2);
    for queue in QUEUES {
        let device = open(&path, queue);
        let (sender, receiver) = channel();
        let size = 2 * BLOCK as u64;
        for (tag, (offset, len)) in
            [(size, 1), (size - 1, 2), (u64::MAX, 1), (size, 0), (0, 0)].into_iter().enumerate()
        {
            Arc::clone(&device).submit(offset, vec![1; len], answer(&sender, tag as u64));
        }
        drop(sender);
        let kinds: Vec<_> =
            all(receiver).into_iter().map(|(_, read)| read.map_err(|error| error.kind())).collect();
        let refused = Err(ErrorKind::UnexpectedEof);
        assert_eq!(kinds, [refused.clone(), refused.clone(), refused, Ok(vec![]), Ok(vec![])], "{queue:?}");
    }
}

#[test]
fn a_file_that_was_cut_short_meanwhile_is_an_end_and_not_a_wait() {
    for queue in QUEUES {
        let (_folder, path) = image(8);
        let device = open(&path, queue);
        File::options().write(true).open(&path).unwrap().set_len(BLOCK as u64 + 10).unwrap();
        let (sender, receiver) = channel();
        // A short read, then end of file.
        Arc::clone(&device).submit(BLOCK as u64, vec![0; BLOCK], answer(&sender, 0));
        Arc::clone(&device).submit(5 * BLOCK as u64, vec![0; BLOCK], answer(&sender, 1));
        Arc::clone(&device).submit(0, vec![0; BLOCK], answer(&sender, 2));
        drop(sender);
        let results: Vec<_> =
            all(receiver).into_iter().map(|(_, read)| read.map_err(|error| error.kind())).collect();
        assert_eq!(results[..2], [Err(ErrorKind::UnexpectedEof), Err(ErrorKind::UnexpectedEof)], "{queue:?}");
        assert_eq!(results[2], Ok(vec![0; BLOCK]));
    }
}

#[test]
fn a_device_dropped_with_reads_under_way_answers_each_once() {
    let (_folder, path) = image(64);
    for queue in QUEUES {
        for round in 0..20 {
            let device = open(&path, queue);
            let (sender, receiver) = channel();
            for tag in 0..500 {
                let offset = (tag * 7 + round) % 64 * BLOCK as u64;
                Arc::clone(&device).submit(offset, vec![0; BLOCK], answer(&sender, tag));
            }
            drop((sender, device));
            let results = all(receiver);
            assert!(results.iter().map(|(tag, _)| *tag).eq(0..500), "{queue:?}: {} results", results.len());
            for (tag, read) in results {
                let full = [((tag * 7 + round) % 64) as u8; BLOCK];
                assert!(
                    read.map_or_else(|error| error.to_string().contains("closed"), |bytes| bytes == full)
                );
            }
        }
    }
}

#[test]
fn who_is_called_may_submit_again_and_be_the_last_to_hold_the_device() {
    fn chain(device: Arc<FileDevice>, left: u64, sender: Sender<u64>) {
        let held = Arc::clone(&device);
        let done = move |read: io::Result<Vec<u8>>| {
            assert_eq!(read.unwrap()[0], left as u8);
            if left == 0 { sender.send(left).unwrap() } else { chain(held, left - 1, sender) }
        };
        device.submit(left * BLOCK as u64, vec![0; BLOCK], Box::new(done));
    }
    let (_folder, path) = image(100);
    for queue in QUEUES {
        let (sender, receiver) = channel();
        chain(open(&path, queue), 99, sender);
        assert_eq!(receiver.recv(), Ok(0));
    }
}

#[test]
fn a_callback_that_panics_leaves_no_other_reader_waiting() {
    let (_folder, path) = image(4);
    for queue in QUEUES {
        let device = open(&path, queue);
        let (begun, begin) = channel();
        let done = move |_| {
            begun.send(()).unwrap();
            panic!("this callback panics, and the test wants it to");
        };
        Arc::clone(&device).submit(0, vec![0; BLOCK], Box::new(done));
        begin.recv().unwrap();
        for _ in 0..100 {
            let (sender, receiver) = channel();
            Arc::clone(&device).submit(BLOCK as u64, vec![0; BLOCK], answer(&sender, 0));
            drop(sender);
            // Completed or dropped: submitters do not hang.
            if let Ok((_, Ok(bytes))) = receiver.recv() {
                assert_eq!(bytes, [1; BLOCK]);
            }
        }
    }
}

#[test]
fn many_threads_may_submit_while_the_file_is_written() {
    let (_folder, path) = image(64);
    for queue in QUEUES {
        let device = open(&path, queue);
        let (wanted, got) = (4 * 300, Arc::new(AtomicUsize::new(0)));
        let writer = File::options().write(true).open(&path).unwrap();
        let torn = Arc::new(Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (device, got, torn) = (&device, &got, &torn);
                scope.spawn(move || {
                    for at in 0..300 {
                        let (got, torn) = (Arc::clone(got), Arc::clone(torn));
                        let block = (at * 5 + thread) % 64;
                        let done = move |read: io::Result<Vec<u8>>| {
                            if read.unwrap().iter().any(|byte| u64::from(*byte) != block) {
                                torn.lock().unwrap().push(block);
                            }
                            got.fetch_add(1, SeqCst);
                        };
                        Arc::clone(device).submit(block * BLOCK as u64, vec![0; BLOCK], Box::new(done));
                    }
                });
            }
            // Unchanged.
            (0..64).for_each(|block| {
                writer.write_all_at(&[block; BLOCK], u64::from(block) * BLOCK as u64).unwrap()
            });
        });
        wait_until("read", || got.load(SeqCst) >= wanted);
        assert_eq!((got.load(SeqCst), torn.lock().unwrap().len()), (wanted, 0), "{queue:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn both_queues_and_the_systems_memory_answer_as_a_plain_read_does(reads in prop::collection::vec((0u64..70_000, 0usize..20_000), 1..60)) {
        let (_folder, path) = image(16);
        let from_memory = Arc::new(FileDevice::open(&path, Access::ReadOnly).unwrap());
        for device in QUEUES.map(|queue| open(&path, queue)).into_iter().chain([from_memory]) {
            let (sender, receiver) = channel();
            for (tag, (offset, len)) in reads.iter().enumerate() {
                Arc::clone(&device).submit(*offset, vec![0; *len], answer(&sender, tag as u64));
            }
            drop(sender);
            for ((_, read), (offset, len)) in all(receiver).into_iter().zip(&reads) {
                let mut plain = vec![0; *len];
                let expected = device.read_at(*offset, &mut plain).map(|()| plain);
                prop_assert_eq!(read.map_err(|error| error.kind()), expected.map_err(|error| error.kind()));
            }
        }
    }
}

const CHILD: &str = "QUEUES_TEST_CHILD";

/// Runs in a child process: eight reads, and the engine in use.
#[test]
fn a_child_of_these_tests() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let (_folder, path) = image(8);
    let device = open(&path, Queue::Ring);
    let (sender, receiver) = channel();
    for block in 0..8 {
        Arc::clone(&device).submit(block * BLOCK as u64, vec![9; BLOCK], answer(&sender, block));
    }
    drop(sender);
    assert!(all(receiver).into_iter().all(|(block, read)| read.unwrap() == [block as u8; BLOCK]));
    println!("read by {:?}", device.queue());
}

/// Output and system calls of the child; `None`: cannot be traced.
fn watched(options: &[&str]) -> Option<(String, String)> {
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut strace = Command::new("strace");
    strace
        .args(["-f", "-e", "trace=io_uring_setup,io_uring_enter,pread64"])
        .args(options)
        .arg("-o")
        .arg(log.path());
    strace.arg(std::env::current_exe().unwrap()).args(["--exact", "a_child_of_these_tests", "--nocapture"]);
    let output = strace.env(CHILD, "1").output();
    let calls = std::fs::read_to_string(log.path()).unwrap();
    match output {
        Ok(output) if calls.contains("io_uring_setup") => {
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
            Some((said, calls))
        }
        _ => {
            eprintln!("skipped: strace is missing or may not trace here");
            None
        }
    }
}

#[test]
fn the_kernel_is_asked_by_io_uring_and_by_nothing_else() {
    let Some((said, calls)) = watched(&[]) else { return };
    if calls.lines().any(|line| line.contains("io_uring_setup") && line.contains("= -1")) {
        return eprintln!("skipped: the kernel refuses io_uring here");
    }
    assert!(said.contains("read by Ring"), "{said}");
    let read_at = |line: &&str| line.contains("pread64") && line.contains(", 4096, ");
    assert!(calls.contains("io_uring_enter") && !calls.lines().any(|line| read_at(&line)), "{calls}");
}

#[test]
fn where_io_uring_is_refused_threads_read_without_a_difference() {
    for error in ["EPERM", "ENOSYS", "ENOMEM"] {
        let inject = format!("inject=io_uring_setup:error={error}");
        let Some((said, calls)) = watched(&["-e", &inject]) else { return };
        assert!(said.contains("read by Threads"), "{error}: {said}");
        assert_eq!(calls.matches(", 4096, ").count(), 8, "{calls}");
    }
}
