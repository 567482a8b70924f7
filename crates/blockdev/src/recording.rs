//! Records writes and flushes in memory, to simulate power cuts.
//!
//! After a power cut everything before the last flush is durable. Each 512-byte sector written
//! since is old or new, independently: disk caches write in any order. A sector with several such
//! writes holds any of them or the old content. Sectors are atomic.
//!
//! A test runs once on a [`RecordingDevice`] and inspects any number of cuts of the [`Recording`].
//! A cut is a number of steps and a choice of [surviving writes](Survivors).

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{BlockDevice, MemoryDevice, check_range};

/// A zero unit may be a hole.
const HOLE: usize = 4096;

/// Atomic unit of a disk, in bytes.
pub const SECTOR: u64 = 512;

/// A recorded operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// A write.
    Write {
        /// Offset in bytes.
        offset: u64,
        /// Content.
        data: Vec<u8>,
    },
    /// Makes earlier writes durable.
    Flush,
}

/// Records writes with their bytes, and flushes. Each part of a vectored write is a step.
///
/// If a write returns before a flush starts, its step comes first.
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
    /// Held while `now` changes: steps are in order of effect.
    steps: Mutex<Vec<Step>>,
}

impl RecordingDevice {
    /// Starts with `base`, durable.
    pub fn new(base: Vec<u8>) -> Self {
        RecordingDevice { now: MemoryDevice::from(base.clone()), base, steps: Mutex::default() }
    }

    /// Steps so far. Acknowledged changes must survive later cuts.
    pub fn position(&self) -> usize {
        self.steps().len()
    }

    /// Copies the content.
    pub fn to_vec(&self) -> Vec<u8> {
        self.now.to_vec()
    }

    /// All steps so far.
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

    /// Overwrites the bytes, so that a cut reveals their use.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        check_range(offset, len, self.size())?;
        self.write_at(offset, &vec![0xDD; len as usize])
    }

    /// Writes zeros, as a sparse file would.
    fn fill_holes(&self, offset: u64, len: u64) -> io::Result<()> {
        check_range(offset, len, self.size())?;
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

/// Surviving writes in flight, chosen by a seed to be reproducible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Survivors {
    /// None.
    None,
    /// All: the program stopped, the power stayed on.
    All,
    /// Half of the writes, each whole.
    Writes {
        /// Seed.
        seed: u64,
    },
    /// Half of the sectors: torn writes.
    Sectors {
        /// Seed.
        seed: u64,
    },
}

impl Survivors {
    /// Whether a sector of a step survives; sectors are absolute.
    pub fn has(self, step: usize, sector: u64) -> bool {
        match self {
            Survivors::None => false,
            Survivors::All => true,
            Survivors::Writes { seed } => coin(seed, step as u64, 0),
            Survivors::Sectors { seed } => coin(seed, step as u64, sector),
        }
    }
}

/// Hashes the numbers with SplitMix64's finalizer.
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

/// Steps of a [`RecordingDevice`], and the content before.
#[derive(Clone, Debug)]
pub struct Recording {
    base: Vec<u8>,
    steps: Vec<Step>,
}

impl Recording {
    /// Steps in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Cuts around each flush and at the end.
    pub fn flush_boundaries(&self) -> Vec<usize> {
        let flushes = (0..self.steps.len()).filter(|&step| self.steps[step] == Step::Flush);
        let mut cuts: Vec<usize> = flushes.flat_map(|step| [step, step + 1]).collect();
        cuts.push(self.steps.len());
        cuts.dedup();
        cuts
    }

    /// Generates images, fastest in ascending order.
    pub fn replay(&self) -> Replay<'_> {
        Replay { recording: self, durable: self.base.clone(), done: 0 }
    }
}

/// Images after cuts of a [`Recording`].
pub struct Replay<'a> {
    recording: &'a Recording,
    /// Base after `done` steps, the last of them a flush.
    durable: Vec<u8>,
    done: usize,
}

impl Replay<'_> {
    /// Content after a cut behind `cut` steps; larger numbers mean the end.
    pub fn image(&mut self, cut: usize, survivors: Survivors) -> Vec<u8> {
        self.image_where(cut, |step, sector| survivors.has(step, sector))
    }

    /// As [`image`](Self::image); `survives` gets the index in [`Recording::steps`] and the
    /// absolute sector.
    pub fn image_where(&mut self, cut: usize, mut survives: impl FnMut(usize, u64) -> bool) -> Vec<u8> {
        let cut = cut.min(self.recording.steps.len());
        self.seek(cut);
        let mut image = self.durable.clone();
        for step in self.done..cut {
            apply(&mut image, &self.recording.steps[step], |sector| survives(step, sector));
        }
        image
    }

    /// Writes in flight at `cut`: n of them have 2^n outcomes of whole writes.
    pub fn in_flight(&mut self, cut: usize) -> usize {
        let cut = cut.min(self.recording.steps.len());
        self.seek(cut);
        cut - self.done
    }

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

    /// Two sectors of 1, flushed; three of 2 from the second; the last becomes 3.
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
        // Backwards.
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
