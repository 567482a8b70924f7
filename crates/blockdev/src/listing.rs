//! Partitions in tables.

use std::fmt;

use crate::Format;

/// A partition in its table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// As in `sda1`; logical partitions start at 5.
    pub number: u32,
    /// Start in bytes.
    pub start: u64,
    /// Length in bytes; may exceed the device.
    pub len: u64,
    /// `0x83` in an MBR, the type GUID in a GPT.
    pub kind: String,
    /// GPT label or empty.
    pub name: String,
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Partition { number, start, len, kind, name } = self;
        write!(f, "partition {number}: {len} bytes at offset {start}, type {kind}")?;
        if !name.is_empty() {
            write!(f, ", {name:?}")?;
        }
        Ok(())
    }
}

/// Partitions in an error message, one per line, with recognized formats.
#[derive(Debug)]
pub struct Listing(pub Vec<(Partition, Option<Format>)>);

impl fmt::Display for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("\n  no partition");
        }
        self.0.iter().try_for_each(|(partition, format)| {
            write!(f, "\n  {partition}")?;
            format.map_or(Ok(()), |format| write!(f, ", {}", format.name))
        })
    }
}
