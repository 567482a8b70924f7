//! A file is changed during its write-back. The device holds each request in turn until the other
//! thread ends or sleeps, which covers every point of write-back.

use crate::common::writing::{node, read_all};
use crate::common::{Image, fsck};
use dentree_blockdev::{BlockDevice, MemoryDevice};
use dentree_ext4::{Ext4, Node, Options};
use dentree_testing::wait_until;
use dentree_vfs::{Allocate, Durability, FileSystem, SetAttr};
use std::io::{self, IoSlice};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};

const BLOCK: usize = 1024;

/// From here on large writes are direct.
const BASE: usize = 2048 * BLOCK;

/// Holds one write or flush.
struct HoldingDevice {
    device: MemoryDevice,
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Open,
    /// Holds the request after so many others.
    Armed(u32),
    Held,
}

impl HoldingDevice {
    fn set(&self, state: State) {
        *self.state.lock().unwrap() = state;
        self.moved.notify_all();
    }

    /// Returns whether a request is held.
    fn wait(&self) -> bool {
        let armed = |state: &mut State| matches!(state, State::Armed(_));
        *self.moved.wait_while(self.state.lock().unwrap(), armed).unwrap() == State::Held
    }

    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        match *state {
            State::Armed(0) => {
                *state = State::Held;
                self.moved.notify_all();
                drop(self.moved.wait_while(state, |state| *state == State::Held).unwrap());
            }
            State::Armed(before) => *state = State::Armed(before - 1),
            State::Open | State::Held => {}
        }
    }
}

impl BlockDevice for HoldingDevice {
    fn size(&self) -> u64 {
        self.device.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.device.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.pass();
        self.device.write_at(offset, buf)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.pass();
        self.device.write_vectored_at(offset, bufs)
    }

    fn flush(&self) -> io::Result<()> {
        self.pass();
        self.device.flush()
    }
}

fn sleeps(thread: rustix::thread::Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{}/stat", thread.as_raw_nonzero()));
    stat.is_ok_and(|stat| stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" S")))
}

/// A change of a file on the device, and of the model.
struct Change {
    what: &'static str,
    there: fn(&Ext4, &Node),
    model: fn(&mut Vec<u8>),
}

fn set_size(fs: &Ext4, file: &Node, size: usize) {
    fs.set_attr(file, &SetAttr { size: Some(size as u64), ..SetAttr::default() }).unwrap();
}

const WRITE_BACKS: [Change; 2] = [
    Change { what: "synced", there: |fs, file| fs.fsync(file, Durability::Full).unwrap(), model: |_| {} },
    Change {
        what: "written to at length",
        there: |fs, file| assert_eq!(fs.write(file, (BASE + 6 * BLOCK) as u64, &[0xC7; LONG]).unwrap(), LONG),
        model: |content| {
            content.resize(BASE + 6 * BLOCK + LONG, 0);
            content[BASE + 6 * BLOCK..].fill(0xC7);
        },
    },
];

/// No multiple of the block size.
const LONG: usize = 50 * BLOCK + 200;

const CHANGES: [Change; 7] = [
    Change { what: "cut to nothing", there: |fs, file| set_size(fs, file, 0), model: Vec::clear },
    Change {
        what: "cut within a block",
        there: |fs, file| set_size(fs, file, BASE + 20 * BLOCK + 300),
        model: |content| content.truncate(BASE + 20 * BLOCK + 300),
    },
    Change {
        what: "cut and lengthened",
        there: |fs, file| {
            set_size(fs, file, BASE + 5 * BLOCK + 1);
            set_size(fs, file, BASE + 30 * BLOCK);
        },
        model: |content| {
            content.truncate(BASE + 5 * BLOCK + 1);
            content.resize(BASE + 30 * BLOCK, 0);
        },
    },
    Change {
        what: "punched",
        there: |fs, file| {
            fs.allocate(file, (BASE + 3 * BLOCK + 5) as u64, 25 * BLOCK as u64, Allocate::PunchHole).unwrap()
        },
        model: |content| content[BASE + 3 * BLOCK + 5..BASE + 28 * BLOCK + 5].fill(0),
    },
    Change {
        what: "zeroed",
        there: |fs, file| {
            fs.allocate(file, (BASE + 10 * BLOCK + 5) as u64, 9 * BLOCK as u64, Allocate::ZeroRangeKeepSize)
                .unwrap()
        },
        model: |content| content[BASE + 10 * BLOCK + 5..BASE + 19 * BLOCK + 5].fill(0),
    },
    Change {
        what: "written to",
        there: |fs, file| {
            assert_eq!(fs.write(file, (BASE + 15 * BLOCK - 7) as u64, &[0xB2; 6000]).unwrap(), 6000)
        },
        model: |content| content[BASE + 15 * BLOCK - 7..BASE + 15 * BLOCK - 7 + 6000].fill(0xB2),
    },
    Change {
        what: "lengthened far behind its end",
        there: |fs, file| assert_eq!(fs.write(file, (BASE + 90 * BLOCK + 1) as u64, b"far").unwrap(), 3),
        model: |content| {
            content.resize(BASE + 90 * BLOCK + 1, 0);
            content.extend(b"far");
        },
    },
];

fn prepare(fs: &Ext4, file: &Node) -> Vec<u8> {
    let mut content = vec![0; BASE + 44 * BLOCK + 17];
    let mut write = |from: usize, to: usize, byte: u8| {
        let (from, to) = (BASE + from, BASE + to);
        content[from..to].fill(byte);
        assert_eq!(fs.write(file, from as u64, &vec![byte; to - from]).unwrap(), to - from);
    };
    write(0, 12 * BLOCK, 0xA0);
    write(16 * BLOCK, 20 * BLOCK, 0xA1);
    fs.fsync(file, Durability::Full).unwrap();
    write(2 * BLOCK + 9, 8 * BLOCK, 0xA3);
    write(14 * BLOCK, 18 * BLOCK, 0xA4);
    write(24 * BLOCK, 44 * BLOCK + 17, 0xA5);
    content
}

/// `false` if write-back has no request `at`.
fn change_during(image: &[u8], write_back: &Change, change: &Change, at: u32) -> bool {
    let what = format!("{}, while it is {} and request {at} is held", change.what, write_back.what);
    let held = Arc::new(HoldingDevice {
        device: MemoryDevice::from(image.to_vec()),
        state: Mutex::new(State::Open),
        moved: Condvar::new(),
    });
    let fs = Ext4::open(held.clone(), Options { writable: true, ..Options::default() }).unwrap();
    let file = &node(&fs, "file");
    let mut expected = prepare(&fs, file);
    held.set(State::Armed(at));
    let met = std::thread::scope(|scope| {
        let (fs, device) = (&fs, &held);
        let storing = scope.spawn(move || {
            (write_back.there)(fs, file);
            // There were fewer requests.
            device.set(State::Open);
        });
        let is_held = held.wait();
        let (sender, receiver) = channel();
        let other = scope.spawn(move || {
            sender.send(rustix::thread::gettid()).unwrap();
            (change.there)(fs, file);
        });
        let thread = receiver.recv().unwrap();
        wait_until("met", || other.is_finished() || sleeps(thread));
        held.set(State::Open);
        storing.join().unwrap();
        other.join().unwrap();
        is_held
    });
    (write_back.model)(&mut expected);
    (change.model)(&mut expected);
    assert!(read_all(&fs, file) == expected, "{what}: other content");
    fs.close().unwrap();
    drop(fs);
    let scratch = fsck::scratch();
    let left = scratch.path().join("left");
    std::fs::write(&left, held.device.to_vec()).unwrap();
    fsck::is_clean(&left).unwrap_or_else(|text| panic!("{what}: {text}"));
    let again = Ext4::open(Arc::new(MemoryDevice::from(held.device.to_vec())), Options::default()).unwrap();
    assert!(read_all(&again, &node(&again, "file")) == expected, "{what}: other content on the device");
    met
}

#[test]
fn a_change_during_write_back_equals_one_before_or_after_it() {
    for options in ["-t ext4 -b 1024", "-t ext3 -b 1024"] {
        let image = Image::new(options, "16M", |tree| std::fs::write(tree.join("file"), "").unwrap());
        let image = std::fs::read(image.path()).unwrap();
        // The same requests with indirect blocks.
        let write_backs = if options.contains("ext3") { &WRITE_BACKS[..1] } else { &WRITE_BACKS };
        for write_back in write_backs {
            let mut met = 0;
            for change in &CHANGES {
                if options.contains("ext3") && matches!(change.what, "zeroed") {
                    continue;
                }
                met += (0..).take_while(|&at| change_during(&image, write_back, change, at)).count();
            }
            println!("{options}: {met} requests held while a file was {}", write_back.what);
            // Data, log, commit block and two flushes; or dirty data, and two runs.
            let least = if write_back.what == "synced" { 5 } else { 3 };
            assert!(met >= least * CHANGES.len().saturating_sub(1), "{options}: {met} requests held");
        }
    }
}
