//! Names: comparison, hashing, no-key forms.

use crate::inode::Snapshot;
use crate::{Ext4, Result, Structure};
use dentree_ext4_format::casefold::FoldedName;
use dentree_ext4_format::hash::{CharSign, HashSeed, HashVersion, MajorHash};
use dentree_ext4_format::{Incompat, InodeFlags, LogicalBlock, NoKeyName};

/// `s_encoding_flags`: invalid names are refused.
const STRICT_ENCODING: u16 = 1;
/// `s_flags`: bytes are hashed as unsigned.
const UNSIGNED_HASH: u32 = 2;

pub(crate) enum SearchName<'a> {
    Exact(&'a [u8]),
    Folded(FoldedName<'a>),
    NoKey(NoKeyName),
    /// Not a no-key name, though the directory is encrypted.
    Impossible,
}

impl SearchName<'_> {
    pub(crate) fn matches(&self, entry: &[u8]) -> bool {
        match self {
            SearchName::Exact(name) => *name == entry,
            SearchName::Folded(name) => name.matches(entry),
            SearchName::NoKey(name) => name.matches(entry),
            SearchName::Impossible => false,
        }
    }

    /// `None` if it needs the key.
    pub(crate) fn hash(&self, version: HashVersion, seed: HashSeed) -> Option<MajorHash> {
        let bytes = match self {
            SearchName::Exact(name) => name,
            SearchName::Folded(name) => name.hash_input(),
            SearchName::NoKey(name) => return version.hash(b"", seed).map(|_| name.hash()),
            SearchName::Impossible => b"",
        };
        version.hash(bytes, seed).map(|hash| hash.major)
    }
}

impl Ext4 {
    pub(crate) fn is_casefolded(&self, dir: &Snapshot) -> bool {
        dir.has(InodeFlags::CASEFOLD) && self.sb.incompat.has(Incompat::CASEFOLD)
    }

    pub(crate) fn folded(&self, dir: &Snapshot, name: &[u8]) -> Option<Vec<u8>> {
        let folds = self.is_casefolded(dir) && !dir.has(InodeFlags::ENCRYPT);
        folds.then(|| {
            FoldedName::new(name, false).map_or(name.to_vec(), |folded| folded.hash_input().to_vec())
        })
    }

    /// `None` if the file system refuses such names.
    pub(crate) fn search_name<'a>(&self, dir: &Snapshot, name: &'a [u8]) -> Option<SearchName<'a>> {
        if dir.has(InodeFlags::ENCRYPT) {
            return Some(NoKeyName::decode(name).map_or(SearchName::Impossible, SearchName::NoKey));
        }
        if !self.is_casefolded(dir) {
            return Some(SearchName::Exact(name));
        }
        let strict = self.sb.encoding_flags & STRICT_ENCODING != 0;
        FoldedName::new(name, strict).ok().map(SearchName::Folded)
    }

    pub(crate) fn hash_sign(&self) -> CharSign {
        if self.sb.flags & UNSIGNED_HASH != 0 { CharSign::Unsigned } else { CharSign::Signed }
    }

    pub(crate) fn hash_seed(&self) -> HashSeed {
        HashSeed::new(self.sb.hash_seed)
    }

    /// The version of no-key names: the index's, else the default. `None` where the kernel lists
    /// without hashes.
    pub(crate) fn nokey_hash_version(&self, dir: &Snapshot) -> Result<Option<HashVersion>> {
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

    /// The name as the kernel shows it.
    pub(crate) fn nokey_name(&self, encrypted: &[u8], version: Option<HashVersion>) -> Vec<u8> {
        let hash = version.and_then(|version| version.hash(encrypted, self.hash_seed()));
        let hashes = hash.map_or([0, 0], |hash| [hash.major.get(), hash.minor]);
        NoKeyName::new(encrypted, hashes).encode()
    }
}
