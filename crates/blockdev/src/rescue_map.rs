//! Map files of GNU ddrescue, and a device that does not read what they call bad.
//!
//! A map file has comments (`#`), a line with the current position, and then a line for each part
//! of the device: position, size and status. Only status `+` means that the part was read.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::{BlockDevice, Done, check_range};

/// Most parts of a map.
const MOST_PARTS: usize = 1 << 22;

/// The parts of a device that could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RescueMap {
    /// In bytes, ascending and disjoint.
    bad: Vec<Range<u64>>,
}

/// Why a text is no map file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoRescueMap {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub because: &'static str,
}

impl fmt::Display for NoRescueMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} is no line of a ddrescue map file: {}", self.line, self.because)
    }
}

impl std::error::Error for NoRescueMap {}

impl RescueMap {
    /// Parses the text of a map file.
    ///
    /// # Errors
    /// The first line that is none of a map file.
    ///
    /// ```
    /// let map = dentree_blockdev::RescueMap::parse("0x0 + 1\n0x0 0x1000 +\n0x1000 0x200 -\n")?;
    /// assert_eq!(map.bad(), [0x1000..0x1200]);
    /// # Ok::<(), dentree_blockdev::NoRescueMap>(())
    /// ```
    pub fn parse(text: &str) -> Result<RescueMap, NoRescueMap> {
        let mut bad = Vec::<Range<u64>>::new();
        let mut has_position = false;
        let lines = (1..).zip(text.lines().map(str::trim));
        for (line, text) in lines.filter(|(_, text)| !text.is_empty() && !text.starts_with('#')) {
            let wrong = |because| NoRescueMap { line, because };
            let mut words = text.split_whitespace();
            let mut word = || words.next().ok_or(wrong("it is too short"));
            if !has_position {
                has_position = true;
                number(word()?).ok_or(wrong("it begins with no number"))?;
                continue;
            }
            let position = number(word()?).ok_or(wrong("it begins with no number"))?;
            let size = number(word()?).ok_or(wrong("its second word is no number"))?;
            let end = position.checked_add(size).ok_or(wrong("the part ends past 2^64"))?;
            match word()? {
                "+" => {}
                "?" | "*" | "/" | "-" if bad.len() < MOST_PARTS => bad.push(position..end),
                "?" | "*" | "/" | "-" => return Err(wrong("there are too many bad parts")),
                _ => return Err(wrong("its third word is no status (one of ? * / - +)")),
            }
        }
        Ok(RescueMap::of(bad))
    }

    /// A map with these bad parts.
    pub fn of(mut bad: Vec<Range<u64>>) -> RescueMap {
        bad.retain(|part| !part.is_empty());
        bad.sort_unstable_by_key(|part| part.start);
        let mut merged: Vec<Range<u64>> = Vec::new();
        for part in bad {
            match merged.last_mut() {
                Some(last) if part.start <= last.end => last.end = last.end.max(part.end),
                _ => merged.push(part),
            }
        }
        RescueMap { bad: merged }
    }

    /// The bad parts in bytes, ascending and disjoint.
    pub fn bad(&self) -> &[Range<u64>] {
        &self.bad
    }

    /// Whether a byte of the range is bad.
    fn touches(&self, range: &Range<u64>) -> bool {
        let at = self.bad.partition_point(|part| part.end <= range.start);
        self.bad.get(at).is_some_and(|part| part.start < range.end)
    }
}

/// A number as in C: decimal, or hexadecimal behind `0x`.
fn number(word: &str) -> Option<u64> {
    match word.strip_prefix("0x").or(word.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => word.parse().ok(),
    }
}

/// A device whose bad parts are not read: such a read fails at once. It cannot be written.
pub struct MappedDevice {
    device: Arc<dyn BlockDevice>,
    map: RescueMap,
}

impl MappedDevice {
    /// `device` without the bad parts of `map`.
    pub fn new(device: Arc<dyn BlockDevice>, map: RescueMap) -> Self {
        MappedDevice { device, map }
    }

    fn check(&self, offset: u64, len: u64) -> io::Result<()> {
        check_range(offset, len, self.size())?;
        if self.map.touches(&(offset..offset + len)) {
            return Err(io::Error::other("the map file calls this part of the device unreadable"));
        }
        Ok(())
    }
}

impl BlockDevice for MappedDevice {
    fn size(&self) -> u64 {
        self.device.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.check(offset, buf.len() as u64)?;
        self.device.read_at(offset, buf)
    }

    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn submit(self: Arc<Self>, offset: u64, buf: Vec<u8>, done: Done) {
        match self.check(offset, buf.len() as u64) {
            Ok(()) => Arc::clone(&self.device).submit(offset, buf, done),
            Err(error) => done(Err(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn all_parts_but_finished_ones_are_bad() {
        let text = "# Mapfile. Created by GNU ddrescue\n0x00100000     ?               1\n\
                    0x00000000  0x00100000  +\n0x00100000  0x00000200  -\n1049088 512 *\n\
                    0x00200000  0x200  ?\n0x00300000  0x200  /\n";
        let map = RescueMap::parse(text).unwrap();
        assert_eq!(map.bad(), [0x10_0000..0x10_0400, 0x20_0000..0x20_0200, 0x30_0000..0x30_0200]);
    }

    #[test]
    fn a_text_that_is_no_map_is_refused_with_its_line() {
        for (text, line) in [
            ("0 +\n0 1 +\nnonsense", 3),
            ("x", 1),
            ("0 +\n0 1", 2),
            ("0 +\n0 1 !", 2),
            ("0 +\n1 0xffffffffffffffff -", 2),
        ] {
            assert_eq!(RescueMap::parse(text).unwrap_err().line, line, "{text}");
        }
        assert_eq!(RescueMap::parse("").unwrap().bad(), []);
    }

    #[test]
    fn bad_parts_are_not_read() {
        let memory = Arc::new(MemoryDevice::from(vec![7; 4096]));
        let device = MappedDevice::new(memory, RescueMap::of(vec![1024..1536, 1536..2048]));
        let mut buf = [0; 512];
        for (offset, is_good) in [(512, true), (513, false), (1024, false), (2047, false), (2048, true)] {
            assert_eq!(device.read_at(offset, &mut buf).is_ok(), is_good, "{offset}");
        }
        assert!(device.write_at(0, &buf).is_err());
    }
}
