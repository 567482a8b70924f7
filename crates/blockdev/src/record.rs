//! A device that remembers every write, so that the power can be cut anywhere afterwards.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{BlockDevice, MemoryDevice, check_range};

/// What is written as a whole or not at all.
const SECTOR: usize = 512;

/// A device in memory that remembers writes and flushes in their order. [`cut`](RecordingDevice::cut) says what would be found
/// on it after a power cut: all that was flushed, and of what was in flight any sectors.
///
/// ```
/// use dentree_blockdev::{BlockDevice, RecordingDevice};
///
/// let device = RecordingDevice::new(vec![0; 4096]);
/// device.write_at(0, &[1; 512])?;
/// device.flush()?;
/// device.write_at(0, &[2; 1024])?;
/// let steps = device.steps();
/// assert_eq!(steps, 3);
/// let bytes = device.cut(steps, |_| false);
/// assert_eq!((bytes[0], bytes[512]), (1, 0));
/// // Torn: its second sector alone came through.
/// let bytes = device.cut(steps, |sector| sector == 1);
/// assert_eq!((bytes[0], bytes[512]), (1, 2));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct RecordingDevice {
    memory: MemoryDevice,
    before: Vec<u8>,
    steps: Mutex<Vec<Step>>,
}

#[derive(Debug)]
enum Step {
    Write { at: usize, bytes: Vec<u8> },
    Flush,
}

impl RecordingDevice {
    /// A device that begins with these bytes, which are on stable storage.
    pub fn new(bytes: Vec<u8>) -> Self {
        RecordingDevice { memory: MemoryDevice::from(bytes.clone()), before: bytes, steps: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Step>> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes and flushes so far.
    pub fn steps(&self) -> usize {
        self.lock().len()
    }

    /// Whether the step of this number is a flush.
    pub fn is_flush(&self, step: usize) -> bool {
        matches!(self.lock().get(step), Some(Step::Flush))
    }

    /// What stands on the device if the power goes after the first `steps` steps. Writes with a flush behind them are there. The
    /// 512-byte sectors of the others are numbered in the order in which they were written, and are there if `keeps` says so.
    pub fn cut(&self, steps: usize, mut keeps: impl FnMut(usize) -> bool) -> Vec<u8> {
        let all = self.lock();
        let done = &all[..steps.min(all.len())];
        let flushed = done.iter().rposition(|step| matches!(step, Step::Flush)).map_or(0, |last| last + 1);
        let mut bytes = self.before.clone();
        let mut sector = 0;
        for (number, step) in done.iter().enumerate() {
            let Step::Write { at, bytes: written } = step else { continue };
            let mut at = *at;
            let mut rest = &written[..];
            while !rest.is_empty() {
                let (piece, behind) = rest.split_at(rest.len().min(SECTOR - at % SECTOR));
                if number < flushed || keeps(sector) {
                    bytes[at..at + piece.len()].copy_from_slice(piece);
                }
                sector += usize::from(number >= flushed);
                at += piece.len();
                rest = behind;
            }
        }
        bytes
    }
}

impl BlockDevice for RecordingDevice {
    fn size(&self) -> u64 {
        self.memory.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.memory.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        check_range(offset, buf.len() as u64, self.size())?;
        let mut steps = self.lock();
        self.memory.write_at(offset, buf)?;
        // In range of a Vec, so it fits.
        steps.push(Step::Write { at: offset as usize, bytes: buf.to_vec() });
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.lock().push(Step::Flush);
        Ok(())
    }
}
