//! Names: how entries are shown, and how a look-up compares them.

use crate::inode::Snapshot;
use crate::{Ext4, Result, Structure};
use dentree_ext4_format::casefold::FoldedName;
use dentree_ext4_format::hash::{CharSign, HashSeed, HashVersion, MajorHash};
use dentree_ext4_format::{Incompat, InodeFlags, LogicalBlock, NoKeyName};

/// `s_encoding_flags`: names that are not of the encoding are refused.
const STRICT_ENCODING: u16 = 1;
/// `s_flags`: names were hashed as unsigned bytes.
const UNSIGNED_HASH: u32 = 2;

/// A name that is looked for.
pub(crate) enum Wanted<'a> {
    /// Byte by byte.
    Exact(&'a [u8]),
    /// Whatever its case.
    Folded(FoldedName<'a>),
    /// By what is shown of an encrypted name.
    NoKey(NoKeyName),
    /// A name that nothing has: in an encrypted directory, one that no encrypted name is shown as.
    Impossible,
}

impl Wanted<'_> {
    /// Whether an entry has the name.
    pub(crate) fn is(&self, entry: &[u8]) -> bool {
        match self {
            Wanted::Exact(name) => *name == entry,
            Wanted::Folded(name) => name.matches(entry),
            Wanted::NoKey(name) => name.matches(entry),
            Wanted::Impossible => false,
        }
    }

    /// The hash that places the name in an htree; `None` where only a key could tell.
    pub(crate) fn hash(&self, version: HashVersion, seed: HashSeed) -> Option<MajorHash> {
        let bytes = match self {
            Wanted::Exact(name) => name,
            Wanted::Folded(name) => name.hash_input(),
            Wanted::NoKey(name) => return version.hash(b"", seed).map(|_| name.hash()),
            Wanted::Impossible => b"",
        };
        version.hash(bytes, seed).map(|hash| hash.major)
    }
}

impl Ext4 {
    /// Whether a directory ignores case.
    pub(crate) fn is_casefolded(&self, dir: &Snapshot) -> bool {
        dir.has(InodeFlags::CASEFOLD) && self.sb.incompat.has(Incompat::CASEFOLD)
    }

    /// The form that all spellings of `name` share in `dir`, where it ignores case.
    pub(crate) fn folded(&self, dir: &Snapshot, name: &[u8]) -> Option<Vec<u8>> {
        let folds = self.is_casefolded(dir) && !dir.has(InodeFlags::ENCRYPT);
        folds.then(|| {
            FoldedName::new(name, false).map_or(name.to_vec(), |folded| folded.hash_input().to_vec())
        })
    }

    /// How `name` is looked for in `dir`; `None` where the file system takes no such names.
    pub(crate) fn wanted<'a>(&self, dir: &Snapshot, name: &'a [u8]) -> Option<Wanted<'a>> {
        if dir.has(InodeFlags::ENCRYPT) {
            return Some(NoKeyName::decode(name).map_or(Wanted::Impossible, Wanted::NoKey));
        }
        if !self.is_casefolded(dir) {
            return Some(Wanted::Exact(name));
        }
        let strict = self.sb.encoding_flags & STRICT_ENCODING != 0;
        FoldedName::new(name, strict).ok().map(Wanted::Folded)
    }

    /// Whether the file system hashes names as signed or as unsigned bytes.
    pub(crate) fn hash_sign(&self) -> CharSign {
        if self.sb.flags & UNSIGNED_HASH != 0 { CharSign::Unsigned } else { CharSign::Signed }
    }

    pub(crate) fn hash_seed(&self) -> HashSeed {
        HashSeed::new(self.sb.hash_seed)
    }

    /// How the names of an encrypted directory are hashed to be shown: as its index says, else (one block, or
    /// inline) by default; `None` for directories that the kernel lists without hashes.
    pub(crate) fn shown_hash(&self, dir: &Snapshot) -> Result<Option<HashVersion>> {
        if self.is_indexed(dir) {
            let block = LogicalBlock(0);
            let (buffer, place) = self.dir_block(dir, block, dir.place(Structure::DirectoryIndex(block)))?;
            let root = self.parse_root(&buffer).map_err(|problem| place.corrupt(problem))?;
            return Ok(Some(root.hash_version));
        }
        let short =
            dir.has(InodeFlags::INLINE_DATA) || dir.inode.size == u64::from(self.sb.block_size.bytes());
        Ok(HashVersion::from_disk(self.sb.default_hash_version, self.hash_sign()).filter(|_| short))
    }

    /// An encrypted name as the kernel shows it without the key.
    pub(crate) fn shown_name(&self, encrypted: &[u8], version: Option<HashVersion>) -> Vec<u8> {
        let hash = version.and_then(|version| version.hash(encrypted, self.hash_seed()));
        let hashes = hash.map_or([0, 0], |hash| [hash.major.get(), hash.minor]);
        NoKeyName::new(encrypted, hashes).encode()
    }
}
