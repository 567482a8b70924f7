//! POSIX access control lists: the forms on disk and of `getxattr(2)`.
//!
//! Both have a version and entries of tag, permissions and id. On disk only entries of named users
//! and groups have an id.

use crate::Problem;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian as le};

const DISK_VERSION: u32 = 1;
const XATTR_VERSION: u32 = 2;
const TAG_USER_OBJ: u16 = 0x01;
const TAG_USER: u16 = 0x02;
const TAG_GROUP_OBJ: u16 = 0x04;
const TAG_GROUP: u16 = 0x08;
const TAG_MASK: u16 = 0x10;
const TAG_OTHER: u16 = 0x20;
const UNDEFINED_ID: u32 = !0;

/// An id may follow.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawEntry {
    e_tag: le::U16,
    e_perm: le::U16,
}

impl RawEntry {
    /// Named users and groups have an id in both forms.
    fn is_named(self) -> Result<bool, Problem> {
        match self.e_tag.get() {
            TAG_USER | TAG_GROUP => Ok(true),
            TAG_USER_OBJ | TAG_GROUP_OBJ | TAG_MASK | TAG_OTHER => Ok(false),
            tag => Err(Problem::Value {
                field: "e_tag",
                value: u64::from(tag),
                because: "is not an access control list tag",
            }),
        }
    }
}

/// Converts `system.posix_acl_access` or `_default` from disk to `getxattr(2)`.
pub fn acl_to_xattr(disk: &[u8]) -> Result<Vec<u8>, Problem> {
    let mut rest = check_version(disk, DISK_VERSION)?;
    let mut value = XATTR_VERSION.to_le_bytes().to_vec();
    while !rest.is_empty() {
        let entry: &RawEntry = take(&mut rest)?;
        let id = if entry.is_named()? { take::<le::U32>(&mut rest)?.get() } else { UNDEFINED_ID };
        value.extend_from_slice(entry.as_bytes());
        value.extend_from_slice(&id.to_le_bytes());
    }
    Ok(value)
}

/// Converts a value of `setxattr(2)` to the form on disk.
pub fn acl_from_xattr(value: &[u8]) -> Result<Vec<u8>, Problem> {
    let mut rest = check_version(value, XATTR_VERSION)?;
    let mut disk = DISK_VERSION.to_le_bytes().to_vec();
    while !rest.is_empty() {
        let entry: &RawEntry = take(&mut rest)?;
        let id: &le::U32 = take(&mut rest)?;
        disk.extend_from_slice(entry.as_bytes());
        if entry.is_named()? {
            disk.extend_from_slice(id.as_bytes());
        }
    }
    Ok(disk)
}

/// Returns the entries.
fn check_version(mut bytes: &[u8], expected: u32) -> Result<&[u8], Problem> {
    let version: &le::U32 = take(&mut bytes)?;
    Problem::check_range("a_version", u64::from(version.get()), u64::from(expected), u64::from(expected))?;
    Ok(bytes)
}

fn take<'a, T: FromBytes + Immutable + KnownLayout + Unaligned>(
    rest: &mut &'a [u8],
) -> Result<&'a T, Problem> {
    let (taken, after) = T::ref_from_prefix(rest).map_err(|_| Problem::Short {
        what: "an access control list",
        need: size_of::<T>(),
        have: rest.len(),
    })?;
    *rest = after;
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_entry_of_the_long_form_has_an_id() {
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

    #[test]
    fn other_versions_and_unknown_tags_are_refused() {
        assert!(matches!(acl_to_xattr(&[2, 0, 0, 0]), Err(Problem::Range { field: "a_version", .. })));
        assert!(matches!(
            acl_to_xattr(&[1, 0, 0, 0, 3, 0, 6, 0]),
            Err(Problem::Value { field: "e_tag", .. })
        ));
    }

    proptest! {
        #[test]
        fn lists_survive_conversion_in_both_directions(
            entries in proptest::collection::vec((0_u32..6, 0_u16..8, any::<u32>()), 0..20),
        ) {
            let mut disk = DISK_VERSION.to_le_bytes().to_vec();
            for (tag, perm, id) in entries {
                disk.extend_from_slice(&(1_u16 << tag).to_le_bytes());
                disk.extend_from_slice(&perm.to_le_bytes());
                if [TAG_USER, TAG_GROUP].contains(&(1 << tag)) {
                    disk.extend_from_slice(&id.to_le_bytes());
                }
            }
            let value = acl_to_xattr(&disk).unwrap();
            prop_assert_eq!(acl_from_xattr(&value).unwrap(), disk);
        }

        #[test]
        fn any_bytes_are_a_list_or_an_error(
            mut bytes in proptest::collection::vec(prop_oneof![0_u8..33, any::<u8>()], 0..64),
            version in 1_u8..3,
        ) {
            if let Some(head) = bytes.first_chunk_mut::<4>() {
                *head = [version, 0, 0, 0];
            }
            let _ = acl_to_xattr(&bytes);
            let _ = acl_from_xattr(&bytes);
        }
    }
}
