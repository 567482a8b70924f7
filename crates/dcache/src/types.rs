//! What goes into the cache and what comes out of it.

use crate::table::id::Id;
use std::{hash::Hash, sync::Arc, time::Duration};

/// What the cache keeps for an inode: a number, or an `Arc` of one. Two handles are equal if they
/// mean the same inode.
///
/// A handle that is a word lies where walks read names, so that a walk to a file reads no other
/// line for it; any other one lies beside. `drop` runs outside of all of the cache's locks and may
/// call it; all else runs inside and must not.
///
/// ```
/// # use dentree_dcache::Handle;
/// #[derive(Clone, PartialEq, Eq, Hash)]
/// struct Inode(u64);
///
/// impl Handle for Inode {
///     fn to_word(&self) -> Option<u64> {
///         Some(self.0)
///     }
///
///     fn from_word(word: u64) -> Option<Self> {
///         Some(Inode(word))
///     }
/// }
/// ```
pub trait Handle: Clone + Eq + Hash + Send + Sync + 'static {
    /// All of the handle as a word; `None` where it is none.
    fn to_word(&self) -> Option<u64> {
        None
    }

    /// The handle that [`to_word`](Self::to_word) made this word of.
    fn from_word(word: u64) -> Option<Self> {
        let _ = word;
        None
    }
}

macro_rules! words {
    ($($number:ty)*) => {
        $(impl Handle for $number {
            #[inline]
            fn to_word(&self) -> Option<u64> {
                u64::try_from(*self).ok()
            }

            #[inline]
            fn from_word(word: u64) -> Option<Self> {
                word.try_into().ok()
            }
        })*
    };
}

words!(u32 u64 usize);

impl<T: Eq + Hash + Send + Sync + 'static> Handle for Arc<T> {}

/// What a walk has to know of a file's type.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Kind {
    /// Has entries.
    Directory,
    /// Leads elsewhere; the walk leaves following it to the caller.
    Symlink,
    /// Everything else.
    Other,
}

/// What a name means.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Child<H> {
    /// The inode.
    pub handle: H,
    /// Its type.
    pub kind: Kind,
    /// Whether everyone may search this directory: a walk then passes without asking. A hint, which
    /// may be `false` for any reason.
    pub search: bool,
    /// How long to believe it; `None`: until told otherwise.
    pub ttl: Option<Duration>,
}

impl<H> Child<H> {
    /// A directory that everyone may search, to be believed until told otherwise.
    pub fn directory(handle: H) -> Self {
        Child { handle, kind: Kind::Directory, search: true, ttl: None }
    }

    /// A symbolic link, to be believed until told otherwise.
    pub fn symlink(handle: H) -> Self {
        Child { handle, kind: Kind::Symlink, search: false, ttl: None }
    }

    /// Anything else, to be believed until told otherwise.
    pub fn other(handle: H) -> Self {
        Child { handle, kind: Kind::Other, search: false, ttl: None }
    }
}

/// What a file system returns for a lookup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fill<H> {
    /// The name is there.
    Positive(Child<H>),
    /// The name is not there.
    Negative {
        /// How long to believe it; `None`: until told otherwise.
        ttl: Option<Duration>,
    },
    /// Either, but it must not be remembered: such as a name that is absent from a casefolded
    /// directory, where the creation of another spelling would have to forget it. The entry that
    /// the caller gets is [detached](crate::DentryRef::is_reachable).
    NotCached(Option<Child<H>>),
}

/// Names an entry without holding it: a number that is used again, with a generation that is not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct DentryId {
    index: Id,
    generation: u32,
}

impl DentryId {
    pub(crate) fn new(index: Id, generation: u32) -> Self {
        DentryId { index, generation }
    }

    pub(crate) fn id(self) -> Id {
        self.index
    }

    pub(crate) fn generation(self) -> u32 {
        self.generation
    }

    /// As one number, for protocols that pass node ids. Never 0; the root's is 1.
    pub fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index.0)
    }

    /// What [`to_bits`](Self::to_bits) gave. Any other number is an id that no entry has.
    pub fn from_bits(bits: u64) -> Self {
        DentryId { index: Id(bits as u32), generation: (bits >> 32) as u32 }
    }
}

/// How to walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WalkOptions {
    /// The directory above which `..` stops the walk with [`Reason::Floor`]. The cache's root is a
    /// floor as well. Where this one is gone every `..` stops the walk, as nothing tells what is
    /// above it.
    pub floor: Option<DentryId>,
    /// Return a symbolic link that is the last component as found, as `lstat(2)`. A slash behind it
    /// still stops the walk there.
    pub keep_last_link: bool,
}

/// An entry as [`Dcache::find`](crate::Dcache::find) saw it. It is not held: it may be evicted and
/// forgotten at any time, which [`is_linked`](crate::Dcache::is_linked) and
/// [`get`](crate::Dcache::get) tell by its id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen<H> {
    /// The entry, as long as it is cached.
    pub id: DentryId,
    /// The inode.
    pub handle: H,
    /// The inode's type.
    pub kind: Kind,
}

/// Why a walk stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Reason {
    /// The next name is not cached: [`lookup_or_fill`](crate::Dcache::lookup_or_fill) it.
    Miss,
    /// The next name is cached but no longer believed: likewise.
    Expired,
    /// A symbolic link: read it and go on.
    Symlink,
    /// A component that has others, or a slash, behind it is no directory.
    NotADirectory,
    /// The directory may not be searched.
    Denied,
    /// `..` at the floor.
    Floor,
    /// The next name is longer than 255 bytes.
    NameTooLong,
    /// Writers were faster at every attempt: go on as from a miss, at the start.
    Busy,
}

impl Reason {
    /// How many reasons there are.
    pub const COUNT: usize = 8;
    /// All of them, in the order of [`Stats::stopped`](crate::Stats::stopped).
    pub const ALL: [Reason; Reason::COUNT] = [
        Reason::Miss,
        Reason::Expired,
        Reason::Symlink,
        Reason::NotADirectory,
        Reason::Denied,
        Reason::Floor,
        Reason::NameTooLong,
        Reason::Busy,
    ];
}

/// Whether [batches](crate::Dcache::find_many) ask for all of their cache lines before they read
/// the first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PrefetchMode {
    /// Never: best where all that is walked fits the processor's caches.
    Off,
    /// Always: best where it does not.
    On,
    /// By measuring both, now and then.
    #[default]
    Auto,
}
