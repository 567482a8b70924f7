//! Attributes as `os.stat_result`.

use dentree_vfs::{Attr, Timestamp};
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;

const NANOS: i128 = 1_000_000_000;

/// The fields of a result that are not the first ten, which are what they are in a tuple.
const NAMES: [&str; 9] = [
    "st_atime",
    "st_mtime",
    "st_ctime",
    "st_atime_ns",
    "st_mtime_ns",
    "st_ctime_ns",
    "st_blksize",
    "st_blocks",
    "st_rdev",
];

/// The class, how many fields it has, and the places of [`NAMES`].
struct Layout {
    class: Py<PyAny>,
    fields: usize,
    places: [usize; 9],
}

static LAYOUT: PyOnceLock<Layout> = PyOnceLock::new();

impl Layout {
    fn find(py: Python<'_>) -> PyResult<Self> {
        let class = py.import("os")?.getattr("stat_result")?;
        let fields: usize = class.getattr("n_fields")?.extract()?;
        // A result whose values are their own places.
        let probe = class.call1((PyTuple::new(py, 0..fields)?,))?;
        let mut places = [0; 9];
        for (place, name) in places.iter_mut().zip(NAMES) {
            *place = probe.getattr(name)?.extract()?;
        }
        Ok(Layout { class: class.unbind(), fields, places })
    }
}

/// Makes results of one tuple each, in a fifth of the time of ten fields and a dictionary.
pub(crate) struct Stat<'py> {
    py: Python<'py>,
    layout: &'static Layout,
}

impl<'py> Stat<'py> {
    pub(crate) fn new(py: Python<'py>) -> PyResult<Self> {
        Ok(Stat { py, layout: LAYOUT.get_or_try_init(py, || Layout::find(py))? })
    }

    pub(crate) fn of(&self, attr: &Attr) -> PyResult<Bound<'py, PyAny>> {
        let (py, Layout { class, fields, places }) = (self.py, self.layout);
        let mut values: Vec<Bound<'py, PyAny>> = Vec::with_capacity(*fields);
        let Attr { ino, nlink, uid, gid, size, .. } = *attr;
        for value in [attr.mode().into(), ino.0, 0, nlink.into(), uid.into(), gid.into(), size] {
            values.push(value.into_pyobject(py)?.into_any());
        }
        let times = [attr.atime, attr.mtime, attr.ctime];
        for time in times {
            values.push(time.seconds.into_pyobject(py)?.into_any());
        }
        values.resize(*fields, py.None().into_bound(py));
        for (number, time) in times.into_iter().enumerate() {
            let nanos = nanos(time);
            values[places[number]] = (nanos as f64 / NANOS as f64).into_pyobject(py)?.into_any();
            values[places[number + 3]] = integer(py, nanos)?;
        }
        values[places[6]] = attr.block_size.into_pyobject(py)?.into_any();
        values[places[7]] = attr.blocks.into_pyobject(py)?.into_any();
        values[places[8]] = makedev(attr.rdev_major, attr.rdev_minor).into_pyobject(py)?.into_any();
        class.bind(py).call1((PyTuple::new(py, values)?,))
    }
}

/// Python makes an integer of 64 bits at once.
fn integer(py: Python<'_>, value: i128) -> PyResult<Bound<'_, PyAny>> {
    Ok(match i64::try_from(value) {
        Ok(value) => value.into_pyobject(py)?.into_any(),
        Err(_) => value.into_pyobject(py)?.into_any(),
    })
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
