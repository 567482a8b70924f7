//! What tells one file system from another: UUID and hash seed.

use super::source::Source;
use super::stopped::Stopped;
use crate::args::MkfsArgs;
use rustix::rand::{GetRandomFlags, getrandom};
use std::io;
use std::os::unix::ffi::OsStrExt;

pub(super) struct Identity {
    pub(super) uuid: [u8; 16],
    pub(super) hash_seed: [u32; 4],
}

impl Identity {
    /// One that no other file system has.
    pub(super) fn random() -> io::Result<Identity> {
        let mut bytes = [0; 32];
        let mut filled = 0;
        while filled < bytes.len() {
            filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())?;
        }
        Ok(Identity::of(bytes, 4))
    }

    /// One that follows from the options, and from paths, owners, modes, sizes and times of what the image is filled with.
    pub(super) fn reproducible(args: &MkfsArgs, source: Option<&Source<'_>>) -> Result<Identity, Stopped> {
        let mut hasher = blake3::Hasher::new_derive_key("dentree mkfs --reproducible 2026");
        let mut add = |bytes: &[u8]| {
            hasher.update(&(bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        };
        add(&args.size.to_le_bytes());
        add(args.features.as_bytes());
        add(&args.block_size.unwrap_or(0).to_le_bytes());
        add(args.label.as_bytes());
        add(&args.uuid.unwrap_or_default());
        if let Some(source) = source {
            source.each(&mut |thing| {
                add(&thing.path);
                add(&thing.target);
                let size = thing.local.as_ref().map_or(0, |(_, found)| found.len());
                let (major, minor) = thing.device;
                let numbers =
                    [u32::from(thing.permissions), thing.uid, thing.gid, major, minor, thing.mtime.nanos];
                numbers.iter().for_each(|number| add(&number.to_le_bytes()));
                add(&[thing.kind.letter() as u8]);
                // What a directory is long says something about the machine's file system, not about it.
                add(&if thing.kind == dentree_vfs::FileType::Directory { 0 } else { size }.to_le_bytes());
                add(&thing.mtime.seconds.to_le_bytes());
            })?;
        }
        Ok(Identity::of(*hasher.finalize().as_bytes(), 8))
    }

    /// RFC 9562: version 4 is random, version 8 is whatever its maker made it of.
    fn of(bytes: [u8; 32], version: u8) -> Identity {
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&bytes[..16]);
        uuid[6] = uuid[6] & 0x0F | version << 4;
        uuid[8] = uuid[8] & 0x3F | 0x80;
        let mut hash_seed = [0; 4];
        for (word, bytes) in hash_seed.iter_mut().zip(bytes[16..].as_chunks().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        Identity { uuid, hash_seed }
    }
}
