//! The content of a file: pages by number; missing ones are holes.

use crate::{Error, Extent, Result};
use std::collections::BTreeMap;

/// Bytes.
pub(super) const PAGE: usize = 4096;

type Page = Box<[u8; PAGE]>;

/// Bytes of a page after the length are zero.
#[derive(Default)]
pub(super) struct Pages {
    size: u64,
    pages: BTreeMap<u64, Page>,
}

/// Page number, offset within the page, length.
fn parts(offset: u64, end: u64) -> impl Iterator<Item = (u64, usize, usize)> {
    let mut at = offset;
    std::iter::from_fn(move || {
        let (number, from) = (at / PAGE as u64, (at % PAGE as u64) as usize);
        let len = ((PAGE - from) as u64).min(end.checked_sub(at).filter(|&left| left > 0)?) as usize;
        at += len as u64;
        Some((number, from, len))
    })
}

impl Pages {
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn stored(&self) -> u64 {
        self.pages.len() as u64
    }

    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) -> usize {
        let len = self.size.saturating_sub(offset).min(buf.len() as u64) as usize;
        let mut rest = &mut buf[..len];
        for (number, from, len) in parts(offset, offset + len as u64) {
            let (part, after) = std::mem::take(&mut rest).split_at_mut(len);
            match self.pages.get(&number) {
                Some(page) => part.copy_from_slice(&page[from..from + len]),
                None => part.fill(0),
            }
            rest = after;
        }
        len
    }

    /// Stops if `take`, called for each missing page, returns false. Returns the number of bytes.
    pub(super) fn write(
        &mut self,
        offset: u64,
        data: &[u8],
        mut take: impl FnMut() -> bool,
    ) -> Result<usize> {
        let mut done = 0;
        for (number, from, len) in parts(offset, offset + data.len() as u64) {
            if !self.store(number, &mut take) {
                break;
            }
            if let Some(page) = self.pages.get_mut(&number) {
                page[from..from + len].copy_from_slice(&data[done..done + len]);
            }
            done += len;
        }
        if done == 0 {
            return Err(Error::NoSpace);
        }
        self.size = self.size.max(offset + done as u64);
        Ok(done)
    }

    fn store(&mut self, number: u64, take: &mut impl FnMut() -> bool) -> bool {
        if self.pages.contains_key(&number) {
            return true;
        }
        let stored = take();
        if stored {
            self.pages.insert(number, Box::new([0; PAGE]));
        }
        stored
    }

    /// Missing pages.
    pub(super) fn missing(&self, offset: u64, end: u64) -> u64 {
        let (first, last) = (offset / PAGE as u64, end.div_ceil(PAGE as u64));
        (last - first) - self.pages.range(first..last).count() as u64
    }

    /// Fills holes.
    pub(super) fn reserve(&mut self, offset: u64, end: u64) {
        for number in offset / PAGE as u64..end.div_ceil(PAGE as u64) {
            self.store(number, &mut || true);
        }
    }

    /// Holes stay.
    pub(super) fn zero(&mut self, offset: u64, end: u64) {
        let (first, last) = (offset / PAGE as u64, end.div_ceil(PAGE as u64));
        for (&number, page) in self.pages.range_mut(first..last.max(first)) {
            let start = number * PAGE as u64;
            let from = offset.saturating_sub(start).min(PAGE as u64) as usize;
            let to = end.saturating_sub(start).min(PAGE as u64) as usize;
            page[from..to].fill(0);
        }
    }

    /// Frees whole pages. Returns their number.
    pub(super) fn punch(&mut self, offset: u64, end: u64) -> u64 {
        self.zero(offset, end);
        let (first, last) = (offset.div_ceil(PAGE as u64), end / PAGE as u64);
        let whole: Vec<u64> = self.pages.range(first..last.max(first)).map(|(&number, _)| number).collect();
        whole.iter().filter(|number| self.pages.remove(number).is_some()).count() as u64
    }

    /// Returns the number of pages freed.
    pub(super) fn resize(&mut self, size: u64) -> u64 {
        let before = self.stored();
        if size <= self.size {
            self.zero(size, size.checked_next_multiple_of(PAGE as u64).unwrap_or(u64::MAX));
            self.pages.split_off(&size.div_ceil(PAGE as u64));
        }
        self.size = size;
        before - self.stored()
    }

    pub(super) fn extent(&self, offset: u64) -> Result<Extent> {
        if offset >= self.size {
            return Err(Error::NoExtent);
        }
        let first = offset / PAGE as u64;
        let until = |number: u64| (number * PAGE as u64).min(self.size);
        let mut stored = self.pages.range(first..).map(|(&number, _)| number);
        Ok(match stored.next() {
            Some(number) if number == first => {
                let run = stored.zip(first + 1..).take_while(|(number, expected)| number == expected).count();
                Extent::Data(until(first + 1 + run as u64))
            }
            next => Extent::Hole(next.map_or(self.size, until)),
        })
    }
}
