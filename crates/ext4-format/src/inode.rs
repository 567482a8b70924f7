//! Inodes. Source: kernel document `inodes.rst`.

use crate::raw::{join, join16, raw_layout, split, split16};
use crate::{
    BlockNumber, ChecksumSeed, Incompat, InodeNumber, InodeTime, Problem, RoCompat, Superblock, crc32c,
    crc32c_before,
};
use zerocopy::{FromBytes, little_endian as le};

/// Bytes of `i_block`.
pub const I_BLOCK_LEN: usize = 60;
/// End of the fields of every inode.
const CLASSIC_LEN: usize = 128;
const CHECKSUM_LO_AT: usize = 0x7C;
const CHECKSUM_HI_AT: usize = 0x82;
/// Ends of optional times.
const CTIME_EXTRA_END: usize = 0x88;
const MTIME_EXTRA_END: usize = 0x8C;
const ATIME_EXTRA_END: usize = 0x90;
const CRTIME_END: usize = 0x94;
const CRTIME_EXTRA_END: usize = 0x98;
const CREATOR_HURD: u32 = 1;

const S_IFMT: u16 = 0o170_000;
const S_IFREG: u16 = 0o100_000;

raw_layout! {
    /// `struct ext4_inode`, first 128 bytes; `osd1` and `osd2` as on Linux.
    RawInode, size 0x80 {
        0x00 i_mode: le::U16,
        0x02 i_uid: le::U16,
        0x04 i_size_lo: le::U32,
        0x08 i_atime: le::U32,
        0x0C i_ctime: le::U32,
        0x10 i_mtime: le::U32,
        0x14 i_dtime: le::U32,
        0x18 i_gid: le::U16,
        0x1A i_links_count: le::U16,
        0x1C i_blocks_lo: le::U32,
        0x20 i_flags: le::U32,
        0x24 l_i_version: le::U32,
        0x28 i_block: [u8; I_BLOCK_LEN],
        0x64 i_generation: le::U32,
        0x68 i_file_acl_lo: le::U32,
        0x6C i_size_high: le::U32,
        0x70 i_obso_faddr: le::U32,
        0x74 l_i_blocks_high: le::U16,
        0x76 l_i_file_acl_high: le::U16,
        0x78 l_i_uid_high: le::U16,
        0x7A l_i_gid_high: le::U16,
        0x7C l_i_checksum_lo: le::U16,
        0x7E l_i_reserved: le::U16,
    }
}

raw_layout! {
    /// The rest, up to `i_extra_isize`; offsets from 0x80.
    RawInodeExtra, size 0x20 {
        0x00 i_extra_isize: le::U16,
        0x02 i_checksum_hi: le::U16,
        0x04 i_ctime_extra: le::U32,
        0x08 i_mtime_extra: le::U32,
        0x0C i_atime_extra: le::U32,
        0x10 i_crtime: le::U32,
        0x14 i_crtime_extra: le::U32,
        0x18 i_version_hi: le::U32,
        0x1C i_projid: le::U32,
    }
}

/// `i_flags`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct InodeFlags(pub u32);

impl InodeFlags {
    /// Content and names are encrypted.
    pub const ENCRYPT: InodeFlags = InodeFlags(0x800);
    /// htree directory.
    pub const INDEX: InodeFlags = InodeFlags(0x1000);
    /// `i_blocks` counts file system blocks.
    pub const HUGE_FILE: InodeFlags = InodeFlags(0x4_0000);
    /// Spreads subdirectories, like the root.
    pub const TOPDIR: InodeFlags = InodeFlags(0x2_0000);
    /// Mapped by extents.
    pub const EXTENTS: InodeFlags = InodeFlags(0x8_0000);
    /// Inode of the AFS server; obsolete.
    pub const IMAGIC: InodeFlags = InodeFlags(0x2000);
    /// Immutable.
    pub const IMMUTABLE: InodeFlags = InodeFlags(0x10);
    /// Append-only.
    pub const APPEND: InodeFlags = InodeFlags(0x20);
    /// Protected by fs-verity.
    pub const VERITY: InodeFlags = InodeFlags(0x10_0000);
    /// Value of an extended attribute.
    pub const EA_INODE: InodeFlags = InodeFlags(0x20_0000);
    /// Content is in the inode.
    pub const INLINE_DATA: InodeFlags = InodeFlags(0x1000_0000);
    /// Case-insensitive directory.
    pub const CASEFOLD: InodeFlags = InodeFlags(0x4000_0000);
    /// All flags that a kernel sets or has set.
    pub const KNOWN: InodeFlags = InodeFlags(0x727F_FFFF);
    /// Shown by `FS_IOC_GETFLAGS` (`EXT4_FL_USER_VISIBLE`).
    pub const USER_VISIBLE: InodeFlags = InodeFlags(0x725B_DFFF);
    /// Changed by `FS_IOC_SETFLAGS`: secure deletion, undelete, compress, synchronous, immutable,
    /// append-only, no dump, no atime, no tail merging, synchronous directory, top directory,
    /// project.
    pub const SETTABLE: InodeFlags = InodeFlags(0x2003_80FF);
    /// Depend on the inode's layout: journalled data, extents, direct access, casefold.
    pub const FIXED: InodeFlags = InodeFlags(0x4208_4000);

    /// Inherited from the directory: synchronous, no dump, no atime, journalled data, synchronous
    /// directory, project, casefold.
    pub const INHERITED: InodeFlags = InodeFlags(0x6001_40C8);
    /// Of these, not inherited by regular files: synchronous directory, casefold, project.
    pub const DIRECTORIES_ONLY: InodeFlags = InodeFlags(0x6001_0000);
    /// Of these, inherited by special files and symbolic links: no dump, no atime.
    pub const OTHERS_ALSO: InodeFlags = InodeFlags(0xC0);

    /// Adds `flags`.
    #[must_use]
    pub fn with(self, flags: InodeFlags) -> InodeFlags {
        InodeFlags(self.0 | flags.0)
    }

    /// Removes `flags`.
    #[must_use]
    pub fn without(self, flags: InodeFlags) -> InodeFlags {
        InodeFlags(self.0 & !flags.0)
    }

    /// Whether all of `flags` are set.
    pub fn has(self, flags: InodeFlags) -> bool {
        self.0 & flags.0 == flags.0
    }
}

/// A device number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DeviceNumber {
    /// Driver.
    pub major: u32,
    /// Device.
    pub minor: u32,
}

/// An inode with a raw [block map](Inode::block).
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Inode {
    /// `st_mode`.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Allocated space in 512-byte units.
    pub sectors: u64,
    /// Links.
    pub links: u16,
    /// Flags.
    pub flags: InodeFlags,
    /// Changes when the inode is reused.
    pub generation: u32,
    /// Block of extended attributes.
    pub xattr_block: Option<BlockNumber>,
    /// Access.
    pub atime: InodeTime,
    /// Content change.
    pub mtime: InodeTime,
    /// Inode change.
    pub ctime: InodeTime,
    /// Creation; `None` without the field.
    pub crtime: Option<InodeTime>,
    /// `i_block`: extent root, block pointers, inline data, link target or device number.
    pub block: [u8; I_BLOCK_LEN],
    /// Low `i_atime` and `i_mtime`; hash and parent in an attribute value's inode.
    pub raw_times: [u32; 2],
    /// Length of the fields; attributes follow, unless it is 128.
    pub fields_len: usize,
    /// Start value of the inode's checksums.
    pub checksum_seed: ChecksumSeed,
}

/// Fields of an inode, used or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InodeHead {
    /// `st_mode`.
    pub mode: u16,
    /// 0: unused, or an orphan.
    pub links: u16,
    /// Deletion time, or the next orphan.
    pub dtime: u32,
    /// `i_size_high`: of regular files and large directories.
    pub size_high: u32,
    /// `i_faddr`; obsolete.
    pub fragment: u32,
    /// Owner and group, low 16 bits.
    pub owners: [u16; 2],
    /// `i_size_lo`.
    pub size: u32,
    /// `i_blocks_lo`.
    pub blocks: u32,
    /// `i_blocks_high`: with huge_file.
    pub blocks_high: u16,
    /// `i_file_acl_high`: with 64bit.
    pub xattr_block_high: u16,
    /// `i_block`.
    pub block: [u8; I_BLOCK_LEN],
}

impl Inode {
    /// Parses `inode_size` bytes, and verifies the checksum. An unused inode is
    /// [`Problem::Missing`].
    pub fn parse(bytes: &[u8], ino: InodeNumber, sb: &Superblock) -> Result<Inode, Problem> {
        let inode = Inode::parse_orphan(bytes, ino, sb)?;
        if inode.links == 0 { Err(Problem::Missing { what: "an inode in use" }) } else { Ok(inode) }
    }

    /// As [`parse`](Inode::parse), also for orphans, which have no links.
    pub fn parse_orphan(bytes: &[u8], ino: InodeNumber, sb: &Superblock) -> Result<Inode, Problem> {
        let short = |_| Problem::Short { what: "an inode", need: CLASSIC_LEN, have: bytes.len() };
        let (raw, rest) = RawInode::ref_from_prefix(bytes).map_err(|e| short(e.map_src(drop)))?;
        if raw.i_mode.get() == 0 {
            return Err(Problem::Missing { what: "an inode in use" });
        }
        let fields_len = fields_len(bytes, rest)?;
        let checksum_seed = sb.checksum_seed.of_inode(ino.0, raw.i_generation.get());
        if sb.has_metadata_csum() {
            verify(bytes, raw, fields_len, checksum_seed)?;
        }
        let extra = Extra { raw: RawInodeExtra::ref_from_prefix(rest).ok().map(|(raw, _)| raw), fields_len };
        Ok(build(raw, &extra, sb, checksum_seed))
    }

    /// An empty inode. All times are `now`; the superblock decides the extra fields.
    pub fn new(ino: InodeNumber, mode: u16, generation: u32, now: InodeTime, sb: &Superblock) -> Inode {
        let has_extra = sb.has_extra_times();
        let mut inode = Inode {
            mode,
            uid: 0,
            gid: 0,
            size: 0,
            sectors: 0,
            links: 1,
            flags: InodeFlags(0),
            generation,
            xattr_block: None,
            atime: now,
            mtime: now,
            ctime: now,
            crtime: has_extra.then_some(now),
            block: [0; I_BLOCK_LEN],
            raw_times: [now.clamped(has_extra).encode().0.get(); 2],
            fields_len: CLASSIC_LEN + usize::from(sb.extra_isize()),
            checksum_seed: sb.checksum_seed.of_inode(ino.0, generation),
        };
        inode.clamp_times();
        inode
    }

    /// Clamps times to the fields, as [`encode`](Inode::encode) does.
    pub fn clamp_times(&mut self) {
        let has = |end: usize| end <= self.fields_len;
        self.ctime = self.ctime.clamped(has(CTIME_EXTRA_END));
        self.mtime = self.mtime.clamped(has(MTIME_EXTRA_END));
        self.atime = self.atime.clamped(has(ATIME_EXTRA_END));
        let crtime = self.crtime.unwrap_or_default().clamped(has(CRTIME_EXTRA_END));
        self.crtime = has(CRTIME_END).then_some(crtime);
    }

    /// Writes all fields and the checksum over `inode_size` bytes; other bytes do not change.
    pub fn encode(&self, bytes: &mut [u8], sb: &Superblock) {
        let Ok((raw, rest)) = RawInode::mut_from_prefix(bytes) else { return };
        raw.i_mode.set(self.mode);
        raw.i_links_count.set(self.links);
        raw.i_flags.set(self.flags.0);
        raw.i_generation.set(self.generation);
        raw.i_block = self.block;
        let wide = |value: u32, upper: &mut le::U16, lower: &mut le::U16| {
            let (high, low) = split16(value);
            upper.set(high);
            lower.set(low);
        };
        wide(self.uid, &mut raw.l_i_uid_high, &mut raw.i_uid);
        wide(self.gid, &mut raw.l_i_gid_high, &mut raw.i_gid);
        self.encode_sizes(raw, sb);
        self.encode_times(raw, rest);
        self.set_checksum(bytes, sb);
    }

    /// As [`encode`](Inode::encode), with `i_dtime`.
    pub fn encode_freed(&self, bytes: &mut [u8], dtime: u32, sb: &Superblock) {
        if let Ok((raw, _)) = RawInode::mut_from_prefix(bytes) {
            raw.i_dtime.set(dtime);
        }
        self.encode(bytes, sb);
    }

    fn set_checksum(&self, bytes: &mut [u8], sb: &Superblock) {
        if sb.has_metadata_csum() {
            let (high, low) = split16(checksum(bytes, self.fields_len, self.checksum_seed));
            let mut put = |at: usize, half: u16| {
                if let Some(field) = bytes.get_mut(at..at + 2) {
                    field.copy_from_slice(&half.to_le_bytes());
                }
            };
            put(CHECKSUM_LO_AT, low);
            if has_long_checksum(self.fields_len) {
                put(CHECKSUM_HI_AT, high);
            }
        }
    }

    fn encode_sizes(&self, raw: &mut RawInode, sb: &Superblock) {
        let (high, low) = split(self.size);
        raw.i_size_lo.set(low);
        if high_is_size(self.mode, sb) {
            raw.i_size_high.set(high);
        }
        let shift = if self.flags.has(InodeFlags::HUGE_FILE) { sb.block_size.log2() - 9 } else { 0 };
        let (high, low) = split(self.sectors >> shift);
        raw.i_blocks_lo.set(low);
        if sb.ro_compat.has(RoCompat::HUGE_FILE) {
            raw.l_i_blocks_high.set(split16(high).1);
        }
        let (high, low) = split(self.xattr_block.map_or(0, |block| block.0));
        raw.i_file_acl_lo.set(low);
        if sb.is_64bit() && sb.creator_os != CREATOR_HURD {
            raw.l_i_file_acl_high.set(split16(high).1);
        }
    }

    /// An attribute value's inode has hash and parent in place of times.
    fn encode_times(&self, raw: &mut RawInode, rest: &mut [u8]) {
        let has = |end: usize| end <= self.fields_len;
        let encoded = |time: InodeTime, end| time.clamped(has(end)).encode();
        let mut atime = encoded(self.atime, ATIME_EXTRA_END);
        let mut mtime = encoded(self.mtime, MTIME_EXTRA_END);
        let ctime = encoded(self.ctime, CTIME_EXTRA_END);
        if self.flags.has(InodeFlags::EA_INODE) {
            [atime.0, mtime.0] = self.raw_times.map(le::U32::new);
        }
        (raw.i_atime, raw.i_mtime, raw.i_ctime) = (atime.0, mtime.0, ctime.0);
        let Some(was) = rest.first_chunk().copied().map(u16::from_le_bytes).map(usize::from) else { return };
        // Clears attributes in place of new fields.
        rest.get_mut(was.max(2)..self.fields_len - CLASSIC_LEN).unwrap_or_default().fill(0);
        let Ok((extra, _)) = RawInodeExtra::mut_from_prefix(rest) else { return };
        extra.i_extra_isize.set(u16::try_from(self.fields_len - CLASSIC_LEN).unwrap_or(0));
        if has(CTIME_EXTRA_END) {
            extra.i_ctime_extra = ctime.1;
        }
        if has(MTIME_EXTRA_END) {
            extra.i_mtime_extra = mtime.1;
        }
        if has(ATIME_EXTRA_END) {
            extra.i_atime_extra = atime.1;
        }
        let Some((seconds, more)) = self.crtime.map(|time| encoded(time, CRTIME_EXTRA_END)) else { return };
        if has(CRTIME_END) {
            extra.i_crtime = seconds;
        }
        if has(CRTIME_EXTRA_END) {
            extra.i_crtime_extra = more;
        }
    }

    /// Fields for allocation checks.
    pub fn head(bytes: &[u8]) -> Option<InodeHead> {
        RawInode::ref_from_prefix(bytes).ok().map(|(raw, _)| InodeHead {
            mode: raw.i_mode.get(),
            links: raw.i_links_count.get(),
            dtime: raw.i_dtime.get(),
            size_high: raw.i_size_high.get(),
            fragment: raw.i_obso_faddr.get(),
            owners: [raw.i_uid.get(), raw.i_gid.get()],
            size: raw.i_size_lo.get(),
            blocks: raw.i_blocks_lo.get(),
            blocks_high: raw.l_i_blocks_high.get(),
            xattr_block_high: raw.l_i_file_acl_high.get(),
            block: raw.i_block,
        })
    }

    /// Verifies an unused inode's checksum. If all bytes are zero, there is none.
    pub fn verify_unused(bytes: &[u8], ino: InodeNumber, sb: &Superblock) -> Result<(), Problem> {
        let Ok((raw, rest)) = RawInode::ref_from_prefix(bytes) else { return Ok(()) };
        if !sb.has_metadata_csum() || bytes.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        let seed = sb.checksum_seed.of_inode(ino.0, raw.i_generation.get());
        verify(bytes, raw, fields_len(bytes, rest)?, seed)
    }

    /// The inode's number XORed with the file system's checksum seed, from its bytes and their
    /// checksum; `None` without a checksum of 32 bits. Of bytes that are no inode it is any number.
    pub fn masked_number(bytes: &[u8]) -> Option<u32> {
        let (raw, rest) = RawInode::ref_from_prefix(bytes).ok()?;
        fields_len(bytes, rest).ok().filter(|len| has_long_checksum(*len))?;
        let high = bytes.get(CHECKSUM_HI_AT..)?.first_chunk().copied().map(u16::from_le_bytes)?;
        let parts = [
            bytes.get(CHECKSUM_HI_AT + 2..)?,
            &[0, 0],
            bytes.get(CHECKSUM_LO_AT + 2..CHECKSUM_HI_AT)?,
            &[0, 0],
            bytes.get(..CHECKSUM_LO_AT)?,
            &raw.i_generation.get().to_le_bytes(),
            // The number itself: its XOR with the seed, and then zeros, give the same value.
            &[0; 4],
        ];
        let sum = join16(high, raw.l_i_checksum_lo.get());
        Some(parts.iter().fold(sum, |sum, part| crc32c_before(sum, part)))
    }

    /// `i_dtime`: deletion time, or the next orphan.
    pub fn dtime(bytes: &[u8]) -> u32 {
        RawInode::ref_from_prefix(bytes).map_or(0, |(raw, _)| raw.i_dtime.get())
    }

    /// Writes `i_dtime` and the checksum, if `i_dtime` differs.
    pub fn set_dtime(bytes: &mut [u8], ino: InodeNumber, dtime: u32, sb: &Superblock) -> Result<(), Problem> {
        if Inode::dtime(bytes) == dtime {
            return Ok(());
        }
        let inode = Inode::parse_orphan(bytes, ino, sb)?;
        if let Ok((raw, _)) = RawInode::mut_from_prefix(bytes) {
            raw.i_dtime.set(dtime);
        }
        inode.set_checksum(bytes, sb);
        Ok(())
    }

    /// Reference count of an attribute value's inode.
    pub fn value_users(bytes: &[u8]) -> u64 {
        let of = |raw: &RawInode| join(raw.i_ctime.get(), raw.l_i_version.get());
        RawInode::ref_from_prefix(bytes).map_or(0, |(raw, _)| of(raw))
    }

    /// Writes the reference count of an attribute value's inode, and the checksum.
    pub fn set_value_users(
        bytes: &mut [u8],
        ino: InodeNumber,
        users: u64,
        sb: &Superblock,
    ) -> Result<(), Problem> {
        let inode = Inode::parse_orphan(bytes, ino, sb)?;
        if let Ok((raw, _)) = RawInode::mut_from_prefix(bytes) {
            let (high, low) = split(users);
            raw.i_ctime.set(high);
            raw.l_i_version.set(low);
        }
        inode.set_checksum(bytes, sb);
        Ok(())
    }

    /// Uses the old form if it suffices.
    pub fn set_device(&mut self, device: DeviceNumber) {
        let DeviceNumber { major, minor } = device;
        let words = if major < 256 && minor < 256 {
            [major << 8 | minor, 0]
        } else {
            [0, minor & 0xFF | (major & 0xFFF) << 8 | (minor & 0xF_FF00) << 12]
        };
        self.block = [0; I_BLOCK_LEN];
        for (place, word) in self.block.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
    }

    /// The device number; the new form if the old one is 0.
    pub fn device(&self) -> DeviceNumber {
        let word = |at| crate::raw::u32_at(&self.block, at).unwrap_or(0);
        match (word(0), word(4)) {
            (0, new) => {
                DeviceNumber { major: (new & 0xF_FF00) >> 8, minor: new & 0xFF | new >> 12 & 0xF_FF00 }
            }
            (old, _) => DeviceNumber { major: old >> 8 & 0xFF, minor: old & 0xFF },
        }
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.mode & S_IFMT == S_IFREG
    }
}

/// From `i_extra_isize`, in inodes above 128 bytes.
fn fields_len(bytes: &[u8], rest: &[u8]) -> Result<usize, Problem> {
    let Some(size) = rest.first_chunk().copied().map(u16::from_le_bytes) else {
        return Ok(CLASSIC_LEN);
    };
    let room = bytes.len() - CLASSIC_LEN;
    let value = u64::from(size);
    Problem::check_range("i_extra_isize", value, 0, u64::try_from(room).unwrap_or(u64::MAX))?;
    if size % 4 != 0 {
        return Err(Problem::Value { field: "i_extra_isize", value, because: "is not a multiple of 4" });
    }
    Ok(CLASSIC_LEN + usize::from(size))
}

/// Whether there is `i_checksum_hi`.
fn has_long_checksum(fields_len: usize) -> bool {
    fields_len >= CHECKSUM_HI_AT + 2
}

/// Without `i_checksum_hi`, the low half.
fn checksum(bytes: &[u8], fields_len: usize, seed: ChecksumSeed) -> u32 {
    let part = |from: usize, to: usize| bytes.get(from..to).unwrap_or_default();
    let sum = seed.sum(part(0, CHECKSUM_LO_AT));
    let sum = crc32c(sum, &[0, 0]);
    if !has_long_checksum(fields_len) {
        return crc32c(sum, part(CHECKSUM_LO_AT + 2, bytes.len())) & 0xFFFF;
    }
    let sum = crc32c(sum, part(CHECKSUM_LO_AT + 2, CHECKSUM_HI_AT));
    let sum = crc32c(sum, &[0, 0]);
    crc32c(sum, part(CHECKSUM_HI_AT + 2, bytes.len()))
}

fn verify(bytes: &[u8], raw: &RawInode, fields_len: usize, seed: ChecksumSeed) -> Result<(), Problem> {
    let high = bytes.get(CHECKSUM_HI_AT..).and_then(|rest| rest.first_chunk().copied());
    let high = high.filter(|_| has_long_checksum(fields_len)).map_or(0, u16::from_le_bytes);
    Problem::check_sum(join16(high, raw.l_i_checksum_lo.get()), checksum(bytes, fields_len, seed))
}

/// Fields up to `i_extra_isize`.
struct Extra<'a> {
    raw: Option<&'a RawInodeExtra>,
    fields_len: usize,
}

impl Extra<'_> {
    fn field(&self, end: usize, get: impl Fn(&RawInodeExtra) -> le::U32) -> Option<le::U32> {
        self.raw.filter(|_| end <= self.fields_len).map(get)
    }
}

fn build(raw: &RawInode, extra: &Extra<'_>, sb: &Superblock, checksum_seed: ChecksumSeed) -> Inode {
    let flags = InodeFlags(raw.i_flags.get());
    let crtime = extra.field(CRTIME_END, |raw| raw.i_crtime);
    let crtime_extra = extra.field(CRTIME_EXTRA_END, |raw| raw.i_crtime_extra);
    let xattr_block = xattr_block(raw, sb);
    Inode {
        mode: raw.i_mode.get(),
        uid: join16(raw.l_i_uid_high, raw.i_uid),
        gid: join16(raw.l_i_gid_high, raw.i_gid),
        size: size(raw, sb),
        sectors: sectors(raw, flags, sb),
        links: raw.i_links_count.get(),
        flags,
        generation: raw.i_generation.get(),
        xattr_block: (xattr_block != 0).then_some(BlockNumber(xattr_block)),
        atime: InodeTime::decode(raw.i_atime, extra.field(ATIME_EXTRA_END, |raw| raw.i_atime_extra)),
        mtime: InodeTime::decode(raw.i_mtime, extra.field(MTIME_EXTRA_END, |raw| raw.i_mtime_extra)),
        ctime: InodeTime::decode(raw.i_ctime, extra.field(CTIME_EXTRA_END, |raw| raw.i_ctime_extra)),
        crtime: crtime.map(|seconds| InodeTime::decode(seconds, crtime_extra)),
        block: raw.i_block,
        raw_times: [raw.i_atime.get(), raw.i_mtime.get()],
        fields_len: extra.fields_len,
        checksum_seed,
    }
}

/// Only regular files have `i_size_high`, and directories with large_dir.
fn high_is_size(mode: u16, sb: &Superblock) -> bool {
    mode & S_IFMT == S_IFREG || sb.incompat.has(Incompat::LARGEDIR)
}

fn size(raw: &RawInode, sb: &Superblock) -> u64 {
    let high = if high_is_size(raw.i_mode.get(), sb) { raw.i_size_high.get() } else { 0 };
    join(high, raw.i_size_lo)
}

fn sectors(raw: &RawInode, flags: InodeFlags, sb: &Superblock) -> u64 {
    if !sb.ro_compat.has(RoCompat::HUGE_FILE) {
        return u64::from(raw.i_blocks_lo.get());
    }
    let blocks = join(raw.l_i_blocks_high.get(), raw.i_blocks_lo);
    let shift = if flags.has(InodeFlags::HUGE_FILE) { sb.block_size.log2() - 9 } else { 0 };
    blocks << shift
}

fn xattr_block(raw: &RawInode, sb: &Superblock) -> u64 {
    let high = if sb.creator_os == CREATOR_HURD { 0 } else { raw.l_i_file_acl_high.get() };
    if sb.is_64bit() { join(high, raw.i_file_acl_lo) } else { u64::from(raw.i_file_acl_lo.get()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(seconds: u32, extra: Option<u32>) -> InodeTime {
        InodeTime::decode(le::U32::new(seconds), extra.map(le::U32::new))
    }

    #[test]
    fn epoch_bits_separate_times_before_1970_and_after_2038() {
        assert_eq!(time(0xFFFF_FFFF, Some(0)).seconds, -1);
        assert_eq!(time(0x8000_0000, Some(1)).seconds, 0x8000_0000);
        assert_eq!(time(0x7FFF_FFFF, Some(3)).seconds, 0x3_7FFF_FFFF);
        assert_eq!(time(5, Some(7 << 2)).nanos, 7);
        assert_eq!(time(0x8000_0000, None).seconds, -0x8000_0000);
    }

    #[test]
    fn the_number_of_an_inode_follows_from_its_checksum() {
        let mut sb = Superblock::new(crate::BlockSize::from_log_block_size(2).unwrap(), [9; 16]);
        sb.ro_compat = RoCompat::METADATA_CSUM;
        sb.want_extra_isize = 32;
        for number in [2, 11, 77_777, u32::MAX] {
            let inode = Inode::new(InodeNumber(number), 0o100_644, 5, time(9, None), &sb);
            let mut bytes = [0; 256];
            inode.encode(&mut bytes, &sb);
            bytes[200] = 1;
            inode.encode(&mut bytes, &sb);
            assert_eq!(Inode::masked_number(&bytes), Some(number ^ sb.checksum_seed.0));
            assert_eq!(Inode::masked_number(&bytes[..128]), None);
        }
    }

    #[test]
    fn times_survive_encoding() {
        for seconds in [-1, 0, 1, 1 - 0x8000_0000, 0x7FFF_FFFF, 0x8000_0000, 0x1_0000_0000, 0x3_7FFF_FFFE] {
            let time = InodeTime { seconds, nanos: 999_999_999 };
            assert_eq!(time.clamped(true), time);
            let (low, extra) = time.encode();
            assert_eq!(InodeTime::decode(low, Some(extra)), time);
        }
    }

    #[test]
    fn a_time_out_of_range_is_clamped() {
        for (seconds, classic, with_extra) in [
            (-0x8000_0001, (-0x8000_0000, 0), (-0x8000_0000, 0)),
            (-1, (-1, 0), (-1, 7)),
            (0x7FFF_FFFF, (0x7FFF_FFFF, 0), (0x7FFF_FFFF, 7)),
            (0x8000_0000, (0x7FFF_FFFF, 0), (0x8000_0000, 7)),
            (i64::MAX, (0x7FFF_FFFF, 0), (0x3_7FFF_FFFF, 0)),
        ] {
            let time = InodeTime { seconds, nanos: 7 };
            let clamped = [false, true].map(|has_extra| time.clamped(has_extra));
            assert_eq!(clamped.map(|time| (time.seconds, time.nanos)), [classic, with_extra]);
        }
    }

    fn superblock(inode_size: u32) -> Superblock {
        let block_size = crate::BlockSize::from_log_block_size(2).unwrap();
        Superblock {
            ro_compat: RoCompat(RoCompat::METADATA_CSUM.0 | RoCompat::HUGE_FILE.0),
            incompat: Incompat::BITS64,
            inode_size,
            want_extra_isize: 32,
            ..Superblock::new(block_size, [5; 16])
        }
    }

    #[test]
    fn encoding_and_parsing_are_inverse_also_for_128_bytes() {
        for size in [128_u32, 256] {
            let sb = superblock(size);
            let now = InodeTime { seconds: 1_700_000_000, nanos: if size == 128 { 0 } else { 5 } };
            let inode = Inode {
                uid: 70_000,
                gid: 80_000,
                size: 1 << 40,
                sectors: 1 << 33,
                xattr_block: Some(BlockNumber(1 << 33)),
                ..Inode::new(InodeNumber(12), 0o100_644, 9, now, &sb)
            };
            let mut bytes = vec![0; usize::try_from(size).unwrap()];
            inode.encode(&mut bytes, &sb);
            assert_eq!(Inode::parse(&bytes, InodeNumber(12), &sb), Ok(inode));
            assert!(Inode::parse(&bytes, InodeNumber(13), &sb).is_err(), "the sum is of the number, too");
        }
    }

    #[test]
    fn extended_attributes_after_the_fields_are_kept_and_covered_by_the_checksum() {
        let sb = superblock(256);
        let inode = Inode::new(InodeNumber(12), 0o100_644, 9, InodeTime::default(), &sb);
        let mut bytes = vec![0xAA; 256];
        inode.encode(&mut bytes, &sb);
        assert!(bytes[160..].iter().all(|byte| *byte == 0xAA));
        assert!(Inode::parse(&bytes, InodeNumber(12), &sb).is_ok());
        bytes[200] = 0;
        assert!(Inode::parse(&bytes, InodeNumber(12), &sb).is_err());
    }
}
