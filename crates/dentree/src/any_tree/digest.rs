//! Digests of content and of extended attributes.

use blake3::Hasher;

/// Block size: blocks of zeros do not count, as holes do not.
pub(crate) const BLOCK: u64 = 4096;

/// Bytes per read, a multiple of [`BLOCK`].
const CHUNK: u64 = 1 << 20;

/// Digest of content, which comes as runs of data.
pub(crate) struct Content {
    hasher: Hasher,
    buf: Vec<u8>,
    /// Blocks before this offset are done.
    done: u64,
}

impl Content {
    pub(crate) fn new() -> Self {
        Content { hasher: Hasher::new(), buf: Vec::new(), done: 0 }
    }

    /// Adds the blocks that `start..end` touches. `read(offset, buf)` returns fewer bytes only at
    /// the end of the file. Runs ascend, and need not align to blocks.
    pub(crate) fn data<E>(
        &mut self,
        start: u64,
        end: u64,
        mut read: impl FnMut(u64, &mut [u8]) -> Result<usize, E>,
    ) -> Result<(), E> {
        let mut offset = (start - start % BLOCK).max(self.done);
        let end = end.checked_next_multiple_of(BLOCK).unwrap_or(u64::MAX);
        while offset < end {
            let want = CHUNK.min(end - offset) as usize;
            if self.buf.len() < want {
                self.buf.resize(want, 0);
            }
            let len = read(offset, &mut self.buf[..want])?;
            for (index, block) in self.buf[..len].chunks(BLOCK as usize).enumerate() {
                if block.iter().any(|&byte| byte != 0) {
                    self.hasher.update(&(offset + index as u64 * BLOCK).to_le_bytes());
                    self.hasher.update(block);
                }
            }
            offset += len as u64;
            self.done = offset;
            if len < want {
                break;
            }
        }
        Ok(())
    }

    pub(crate) fn finish(self) -> blake3::Hash {
        self.hasher.finalize()
    }
}

/// Digest of extended attributes.
pub(crate) fn xattrs(mut xattrs: Vec<(Vec<u8>, Vec<u8>)>) -> blake3::Hash {
    xattrs.sort_unstable();
    let mut hasher = Hasher::new();
    for part in xattrs.iter().flat_map(|(name, value)| [name, value]) {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(content: &[u8], runs: &[(u64, u64)]) -> blake3::Hash {
        let mut sum = Content::new();
        for &(start, end) in runs {
            sum.data(start, end, |offset, buf| {
                let rest = &content[(offset as usize).min(content.len())..];
                let len = rest.len().min(buf.len());
                buf[..len].copy_from_slice(&rest[..len]);
                Ok::<_, ()>(len)
            })
            .unwrap();
        }
        sum.finish()
    }

    #[test]
    fn allocation_does_not_matter() {
        let mut content = vec![0; 3 << 20];
        content[5000] = 1;
        content[2_000_000] = 2;
        content[3_145_700] = 3;
        let whole = digest(&content, &[(0, 3 << 20)]);
        assert_eq!(
            digest(&content, &[(5000, 5001), (5100, 9000), (1_999_872, 2_000_896), (3_145_000, 3 << 20)]),
            whole
        );
    }

    #[test]
    fn a_byte_elsewhere_is_another_digest() {
        let at = |offset: usize| {
            let mut content = vec![0; 100_000];
            content[offset] = 1;
            digest(&content, &[(0, 100_000)])
        };
        assert_ne!(at(1), at(4097));
    }

    #[test]
    fn the_order_in_which_attributes_are_listed_does_not_matter() {
        let a = (b"user.a".to_vec(), b"1".to_vec());
        let b = (b"user.b".to_vec(), b"2".to_vec());
        assert_eq!(xattrs(vec![a.clone(), b.clone()]), xattrs(vec![b, a]));
    }
}
