//! Opens and visits an image, and measures the cost.

#![allow(dead_code, reason = "each user takes what it needs")]

use crate::damage::visit::{self, Findings};
use dentree_blockdev::{BlockDevice, MemoryDevice};
use dentree_ext4::{Ext4, Options};
use dentree_vfs::Error;
use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Also the unit of damage.
pub const BLOCK: usize = 1024;
/// Relative to the intact image; absolute.
const READS_FACTOR: u64 = 20;
const BYTES_MAX: u64 = 8 << 20;

/// Counts reads and records their blocks.
struct Watched {
    memory: MemoryDevice,
    reads: AtomicU64,
    touched: Mutex<BTreeSet<usize>>,
}

impl BlockDevice for Watched {
    fn size(&self) -> u64 {
        self.memory.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.memory.read_at(offset, buf)?;
        let first = usize::try_from(offset).unwrap() / BLOCK;
        self.touched.lock().unwrap().extend(first..first + buf.len().div_ceil(BLOCK));
        Ok(())
    }

    fn write_at(&self, _offset: u64, _buf: &[u8]) -> io::Result<()> {
        panic!("reading an image writes nothing");
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

pub struct Outcome {
    pub findings: Findings,
    pub reads: u64,
    /// Peak, in bytes.
    pub memory: u64,
    pub touched: BTreeSet<usize>,
}

pub fn examine(bytes: Vec<u8>) -> Outcome {
    let memory = MemoryDevice::from(bytes);
    let device = Arc::new(Watched { memory, reads: AtomicU64::new(0), touched: Mutex::default() });
    let mut findings = Findings::default();
    let memory = allocation_counter::measure(|| match Ext4::open(device.clone(), Options::default()) {
        Ok(fs) => findings = visit::everything(&fs),
        Err(error) => findings.errors.push(error.into()),
    });
    let touched = device.touched.lock().unwrap().clone();
    Outcome { findings, reads: device.reads.load(Ordering::Relaxed), memory: memory.bytes_max, touched }
}

impl Outcome {
    /// `what` describes the damage.
    pub fn check(&self, intact: &Outcome, what: &str) {
        assert!(self.reads <= intact.reads * READS_FACTOR, "{what}: {} reads", self.reads);
        assert!(self.memory <= BYTES_MAX, "{what}: {} bytes of memory", self.memory);
        for error in &self.findings.errors {
            let message = error.to_string();
            let says_where = match error {
                Error::Corrupt(_) => {
                    message.starts_with("damaged") || message.contains("no ext2, ext3 or ext4")
                }
                Error::Io(_) => {
                    message.starts_with("reading ") || message.starts_with("cannot read journal block ")
                }
                Error::Unsupported(_) | Error::Encrypted => true,
                _ => false,
            };
            assert!(says_where, "{what}: {error:?}: {message}");
        }
    }
}
