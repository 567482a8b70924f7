//! Where copies have holes.

use crate::args::cp::Sparse;

/// Zeros are looked for in pieces of this size.
const GRAIN: usize = 4096;

/// Takes bytes at an offset.
pub(super) type Write<'w, E> = &'w mut dyn FnMut(u64, &[u8]) -> Result<(), E>;

/// Passes data on as `--sparse` says: as it is, without zeros, or with zeros in place of holes.
pub(super) struct Holes<'w, E> {
    when: Sparse,
    /// The end of what was passed on.
    end: u64,
    write: Write<'w, E>,
}

impl<'w, E> Holes<'w, E> {
    pub(super) fn new(when: Sparse, write: Write<'w, E>) -> Self {
        Holes { when, end: 0, write }
    }

    /// The next data; what lies between it and the last is a hole.
    pub(super) fn data(&mut self, offset: u64, bytes: &[u8]) -> Result<(), E> {
        match self.when {
            Sparse::Auto => (self.write)(offset, bytes)?,
            Sparse::Never => {
                self.zeros(offset)?;
                (self.write)(offset, bytes)?;
            }
            Sparse::Always => {
                let mut at = offset;
                for piece in bytes.chunks(GRAIN) {
                    if piece.iter().any(|byte| *byte != 0) {
                        (self.write)(at, piece)?;
                    }
                    at += piece.len() as u64;
                }
            }
        }
        self.end = offset + bytes.len() as u64;
        Ok(())
    }

    /// The end of the file.
    pub(super) fn finish(mut self, size: u64) -> Result<(), E> {
        if self.when == Sparse::Never { self.zeros(size) } else { Ok(()) }
    }

    fn zeros(&mut self, to: u64) -> Result<(), E> {
        static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
        while self.end < to {
            let len = usize::try_from(to - self.end).unwrap_or(ZEROS.len()).min(ZEROS.len());
            (self.write)(self.end, &ZEROS[..len])?;
            self.end += len as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn written(when: Sparse, size: u64) -> Vec<(u64, usize)> {
        let mut pieces = Vec::new();
        let mut write = |offset: u64, bytes: &[u8]| -> Result<(), Infallible> {
            pieces.push((offset, bytes.len()));
            Ok(())
        };
        let mut holes = Holes::new(when, &mut write);
        let Ok(()) = holes.data(8192, &[[1; GRAIN], [0; GRAIN], [2; GRAIN]].concat());
        let Ok(()) = holes.finish(size);
        pieces
    }

    #[test]
    fn holes_are_kept_made_or_filled() {
        assert_eq!(written(Sparse::Auto, 30_000), [(8192, 3 * GRAIN)]);
        assert_eq!(written(Sparse::Always, 30_000), [(8192, GRAIN), (16384, GRAIN)]);
        assert_eq!(written(Sparse::Never, 30_000), [(0, 8192), (8192, 3 * GRAIN), (20480, 9520)]);
    }
}
