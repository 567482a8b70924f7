//! Basic authentication (RFC 7617) by a file in the format of `htpasswd -B`.
//!
//! bcrypt is slow by design and browsers send the password with every request, so a salted digest
//! recognizes each user's last good password. Comparisons take constant time.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bcrypt::HashParts;
use hyper::header::{AUTHORIZATION, HeaderMap};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard, PoisonError};
use subtle::ConstantTimeEq;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// Concurrent bcrypt checks: bounds the CPU that guessing takes.
const TRIALS: usize = 1;

/// Users and password hashes.
pub struct Passwords {
    users: HashMap<String, String>,
    salt: [u64; 2],
    /// By user.
    good: Mutex<HashMap<String, [u8; 32]>>,
    trials: Semaphore,
}

impl Passwords {
    /// Reads lines of `NAME:HASH`. Empty lines and lines with `#` are skipped; the first line of a
    /// name counts, as for Apache.
    ///
    /// # Errors
    /// A message with the line of a hash other than bcrypt; also if there is no user.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut users = HashMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, hash) =
                line.split_once(':').ok_or_else(|| format!("line {number} is not NAME:HASH"))?;
            hash.parse::<HashParts>()
                .map_err(|_| format!("line {number} has no bcrypt hash; make one with htpasswd -B"))?;
            users.entry(name.to_owned()).or_insert_with(|| hash.to_owned());
        }
        if users.is_empty() {
            return Err("it names no user; add one with htpasswd -B".into());
        }
        let salt = [0, 1].map(|_| RandomState::new().hash_one(0));
        Ok(Passwords { users, salt, good: Mutex::default(), trials: Semaphore::new(TRIALS) })
    }

    /// The authenticated user.
    pub(crate) async fn user(&self, headers: &HeaderMap) -> Option<String> {
        let (name, password) = credentials(headers)?;
        let digest = self.digest(&name, &password);
        let known = self.good().get(&name).copied();
        if known.is_some_and(|known| known.ct_eq(&digest).into()) {
            return Some(name);
        }
        // An unknown name takes as long as a known one.
        let hash = self.users.get(&name).or_else(|| self.users.values().next())?.clone();
        let _turn = self.trials.acquire().await.ok()?;
        let verified = spawn_blocking(move || bcrypt::verify(password, &hash)).await;
        if !matches!(verified, Ok(Ok(true))) || !self.users.contains_key(&name) {
            return None;
        }
        self.good().insert(name.clone(), digest);
        Some(name)
    }

    fn good(&self) -> MutexGuard<'_, HashMap<String, [u8; 32]>> {
        self.good.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn digest(&self, name: &str, password: &[u8]) -> [u8; 32] {
        let [a, b] = self.salt.map(u64::to_le_bytes);
        let parts = [&a[..], &b, name.as_bytes(), b":", password];
        parts.iter().fold(Sha256::new(), |digest, part| digest.chain_update(part)).finalize().into()
    }
}

fn credentials(headers: &HeaderMap) -> Option<(String, Vec<u8>)> {
    let (scheme, encoded) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let decoded =
        BASE64_STANDARD.decode(encoded.trim()).ok().filter(|_| scheme.eq_ignore_ascii_case("basic"))?;
    let colon = decoded.iter().position(|&byte| byte == b':')?;
    let name = String::from_utf8(decoded[..colon].to_vec()).ok()?;
    Some((name, decoded[colon + 1..].to_vec()))
}
