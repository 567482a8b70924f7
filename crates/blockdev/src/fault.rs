//! A device that fails when it is told to.

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use crate::BlockDevice;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An error of this kind; nothing is moved.
    Error(ErrorKind),
    /// A write moves so many bytes and then fails. Anything else fails at once.
    Short(usize),
    /// A flush is acknowledged and not done. Anything else is done as it should be.
    LostFlush,
}

/// A device in front of another, one or all of whose later operations go wrong. Reads, writes and flushes are counted as
/// steps, in the order in which they come.
///
/// ```
/// use std::io::ErrorKind;
/// use std::sync::Arc;
/// use dentree_blockdev::{BlockDevice, Fault, FaultyDevice, MemoryDevice};
///
/// let device = FaultyDevice::new(Arc::new(MemoryDevice::new(4096)));
/// device.fail_at(1, Fault::Error(ErrorKind::StorageFull));
/// device.write_at(0, &[1])?;
/// assert_eq!(device.write_at(1, &[1]).unwrap_err().kind(), ErrorKind::StorageFull);
/// device.write_at(1, &[1])?;
/// assert_eq!(device.steps(), 3);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct FaultyDevice {
    inner: Arc<dyn BlockDevice>,
    steps: AtomicU64,
    plan: Mutex<Option<Plan>>,
}

#[derive(Clone, Copy)]
struct Plan {
    first: u64,
    last: u64,
    fault: Fault,
}

impl FaultyDevice {
    /// A device that does as `inner` does, until it is told otherwise.
    pub fn new(inner: Arc<dyn BlockDevice>) -> Self {
        FaultyDevice { inner, steps: AtomicU64::new(0), plan: Mutex::new(None) }
    }

    /// Lets the step of this number go wrong, and no other.
    pub fn fail_at(&self, step: u64, fault: Fault) {
        self.plan(Plan { first: step, last: step, fault });
    }

    /// Lets this step and all behind it go wrong.
    pub fn fail_from(&self, step: u64, fault: Fault) {
        self.plan(Plan { first: step, last: u64::MAX, fault });
    }

    fn plan(&self, plan: Plan) {
        *self.plan.lock().unwrap_or_else(PoisonError::into_inner) = Some(plan);
    }

    /// Operations so far.
    pub fn steps(&self) -> u64 {
        self.steps.load(Relaxed)
    }

    fn step(&self) -> Option<Fault> {
        let step = self.steps.fetch_add(1, Relaxed);
        let plan = *self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        plan.filter(|plan| (plan.first..=plan.last).contains(&step)).map(|plan| plan.fault)
    }
}

fn failure(kind: ErrorKind) -> io::Error {
    io::Error::new(kind, "this device was told to fail")
}

impl BlockDevice for FaultyDevice {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        match self.step() {
            None | Some(Fault::LostFlush) => self.inner.read_at(offset, buf),
            Some(Fault::Error(kind)) => Err(failure(kind)),
            Some(Fault::Short(_)) => Err(failure(ErrorKind::UnexpectedEof)),
        }
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        match self.step() {
            None | Some(Fault::LostFlush) => self.inner.write_at(offset, buf),
            Some(Fault::Error(kind)) => Err(failure(kind)),
            Some(Fault::Short(moved)) => {
                self.inner.write_at(offset, &buf[..moved.min(buf.len())])?;
                Err(failure(ErrorKind::WriteZero))
            }
        }
    }

    fn flush(&self) -> io::Result<()> {
        match self.step() {
            None => self.inner.flush(),
            Some(Fault::LostFlush) => Ok(()),
            Some(Fault::Error(kind)) => Err(failure(kind)),
            Some(Fault::Short(_)) => Err(failure(ErrorKind::Other)),
        }
    }
}
