//! From a fuzz input to a damaged image.
//!
//! An input is not an image but a list of changes to one of the small images of `crates/ext4/tests/images`: a few
//! bytes reach any field of any structure, and a corpus takes kilobytes. Most of those images have no metadata
//! checksums, so that changes get past the first look.
//!
//! ```text
//! image number (1 byte), then changes:
//!   block (2 bytes, modulo the blocks that are not all zero; from 0x8000 up, of all blocks)
//!   offset in the block (2 bytes, modulo 1024)
//!   0x00..=0x7f: that many bytes modulo 16, plus one, follow and overwrite what is there
//!   0x80..=0xbf: the block numbered in the next 2 bytes is copied here
//!   0xc0..=0xdf: the block is zeroed
//!   0xe0..=0xff: the image ends here
//! ```

#[path = "../../crates/ext4/tests/damage/mod.rs"]
pub mod damage;

use damage::images::{self, Image};
use dentree_blockdev::MemoryDevice;
use dentree_ext4::{Ext4, Node, Options};
use dentree_vfs::{FileSystem, Ino, ReaddirStart};
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::{Arc, LazyLock};

/// Changes go by blocks of this size, the least that ext4 has.
const BLOCK: usize = 1024;
/// Inodes visited in one image.
const INODES_MAX: usize = 400;
/// Entries read of one directory.
const ENTRIES_MAX: usize = 400;

/// An image and the blocks of it that are not all zero.
struct Base {
    image: Image,
    used: Vec<usize>,
}

static BASES: LazyLock<Vec<Base>> = LazyLock::new(|| {
    let used = |image: &Image| {
        let blocks = image.bytes.chunks(BLOCK).enumerate();
        blocks.filter(|(_, block)| block.iter().any(|&byte| byte != 0)).map(|(number, _)| number).collect()
    };
    images::all().into_iter().map(|image| Base { used: used(&image), image }).collect()
});

/// Takes bytes off the front of an input.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> Option<u8> {
        self.0.split_off_first().copied()
    }

    fn number(&mut self) -> Option<usize> {
        Some(usize::from(u16::from_le_bytes([self.byte()?, self.byte()?])))
    }

    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        self.0.split_off(..len.min(self.0.len())).filter(|bytes| !bytes.is_empty())
    }
}

impl Base {
    fn block(&self, number: usize) -> usize {
        if number < 0x8000 {
            self.used[number % self.used.len()]
        } else {
            number % (self.image.bytes.len() / BLOCK)
        }
    }

    /// The image with the changes that `input` asks for.
    fn changed(&self, mut input: Input<'_>) -> Vec<u8> {
        let mut bytes = self.image.bytes.clone();
        while let Some(at) = self.change(&mut bytes, &mut input) {
            bytes.truncate(at);
        }
        bytes
    }

    /// Makes one change; answers where the image ends now, or `None` after the last change.
    fn change(&self, bytes: &mut [u8], input: &mut Input<'_>) -> Option<usize> {
        let block = self.block(input.number()?) * BLOCK;
        let at = block + input.number()? % BLOCK;
        match input.byte()? {
            len @ 0..=0x7f => {
                let new = input.bytes(usize::from(len % 16) + 1)?;
                if let Some(old) = bytes.get_mut(at..at + new.len()) {
                    old.copy_from_slice(new);
                }
            }
            0x80..=0xbf => {
                let source = self.block(input.number()?) * BLOCK;
                if block.max(source) + BLOCK <= bytes.len() {
                    bytes.copy_within(source..source + BLOCK, block);
                }
            }
            0xc0..=0xdf => bytes.get_mut(block..block + BLOCK).unwrap_or_default().fill(0),
            0xe0..=0xff => return Some(at),
        }
        Some(bytes.len())
    }
}

/// The image that an input stands for; `choose` picks it by the input's first byte.
pub fn device(data: &[u8], choose: impl Fn(&str) -> bool) -> Option<Arc<MemoryDevice>> {
    let mut input = Input(data);
    let number = usize::from(input.byte()?);
    let bases: Vec<_> = BASES.iter().filter(|base| choose(base.image.name)).collect();
    Some(Arc::new(MemoryDevice::from(bases[number % bases.len()].changed(input))))
}

/// Opens the image that an input stands for, with a small cache; `choose` picks it by the input's first byte.
pub fn open(data: &[u8], choose: impl Fn(&str) -> bool) -> Option<Ext4> {
    match Ext4::open(device(data, choose)?, Options::default()) {
        Ok(fs) => Some(fs),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            None
        }
    }
}

/// Calls `each` with every inode that the root leads to.
pub fn each_inode(fs: &Ext4, mut each: impl FnMut(&Node)) {
    let mut queue = vec![fs.root()];
    let mut seen: HashSet<Ino> = queue.iter().copied().collect();
    while let Some(ino) = queue.pop() {
        let Ok(node) = fs.load(ino) else { continue };
        each(&node);
        if !fs.attr(&node).is_dir() {
            continue;
        }
        let mut entries = 0;
        let _ = fs.readdir(&node, ReaddirStart::First, &mut |entry| {
            if seen.len() < INODES_MAX && seen.insert(entry.ino) {
                queue.push(entry.ino);
            }
            entries += 1;
            if entries < ENTRIES_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
    }
}
