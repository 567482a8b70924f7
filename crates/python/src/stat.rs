//! Attributes as `os.stat_result`.

use dentree_vfs::{Attr, Timestamp};
use pyo3::exceptions::PyOverflowError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

const NANOS: i128 = 1_000_000_000;

/// The class, which is looked up once for many.
pub(crate) struct Stat<'py>(Bound<'py, PyAny>);

impl<'py> Stat<'py> {
    pub(crate) fn new(py: Python<'py>) -> PyResult<Self> {
        Ok(Stat(py.import("os")?.getattr("stat_result")?))
    }

    pub(crate) fn of(&self, attr: &Attr) -> PyResult<Bound<'py, PyAny>> {
        let py = self.0.py();
        let more = PyDict::new(py);
        for (name, nanos_name, time) in [
            (intern!(py, "st_atime"), intern!(py, "st_atime_ns"), attr.atime),
            (intern!(py, "st_mtime"), intern!(py, "st_mtime_ns"), attr.mtime),
            (intern!(py, "st_ctime"), intern!(py, "st_ctime_ns"), attr.ctime),
        ] {
            let nanos = nanos(time);
            more.set_item(name, nanos as f64 / NANOS as f64)?;
            // Python makes an integer of 64 bits at once.
            match i64::try_from(nanos) {
                Ok(nanos) => more.set_item(nanos_name, nanos)?,
                Err(_) => more.set_item(nanos_name, nanos)?,
            }
        }
        more.set_item(intern!(py, "st_blksize"), attr.block_size)?;
        more.set_item(intern!(py, "st_blocks"), attr.blocks)?;
        more.set_item(intern!(py, "st_rdev"), makedev(attr.rdev_major, attr.rdev_minor))?;
        let (mode, times) = (attr.mode(), [attr.atime, attr.mtime, attr.ctime].map(|time| time.seconds));
        let [atime, mtime, ctime] = times;
        let Attr { ino, nlink, uid, gid, size, .. } = *attr;
        self.0.call1(((mode, ino.0, 0, nlink, uid, gid, size, atime, mtime, ctime), more))
    }
}

/// A device number as Linux has it in `st_rdev`.
fn makedev(major: u32, minor: u32) -> u64 {
    rustix::fs::makedev(major, minor)
}

pub(crate) fn nanos(time: Timestamp) -> i128 {
    i128::from(time.seconds) * NANOS + i128::from(time.nanos)
}

pub(crate) fn timestamp(nanos: i128) -> PyResult<Timestamp> {
    let seconds = i64::try_from(nanos.div_euclid(NANOS));
    let seconds = seconds.map_err(|_| PyOverflowError::new_err("the time is out of range"))?;
    Ok(Timestamp { seconds, nanos: nanos.rem_euclid(NANOS) as u32 })
}
