use std::ops::Deref;
use std::time::Duration;

use dentree_bufcache::Buffer;
use zerocopy::{FromZeros, IntoBytes};

use crate::checksum::{Seed, TransactionSum};
use crate::format::{
    BlockType, CRC32, ESCAPE, Features, LAST_TAG, MAGIC, RawCommit, RawHeader, RawRevokeHeader, RawTag,
    RawTag3, SAME_UUID, Sums,
};
use crate::tid::Tid;

pub(crate) enum LogBlock {
    Version(Buffer),
    Made(Vec<u8>),
}

impl Deref for LogBlock {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            LogBlock::Version(buffer) => buffer,
            LogBlock::Made(bytes) => bytes,
        }
    }
}

pub(crate) struct Encoder {
    pub(crate) features: Features,
    pub(crate) seed: Seed,
    pub(crate) uuid: [u8; 16],
    pub(crate) block_size: usize,
}

impl Encoder {
    /// The first tag is followed by the UUID.
    fn tags_per_block(&self) -> usize {
        let body = self.block_size - if self.features.has_block_sums() { 4 } else { 0 };
        (body - size_of::<RawHeader>() - self.uuid.len()) / self.features.tag_len()
    }

    fn revokes_per_block(&self) -> usize {
        let body = self.block_size - if self.features.has_block_sums() { 4 } else { 0 };
        (body - size_of::<RawRevokeHeader>()) / self.revoke_len()
    }

    fn revoke_len(&self) -> usize {
        if self.features.is_64bit { 8 } else { 4 }
    }

    pub(crate) fn log_blocks(&self, copies: usize, revokes: usize) -> usize {
        copies + copies.div_ceil(self.tags_per_block()) + revokes.div_ceil(self.revokes_per_block()) + 1
    }

    /// All but the commit block, and the version 1 checksum.
    pub(crate) fn transaction(
        &self,
        tid: Tid,
        versions: &[(u64, Buffer)],
        revokes: &[u64],
    ) -> (Vec<LogBlock>, u32) {
        let mut blocks = Vec::with_capacity(self.log_blocks(versions.len(), revokes.len()));
        let some_revokes = revokes.chunks(self.revokes_per_block());
        blocks.extend(some_revokes.map(|revokes| LogBlock::Made(self.revoke_block(tid, revokes))));
        let revoke_blocks = blocks.len();
        for versions in versions.chunks(self.tags_per_block()) {
            self.describe(tid, versions, &mut blocks);
        }
        let mut sum = TransactionSum::new();
        if self.features.sums == Sums::V1 {
            blocks[revoke_blocks..].iter().for_each(|block| sum.add(block));
        }
        (blocks, sum.finish())
    }

    fn made(&self, kind: BlockType, tid: Tid) -> Vec<u8> {
        let mut block = Vec::with_capacity(self.block_size);
        block.extend(RawHeader::new(kind, tid).as_bytes());
        block
    }

    fn describe(&self, tid: Tid, versions: &[(u64, Buffer)], blocks: &mut Vec<LogBlock>) {
        let mut descriptor = self.made(BlockType::Descriptor, tid);
        let mut copies = Vec::with_capacity(versions.len());
        for (at, (target, version)) in versions.iter().enumerate() {
            let copy = escaped(version);
            let mut flags = if at == 0 { 0 } else { SAME_UUID };
            flags |= if matches!(copy, LogBlock::Made(_)) { ESCAPE } else { 0 };
            flags |= if at + 1 == versions.len() { LAST_TAG } else { 0 };
            self.push_tag(&mut descriptor, *target, flags, self.seed.of_copy(self.features.sums, tid, &copy));
            if at == 0 {
                descriptor.extend(self.uuid);
            }
            copies.push(copy);
        }
        blocks.push(LogBlock::Made(self.finish(descriptor)));
        blocks.append(&mut copies);
    }

    fn push_tag(&self, descriptor: &mut Vec<u8>, target: u64, flags: u32, sum: u32) {
        let end = descriptor.len() + self.features.tag_len();
        let (low, high) = ((target & 0xFFFF_FFFF) as u32, (target >> 32) as u32);
        if self.features.sums == Sums::V3 {
            let tag = RawTag3 {
                t_blocknr: low.into(),
                t_flags: flags.into(),
                t_blocknr_high: high.into(),
                t_checksum: sum.into(),
            };
            descriptor.extend(tag.as_bytes());
        } else {
            let (flags, sum) = ((flags & 0xFFFF) as u16, (sum & 0xFFFF) as u16);
            let tag = RawTag { t_blocknr: low.into(), t_checksum: sum.into(), t_flags: flags.into() };
            descriptor.extend(tag.as_bytes());
            if self.features.is_64bit {
                descriptor.extend(high.to_be_bytes());
            }
            descriptor.resize(end, 0);
        }
    }

    fn revoke_block(&self, tid: Tid, revokes: &[u64]) -> Vec<u8> {
        let used = size_of::<RawRevokeHeader>() + revokes.len() * self.revoke_len();
        let header = RawRevokeHeader {
            r_header: RawHeader::new(BlockType::Revoke, tid),
            r_count: (used as u32).into(),
        };
        let mut block = Vec::with_capacity(self.block_size);
        block.extend(header.as_bytes());
        for block_number in revokes {
            block.extend(&block_number.to_be_bytes()[8 - self.revoke_len()..]);
        }
        self.finish(block)
    }

    /// Pads and adds the checksum.
    fn finish(&self, mut block: Vec<u8>) -> Vec<u8> {
        block.resize(self.block_size, 0);
        if self.features.has_block_sums() {
            self.seed.put_tail(&mut block);
        }
        block
    }

    /// `time` is since 1970.
    pub(crate) fn commit_block(&self, tid: Tid, time: Duration, sum: u32) -> Vec<u8> {
        let mut commit = RawCommit::new_zeroed();
        commit.h_header = RawHeader::new(BlockType::Commit, tid);
        commit.h_commit_sec = time.as_secs().into();
        commit.h_commit_nsec = time.subsec_nanos().into();
        if self.features.sums == Sums::V1 {
            (commit.h_chksum_type, commit.h_chksum_size) = (CRC32, 4);
            commit.h_chksum[0] = sum.into();
        }
        let mut block = commit.as_bytes().to_vec();
        block.resize(self.block_size, 0);
        if self.features.has_block_sums() {
            self.seed.put_commit(&mut block);
        }
        block
    }
}

/// Replaces the magic number at the start of a copy by zeros.
fn escaped(version: &Buffer) -> LogBlock {
    if version.starts_with(&MAGIC.to_be_bytes()) {
        let mut bytes = version.to_vec();
        bytes[..4].fill(0);
        LogBlock::Made(bytes)
    } else {
        LogBlock::Version(version.clone())
    }
}
