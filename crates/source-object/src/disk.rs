//! Disk cache of an object's blocks, shared by runs and processes.
//!
//! A sparse file per address: a page with the object's identity, a record per block, then each
//! block at its offset. A record is the block's digest (BLAKE3, keyed by the identity) or zeros.
//!
//! # Guarantees
//! - A block counts only if its digest matches; what a crash, a full disk or another process left
//!   incomplete is fetched again. No locks or flushes are needed.
//! - A file is named once its first page is complete, and its identity never changes. A replaced
//!   object gets a new file under the name; readers keep the old one.
//! - File names are digests. Addresses are stored without the query, which may hold a signature.
//!   Both are readable by the user only.

use crate::host;
use crate::identity::ObjectIdentity;
use dentree_blockdev::FileExt;
use dentree_source_blocks::{BLOCK, Store};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::fs::{self, File};
use std::io;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

/// Place and size of the cache.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// Directory, created if missing.
    pub dir: PathBuf,
    /// Disk bytes for all objects; each fetching process may exceed it by 16 MiB.
    pub size: u64,
}

/// A cached object.
#[derive(Clone, Debug)]
pub struct Cached {
    /// Address without query.
    pub address: String,
    /// Length in bytes.
    pub len: u64,
    /// Disk bytes of its file.
    pub on_disk: u64,
    /// Last opened.
    pub used: SystemTime,
    file: PathBuf,
}

/// First page of a file.
#[derive(Serialize, Deserialize)]
struct Page {
    address: String,
    identity: ObjectIdentity,
}

const PAGE: u64 = 4096;
const RECORD: u64 = 16;
/// Written bytes between measurements of the cache.
const MEASURE_EVERY: i64 = 16 << 20;
const EXTENSION: &str = "blocks";
/// What the name of a file begins with until its first page is complete.
const UNNAMED: &str = ".new-";
/// A file younger than this may be one that its maker has not locked yet.
const MAKING: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct DiskCache {
    file: File,
    pub(crate) identity: ObjectIdentity,
    key: [u8; 32],
    path: PathBuf,
    options: CacheOptions,
    /// Bytes until the next measurement; always negative if writing has stopped.
    room: AtomicI64,
    measuring: Mutex<()>,
}

/// Cached objects, the most recent first.
///
/// # Errors
/// Those of reading an existing directory.
pub fn cached(dir: &Path) -> io::Result<Vec<Cached>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let file = entry?.path();
        if file.extension().is_some_and(|extension| extension == EXTENSION)
            && let Some(cached) = look(file)
        {
            found.push(cached);
        }
    }
    found.sort_by_key(|cached| Reverse(cached.used));
    Ok(found)
}

/// `None`: just removed, or not a cache file.
fn look(path: PathBuf) -> Option<Cached> {
    let file = File::open(&path).ok()?;
    let (page, metadata) = (read_page(&file)?, file.metadata().ok()?);
    Some(Cached {
        address: page.address,
        len: page.identity.len,
        on_disk: host::allocated(&metadata),
        used: metadata.modified().ok()?,
        file: path,
    })
}

impl Cached {
    /// Removes it. Processes that read it keep it.
    ///
    /// # Errors
    /// Those of removing a file.
    pub fn remove(&self) -> io::Result<()> {
        fs::remove_file(&self.file)
    }
}

fn read_page(file: &File) -> Option<Page> {
    let mut page = [0; PAGE as usize];
    file.read_exact_at(&mut page, 0).ok()?;
    let (digest, text) = page.split_at(blake3::OUT_LEN);
    let text = &text[..text.iter().position(|byte| *byte == 0)?];
    (blake3::hash(text).as_bytes() == digest).then(|| serde_json::from_slice(text).ok())?
}

/// Digest and text.
fn page_bytes(page: &Page) -> io::Result<Vec<u8>> {
    let text = serde_json::to_vec(page)?;
    if text.len() + blake3::OUT_LEN >= PAGE as usize {
        return Err(io::Error::other("the address is too long"));
    }
    Ok([blake3::hash(&text).as_bytes(), &text[..]].concat())
}

/// Stored address and file name.
fn name(address: &str) -> (String, String) {
    let kept = match url::Url::parse(address) {
        Ok(mut url) => {
            url.set_query(None);
            // Fails only for addresses without either.
            let _ = (url.set_username(""), url.set_password(None));
            url.to_string()
        }
        Err(_) => address.to_owned(),
    };
    let file = format!("{}.{EXTENSION}", &blake3::hash(kept.as_bytes()).to_hex()[..32]);
    (kept, file)
}

/// Removes files that never got their names. A failure leaves them for the next time.
fn sweep(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        if !entry.file_name().to_string_lossy().starts_with(UNNAMED) {
            continue;
        }
        let is_old = |metadata: fs::Metadata| metadata.modified().is_ok_and(|time| age(time) > MAKING);
        let is_left = |file: File| file.metadata().is_ok_and(is_old) && file.try_lock().is_ok();
        if File::open(entry.path()).is_ok_and(is_left) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Nothing, for a time that is still to come.
fn age(time: SystemTime) -> Duration {
    time.elapsed().unwrap_or_default()
}

impl DiskCache {
    /// The file of an address, of whichever object it was. Removes what processes that were killed
    /// have left in the cache.
    pub(crate) fn known(options: &CacheOptions, address: &str) -> Option<Self> {
        sweep(&options.dir);
        let path = options.dir.join(name(address).1);
        let file = File::options().read(true).write(true).open(&path).ok()?;
        let page = read_page(&file)?;
        let _ = file.set_modified(SystemTime::now());
        Some(Self::new(file, page.identity, path, options))
    }

    /// Creates the file, replacing an older one.
    pub(crate) fn make(options: &CacheOptions, address: &str, identity: &ObjectIdentity) -> io::Result<Self> {
        host::make_private(&options.dir)?;
        let (address, name) = name(address);
        let page = page_bytes(&Page { address, identity: identity.clone() })?;
        let mut file = tempfile::Builder::new().prefix(UNNAMED).tempfile_in(&options.dir)?;
        // Held until it has its name: it is not swept away.
        file.as_file().lock()?;
        file.write_all(&page)?;
        let path = options.dir.join(name);
        let made = Self::new(file.as_file().try_clone()?, identity.clone(), path, options);
        made.file.set_len(made.place(made.identity.len.div_ceil(BLOCK)))?;
        file.persist(&made.path)?;
        Ok(made)
    }

    fn new(file: File, identity: ObjectIdentity, path: PathBuf, options: &CacheOptions) -> Self {
        let seed = serde_json::to_vec(&identity).unwrap_or_default();
        let (key, options) = (blake3::derive_key("dentree cache of an object", &seed), options.clone());
        DiskCache { file, identity, key, path, options, room: AtomicI64::new(0), measuring: Mutex::default() }
    }

    fn record(&self, number: u64) -> u64 {
        PAGE + number * RECORD
    }

    /// Offset of a block.
    fn place(&self, number: u64) -> u64 {
        let records = self.record(self.identity.len.div_ceil(BLOCK));
        records.next_multiple_of(BLOCK) + number * BLOCK
    }

    fn digest(&self, number: u64, bytes: &[u8]) -> [u8; RECORD as usize] {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(&number.to_le_bytes()).update(bytes);
        let mut digest = [0; RECORD as usize];
        digest.copy_from_slice(&hasher.finalize().as_bytes()[..RECORD as usize]);
        digest
    }

    fn recorded(&self, number: u64) -> Option<[u8; RECORD as usize]> {
        let mut record = [0; RECORD as usize];
        self.file.read_exact_at(&mut record, self.record(number)).ok()?;
        (record != [0; RECORD as usize]).then_some(record)
    }

    /// Measures the cache and evicts the least recently used until there is room.
    fn make_room(&self) -> bool {
        let _measuring = self.measuring.lock();
        let room = self.room.load(Relaxed);
        if !(-MEASURE_EVERY..=0).contains(&room) {
            return room > 0;
        }
        let mut all = cached(&self.options.dir).unwrap_or_default();
        let budget = i64::try_from(self.options.size).unwrap_or(i64::MAX);
        let mut left = budget - all.iter().map(|object| object.on_disk as i64).sum::<i64>();
        while left < MEASURE_EVERY
            && let Some(oldest) = all.pop()
        {
            if oldest.file != self.path && oldest.remove().is_ok() {
                left += oldest.on_disk as i64;
            }
        }
        let has_room = left >= BLOCK as i64;
        self.room.store(if has_room { left.min(MEASURE_EVERY) } else { i64::MIN / 2 }, Relaxed);
        has_room
    }
}

impl Store for DiskCache {
    fn has(&self, number: u64) -> bool {
        self.recorded(number).is_some()
    }

    fn get(&self, number: u64) -> Option<Vec<u8>> {
        let record = self.recorded(number)?;
        let len = BLOCK.min(self.identity.len - number * BLOCK);
        let mut bytes = vec![0; len as usize];
        self.file.read_exact_at(&mut bytes, self.place(number)).ok()?;
        (self.digest(number, &bytes) == record).then_some(bytes)
    }

    /// A failure stops all writing.
    fn put(&self, number: u64, bytes: &[u8]) {
        if self.room.fetch_sub(bytes.len() as i64, Relaxed) < bytes.len() as i64 && !self.make_room() {
            return;
        }
        let written = self
            .file
            .write_all_at(bytes, self.place(number))
            .and_then(|()| self.file.write_all_at(&self.digest(number, bytes), self.record(number)));
        if written.is_err() {
            self.room.store(i64::MIN / 2, Relaxed);
        }
    }
}
