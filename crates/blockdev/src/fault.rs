//! Fault injection.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{BlockDevice, host};

/// Kind of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Read. Each part of a vectored request counts; `Write` alike.
    Read,
    /// Write.
    Write,
    /// Flush.
    Flush,
}

/// Effect of a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// Returns `EIO`: a broken disk.
    Io,
    /// Returns `ENOSPC`: no space under a sparse file.
    NoSpace,
    /// Transfers the first half and returns `EIO`; for a flush as [`Io`](Failure::Io).
    Short,
    /// Does nothing and returns success: a lost write or an ignored flush. A read leaves the buffer
    /// as it was.
    Ignored,
}

/// Failing requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Counted requests.
    pub operation: Operation,
    /// Number of successes first.
    pub after: u64,
    /// Number of failures then; `u64::MAX` for all.
    pub times: u64,
    /// Effect.
    pub failure: Failure,
}

/// Passes requests on, except those that a fault matches.
///
/// Over a [`RecordingDevice`](crate::RecordingDevice), an ignored flush leaves writes in flight.
///
/// ```
/// use std::sync::Arc;
/// use dentree_blockdev::{BlockDevice, Failure, Fault, FaultDevice, MemoryDevice, Operation};
///
/// let device = FaultDevice::new(Arc::new(MemoryDevice::new(4096)));
/// device.inject(Fault { operation: Operation::Write, after: 1, times: 1, failure: Failure::NoSpace });
/// device.write_at(0, b"leaf")?;
/// assert_eq!(device.write_at(0, b"root").unwrap_err().kind(), std::io::ErrorKind::StorageFull);
/// device.write_at(0, b"stem")?;
/// assert_eq!(device.injected(), 1);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct FaultDevice {
    device: Arc<dyn BlockDevice>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    faults: Vec<Fault>,
    injected: u64,
}

impl FaultDevice {
    /// Without faults.
    pub fn new(device: Arc<dyn BlockDevice>) -> Self {
        FaultDevice { device, state: Mutex::default() }
    }

    /// Adds a fault with its own count. The oldest fault that applies wins.
    pub fn inject(&self, fault: Fault) {
        self.state().faults.push(fault);
    }

    /// Removes all faults.
    pub fn heal(&self) {
        self.state().faults.clear();
    }

    /// Failed requests so far: a test checks that its fault occurred.
    pub fn injected(&self) -> u64 {
        self.state().injected
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn strike(&self, operation: Operation) -> Option<Failure> {
        let mut state = self.state();
        let mut struck = None;
        for fault in state.faults.iter_mut().filter(|fault| fault.operation == operation) {
            if fault.after > 0 {
                fault.after -= 1;
            } else if fault.times > 0 && struck.is_none() {
                fault.times = if fault.times == u64::MAX { u64::MAX } else { fault.times - 1 };
                struck = Some(fault.failure);
            }
        }
        state.injected += u64::from(struck.is_some());
        struck
    }
}

fn io_error() -> io::Error {
    io::Error::from_raw_os_error(host::IO_ERROR)
}

/// `half` transfers the first half.
fn answer(failure: Failure, half: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    match failure {
        Failure::Io => Err(io_error()),
        Failure::NoSpace => Err(io::Error::from_raw_os_error(host::NO_SPACE)),
        Failure::Short => half().and(Err(io_error())),
        Failure::Ignored => Ok(()),
    }
}

impl BlockDevice for FaultDevice {
    fn size(&self) -> u64 {
        self.device.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        match self.strike(Operation::Read) {
            None => self.device.read_at(offset, buf),
            Some(failure) => {
                let half = buf.len() / 2;
                answer(failure, || self.device.read_at(offset, &mut buf[..half]))
            }
        }
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        match self.strike(Operation::Write) {
            None => self.device.write_at(offset, buf),
            Some(failure) => answer(failure, || self.device.write_at(offset, &buf[..buf.len() / 2])),
        }
    }

    fn flush(&self) -> io::Result<()> {
        match self.strike(Operation::Flush) {
            None => self.device.flush(),
            Some(failure) => answer(failure, || Ok(())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryDevice, RecordingDevice, Survivors};
    use std::sync::mpsc::channel;

    fn device() -> (FaultDevice, MemoryDevice) {
        let memory = MemoryDevice::new(1024);
        (FaultDevice::new(Arc::new(memory.clone())), memory)
    }

    fn fault(operation: Operation, after: u64, times: u64, failure: Failure) -> Fault {
        Fault { operation, after, times, failure }
    }

    #[test]
    fn only_the_requests_that_are_meant_fail() {
        let (device, memory) = device();
        device.inject(fault(Operation::Write, 2, 2, Failure::Io));
        let results: Vec<bool> = (0..6).map(|at| device.write_at(at, &[1]).is_ok()).collect();
        assert_eq!(results, [true, true, false, false, true, true]);
        assert_eq!(memory.to_vec()[..6], [1, 1, 0, 0, 1, 1]);
        assert!(device.read_at(0, &mut [0]).is_ok() && device.flush().is_ok());
        assert_eq!(device.injected(), 2);
    }

    #[test]
    fn errors_are_those_of_the_operating_system() {
        let (device, _) = device();
        device.inject(fault(Operation::Flush, 0, 1, Failure::NoSpace));
        device.inject(fault(Operation::Flush, 1, u64::MAX, Failure::Io));
        let errors: Vec<_> = (0..3).map(|_| device.flush().unwrap_err().raw_os_error()).collect();
        let (io, full) = (host::IO_ERROR, host::NO_SPACE);
        assert_eq!(errors, [full, io, io].map(Some));
        device.heal();
        assert!(device.flush().is_ok());
    }

    #[test]
    fn a_short_write_leaves_its_first_half_and_says_so() {
        let (device, memory) = device();
        device.inject(fault(Operation::Write, 0, 1, Failure::Short));
        assert!(device.write_at(0, &[7; 8]).is_err());
        assert_eq!(memory.to_vec()[..8], [7, 7, 7, 7, 0, 0, 0, 0]);
    }

    #[test]
    fn a_read_that_is_queued_fails_as_any_other() {
        let (device, _) = device();
        device.inject(fault(Operation::Read, 0, 1, Failure::Short));
        let (sender, receiver) = channel();
        Arc::new(device).submit(0, vec![0; 4], Box::new(move |read| sender.send(read.is_err()).unwrap()));
        assert_eq!(receiver.recv(), Ok(true));
    }

    #[test]
    fn an_ignored_flush_leaves_what_it_should_have_kept_in_flight() {
        let disk = Arc::new(RecordingDevice::new(vec![0; 512]));
        let device = FaultDevice::new(disk.clone());
        device.inject(fault(Operation::Flush, 0, u64::MAX, Failure::Ignored));
        device.write_at(0, &[1; 512]).unwrap();
        device.flush().unwrap();
        let recording = disk.recording();
        assert_eq!(recording.replay().image(usize::MAX, Survivors::None), [0; 512]);
    }
}
