//! POSIX access control lists: on disk in ext4's own short form, to users in that of `getxattr(2)`.

use crate::Problem;
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned, little_endian as le};

const DISK_VERSION: u32 = 1;
const XATTR_VERSION: u32 = 2;
const TAG_USER: u16 = 0x02;
const TAG_GROUP: u16 = 0x08;
const UNDEFINED_ID: u32 = !0;

/// An entry's tag and permissions; an id follows in entries for a named user or group.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawEntry {
    e_tag: le::U16,
    e_perm: le::U16,
}

/// The value of `system.posix_acl_access` or `_default` as `getxattr(2)` gives it, from its form on disk.
pub fn acl_to_xattr(disk: &[u8]) -> Result<Vec<u8>, Problem> {
    let (version, mut rest) = le::U32::ref_from_prefix(disk).map_err(|_| short(disk, 4))?;
    Problem::check_range("a_version", u64::from(version.get()), 1, u64::from(DISK_VERSION))?;
    let mut value = XATTR_VERSION.to_le_bytes().to_vec();
    while !rest.is_empty() {
        let (entry, after) = RawEntry::ref_from_prefix(rest).map_err(|_| short(rest, 4))?;
        let (id, after) = match entry.e_tag.get() {
            TAG_USER | TAG_GROUP => {
                let (id, after) = le::U32::ref_from_prefix(after).map_err(|_| short(after, 4))?;
                (id.get(), after)
            }
            _ => (UNDEFINED_ID, after),
        };
        value.extend_from_slice(&entry.e_tag.get().to_le_bytes());
        value.extend_from_slice(&entry.e_perm.get().to_le_bytes());
        value.extend_from_slice(&id.to_le_bytes());
        rest = after;
    }
    Ok(value)
}

fn short(bytes: &[u8], need: usize) -> Problem {
    Problem::Short { what: "an access control list entry", need, have: bytes.len() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_stand_in_every_entry_of_the_long_form() {
        let disk = [1, 0, 0, 0, 1, 0, 6, 0, 2, 0, 4, 0, 0xE8, 3, 0, 0, 0x20, 0, 4, 0];
        let value = acl_to_xattr(&disk).unwrap();
        assert_eq!(value.len(), 4 + 3 * 8);
        assert_eq!(value[4..12], [1, 0, 6, 0, 255, 255, 255, 255]);
        assert_eq!(value[12..20], [2, 0, 4, 0, 0xE8, 3, 0, 0]);
    }

    #[test]
    fn every_truncation_in_the_middle_of_an_entry_is_refused() {
        let disk = [1, 0, 0, 0, 1, 0, 6, 0, 2, 0, 4, 0, 0xE8, 3, 0, 0];
        for len in (0..disk.len()).filter(|len| ![4, 8].contains(len)) {
            assert!(acl_to_xattr(&disk[..len]).is_err(), "{len}");
        }
    }
}
