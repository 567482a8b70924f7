//! Encrypted names, as the kernel shows them without the key.
//!
//! A name is URL-safe base64 of both directory hashes, the encrypted name's first 149 bytes, and
//! the rest's SHA-256. It has at most 252 bytes, no `/`, and identifies the entry.

use crate::hash::MajorHash;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

/// Bytes shown unchanged.
const SHOWN_LEN: usize = 149;
const DIGEST_LEN: usize = 32;

/// An entry's name without its key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NoKeyName {
    hashes: [u32; 2],
    /// First bytes of the encrypted name.
    shown: Vec<u8>,
    /// Of the rest.
    digest: Option<[u8; DIGEST_LEN]>,
}

impl NoKeyName {
    /// `hashes` are major and minor; 0 if the directory's index is not used.
    pub fn new(encrypted: &[u8], hashes: [u32; 2]) -> NoKeyName {
        let (shown, rest) = encrypted.split_at(encrypted.len().min(SHOWN_LEN));
        let digest = (!rest.is_empty()).then(|| Sha256::digest(rest).into());
        NoKeyName { hashes, shown: shown.to_vec(), digest }
    }

    /// The name shown to users.
    pub fn encode(&self) -> Vec<u8> {
        let [major, minor] = self.hashes.map(u32::to_le_bytes);
        let digest = self.digest.as_ref().map_or(&[][..], |digest| digest);
        URL_SAFE_NO_PAD.encode([&major, &minor, &self.shown[..], digest].concat()).into_bytes()
    }

    /// `None`: not such a name.
    pub fn decode(name: &[u8]) -> Option<NoKeyName> {
        let bytes = URL_SAFE_NO_PAD.decode(name).ok()?;
        let (major, rest) = bytes.split_first_chunk()?;
        let (minor, rest) = rest.split_first_chunk()?;
        let (shown, digest) = rest.split_at(rest.len().min(SHOWN_LEN));
        let digest = if digest.is_empty() { None } else { Some(digest.try_into().ok()?) };
        let hashes = [major, minor].map(|bytes| u32::from_le_bytes(*bytes));
        (!shown.is_empty()).then(|| NoKeyName { hashes, shown: shown.to_vec(), digest })
    }

    /// Whether the entry `encrypted` has this name.
    pub fn matches(&self, encrypted: &[u8]) -> bool {
        let other = NoKeyName::new(encrypted, self.hashes);
        other == *self
    }

    /// The hash in an htree.
    pub fn hash(&self) -> MajorHash {
        let [major, _] = self.hashes;
        MajorHash::from_raw(major)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_by_its_shown_form() {
        for len in [1, 16, 148, 149, 150, 255] {
            let encrypted: Vec<u8> = (1..=255).take(len).collect();
            let shown = NoKeyName::new(&encrypted, [0xABCD_EF00, 7]).encode();
            assert!(shown.len() <= 252 && !shown.contains(&b'/'));
            let decoded = NoKeyName::decode(&shown).unwrap();
            assert!(decoded.matches(&encrypted), "{len}");
            assert_eq!(decoded.hash().get(), 0xABCD_EF00);
            let mut other = encrypted.clone();
            *other.last_mut().unwrap() ^= 1;
            assert!(!decoded.matches(&other), "{len}");
        }
    }

    #[test]
    fn other_names_are_not_decoded() {
        for name in [&b""[..], b"AAAA", b"plain name", &[b'A'; 255]] {
            assert_eq!(NoKeyName::decode(name), None);
        }
    }
}
