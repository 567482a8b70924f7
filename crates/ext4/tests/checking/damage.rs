//! Damage of one field of one structure, by name.

use crate::fields::{self, Field};
use dentree_blockdev::{Access, FileDevice};
use dentree_ext4::{BlockNumber, Ext4, GroupNumber, InodeNumber, Options, Part};
use dentree_ext4_format::htree::set_index_checksum;
use dentree_ext4_format::xattr::set_block_checksum;
use dentree_ext4_format::{
    ChecksumSeed, RoCompat, Superblock, crc16, crc32c, set_extent_checksum, set_leaf_checksum,
    write_orphan_tail,
};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;
use std::fs::File;
use std::ops::{ControlFlow, Range};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

const EXTENTS_FLAG: u32 = 0x8_0000;
const INDEX_FLAG: u32 = 0x1000;
const INLINE_FLAG: u32 = 0x1000_0000;
const I_BLOCK: usize = 40;

/// How the checksum of a structure is made right again.
#[derive(Clone, Copy)]
enum Seal {
    None,
    Superblock,
    Descriptor(u32),
    Inode(u32),
    Extents(u32),
    Leaf(u32),
    /// Of the root, or of a node.
    Index(u32, bool),
    Xattrs(u64),
    /// Of blocks or of inodes, of a group.
    Bitmap(bool, u32),
    Orphans(u32, u64),
    Mmp,
    Journal,
}

/// A structure whose fields can be damaged.
struct Target {
    what: String,
    /// The bytes that its checksum covers.
    whole: Range<u64>,
    /// The byte from which its fields count.
    at: u64,
    fields: Vec<Field>,
    seal: Seal,
}

/// All structures of an image, by kind.
pub struct Structures {
    sb: Superblock,
    file: File,
    kinds: BTreeMap<&'static str, Vec<Target>>,
}

/// What one damage changed; dropped, it is undone.
pub struct Damage<'a> {
    file: &'a File,
    before: Vec<(u64, Vec<u8>)>,
    pub what: String,
}

impl Drop for Damage<'_> {
    fn drop(&mut self) {
        for (at, bytes) in self.before.iter().rev() {
            self.file.write_all_at(bytes, *at).unwrap();
        }
    }
}

impl Structures {
    pub fn of(image: &Path) -> Structures {
        let device = Arc::new(FileDevice::open(image, Access::ReadOnly).unwrap());
        let fs = Ext4::open(device, Options::default()).unwrap();
        let file = File::options().read(true).write(true).open(image).unwrap();
        let sb = fs.superblock().clone();
        let mut all = Structures { sb, file, kinds: BTreeMap::new() };
        all.fixed();
        all.inodes(&fs);
        all.special(&fs);
        all
    }

    fn block(&self) -> u64 {
        u64::from(self.sb.block_size.bytes())
    }

    fn read(&self, range: &Range<u64>) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(range.end - range.start).unwrap()];
        self.file.read_exact_at(&mut bytes, range.start).unwrap();
        bytes
    }

    fn add(&mut self, kind: &'static str, what: String, whole: Range<u64>, fields: Vec<Field>, seal: Seal) {
        let at = whole.start;
        self.kinds.entry(kind).or_default().push(Target { what, whole, at, fields, seal });
    }

    fn desc_at(&self, group: u32) -> Range<u64> {
        let block = u64::from(self.sb.first_data_block).max(1024 / self.block()) + 1;
        let size = u64::from(self.sb.desc_size);
        let start = block * self.block() + u64::from(group) * size;
        start..start + size
    }

    /// Superblock, descriptors, bitmaps.
    fn fixed(&mut self) {
        self.add("superblock", String::new(), 1024..2048, fields::SUPERBLOCK.to_vec(), Seal::Superblock);
        for group in 0..self.sb.groups {
            let at = self.desc_at(group);
            let mut all = fields::DESCRIPTOR.to_vec();
            if self.sb.desc_size >= 64 {
                all.extend(fields::DESCRIPTOR_HIGH);
            }
            self.add("descriptor", format!("group {group}"), at.clone(), all, Seal::Descriptor(group));
            let desc = self.read(&at);
            let block = usize::try_from(self.block()).unwrap();
            for (kind, at) in [("block bitmap", 0), ("inode bitmap", 4)] {
                let number = u64::from(u32::from_le_bytes(desc[at..at + 4].try_into().unwrap()));
                let fields = vec![
                    ("word 0", 0, 4),
                    ("word 5", 20, 4),
                    ("word 25", 100, 4),
                    ("last word", block - 4, 4),
                ];
                let whole = number * self.block()..(number + 1) * self.block();
                self.add(kind, format!("group {group}"), whole, fields, Seal::Bitmap(at == 0, group));
            }
        }
    }

    fn inode_at(&self, ino: u32) -> Range<u64> {
        let (group, index) = ((ino - 1) / self.sb.inodes_per_group, (ino - 1) % self.sb.inodes_per_group);
        let desc = self.read(&self.desc_at(group));
        let table = u64::from(u32::from_le_bytes(desc[8..12].try_into().unwrap()));
        let size = u64::from(self.sb.inode_size);
        let start = table * self.block() + u64::from(index) * size;
        start..start + size
    }

    /// Inodes, and the blocks that they map.
    fn inodes(&mut self, fs: &Ext4) {
        let layout = fs.layout().unwrap();
        let mut used: Vec<u32> = Vec::new();
        for group in (0..layout.groups_count()).map(GroupNumber) {
            used.extend(layout.inodes_in_use(group).unwrap().into_iter().map(|ino| ino.0));
        }
        let free: Vec<u32> = (12..self.sb.inodes_count).filter(|ino| !used.contains(ino)).take(3).collect();
        for ino in used.into_iter().chain(free) {
            let at = self.inode_at(ino);
            let mut all = fields::INODE.to_vec();
            if self.sb.inode_size > 128 {
                all.extend(fields::INODE_EXTRA);
            }
            let kind = if ino < self.sb.first_ino { "reserved inode" } else { "inode" };
            self.add(kind, format!("inode {ino}"), at.clone(), all, Seal::Inode(ino));
            let bytes = self.read(&at);
            self.in_inode(ino, &at, &bytes);
            let is_used = bytes[0x1A..0x1C] != [0; 2];
            if is_used && (ino >= self.sb.first_ino || ino == 2) {
                self.mapped(fs, ino, &bytes);
            }
        }
    }

    /// What lies in an inode: the root of its tree, its attributes.
    fn in_inode(&mut self, ino: u32, at: &Range<u64>, bytes: &[u8]) {
        let flags = u32::from_le_bytes(bytes[0x20..0x24].try_into().unwrap());
        let what = format!("inode {ino}");
        let within = |fields: &[Field], from: usize| -> Vec<Field> {
            fields.iter().map(|&(name, at, len)| (name, at + from, len)).collect()
        };
        if flags & EXTENTS_FLAG != 0 {
            self.add(
                "extent root",
                what.clone(),
                at.clone(),
                node(&bytes[I_BLOCK..100], I_BLOCK),
                Seal::Inode(ino),
            );
        } else if flags & INLINE_FLAG != 0 {
            let fields = within(&[("parent, or content", 0, 4)], I_BLOCK);
            let entry = within(fields::DIR_ENTRY, I_BLOCK + 4);
            self.add("inline data", what.clone(), at.clone(), [fields, entry].concat(), Seal::Inode(ino));
        } else {
            let fields = within(fields::POINTERS, I_BLOCK);
            self.add("pointers in the inode", what.clone(), at.clone(), fields, Seal::Inode(ino));
        }
        let extra = bytes.get(128..130).map_or(0, |b| usize::from(u16::from_le_bytes([b[0], b[1]])));
        let list = 128 + extra;
        if bytes.get(list..list + 4) == Some(&0xEA02_0000_u32.to_le_bytes()) && bytes[list + 4] != 0 {
            let fields = within(fields::XATTR_ENTRY, list + 4);
            let fields = [vec![("h_magic", list, 4)], fields].concat();
            self.add("attributes in the inode", what, at.clone(), fields, Seal::Inode(ino));
        }
    }

    fn mapped(&mut self, fs: &Ext4, ino: u32, inode: &[u8]) {
        let mut parts = Vec::new();
        let mut each = |part| {
            parts.push(part);
            ControlFlow::Continue(())
        };
        fs.inode_blocks(InodeNumber(ino), &mut each, &mut |_| {}).unwrap();
        let (flags, size) = (u32::from_le_bytes(inode[0x20..0x24].try_into().unwrap()), self.block());
        let is_dir = inode[1] & 0xF0 == 0x40;
        for part in parts {
            let first = part.blocks().start;
            let whole = first * size..(first + 1) * size;
            let what = format!("inode {ino}, block {first}");
            match part {
                Part::Xattrs(block) => {
                    let entry = fields::XATTR_ENTRY.iter().map(|&(name, at, len)| (name, at + 32, len));
                    let fields = fields::XATTR_HEADER.iter().copied().chain(entry).collect();
                    self.add("attribute block", what, whole, fields, Seal::Xattrs(block.0));
                }
                Part::Tree(_) if flags & EXTENTS_FLAG != 0 => {
                    let fields = node(&self.read(&whole), 0);
                    self.add("extent node", what, whole, fields, Seal::Extents(ino));
                }
                Part::Tree(_) => {
                    self.add("pointer block", what, whole, fields::POINTERS.to_vec(), Seal::None);
                }
                Part::Content(extent) if is_dir => {
                    for n in 0..extent.len {
                        let block = BlockNumber(extent.start.0 + n);
                        let is_root = flags & INDEX_FLAG != 0 && extent.logical + n == 0;
                        self.directory_block(ino, block, is_root, flags & INDEX_FLAG != 0);
                    }
                }
                Part::Content(_) => {}
            }
        }
    }

    fn directory_block(
        &mut self,
        ino: u32,
        BlockNumber(block): BlockNumber,
        is_root: bool,
        is_indexed: bool,
    ) {
        let size = self.block();
        let (whole, what) = (block * size..(block + 1) * size, format!("inode {ino}, block {block}"));
        let bytes = self.read(&whole);
        if is_root {
            return self.add("index root", what, whole, fields::HTREE_ROOT.to_vec(), Seal::Index(ino, true));
        }
        let full = usize::from(u16::from_le_bytes([bytes[4], bytes[5]])) == bytes.len();
        if is_indexed && bytes[..4] == [0; 4] && full {
            return self.add("index node", what, whole, fields::HTREE_NODE.to_vec(), Seal::Index(ino, false));
        }
        let mut at = 0;
        for _ in 0..40 {
            let Some(head) = bytes.get(at..at + 8) else { break };
            let len = usize::from(u16::from_le_bytes([head[4], head[5]]));
            let entry = fields::DIR_ENTRY.iter().chain(&[("name", 8, 1), ("name's second byte", 9, 1)]);
            let fields = entry.map(|&(name, from, len)| (name, at + from, len)).collect();
            let what = format!("{what}, byte {at}");
            self.add("directory entry", what, whole.clone(), fields, Seal::Leaf(ino));
            if len < 8 {
                break;
            }
            at += len;
        }
        if self.sb.has_metadata_csum() {
            let from = bytes.len() - 12;
            let fields = fields::LEAF_TAIL.iter().map(|&(name, at, len)| (name, at + from, len)).collect();
            self.add("leaf tail", what, whole, fields, Seal::None);
        }
    }

    /// Journal, orphan file, quota files, multiple mount protection.
    fn special(&mut self, fs: &Ext4) {
        let size = self.block();
        let first = |ino: u32| {
            let mut block = None;
            let mut each = |part| {
                if let Part::Content(extent) = part {
                    block = block.or(Some(extent.start.0));
                }
                ControlFlow::Continue(())
            };
            fs.inode_blocks(InodeNumber(ino), &mut each, &mut |_| {}).ok()?;
            block
        };
        let journal = self.sb.journal_inum.0;
        if let Some(block) = Some(journal).filter(|ino| *ino != 0).and_then(first) {
            let whole = block * size..block * size + 1024;
            self.add("journal superblock", String::new(), whole, fields::JOURNAL.to_vec(), Seal::Journal);
        }
        let orphans = self.sb.orphan_file_inum;
        if let Some(block) = Some(orphans).filter(|ino| *ino != 0).and_then(first) {
            let (whole, from) = (block * size..(block + 1) * size, usize::try_from(size).unwrap() - 8);
            let seal = Seal::Orphans(orphans, block);
            self.add("orphan file", String::new(), whole.clone(), fields::ORPHANS.to_vec(), seal);
            let tail = fields::ORPHANS_TAIL.iter().map(|&(name, at, len)| (name, at + from, len));
            self.add("orphan file", "tail".to_owned(), whole, tail.collect(), Seal::None);
        }
        for ino in self.sb.quota_inums {
            if let Some(block) = Some(ino).filter(|ino| *ino != 0).and_then(first) {
                let whole = block * size..block * size + 2048;
                self.add("quota file", format!("inode {ino}"), whole, fields::QUOTA.to_vec(), Seal::None);
            }
        }
        if self.sb.mmp_block != 0 {
            let whole = self.sb.mmp_block * size..self.sb.mmp_block * size + 1024;
            self.add("mmp", String::new(), whole, fields::MMP.to_vec(), Seal::Mmp);
        }
    }

    /// Damages one field; in half of the cases the checksum is right again.
    pub fn damage(&self, seed: u64) -> Damage<'_> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let kind = rng.random_range(0..self.kinds.len());
        let (kind, targets) = self.kinds.iter().nth(kind).unwrap();
        let target = &targets[rng.random_range(0..targets.len())];
        let (field, at, len) = target.fields[rng.random_range(0..target.fields.len())];
        let mut bytes = self.read(&target.whole);
        let mut damage = Damage { file: &self.file, before: Vec::new(), what: String::new() };
        damage.before.push((target.whole.start, bytes.clone()));
        let from = usize::try_from(target.at - target.whole.start).unwrap() + at;
        let old = bytes[from..from + len].to_vec();
        change(&mut bytes[from..from + len], kind.starts_with("journal"), &mut rng);
        let new = bytes[from..from + len].to_vec();
        let sealed = rng.random_bool(0.5);
        if sealed {
            self.seal(target.seal, &mut bytes, &mut damage);
        }
        self.file.write_all_at(&bytes, target.whole.start).unwrap();
        let how = if sealed { "checksum made right" } else { "checksum left" };
        damage.what = format!("{kind} {}: {field} was {old:x?}, is {new:x?}, {how}", target.what);
        damage
    }

    fn seal(&self, seal: Seal, bytes: &mut [u8], damage: &mut Damage<'_>) {
        let sums = self.sb.has_metadata_csum();
        let inode_seed = |ino: u32| {
            let inode = self.read(&self.inode_at(ino));
            self.sb.checksum_seed.of_inode(ino, u32::from_le_bytes(inode[0x64..0x68].try_into().unwrap()))
        };
        match seal {
            Seal::Descriptor(group) => self.seal_descriptor(group, bytes),
            Seal::Bitmap(of_blocks, group) => self.seal_bitmap(of_blocks, group, bytes, damage),
            Seal::Journal => {
                if u32::from_be_bytes(bytes[0x28..0x2C].try_into().unwrap()) & 0x18 != 0 {
                    bytes[0xFC..0x100].fill(0);
                    let sum = crc32c(!0, bytes);
                    bytes[0xFC..0x100].copy_from_slice(&sum.to_be_bytes());
                }
            }
            _ if !sums => {}
            Seal::None => {}
            Seal::Superblock => {
                let sum = crc32c(!0, &bytes[..0x3FC]);
                bytes[0x3FC..0x400].copy_from_slice(&sum.to_le_bytes());
            }
            Seal::Inode(ino) => seal_inode(ino, bytes, self.sb.checksum_seed),
            Seal::Extents(ino) => set_extent_checksum(bytes, inode_seed(ino)),
            Seal::Leaf(ino) => set_leaf_checksum(bytes, inode_seed(ino)),
            Seal::Index(ino, is_root) => {
                // Without a place for it, where the limit is damaged.
                let _ = set_index_checksum(bytes, is_root, inode_seed(ino));
            }
            Seal::Xattrs(block) => set_block_checksum(bytes, BlockNumber(block), self.sb.checksum_seed),
            Seal::Orphans(ino, block) => write_orphan_tail(bytes, BlockNumber(block), Some(inode_seed(ino))),
            Seal::Mmp => {
                let sum = self.sb.checksum_seed.sum(&bytes[..0x3FC]);
                bytes[0x3FC..0x400].copy_from_slice(&sum.to_le_bytes());
            }
        }
    }

    fn seal_descriptor(&self, group: u32, bytes: &mut [u8]) {
        let number = group.to_le_bytes();
        let sum = if self.sb.has_metadata_csum() {
            let head = self.sb.checksum_seed.sum(&number);
            let sum =
                [&bytes[..0x1E], &[0, 0], &bytes[0x20..]].iter().fold(head, |sum, part| crc32c(sum, part));
            (sum & 0xFFFF) as u16
        } else if self.sb.ro_compat.has(RoCompat::GDT_CSUM) {
            let parts = [&self.sb.uuid[..], &number, &bytes[..0x1E], &bytes[0x20..]];
            parts.iter().fold(!0, |sum, part| crc16(sum, part))
        } else {
            return;
        };
        bytes[0x1E..0x20].copy_from_slice(&sum.to_le_bytes());
    }

    fn seal_bitmap(&self, of_blocks: bool, group: u32, bytes: &[u8], damage: &mut Damage<'_>) {
        let sum = if of_blocks { self.sb.block_bitmap_sum(bytes) } else { self.sb.inode_bitmap_sum(bytes) };
        let Some(sum) = sum else { return };
        let at = self.desc_at(group);
        let mut desc = self.read(&at);
        damage.before.push((at.start, desc.clone()));
        let low = if of_blocks { 0x18 } else { 0x1A };
        desc[low..low + 2].copy_from_slice(&sum.to_le_bytes()[..2]);
        if desc.len() >= 64 {
            desc[low + 0x20..low + 0x22].copy_from_slice(&sum.to_le_bytes()[2..]);
        }
        self.seal_descriptor(group, &mut desc);
        self.file.write_all_at(&desc, at.start).unwrap();
    }
}

/// The fields of a node of an extent tree that begins at byte `from`: its header, three entries.
fn node(bytes: &[u8], from: usize) -> Vec<Field> {
    let entry = if bytes[6] == 0 { fields::EXTENT } else { fields::EXTENT_INDEX };
    let count = usize::from(u16::from_le_bytes([bytes[2], bytes[3]]));
    let mut all: Vec<Field> =
        fields::EXTENT_HEADER.iter().map(|&(name, at, len)| (name, at + from, len)).collect();
    for n in [0, 1, count.saturating_sub(1)].into_iter().filter(|n| *n < count) {
        all.extend(entry.iter().map(|&(name, at, len)| (name, at + from + 12 + n * 12, len)));
    }
    all
}

fn seal_inode(ino: u32, bytes: &mut [u8], seed: ChecksumSeed) {
    let generation = u32::from_le_bytes(bytes[0x64..0x68].try_into().unwrap());
    let has_high = bytes.len() > 128 && u16::from_le_bytes([bytes[128], bytes[129]]) >= 4;
    bytes[0x7C..0x7E].fill(0);
    if has_high {
        bytes[0x82..0x84].fill(0);
    }
    let sum = seed.of_inode(ino, generation).sum(bytes).to_le_bytes();
    bytes[0x7C..0x7E].copy_from_slice(&sum[..2]);
    if has_high {
        bytes[0x82..0x84].copy_from_slice(&sum[2..]);
    }
}

/// Gives a field another value: 0, 1, the greatest, a neighbour, one bit, a small one, any.
fn change(field: &mut [u8], is_big_endian: bool, rng: &mut Xoshiro256PlusPlus) {
    let before = field.to_vec();
    while field == before {
        if field.len() > 8 {
            let at = rng.random_range(0..field.len());
            field[at] = rng.random();
            continue;
        }
        let mut word = [0; 8];
        word[..field.len()].copy_from_slice(&before);
        if is_big_endian {
            word[..field.len()].reverse();
        }
        let old = u64::from_le_bytes(word);
        let bits = u32::try_from(field.len() * 8).unwrap();
        let new = match rng.random_range(0..9) {
            0 => 0,
            1 => 1,
            2 => u64::MAX,
            3 => old.wrapping_add(1),
            4 => old.wrapping_sub(1),
            5 | 6 => old ^ 1 << rng.random_range(0..bits),
            7 => rng.random_range(0..300),
            _ => rng.random(),
        };
        let mut word = new.to_le_bytes();
        if is_big_endian {
            word[..field.len()].reverse();
        }
        field.copy_from_slice(&word[..field.len()]);
    }
}
