//! A device in memory that records writes and flushes, to cut the power at any moment afterwards.
//!
//! After a power cut everything before the last flush is on the device. Of the writes since, each
//! 512-byte sector has arrived or not, independently: a disk's cache writes back in any order. A
//! sector with several such writes holds any of them, or the old content. Sectors are atomic.
//!
//! A test runs its load once on a [`RecordingDevice`], takes the [`Recording`], and inspects any
//! number of cuts. A cut is a number of steps and a choice of [the writes in flight that
//! survive](Survivors).

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{BlockDevice, MemoryDevice, check_range};

/// Allocation unit in bytes: a unit of zeros may be a hole.
const HOLE: usize = 4096;

/// Unit that a disk writes atomically, in bytes.
pub const SECTOR: u64 = 512;

/// A recorded operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// These bytes were written.
    Write {
        /// Where, in bytes.
        offset: u64,
        /// What.
        data: Vec<u8>,
    },
    /// All earlier writes are on stable storage.
    Flush,
}

/// A device in memory that records every write with its bytes, and every flush. Each part of a
/// vectored write is a step.
///
/// The order of steps agrees with every caller: a write that returned before a flush started
/// precedes it.
///
/// ```
/// use dentree_blockdev::{BlockDevice, RecordingDevice, Survivors};
///
/// let device = RecordingDevice::new(vec![0; 2048]);
/// device.write_at(0, &[1; 512])?;
/// device.flush()?;
/// let acknowledged = device.position();
/// device.write_at(512, &[2; 1024])?;
///
/// let recording = device.recording();
/// let mut replay = recording.replay();
/// for cut in acknowledged..=recording.steps().len() {
///     for seed in 0..10 {
///         let image = replay.image(cut, Survivors::Sectors { seed });
///         assert_eq!(image[..512], [1; 512]); // flushed, so it is there; the other two sectors may be
///     }
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct RecordingDevice {
    base: Vec<u8>,
    now: MemoryDevice,
    /// Held while `now` is written, so that steps are in the order of their effects.
    steps: Mutex<Vec<Step>>,
}

impl RecordingDevice {
    /// A device that holds `base`, all of it on stable storage.
    pub fn new(base: Vec<u8>) -> Self {
        RecordingDevice { now: MemoryDevice::from(base.clone()), base, steps: Mutex::default() }
    }

    /// Number of steps so far. What was acknowledged before must survive every later cut.
    pub fn position(&self) -> usize {
        self.steps().len()
    }

    /// A copy of the current content.
    pub fn to_vec(&self) -> Vec<u8> {
        self.now.to_vec()
    }

    /// The recording up to now.
    pub fn recording(&self) -> Recording {
        Recording { base: self.base.clone(), steps: self.steps().clone() }
    }

    fn steps(&self) -> MutexGuard<'_, Vec<Step>> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BlockDevice for RecordingDevice {
    fn size(&self) -> u64 {
        self.now.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.now.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        let mut steps = self.steps();
        self.now.write_at(offset, buf)?;
        steps.push(Step::Write { offset, data: buf.to_vec() });
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.steps().push(Step::Flush);
        Ok(())
    }

    /// Overwrites discarded bytes, so that a cut shows any use of them.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        check_range(offset, len, self.size())?;
        self.write_at(offset, &vec![0xDD; len as usize])
    }

    /// Writes zeros to possible holes, as into a sparse file.
    fn fill_holes(&self, offset: u64, len: u64) -> io::Result<()> {
        check_range(offset, len, self.size())?;
        // Within the length of a Vec.
        let mut bytes = vec![0; len as usize];
        self.read_at(offset, &mut bytes)?;
        let is_hole = |piece: &&[u8]| piece.iter().all(|byte| *byte == 0);
        let pieces: Vec<&[u8]> = bytes.chunks(HOLE).collect();
        let mut at = offset;
        for run in pieces.chunk_by(|one, next| is_hole(one) == is_hole(next)) {
            let len = run.iter().map(|piece| piece.len()).sum();
            if is_hole(&run[0]) {
                self.write_at(at, &vec![0; len])?;
            }
            at += len as u64;
        }
        Ok(())
    }
}

/// Which sectors of the writes in flight survive. Chosen by a seed, so that a failing cut can be
/// repeated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Survivors {
    /// None.
    None,
    /// All: the program stopped, the power stayed.
    All,
    /// Half of the writes, each whole or not at all.
    Writes {
        /// Seed of the choice.
        seed: u64,
    },
    /// Half of the sectors: writes are torn.
    Sectors {
        /// Seed of the choice.
        seed: u64,
    },
}

impl Survivors {
    /// Whether a sector of a step survives; sectors count from the start of the device.
    pub fn has(self, step: usize, sector: u64) -> bool {
        match self {
            Survivors::None => false,
            Survivors::All => true,
            Survivors::Writes { seed } => coin(seed, step as u64, 0),
            Survivors::Sectors { seed } => coin(seed, step as u64, sector),
        }
    }
}

/// A coin that depends on the numbers alone (the finaliser of SplitMix64 after each).
fn coin(seed: u64, step: u64, sector: u64) -> bool {
    let mixed = [step, sector].iter().fold(mix(seed), |state, &number| mix(state ^ number));
    mixed & 1 == 1
}

fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let number = (number ^ number >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ number >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ number >> 31
}

/// The operations on a [`RecordingDevice`], and its content before.
#[derive(Clone, Debug)]
pub struct Recording {
    base: Vec<u8>,
    steps: Vec<Step>,
}

impl Recording {
    /// Every step, in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The cuts before and after each flush, and at the end: the ones that differ most.
    pub fn flush_boundaries(&self) -> Vec<usize> {
        let flushes = (0..self.steps.len()).filter(|&step| self.steps[step] == Step::Flush);
        let mut cuts: Vec<usize> = flushes.flat_map(|step| [step, step + 1]).collect();
        cuts.push(self.steps.len());
        cuts.dedup();
        cuts
    }

    /// Makes images of cuts, fastest in ascending order.
    pub fn replay(&self) -> Replay<'_> {
        Replay { recording: self, durable: self.base.clone(), done: 0 }
    }
}

/// Makes the images that cuts of a [`Recording`] leave.
pub struct Replay<'a> {
    recording: &'a Recording,
    /// The base after the first `done` steps, which are none or end with a flush.
    durable: Vec<u8>,
    done: usize,
}

impl Replay<'_> {
    /// The content after a power cut behind the first `cut` steps, with `survivors` of the writes
    /// in flight. Later cuts than the last step are cuts at the end.
    pub fn image(&mut self, cut: usize, survivors: Survivors) -> Vec<u8> {
        self.image_where(cut, |step, sector| survivors.has(step, sector))
    }

    /// As [`image`](Self::image) with a choice of the caller's: `survives` gets the index in
    /// [`Recording::steps`] of each step in flight and each of its sectors, counted from the start
    /// of the device.
    pub fn image_where(&mut self, cut: usize, mut survives: impl FnMut(usize, u64) -> bool) -> Vec<u8> {
        let cut = cut.min(self.recording.steps.len());
        self.seek(cut);
        let mut image = self.durable.clone();
        for step in self.done..cut {
            apply(&mut image, &self.recording.steps[step], |sector| survives(step, sector));
        }
        image
    }

    /// Number of writes in flight at `cut`; with n of them there are 2^n outcomes of whole writes.
    pub fn in_flight(&mut self, cut: usize) -> usize {
        let cut = cut.min(self.recording.steps.len());
        self.seek(cut);
        cut - self.done
    }

    /// Applies the steps that the last flush before `cut` made durable.
    fn seek(&mut self, cut: usize) {
        let steps = &self.recording.steps;
        let durable = steps[..cut].iter().rposition(|step| *step == Step::Flush).map_or(0, |flush| flush + 1);
        if durable < self.done {
            self.durable.clone_from(&self.recording.base);
            self.done = 0;
        }
        for step in &steps[self.done..durable] {
            apply(&mut self.durable, step, |_| true);
        }
        self.done = durable;
    }
}

/// Writes the sectors of a step that survive.
fn apply(image: &mut [u8], step: &Step, mut survives: impl FnMut(u64) -> bool) {
    let Step::Write { offset, data } = step else { return };
    let (mut at, mut rest) = (*offset, data.as_slice());
    while !rest.is_empty() {
        let left = SECTOR - at % SECTOR;
        // At most a sector.
        let (part, behind) = rest.split_at(rest.len().min(left as usize));
        if survives(at / SECTOR) {
            image[at as usize..][..part.len()].copy_from_slice(part);
        }
        (at, rest) = (at + part.len() as u64, behind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sectors of ones, flushed; then three of twos over the second and on; then a three in the
    /// last.
    fn recorded() -> Recording {
        let device = RecordingDevice::new(vec![0; 2048]);
        device.write_at(0, &[1; 1024]).unwrap();
        device.flush().unwrap();
        device.write_at(512, &[2; 1536]).unwrap();
        device.write_at(1600, &[3; 100]).unwrap();
        assert_eq!(device.position(), 4);
        device.recording()
    }

    fn sectors(image: &[u8]) -> Vec<u8> {
        image.chunks(512).map(|sector| sector[70]).collect()
    }

    #[test]
    fn what_was_flushed_survives_every_cut_behind_the_flush_and_nothing_else_must() {
        let recording = recorded();
        let mut replay = recording.replay();
        assert_eq!(sectors(&replay.image(1, Survivors::None)), [0, 0, 0, 0]);
        for cut in 2..=4 {
            assert_eq!(sectors(&replay.image(cut, Survivors::None)), [1, 1, 0, 0]);
        }
        // Backwards, too.
        assert_eq!(sectors(&replay.image(1, Survivors::All)), [1, 1, 0, 0]);
        assert_eq!(sectors(&replay.image(0, Survivors::All)), [0, 0, 0, 0]);
    }

    #[test]
    fn everything_survives_where_only_the_program_stops() {
        let recording = recorded();
        let image = recording.replay().image(usize::MAX, Survivors::All);
        assert_eq!(sectors(&image), [1, 2, 2, 3]);
        assert_eq!(image[1599..1601], [2, 3]);
    }

    #[test]
    fn a_later_write_may_arrive_without_an_earlier_one_to_the_same_sector() {
        let recording = recorded();
        let image = recording.replay().image_where(4, |step, _| step == 3);
        assert_eq!(sectors(&image), [1, 1, 0, 3]);
        assert_eq!(image[1700..1702], [0, 0]);
    }

    #[test]
    fn a_write_is_torn_between_its_sectors_and_never_within_one() {
        let recording = recorded();
        let mut replay = recording.replay();
        assert_eq!(sectors(&replay.image_where(3, |_, sector| sector == 2)), [1, 1, 2, 0]);
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..100 {
            let image = replay.image(3, Survivors::Sectors { seed });
            assert!(image.chunks(512).all(|sector| sector.iter().all(|byte| *byte == sector[0])));
            seen.insert(sectors(&image));
        }
        assert_eq!(seen.len(), 8, "each of three sectors may be there or not");
    }

    #[test]
    fn whole_writes_survive_in_every_combination_and_the_same_seed_chooses_the_same() {
        let recording = recorded();
        let mut replay = recording.replay();
        assert_eq!(replay.in_flight(4), 2);
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..100 {
            let image = replay.image(4, Survivors::Writes { seed });
            assert_eq!(image, replay.image(4, Survivors::Writes { seed }));
            seen.insert(sectors(&image));
        }
        assert_eq!(
            seen.into_iter().collect::<Vec<_>>(),
            [[1, 1, 0, 0], [1, 1, 0, 3], [1, 2, 2, 2], [1, 2, 2, 3]]
        );
    }

    #[test]
    fn holes_are_filled_with_zeros_and_what_is_there_stays() {
        let base = [vec![0; 2 * HOLE], vec![7; HOLE], vec![0; HOLE]].concat();
        let device = RecordingDevice::new(base.clone());
        device.fill_holes(0, base.len() as u64).unwrap();
        let zeros = |offset: usize, len| Step::Write { offset: offset as u64, data: vec![0; len] };
        assert_eq!(device.recording().steps(), [zeros(0, 2 * HOLE), zeros(3 * HOLE, HOLE)]);
        assert_eq!(device.to_vec(), base);
        assert!(device.fill_holes(1, base.len() as u64).is_err());
    }

    #[test]
    fn boundaries_lie_on_both_sides_of_each_flush() {
        assert_eq!(recorded().flush_boundaries(), [1, 2, 4]);
    }

    #[test]
    fn a_write_past_the_end_is_refused_and_not_noted() {
        let device = RecordingDevice::new(vec![0; 512]);
        assert!(device.write_at(500, &[1; 13]).is_err());
        assert_eq!(device.position(), 0);
    }
}
