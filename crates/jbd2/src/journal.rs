use std::io;
use std::sync::Arc;

use dentree_bufcache::BufCache;
use dentree_sync::atomic::Ordering::Relaxed;
use dentree_sync::{Mutex, thread};

use crate::before_commit::BeforeCommit;
use crate::committer;
use crate::error::{Cause, Error};
use crate::handle::Handle;
use crate::log::{JournalOptions, Log};
use crate::log_writer::LogWriter;
use crate::reader::JournalLocation;
use crate::shared::{Shared, Work};
use crate::tid::Tid;

/// Makes changes of metadata atomic; see the [crate].
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

/// While it exists, the journal commits nothing and writes no block in place.
pub struct Frozen<'a> {
    _work: Work<'a>,
}

impl Journal {
    /// For an image without a journal: a commit writes in place and flushes. After a crash the
    /// image needs `e2fsck`.
    ///
    /// # Errors
    /// [`Error::Write`]: no thread can be started.
    pub fn without_log(cache: Arc<BufCache>, options: JournalOptions) -> Result<Journal, Error> {
        // A transaction pins a part of the cache.
        let most = u32::try_from(cache.capacity() / 4).unwrap_or(u32::MAX).clamp(1024, 65_536);
        Journal::spawn(cache, LogWriter::default(), Tid(1), most, options)
    }

    /// Opens a clean journal for writing; see [`replay`](crate::replay).
    ///
    /// Nothing is written before the first commit. The caller sets `needs_recovery` before the
    /// first change, and clears it after [`close`](Journal::close).
    ///
    /// # Errors
    /// [`Error::NotClean`], those of [`recover`](crate::recover), and [`Error::Write`]: no thread
    /// can be started.
    pub fn open(
        cache: Arc<BufCache>,
        location: &JournalLocation,
        options: JournalOptions,
    ) -> Result<Journal, Error> {
        let mut log = Log::open(Arc::clone(&cache), location, options)?;
        let (first, most, recorded) = (log.next(), log.most_credits(), log.recorded_error());
        let mut journal = Journal::spawn(cache, LogWriter::in_log(log), first, most, options)?;
        journal.recorded = recorded;
        Ok(journal)
    }

    fn spawn(
        cache: Arc<BufCache>,
        writer: LogWriter,
        first: Tid,
        most: u32,
        options: JournalOptions,
    ) -> Result<Journal, Error> {
        let shared = Arc::new(Shared::new(cache, writer, first, most, options.interval));
        let its = Arc::clone(&shared);
        let thread = thread::Builder::new().name("journal".into()).spawn(move || committer::run(&its));
        Ok(Journal { shared, thread: Mutex::new(Some(thread.map_err(Error::Write)?)), recorded: 0 })
    }

    /// Sets the hook that runs on each locked transaction: it writes changes made in memory to
    /// their blocks. Only the first call has an effect.
    ///
    /// The hook runs on the committing thread: it must be short, must not use the journal, and must
    /// take no lock that a thread holds while it waits for a commit or starts a handle. An error
    /// aborts the journal.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
    /// # use dentree_blockdev::{BlockDevice, MemoryDevice};
    /// # use dentree_bufcache::BufCache;
    /// # use dentree_jbd2::{Journal, JournalOptions};
    /// # let device = MemoryDevice::new(1 << 20);
    /// # let cache = Arc::new(BufCache::new(Arc::new(device.clone()), 4096, 1 << 20));
    /// # let journal = Journal::without_log(Arc::clone(&cache), JournalOptions::default())?;
    /// let count = Arc::new(AtomicU8::new(0));
    /// let newest = Arc::clone(&count);
    /// journal.before_commit(move |changes| changes.update(7, |bytes| bytes[0] = newest.load(Relaxed)));
    ///
    /// let mut handle = journal.start(1)?;
    /// handle.update(7, |bytes| bytes[0] = 1)?;
    /// count.store(2, Relaxed);
    /// let tid = handle.stop();
    /// journal.wait_commit(tid)?;
    /// assert_eq!(device.to_vec()[7 * 4096], 2);
    /// # journal.close()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn before_commit(
        &self,
        hook: impl Fn(&mut BeforeCommit<'_>) -> io::Result<()> + Send + Sync + 'static,
    ) {
        let _ = self.shared.before_commit.set(Box::new(hook));
    }

    /// Starts a handle for up to `credits` blocks. May wait for a commit: the caller must have no
    /// other handle.
    ///
    /// # Errors
    /// [`Error::Aborted`] and [`Error::TooLarge`].
    #[inline]
    pub fn start(&self, credits: u32) -> Result<Handle<'_>, Error> {
        Handle::start(&self.shared, credits)
    }

    /// Most credits of a handle.
    pub fn most_credits(&self) -> u32 {
        self.shared.transaction.most()
    }

    /// Requests a commit without waiting for it.
    pub fn request_commit(&self, tid: Tid) {
        self.shared.request(tid);
    }

    /// Waits until a transaction is on stable storage, with all data written to the device before
    /// its commit. Waiters share commits.
    ///
    /// # Errors
    /// [`Error::Aborted`]: the transaction is lost.
    pub fn wait_commit(&self, tid: Tid) -> Result<(), Error> {
        Ok(self.shared.commit(tid)?)
    }

    /// Commits all changes so far. Without changes, flushes the device.
    ///
    /// # Errors
    /// [`Error::Aborted`].
    pub fn force_commit(&self) -> Result<(), Error> {
        self.wait_commit(self.shared.running())
    }

    /// Whether the running transaction has changes.
    pub fn has_changes(&self) -> bool {
        self.shared.transaction.credits() > 0
    }

    /// Commits all changes, writes all blocks in place, and marks the journal clean.
    ///
    /// # Errors
    /// [`Error::Aborted`].
    pub fn checkpoint(&self) -> Result<(), Error> {
        self.force_commit()?;
        Ok(self.shared.checkpoint()?)
    }

    /// Commits all changes so far, then nothing more until the result is dropped, and writes no
    /// block in place. Meanwhile the device, with its log replayed, holds one state. Changes go on
    /// until they need a commit.
    ///
    /// # Errors
    /// [`Error::Aborted`].
    pub fn freeze(&self) -> Result<Frozen<'_>, Error> {
        self.force_commit()?;
        Ok(Frozen { _work: self.shared.hold_writer()? })
    }

    /// Refuses new handles, waits for open ones, then calls [`checkpoint`](Journal::checkpoint).
    ///
    /// # Errors
    /// [`Error::Aborted`]: committed transactions are left for a replay.
    pub fn close(&self) -> Result<(), Error> {
        // First: a handle that started after the last commit would be lost.
        self.shared.transaction.close();
        let outcome = self.checkpoint();
        self.end();
        outcome
    }

    /// Aborts the journal. Uncommitted changes are lost; their waiters and all later callers get
    /// `cause`.
    pub fn abort(&self, cause: impl Into<String>) {
        self.shared.fail(Arc::new(Cause::FileSystem(cause.into())));
    }

    /// Takes no lock, because each change calls it.
    pub fn is_aborted(&self) -> bool {
        self.shared.transaction.is_aborted()
    }

    /// Why the journal was aborted.
    pub fn error(&self) -> Option<Arc<Cause>> {
        self.shared.failure()
    }

    /// The negative errno that an earlier abort recorded, or 0. It stays until `e2fsck` has checked
    /// the file system.
    pub fn recorded_error(&self) -> i32 {
        self.recorded
    }

    /// The running transaction.
    pub fn running(&self) -> Tid {
        self.shared.running()
    }

    /// Blocks changed beyond a handle's credits: a caller's defect, unless the handle shares its
    /// transaction with no other.
    pub fn overdrafts(&self) -> u64 {
        self.shared.overdrafts.load(Relaxed)
    }

    fn end(&self) {
        self.shared.close();
        if let Some(thread) = self.thread.lock().take() {
            // `failure` has the panic.
            let _ = thread.join();
        }
    }
}

/// Use [`close`](Journal::close) to get errors.
impl Drop for Journal {
    fn drop(&mut self) {
        if self.thread.lock().is_some() && !std::thread::panicking() {
            let _ = self.close();
        } else {
            self.end();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::io;
    use std::sync::Mutex;
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::SeqCst;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use dentree_blockdev::{BlockDevice, MemoryDevice};

    use super::*;
    use crate::recover;

    const BLOCK: usize = 1024;
    const JOURNAL_LEN: u64 = 64;

    /// The first flush lasts until a message arrives.
    struct Held {
        memory: MemoryDevice,
        flushes: AtomicU64,
        begins: Sender<()>,
        may_end: Mutex<Receiver<()>>,
    }

    impl BlockDevice for Held {
        fn size(&self) -> u64 {
            self.memory.size()
        }

        fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
            self.memory.read_at(offset, buf)
        }

        fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
            self.memory.write_at(offset, buf)
        }

        fn flush(&self) -> io::Result<()> {
            if self.flushes.fetch_add(1, SeqCst) == 0 {
                self.begins.send(()).unwrap();
                self.may_end.lock().unwrap().recv().unwrap();
            }
            Ok(())
        }
    }

    /// A block, then an empty journal.
    fn image() -> Vec<u8> {
        let mut bytes = vec![0; (1 + JOURNAL_LEN as usize) * BLOCK];
        let words = [0xC03B_3998, 4, 0, BLOCK as u32, JOURNAL_LEN as u32, 1, 1, 0];
        for (field, word) in bytes[BLOCK..].chunks_mut(4).zip(words) {
            field.copy_from_slice(&u32::to_be_bytes(word));
        }
        bytes
    }

    fn location() -> JournalLocation {
        JournalLocation { block_size: BLOCK, runs: vec![(1, JOURNAL_LEN)] }
    }

    /// The receiver learns that the first flush has begun; the sender ends it.
    fn held(memory: &MemoryDevice) -> (Arc<Held>, Journal, Receiver<()>, Sender<()>) {
        let ((begins, begun), (end, may_end)) = (channel(), channel());
        let (memory, may_end) = (memory.clone(), Mutex::new(may_end));
        let device = Arc::new(Held { memory, flushes: AtomicU64::new(0), begins, may_end });
        let cache = Arc::new(BufCache::new(device.clone(), BLOCK, 1 << 20));
        let journal = Journal::open(cache, &location(), JournalOptions::default()).unwrap();
        (device, journal, begun, end)
    }

    #[test]
    fn no_handle_starts_while_the_journal_is_closing() {
        let (_, journal, begun, end) = held(&MemoryDevice::from(image()));
        let mut handle = journal.start(1).unwrap();
        handle.update(0, |bytes| bytes[0] += 1).unwrap();
        handle.stop();
        std::thread::scope(|scope| {
            let closing = scope.spawn(|| journal.close().unwrap());
            begun.recv().unwrap();
            let refused = journal.start(1).map(drop);
            assert!(matches!(&refused, Err(Error::Aborted(cause)) if matches!(**cause, Cause::Closed)));
            end.send(()).unwrap();
            closing.join().unwrap();
        });
    }

    #[test]
    fn a_commit_with_a_waiter_shares_a_flush_with_the_one_before() {
        let memory = MemoryDevice::from(image());
        let (device, journal, begun, end) = held(&memory);
        let add = || {
            let mut handle = journal.start(1).unwrap();
            handle.update(0, |bytes| bytes[0] += 1).unwrap();
            handle.stop()
        };
        let first = add();
        std::thread::scope(|scope| {
            scope.spawn(|| journal.wait_commit(first).unwrap());
            begun.recv().unwrap();
            let second = add();
            assert!(second.is_after(first));
            let journal = &journal;
            scope.spawn(move || journal.wait_commit(second).unwrap());
            while !journal.shared.awaits_after(first) {
                std::thread::yield_now();
            }
            end.send(()).unwrap();
        });
        assert_eq!(device.flushes.load(SeqCst), 3);
        let recovered = recover(Arc::new(MemoryDevice::from(memory.to_vec())), &location()).unwrap();
        let mut byte = [0];
        recovered.device.read_at(0, &mut byte).unwrap();
        assert_eq!(byte, [2]);
    }
}
