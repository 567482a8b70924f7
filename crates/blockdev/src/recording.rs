//! A device in memory that notes what is done to it, so that the power can be cut at any moment afterwards.
//!
//! What a power cut leaves. All that was written before the last flush is there. Of the writes since, each 512-byte
//! sector by itself has arrived or not, in any order: the disk's cache may write one back long before another. Where
//! several such writes went to one sector, it holds any of them or what was there before. A sector is never half written.
//!
//! So a test runs its load once on a [`RecordingDevice`], takes the [`Recording`], and looks at as many cuts as it likes: a
//! cut is a number of steps, and a choice of [what survives](Survivors) of the writes in flight.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{BlockDevice, MemoryDevice, check_range};

/// What a file system takes space in, in bytes: of so many together that are zero one cannot tell whether they are a hole.
const HOLE: usize = 4096;

/// What a disk writes whole or not at all, in bytes.
pub const SECTOR: u64 = 512;

/// Something that was done to a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// These bytes were written.
    Write {
        /// Where, in bytes.
        offset: u64,
        /// What.
        data: Vec<u8>,
    },
    /// Everything written before has reached stable storage.
    Flush,
}

/// A device in memory that notes every write with its bytes, and every flush. Each part of a vectored write is a step of its own.
///
/// Steps are in one order that fits what each caller saw: a write that was answered before a flush began stands before it.
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
    /// Held while `now` is written, so that steps stand in the order in which they took effect.
    steps: Mutex<Vec<Step>>,
}

impl RecordingDevice {
    /// A device that holds `base`, all of it on stable storage.
    pub fn new(base: Vec<u8>) -> Self {
        RecordingDevice { now: MemoryDevice::from(base.clone()), base, steps: Mutex::default() }
    }

    /// How many steps there were so far. What was acknowledged before this call must survive every cut from here on.
    pub fn position(&self) -> usize {
        self.steps().len()
    }

    /// A copy of all bytes as they are now, without any cut.
    pub fn to_vec(&self) -> Vec<u8> {
        self.now.to_vec()
    }

    /// Everything up to now.
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

    /// What is given back is overwritten, so that a cut shows it where it was still wanted.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        check_range(offset, len, self.size())?;
        self.write_at(offset, &vec![0xDD; len as usize])
    }

    /// What may be a hole is one: zeros are written there, as into a sparse file.
    fn fill_holes(&self, offset: u64, len: u64) -> io::Result<()> {
        check_range(offset, len, self.size())?;
        // Within a device in memory.
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

/// Which sectors of the writes in flight have arrived when the power goes. Chosen by a number, so that a cut that showed
/// something can be named and repeated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Survivors {
    /// None.
    None,
    /// All: the program stopped, the power did not.
    All,
    /// Each write whole or not at all, half of them.
    Writes {
        /// Another choice for another number.
        seed: u64,
    },
    /// Each sector by itself, half of them: writes are torn.
    Sectors {
        /// Another choice for another number.
        seed: u64,
    },
}

impl Survivors {
    /// Whether a sector of a step has arrived; sectors are counted from the start of the device.
    pub fn has(self, step: usize, sector: u64) -> bool {
        match self {
            Survivors::None => false,
            Survivors::All => true,
            Survivors::Writes { seed } => coin(seed, step as u64, 0),
            Survivors::Sectors { seed } => coin(seed, step as u64, sector),
        }
    }
}

/// Heads or tails, always the same for the same numbers (the finaliser of SplitMix64, after each of them).
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

/// What was done to a [`RecordingDevice`], and what it held before.
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

    /// The cuts just before and just behind each flush, and at the end: where most changes from one to the next.
    pub fn flush_boundaries(&self) -> Vec<usize> {
        let flushes = (0..self.steps.len()).filter(|&step| self.steps[step] == Step::Flush);
        let mut cuts: Vec<usize> = flushes.flat_map(|step| [step, step + 1]).collect();
        cuts.push(self.steps.len());
        cuts.dedup();
        cuts
    }

    /// A view that makes the images of cuts; fastest with cuts in ascending order.
    pub fn replay(&self) -> Replay<'_> {
        Replay { recording: self, durable: self.base.clone(), done: 0 }
    }
}

/// Makes the images that cuts of a [`Recording`] leave.
pub struct Replay<'a> {
    recording: &'a Recording,
    /// The base with the first `done` steps, which end with a flush or are none.
    durable: Vec<u8>,
    done: usize,
}

impl Replay<'_> {
    /// What the device holds after the power went behind the first `cut` steps, with `survivors` of what was in flight. A cut behind the
    /// last step is one at the end.
    pub fn image(&mut self, cut: usize, survivors: Survivors) -> Vec<u8> {
        self.image_where(cut, |step, sector| survivors.has(step, sector))
    }

    /// As [`image`](Self::image), with a choice of the caller's own: `survives` is asked for every step in flight, by its index in
    /// [`Recording::steps`], and every sector that it touches, counted from the start of the device.
    pub fn image_where(&mut self, cut: usize, mut survives: impl FnMut(usize, u64) -> bool) -> Vec<u8> {
        let cut = cut.min(self.recording.steps.len());
        self.seek(cut);
        let mut image = self.durable.clone();
        for step in self.done..cut {
            apply(&mut image, &self.recording.steps[step], |sector| survives(step, sector));
        }
        image
    }

    /// How many writes are in flight at `cut`: there are two to the power of it whole-write outcomes.
    pub fn in_flight(&mut self, cut: usize) -> usize {
        let cut = cut.min(self.recording.steps.len());
        self.seek(cut);
        cut - self.done
    }

    /// Applies what the last flush before `cut` has made durable.
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

/// Writes those sectors of a step that survive.
fn apply(image: &mut [u8], step: &Step, mut survives: impl FnMut(u64) -> bool) {
    let Step::Write { offset, data } = step else { return };
    let (mut at, mut rest) = (*offset, data.as_slice());
    while !rest.is_empty() {
        let left = SECTOR - at % SECTOR;
        // At most a sector, so it fits.
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

    /// Two sectors of ones, flushed; then three of twos over the second and on; then a three in the last.
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
