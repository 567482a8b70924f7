//! What tells one file system from another: UUID, hash seed, time.

use crate::args::MkfsArgs;
use crate::report::Problem;
use dentree_ext4::InodeTime;
use rustix::rand::{GetRandomFlags, getrandom};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::time::{SystemTime, UNIX_EPOCH};

pub(super) struct Identity {
    pub(super) uuid: [u8; 16],
    pub(super) hash_seed: [u32; 4],
    pub(super) now: InodeTime,
}

impl Identity {
    /// One that no other file system has.
    pub(super) fn random() -> io::Result<Identity> {
        let mut bytes = [0; 32];
        let mut filled = 0;
        while filled < bytes.len() {
            filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())?;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = i64::try_from(now.as_secs()).unwrap_or(0);
        Ok(Identity::of(bytes, 4, InodeTime { seconds, nanos: 0 }))
    }

    /// One that follows from the options, at the time that `SOURCE_DATE_EPOCH` says, or else 1970.
    pub(super) fn reproducible(args: &MkfsArgs) -> Result<Identity, Problem> {
        let seconds = match std::env::var("SOURCE_DATE_EPOCH") {
            Err(_) => 0,
            Ok(text) => text.parse().map_err(|_| {
                Problem::usage("SOURCE_DATE_EPOCH", format!("{text:?} is no number of seconds since 1970"))
            })?,
        };
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
        Ok(Identity::of(*hasher.finalize().as_bytes(), 8, InodeTime { seconds, nanos: 0 }))
    }

    /// RFC 9562: version 4 is random, version 8 is whatever its maker made it of.
    fn of(bytes: [u8; 32], version: u8, now: InodeTime) -> Identity {
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&bytes[..16]);
        uuid[6] = uuid[6] & 0x0F | version << 4;
        uuid[8] = uuid[8] & 0x3F | 0x80;
        let mut hash_seed = [0; 4];
        for (word, bytes) in hash_seed.iter_mut().zip(bytes[16..].as_chunks().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        Identity { uuid, hash_seed, now }
    }
}
