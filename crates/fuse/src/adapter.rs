//! State shared by all requests: the file system and the nodes that the kernel knows; nodes and
//! entries in the form of replies.

use crate::abi;
use crate::convert::{NodeIds, Ownership, file_attr, unreadable_attr};
use crate::counts::{Counters, Requests};
use crate::init::Agreed;
use crate::known::{Known, NodeId};
use crate::notify::Notifier;
use crate::reply::{self, Listing, Reply};
use dentree_vfs::{DirEntry, Error, FileSystem, Identity, Inode, ReaddirStart, Result, Vfs};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// For as long as the kernel likes. Not `Duration::MAX`: the kernel reads the seconds as signed.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

/// The directory offset of the entry after `.`; 0 is the start.
const AFTER_DOT: u64 = 1;
/// The offset after `..`; a file system's cookie `c` is offset `AFTER_DOT_DOT + 1 + c`.
const AFTER_DOT_DOT: u64 = 2;

/// State of a running adapter that other threads use.
pub(crate) struct Shared<F: FileSystem> {
    pub(crate) known: Known<F>,
    pub(crate) requests: Counters,
    pub(crate) listener: OnceLock<Listener>,
    /// For notifications to the kernel.
    pub(crate) notifier: OnceLock<Notifier>,
}

/// Is called with each error of the image or its device.
pub(crate) type Listener = Box<dyn Fn(&Error) + Send + Sync>;

impl<F: FileSystem> Shared<F> {
    pub(crate) fn new() -> Self {
        let (listener, notifier) = (OnceLock::new(), OnceLock::new());
        Shared { known: Known::new(), requests: Counters::new(), listener, notifier }
    }

    /// The errno of an error for the kernel. Damage and I/O errors are also reported to the
    /// listener.
    pub(crate) fn errno(&self, error: &Error) -> Errno {
        if let Error::Corrupt(_) | Error::Io(_) = error
            && let Some(listener) = self.listener.get()
        {
            listener(error);
        }
        error.errno()
    }

    pub(crate) fn refusal(&self, error: &Error) -> Reply {
        Reply::Error(self.errno(error))
    }

    /// Makes the kernel request a node's attributes again. Threads that answer requests may call
    /// it: for this notification the kernel takes no lock that a request holds.
    pub(crate) fn forget_attributes(&self, node: NodeId) -> Result<()> {
        /// No offset: pages stay cached.
        const ATTRIBUTES_ALONE: i64 = -1;
        let Some(notifier) = self.notifier.get() else { return Ok(()) };
        notifier.inval_inode(node, ATTRIBUTES_ALONE, 0)
    }
}

/// A running adapter of any file system.
pub(crate) trait Running: Send + Sync {
    fn listen(&self, listener: Listener);
    fn known_inodes(&self) -> usize;
    fn forget_all(&self);
    fn requests(&self) -> Requests;
}

impl<F: FileSystem> Running for Shared<F> {
    fn listen(&self, listener: Listener) {
        // Only the first counts.
        let _ = self.listener.set(listener);
    }

    fn known_inodes(&self) -> usize {
        self.known.len()
    }

    fn forget_all(&self) {
        self.known.forget_all();
    }

    fn requests(&self) -> Requests {
        self.requests.so_far()
    }
}

/// Serves FUSE requests from a [`Vfs`].
pub(crate) struct Adapter<F: FileSystem> {
    pub(crate) vfs: Arc<Vfs<F>>,
    pub(crate) ids: NodeIds,
    pub(crate) shared: Arc<Shared<F>>,
    pub(crate) ownership: Ownership,
    /// Whether the kernel may cache names and attributes. Not where callers are filtered here
    /// (`allow_root`): the kernel would reply to every user from its cache.
    pub(crate) kernel_caches: bool,
    /// The user besides root that may make requests; `None` where the kernel filters callers.
    pub(crate) filtered: Option<u32>,
    /// The mount is read-write.
    pub(crate) changes: bool,
    pub(crate) agreed: Agreed,
}

impl<F: FileSystem> Adapter<F> {
    pub(crate) fn inode(&self, node: NodeId) -> Result<Arc<Inode<F>>> {
        if self.shared.known.contains(node) { self.vfs.inode(self.ids.ino(node)) } else { Err(Error::Stale) }
    }

    pub(crate) fn time_to_live(&self) -> Duration {
        if self.kernel_caches { FOREVER } else { Duration::ZERO }
    }

    /// The inode of a LOOKUP. `.` is looked up for a file handle whose node was forgotten, of a
    /// directory or not. The kernel compares the generation, and turns ENOENT into ESTALE.
    pub(crate) fn find(&self, parent: NodeId, name: &OsStr) -> Result<Option<Arc<Inode<F>>>> {
        if name == "." {
            return self.vfs.inode_by_handle(self.ids.ino(parent)).map(Some);
        }
        self.vfs.lookup(&Identity::Superuser, &self.inode(parent)?, name.as_bytes())
    }

    /// Attributes for GETATTR: with the inode number, which of the root is not its node id.
    pub(crate) fn attr(&self, inode: &Inode<F>) -> abi::Attr {
        file_attr(&inode.attr(), inode.ino().0, self.ownership)
    }

    /// The entry of an inode, with attributes that show the node id.
    pub(crate) fn entry(&self, inode: &Inode<F>) -> abi::EntryOut {
        let node = self.ids.node(inode.ino()).0;
        let attr = file_attr(&inode.attr(), node, self.ownership);
        reply::entry(node, self.generation(inode), self.time_to_live(), attr)
    }

    /// The generation of a node. For the root it is 0, as the kernel assumes at the mount: it would
    /// drop the root for another one.
    fn generation(&self, inode: &Inode<F>) -> u64 {
        let is_root = inode.ino() == self.ids.root;
        if is_root { 0 } else { inode.attr().generation.into() }
    }

    /// Passes `.`, `..` and the entries of `dir` after `offset` to `add`, until that returns that
    /// the reply is full.
    pub(crate) fn list(
        &self,
        dir: &Inode<F>,
        offset: u64,
        add: &mut dyn FnMut(&Listed<'_, F>) -> bool,
    ) -> Result<()> {
        if !dir.is_dir() {
            return Err(Error::NotADirectory);
        }
        if offset < AFTER_DOT && add(&Listed::Dot(dir)) {
            return Ok(());
        }
        if offset < AFTER_DOT_DOT {
            // A directory whose parent is unreadable is still listed; `..` then has its own number.
            let parent = self.vfs.parent(dir);
            if add(&Listed::DotDot(parent.as_deref().unwrap_or(dir))) {
                return Ok(());
            }
        }
        let start = match offset.checked_sub(AFTER_DOT_DOT + 1) {
            Some(cookie) => ReaddirStart::After(cookie),
            None => ReaddirStart::First,
        };
        self.vfs.readdir(&Identity::Superuser, dir, start, &mut |entry| {
            if add(&Listed::Entry(entry)) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    }

    /// Adds an entry with its attributes, and counts the lookup. Returns whether the reply is full.
    pub(crate) fn add_plus(&self, listing: &mut Listing<'_>, listed: &Listed<'_, F>) -> bool {
        let inode = match listed {
            Listed::Dot(inode) | Listed::DotDot(inode) => {
                let attr = self.attr(inode);
                let entry = reply::entry(attr.ino, 0, self.time_to_live(), attr);
                // The kernel does not count these two.
                return listing.add(Some(&entry), (attr.ino, listed.offset(), attr.mode), listed.name());
            }
            Listed::Entry(entry) => self.vfs.inode(entry.ino).map_err(|_| entry),
        };
        let entry = match &inode {
            Ok(inode) => self.entry(inode),
            Err(entry) => {
                let shown = self.ids.node(entry.ino).0;
                reply::entry(shown, 0, Duration::ZERO, unreadable_attr(entry.kind, shown))
            }
        };
        let full = listing.add(Some(&entry), (entry.nodeid, listed.offset(), entry.attr.mode), listed.name());
        if !full {
            self.shared.known.count(NodeId(entry.nodeid), inode.as_ref().ok());
        }
        full
    }

    /// The entry of what was found, which counts the lookup.
    pub(crate) fn found(&self, found: Result<Arc<Inode<F>>>) -> Reply {
        match found {
            Ok(inode) => Reply::fixed(&self.tell(&inode)),
            Err(error) => self.shared.refusal(&error),
        }
    }

    /// The entry of a reply. Counts the lookup.
    pub(crate) fn tell(&self, inode: &Arc<Inode<F>>) -> abi::EntryOut {
        self.shared.known.count(self.ids.node(inode.ino()), Some(inode));
        self.entry(inode)
    }

    pub(crate) fn done(&self, done: Result<()>) -> Reply {
        done.map_or_else(|error| self.shared.refusal(&error), |()| Reply::DONE)
    }

    pub(crate) fn written(&self, written: Result<u32>) -> Reply {
        written.map_or_else(|error| self.shared.refusal(&error), reply::written)
    }
}

/// The contents of a listing.
pub(crate) enum Listed<'a, F: FileSystem> {
    Dot(&'a Inode<F>),
    DotDot(&'a Inode<F>),
    Entry(DirEntry<'a>),
}

impl<'a, F: FileSystem> Listed<'a, F> {
    pub(crate) fn name(&self) -> &'a [u8] {
        match self {
            Listed::Dot(_) => b".",
            Listed::DotDot(_) => b"..",
            Listed::Entry(entry) => entry.name,
        }
    }

    /// The offset after this entry.
    pub(crate) fn offset(&self) -> u64 {
        match self {
            Listed::Dot(_) => AFTER_DOT,
            Listed::DotDot(_) => AFTER_DOT_DOT,
            Listed::Entry(entry) => entry.cookie.saturating_add(AFTER_DOT_DOT + 1),
        }
    }
}
