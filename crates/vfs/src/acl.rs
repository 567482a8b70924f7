//! POSIX access control lists. Source: acl(5).
//!
//! A list is an extended attribute ([`ACCESS`], [`DEFAULT`]) in the format of `getxattr(2)`: a
//! version, then entries of tag, permissions and id. Permission bits mirror the entries of the
//! owner, the mask (without one, the group) and others.

use crate::{Access, Error, Result};

/// Decides access.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// Inherited by new inodes of a directory.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: [u8; 4] = 2_u32.to_le_bytes();
const ENTRY_LEN: usize = 8;
const ALL: u16 = 7;

/// In the order of a list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Tag {
    Owner = 0x01,
    User = 0x02,
    Group = 0x04,
    NamedGroup = 0x08,
    Mask = 0x10,
    Others = 0x20,
}

const TAGS: [Tag; 6] = [Tag::Owner, Tag::User, Tag::Group, Tag::NamedGroup, Tag::Mask, Tag::Others];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    tag: Tag,
    permissions: u16,
    /// For named users and groups.
    id: u32,
}

/// Complete and in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Acl(Vec<Entry>);

impl Acl {
    /// `None`: a list without entries.
    pub(crate) fn parse(value: &[u8]) -> Result<Option<Acl>> {
        let entries = value.strip_prefix(&VERSION).ok_or(Error::Invalid)?;
        let (entries, rest) = entries.as_chunks::<ENTRY_LEN>();
        if !rest.is_empty() {
            return Err(Error::Invalid);
        }
        let entries = entries.iter().map(|&[t0, t1, p0, p1, i0, i1, i2, i3]| {
            let (tag, permissions) = (u16::from_le_bytes([t0, t1]), u16::from_le_bytes([p0, p1]));
            let tag = TAGS.into_iter().find(|candidate| *candidate as u16 == tag).ok_or(Error::Invalid)?;
            if permissions & !ALL != 0 {
                return Err(Error::Invalid);
            }
            Ok(Entry { tag, permissions, id: u32::from_le_bytes([i0, i1, i2, i3]) })
        });
        let acl = Acl(entries.collect::<Result<_>>()?);
        if acl.0.is_empty() {
            return Ok(None);
        }
        if acl.is_valid() { Ok(Some(acl)) } else { Err(Error::Invalid) }
    }

    /// One entry each for owner, group and others, and a mask if there are named ones.
    fn is_valid(&self) -> bool {
        let count = |tag| self.0.iter().filter(|entry| entry.tag == tag).count();
        let has_named = count(Tag::User) + count(Tag::NamedGroup) > 0;
        self.0.is_sorted_by_key(|entry| entry.tag)
            && [Tag::Owner, Tag::Group, Tag::Others].into_iter().all(|tag| count(tag) == 1)
            && count(Tag::Mask) <= 1
            && (!has_named || count(Tag::Mask) == 1)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut value = VERSION.to_vec();
        for entry in &self.0 {
            let id = if matches!(entry.tag, Tag::User | Tag::NamedGroup) { entry.id } else { u32::MAX };
            value.extend_from_slice(&(entry.tag as u16).to_le_bytes());
            value.extend_from_slice(&entry.permissions.to_le_bytes());
            value.extend_from_slice(&id.to_le_bytes());
        }
        value
    }

    /// Whether permission bits express it.
    pub(crate) fn is_minimal(&self) -> bool {
        self.0.len() == 3
    }

    fn of(&self, tag: Tag) -> Option<u16> {
        self.0.iter().find(|entry| entry.tag == tag).map(|entry| entry.permissions)
    }

    /// The entry that mirrors the group's permission bits.
    fn group_class(&self) -> Tag {
        if self.of(Tag::Mask).is_some() { Tag::Mask } else { Tag::Group }
    }

    /// Permission bits of the inode.
    pub(crate) fn permissions(&self) -> u16 {
        let of = |tag| self.of(tag).unwrap_or(0);
        of(Tag::Owner) << 6 | of(self.group_class()) << 3 | of(Tag::Others)
    }

    pub(crate) fn set_permissions(&mut self, permissions: u16) {
        self.each_class(|entry, shift| entry.permissions = permissions >> shift & ALL);
    }

    /// Limits a default list to a new inode's permission bits.
    pub(crate) fn restrict(&mut self, permissions: u16) {
        self.each_class(|entry, shift| entry.permissions &= permissions >> shift & ALL);
    }

    /// With the shift of the permission bits.
    fn each_class(&mut self, each: impl Fn(&mut Entry, u16)) {
        let group = self.group_class();
        for entry in &mut self.0 {
            match entry.tag {
                Tag::Owner => each(entry, 6),
                Tag::Others => each(entry, 0),
                tag if tag == group => each(entry, 3),
                _ => {}
            }
        }
    }

    /// For users other than the owner. `is_in` is the user's membership; `group` is the inode's.
    pub(crate) fn grants(&self, uid: u32, is_in: impl Fn(u32) -> bool, group: u32, access: Access) -> bool {
        let allows = |permissions: u16| access.is_within(permissions);
        let mask = self.of(Tag::Mask).unwrap_or(ALL);
        if let Some(entry) = self.0.iter().find(|entry| entry.tag == Tag::User && entry.id == uid) {
            return allows(entry.permissions & mask);
        }
        let mut groups = self
            .0
            .iter()
            .filter(|entry| match entry.tag {
                Tag::Group => is_in(group),
                Tag::NamedGroup => is_in(entry.id),
                _ => false,
            })
            .peekable();
        if groups.peek().is_none() {
            return allows(self.of(Tag::Others).unwrap_or(0));
        }
        groups.any(|entry| allows(entry.permissions & mask))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut value = VERSION.to_vec();
        for (tag, permissions, id) in entries {
            value.extend_from_slice(&tag.to_le_bytes());
            value.extend_from_slice(&permissions.to_le_bytes());
            value.extend_from_slice(&id.to_le_bytes());
        }
        value
    }

    fn acl(entries: &[(u16, u16, u32)]) -> Acl {
        Acl::parse(&value(entries)).unwrap().unwrap()
    }

    /// Owner rw, user 7 rwx, group r, group 9 rw, mask rw, others nothing.
    fn example() -> Acl {
        acl(&[(1, 6, !0), (2, 7, 7), (4, 4, !0), (8, 6, 9), (16, 6, !0), (32, 0, !0)])
    }

    #[test]
    fn encoding_a_parsed_list_restores_its_value() {
        let entries = [(1, 6, !0), (2, 7, 7), (4, 4, !0), (8, 6, 9), (16, 6, !0), (32, 0, !0)];
        assert_eq!(acl(&entries).encode(), value(&entries));
        assert_eq!(Acl::parse(&VERSION).unwrap(), None);
    }

    #[test]
    fn incomplete_or_unordered_lists_are_invalid() {
        for entries in [
            &[(1, 6, 0), (4, 4, 0)][..],
            &[(4, 4, 0), (1, 6, 0), (32, 0, 0)],
            &[(1, 6, 0), (1, 6, 0), (4, 4, 0), (32, 0, 0)],
            &[(1, 6, 0), (2, 7, 7), (4, 4, 0), (32, 0, 0)],
            &[(1, 8, 0), (4, 4, 0), (32, 0, 0)],
            &[(3, 6, 0), (4, 4, 0), (32, 0, 0)],
        ] {
            assert!(matches!(Acl::parse(&value(entries)), Err(Error::Invalid)), "{entries:?}");
        }
        assert!(Acl::parse(&[1, 0, 0, 0]).is_err());
        assert!(Acl::parse(&example().encode()[..20]).is_err());
    }

    #[test]
    fn named_users_precede_groups_and_groups_precede_others() {
        let may =
            |uid: u32, groups: &[u32], access| example().grants(uid, |id| groups.contains(&id), 100, access);
        assert!(may(7, &[], Access::WRITE), "a named user");
        assert!(!may(7, &[], Access::EXECUTE), "masked");
        assert!(!may(7, &[100], Access::EXECUTE));
        assert!(may(8, &[100], Access::READ) && !may(8, &[100], Access::WRITE), "the group");
        assert!(may(8, &[100, 9], Access::WRITE), "one of the groups is enough");
        assert!(!may(8, &[], Access::READ), "others");
    }

    #[test]
    fn permission_bits_mirror_entries_of_the_list() {
        let mut acl = example();
        assert_eq!(acl.permissions(), 0o660);
        acl.set_permissions(0o751);
        assert_eq!((acl.permissions(), acl.of(Tag::Group)), (0o751, Some(4)));
        acl.restrict(0o644);
        assert_eq!((acl.permissions(), acl.of(Tag::User)), (0o640, Some(7)));
        let mut minimal = super::tests::acl(&[(1, 6, 0), (4, 4, 0), (32, 4, 0)]);
        assert!(minimal.is_minimal() && !acl.is_minimal());
        minimal.set_permissions(0o750);
        assert_eq!(minimal.permissions(), 0o750);
    }
}
