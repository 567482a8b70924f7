//! UUID and hash seed of a new file system.

use super::fill_error::FillError;
use super::source::Source;
use crate::args::{MkfsArgs, UuidArg};
use crate::host::OsStrExt;
use std::io;

pub(crate) struct Identity {
    pub(crate) uuid: [u8; 16],
    pub(super) hash_seed: [u32; 4],
}

impl Identity {
    pub(crate) fn random() -> io::Result<Identity> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)?;
        Ok(Identity::of(bytes, 4))
    }

    /// A digest of the options, and of paths, owners, modes, sizes and times of the tree.
    pub(super) fn reproducible(
        args: &MkfsArgs,
        size: u64,
        source: Option<&Source<'_>>,
    ) -> Result<Identity, FillError> {
        let mut hasher = blake3::Hasher::new_derive_key("dentree mkfs --reproducible 2026");
        let mut add = |bytes: &[u8]| {
            hasher.update(&(bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        };
        add(&size.to_le_bytes());
        add(args.features.as_bytes());
        add(&args.block_size.unwrap_or(0).to_le_bytes());
        add(args.label.as_bytes());
        if let UuidArg::Given(uuid) = args.uuid {
            add(&uuid);
        }
        for number in [args.inodes, args.bytes_per_inode, Some(args.inode_size), Some(args.reserved)] {
            add(&number.unwrap_or(0).to_le_bytes());
        }
        if let Some(source) = source {
            source.each(&mut |entry| {
                add(&entry.path);
                add(&entry.target);
                let size = entry.local.as_ref().map_or(0, |(_, found)| found.attr.size);
                let (major, minor) = entry.device;
                let numbers =
                    [u32::from(entry.permissions), entry.uid, entry.gid, major, minor, entry.mtime.nanos];
                numbers.iter().for_each(|number| add(&number.to_le_bytes()));
                add(&[entry.kind.letter() as u8]);
                // The size of a directory depends on the local file system.
                add(&if entry.kind == dentree_vfs::FileType::Directory { 0 } else { size }.to_le_bytes());
                add(&entry.mtime.seconds.to_le_bytes());
            })?;
        }
        Ok(Identity::of(*hasher.finalize().as_bytes(), 8))
    }

    /// RFC 9562: version 4 is random, version 8 custom.
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
