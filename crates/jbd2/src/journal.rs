//! The journal as its users see it.

use std::sync::Arc;
use std::time::Duration;

use dentree_bufcache::BufCache;

use crate::committer::{self, Store};
use crate::error::{Cause, Error};
use crate::format::Tid;
use crate::handle::Handle;
use crate::log::Log;
use crate::reader::JournalLocation;
use crate::shared::Shared;
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::{Mutex, lock, thread};

/// How a journal is written.
#[derive(Clone, Copy, Debug, Default)]
pub struct JournalOptions {
    /// The running transaction is committed after so long at the latest. `None`: only when somebody asks for it, or it is
    /// large.
    pub interval: Option<Duration>,
    /// The file system has checksums of its metadata (`metadata_csum`): the journal gets them too.
    pub has_checksums: bool,
    /// The file system counts its blocks with 64 bits (`64bit`): the journal does, too.
    pub is_64bit: bool,
}

/// Makes changes of a file system's metadata atomic, see the [crate's page](crate).
///
/// Changes are made through a [`Handle`], in the blocks of a cache:
///
/// ```
/// use std::sync::Arc;
/// use dentree_blockdev::{BlockDevice, MemoryDevice};
/// use dentree_bufcache::BufCache;
/// use dentree_jbd2::{Journal, JournalOptions};
///
/// let device = MemoryDevice::new(1 << 20);
/// let cache = Arc::new(BufCache::new(Arc::new(device.clone()), 4096, 1 << 20));
/// let journal = Journal::without_log(Arc::clone(&cache), JournalOptions::default())?;
///
/// let mut handle = journal.start(2)?;
/// handle.update(7, |bytes| bytes[0] = 1)?;
/// handle.create(8, |bytes| bytes[..5].copy_from_slice(b"inode"))?;
/// let tid = handle.stop();
/// assert_eq!((cache.get(7)?[0], device.to_vec()[7 * 4096]), (1, 0));
///
/// journal.wait_commit(tid)?;
/// assert_eq!(device.to_vec()[7 * 4096], 1);
/// journal.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Journal {
    shared: Arc<Shared>,
    thread: Mutex<Option<thread::JoinHandle<()>>>,
    recorded: i32,
}

impl Journal {
    /// For an image without a journal: a commit writes the changed blocks home and flushes the device. A crash in the middle
    /// of that leaves what `e2fsck` is there for.
    ///
    /// # Errors
    /// [`Error::Write`] where no thread can be started.
    pub fn without_log(cache: Arc<BufCache>, options: JournalOptions) -> Result<Journal, Error> {
        // A transaction takes a part of the cache.
        let most = u32::try_from(cache.capacity() / 4).unwrap_or(u32::MAX).clamp(1024, 65_536);
        Journal::spawn(cache, Store::Home, Tid(1), most, options)
    }

    /// Opens the journal at `location` for writing. It must be clean: see [`replay`](crate::replay).
    ///
    /// Nothing is written before the first commit. The file system's own mark that its journal is in use (`needs_recovery`)
    /// is the caller's: to be set before the first change, and taken away after [`close`](Journal::close).
    ///
    /// # Errors
    /// [`Error::NotClean`], those of [`recover`](crate::recover), and [`Error::Write`] where no thread can be started.
    pub fn open(
        cache: Arc<BufCache>,
        location: &JournalLocation,
        options: JournalOptions,
    ) -> Result<Journal, Error> {
        let mut log = Log::open(Arc::clone(&cache), location, options)?;
        let (first, most, recorded) = (log.next(), log.most_credits(), log.recorded_error());
        let mut journal = Journal::spawn(cache, Store::Log(Box::new(log)), first, most, options)?;
        journal.recorded = recorded;
        Ok(journal)
    }

    fn spawn(
        cache: Arc<BufCache>,
        store: Store,
        first: Tid,
        most: u32,
        options: JournalOptions,
    ) -> Result<Journal, Error> {
        let shared = Arc::new(Shared::new(cache, store, first, most, options.interval));
        let its = Arc::clone(&shared);
        let thread = thread::Builder::new().name("journal".into()).spawn(move || committer::run(&its));
        Ok(Journal { shared, thread: Mutex::new(Some(thread.map_err(Error::Write)?)), recorded: 0 })
    }

    /// Joins the running transaction, to change up to `credits` blocks in it. Waits while a commit takes the transaction over,
    /// and for a commit where there is no room in it: the caller must have no other handle.
    ///
    /// # Errors
    /// [`Error::Aborted`], and [`Error::TooLarge`].
    #[inline]
    pub fn start(&self, credits: u32) -> Result<Handle<'_>, Error> {
        Handle::start(&self.shared, credits)
    }

    /// Most credits that a handle can have.
    pub fn most_credits(&self) -> u32 {
        self.shared.gate.most()
    }

    /// Asks for the commit of a transaction, by the journal's own thread, and does not wait for it.
    pub fn commit(&self, tid: Tid) {
        self.shared.request(tid);
    }

    /// Returns when a transaction is on stable storage. Where it is not yet on its way, and no other thread commits, this one does;
    /// many threads that wait share a commit.
    ///
    /// Data that was written to the device before the commit began is on stable storage with it. Where the transaction had
    /// been committed before the call nothing is flushed.
    ///
    /// # Errors
    /// [`Error::Aborted`]: the transaction is lost.
    pub fn wait_commit(&self, tid: Tid) -> Result<(), Error> {
        Ok(self.shared.commit(tid)?)
    }

    /// Returns when a transaction *and* all that was written to the device before the call are on stable storage: what fsync(2)
    /// needs of a file that `tid` changed last.
    ///
    /// # Errors
    /// [`Error::Aborted`]: the transaction is lost. [`Error::Write`]: what was written past the journal may be lost.
    pub fn sync(&self, tid: Tid) -> Result<(), Error> {
        // A transaction that still runs is flushed by its commit, from now on. Of one that is being committed the flush may have
        // begun before.
        let is_flushed_later = self.shared.is_running(tid);
        self.wait_commit(tid)?;
        if is_flushed_later { Ok(()) } else { self.shared.cache.device().flush().map_err(Error::Write) }
    }

    /// Commits all changes made so far, and waits for that. Where there are none the device is flushed.
    ///
    /// # Errors
    /// [`Error::Aborted`].
    pub fn force_commit(&self) -> Result<(), Error> {
        self.wait_commit(self.shared.running())
    }

    /// Commits all changes made so far, writes all blocks home and marks the journal as clean.
    ///
    /// # Errors
    /// [`Error::Aborted`].
    pub fn checkpoint(&self) -> Result<(), Error> {
        self.force_commit()?;
        Ok(self.shared.checkpoint()?)
    }

    /// [`checkpoint`](Journal::checkpoint), and the end: nothing can be started any more. To be called when no
    /// handle is open, or it waits for that.
    ///
    /// # Errors
    /// [`Error::Aborted`], if the journal was aborted before: what is committed waits in it to be replayed.
    pub fn close(&self) -> Result<(), Error> {
        let outcome = self.checkpoint();
        self.end();
        outcome
    }

    /// Ends the journal at once: nothing more is committed. Changes that are not committed are lost, those who wait for them
    /// get `cause`, and so does everybody who starts a handle.
    pub fn abort(&self, cause: impl Into<String>) {
        self.shared.fail(Arc::new(Cause::FileSystem(cause.into())));
    }

    /// Whether the journal was aborted: nothing can be started any more. Asks no lock.
    pub fn is_aborted(&self) -> bool {
        self.shared.gate.is_closed()
    }

    /// Why the journal was aborted, if it was.
    pub fn error(&self) -> Option<Arc<Cause>> {
        self.shared.failure()
    }

    /// What a journal that was aborted before it was opened here has recorded, as a negative error number; 0 for nothing. The
    /// file system is then to be checked: it stays recorded until `e2fsck` has done so.
    pub fn recorded_error(&self) -> i32 {
        self.recorded
    }

    /// The running transaction.
    pub fn running(&self) -> Tid {
        self.shared.running()
    }

    /// How many blocks were changed beyond the credits that were asked for. Anything but 0 is a defect of the caller's.
    pub fn overdrafts(&self) -> u64 {
        self.shared.overdrafts.load(Relaxed)
    }

    fn end(&self) {
        self.shared.close();
        if let Some(thread) = lock(&self.thread).take() {
            // Had it panicked, the failure says so.
            let _ = thread.join();
        }
    }
}

/// Closes the journal as well as can be done. Whoever wants to know the outcome calls [`close`](Journal::close).
impl Drop for Journal {
    fn drop(&mut self) {
        if lock(&self.thread).is_some() && !std::thread::panicking() {
            let _ = self.checkpoint();
        }
        self.end();
    }
}
