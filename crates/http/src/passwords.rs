//! Basic authentication (RFC 7617) by a file as `htpasswd -B` writes it.
//!
//! bcrypt is slow on purpose, and browsers send the password with every request: the last good
//! password of each user is recognized by a salted digest. Comparisons take constant time.

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

/// Passwords checked by bcrypt at the same time: guessing takes no more processors than this.
const TRIALS: usize = 1;

/// The users that may read, and the hashes of their passwords.
pub struct Passwords {
    users: HashMap<String, String>,
    salt: [u64; 2],
    /// Digests of good passwords, by user.
    good: Mutex<HashMap<String, [u8; 32]>>,
    trials: Semaphore,
}

impl Passwords {
    /// Reads lines of `NAME:HASH`. Empty lines and those that begin with `#` are skipped; of two
    /// lines with the same name the first counts, as for Apache.
    ///
    /// Fails, with a sentence that names the line, where a hash is not bcrypt's, and where there is
    /// no user at all.
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

    /// The user whose password a request has.
    pub(crate) async fn user(&self, headers: &HeaderMap) -> Option<String> {
        let (name, password) = credentials(headers)?;
        let digest = self.digest(&name, &password);
        let known = self.good().get(&name).copied();
        if known.is_some_and(|known| known.ct_eq(&digest).into()) {
            return Some(name);
        }
        // A name that is not known takes as long as one that is.
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

/// User and password of a request.
fn credentials(headers: &HeaderMap) -> Option<(String, Vec<u8>)> {
    let (scheme, encoded) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let decoded =
        BASE64_STANDARD.decode(encoded.trim()).ok().filter(|_| scheme.eq_ignore_ascii_case("basic"))?;
    let colon = decoded.iter().position(|&byte| byte == b':')?;
    let name = String::from_utf8(decoded[..colon].to_vec()).ok()?;
    Some((name, decoded[colon + 1..].to_vec()))
}
