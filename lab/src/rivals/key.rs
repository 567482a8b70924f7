//! The key of all map rivals: (parent, name), owned in the map and borrowed in lookups.

use std::hash::{Hash, Hasher};

use equivalent::Equivalent;

use crate::paths::Path;
use crate::tree::NodeId;

/// The longest name that a key holds inline. A key takes 32 bytes, an entry of a map 40; names from
/// 23 bytes on (one in twenty of the lab's trees) are out of line.
const INLINE: usize = 22;

/// A key as maps store it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    parent: u32,
    name: Name,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Name {
    Inline { len: u8, bytes: [u8; INLINE] },
    OutOfLine(Box<[u8]>),
}

impl Key {
    pub(crate) fn new(parent: NodeId, name: &[u8]) -> Self {
        let name = match u8::try_from(name.len()) {
            Ok(len) if name.len() <= INLINE => {
                let mut bytes = [0; INLINE];
                bytes[..name.len()].copy_from_slice(name);
                Name::Inline { len, bytes }
            }
            _ => Name::OutOfLine(name.into()),
        };
        Self { parent: parent.0, name }
    }

    #[inline]
    fn name(&self) -> &[u8] {
        match &self.name {
            Name::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Name::OutOfLine(bytes) => bytes,
        }
    }
}

impl Hash for Key {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        KeyRef { parent: NodeId(self.parent), name: self.name() }.hash(state);
    }
}

/// A key as walks look it up.
#[derive(Clone, Copy, Debug)]
pub struct KeyRef<'a> {
    pub(crate) parent: NodeId,
    pub(crate) name: &'a [u8],
}

impl Hash for KeyRef<'_> {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u32(self.parent.0);
        state.write(self.name);
    }
}

impl Equivalent<Key> for KeyRef<'_> {
    #[inline]
    fn equivalent(&self, key: &Key) -> bool {
        self.parent.0 == key.parent && self.name == key.name()
    }
}

/// scc has its own copy of this trait.
impl scc::Equivalent<Key> for KeyRef<'_> {
    #[inline]
    fn equivalent(&self, key: &Key) -> bool {
        Equivalent::equivalent(self, key)
    }
}

/// Walks a path through a lookup of one component.
#[inline]
pub(super) fn descend<'a>(
    path: Path<'a>,
    mut lookup: impl FnMut(KeyRef<'a>) -> Option<NodeId>,
) -> Option<u64> {
    let mut at = NodeId::ROOT;
    for name in path.components() {
        at = lookup(KeyRef { parent: at, name })?;
    }
    Some(u64::from(at.0))
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use super::*;
    use crate::rivals::hasher;

    #[test]
    fn owned_and_borrowed_keys_hash_and_compare_alike() {
        for name in [b"a".as_slice(), &[b'n'; 22], &[b'n'; 23], &[b'n'; 255]] {
            let owned = Key::new(NodeId(3), name);
            let borrowed = KeyRef { parent: NodeId(3), name };
            assert_eq!(hasher().hash_one(&owned), hasher().hash_one(borrowed));
            assert!(Equivalent::equivalent(&borrowed, &owned));
            assert!(!Equivalent::equivalent(&KeyRef { parent: NodeId(4), name }, &owned));
        }
        assert_eq!(size_of::<(Key, NodeId)>(), 40);
    }
}
