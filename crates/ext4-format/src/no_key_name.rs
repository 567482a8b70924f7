//! Names in encrypted directories as the kernel shows them without the key.
//!
//! Such a name is the URL-safe base64 form of both directory hashes of the encrypted name, of its
//! first 149 bytes, and of the SHA-256 of the rest if there is one. It has no `/` and at most 252
//! bytes, and suffices to find the entry again.

use crate::hash::MajorHash;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

/// How many bytes of an encrypted name are shown unchanged.
const SHOWN_LEN: usize = 149;
const DIGEST_LEN: usize = 32;

/// The name of an entry in a directory whose key is missing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NoKeyName {
    hashes: [u32; 2],
    /// The first bytes of the encrypted name.
    shown: Vec<u8>,
    /// The digest of the rest, if any.
    digest: Option<[u8; DIGEST_LEN]>,
}

impl NoKeyName {
    /// The name of the entry `encrypted`, with its major and minor hash (0 in a directory that is
    /// read without its index).
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

    /// Parses a name from a user; `None` if it has another form.
    pub fn decode(name: &[u8]) -> Option<NoKeyName> {
        let bytes = URL_SAFE_NO_PAD.decode(name).ok()?;
        let (major, rest) = bytes.split_first_chunk()?;
        let (minor, rest) = rest.split_first_chunk()?;
        let (shown, digest) = rest.split_at(rest.len().min(SHOWN_LEN));
        let digest = if digest.is_empty() { None } else { Some(digest.try_into().ok()?) };
        let hashes = [major, minor].map(|bytes| u32::from_le_bytes(*bytes));
        (!shown.is_empty()).then(|| NoKeyName { hashes, shown: shown.to_vec(), digest })
    }

    /// Whether it is the name of the entry called `encrypted` on disk.
    pub fn matches(&self, encrypted: &[u8]) -> bool {
        let other = NoKeyName::new(encrypted, self.hashes);
        other == *self
    }

    /// The hash that places the name in an htree.
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
