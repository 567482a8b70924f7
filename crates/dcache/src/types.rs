//! Types that go into the cache and come out of it.

use crate::table::id::Id;
use std::{hash::Hash, sync::Arc};

/// The cache's handle of an inode: a number, or an `Arc`. Equal handles mean the same inode.
///
/// A handle that is a word lies in the record, so a walk reads no other line for it. `drop` runs
/// outside of the cache's locks and may call the cache; other methods run inside and must not.
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
    /// The whole handle as a word, if it is one.
    fn to_word(&self) -> Option<u64> {
        None
    }

    /// The inverse of [`to_word`](Self::to_word).
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

/// A file's type, as far as walks need it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Kind {
    /// Has entries.
    Directory,
    /// A symbolic link, which the caller follows.
    Symlink,
    /// Everything else.
    Other,
}

/// An inode under a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Child<H> {
    /// The inode.
    pub handle: H,
    /// Its type.
    pub kind: Kind,
    /// Everyone may search this directory, so walks need not ask. A hint: `false` is always
    /// allowed.
    pub search: bool,
}

impl<H> Child<H> {
    /// A directory that everyone may search.
    pub fn directory(handle: H) -> Self {
        Child { handle, kind: Kind::Directory, search: true }
    }

    /// A symbolic link.
    pub fn symlink(handle: H) -> Self {
        Child { handle, kind: Kind::Symlink, search: false }
    }

    /// Anything else.
    pub fn other(handle: H) -> Self {
        Child { handle, kind: Kind::Other, search: false }
    }
}

/// Result of a lookup in the file system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fill<H> {
    /// The name exists.
    Positive(Child<H>),
    /// The name does not exist.
    Negative,
    /// A result that must not be cached: for example a name that is absent from a casefolded
    /// directory, which the creation of another spelling makes stale. The returned entry is
    /// [detached](crate::DentryRef::is_reachable).
    NotCached(Option<Child<H>>),
}

/// Identifies an entry without a reference: a reused number with a generation.
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

    /// As one number, for protocols with node ids. Never 0; the root's is 1.
    pub fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index.0)
    }

    /// The inverse of [`to_bits`](Self::to_bits). No entry has an id of any other number.
    pub fn from_bits(bits: u64) -> Self {
        DentryId { index: Id(bits as u32), generation: (bits >> 32) as u32 }
    }
}

/// Options of a walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WalkOptions {
    /// The directory at which `..` stops the walk with [`Reason::Floor`], beside the cache's root.
    /// If it is gone every `..` stops the walk.
    pub floor: Option<DentryId>,
    /// Return a symbolic link that is the last component, as `lstat(2)`, unless a slash follows it.
    pub keep_last_link: bool,
}

/// An entry as [`Dcache::find`](crate::Dcache::find) saw it. It is not held:
/// [`is_linked`](crate::Dcache::is_linked) and [`get`](crate::Dcache::get) tell whether it is still
/// cached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen<H> {
    /// The entry's id.
    pub id: DentryId,
    /// The inode.
    pub handle: H,
    /// The inode's type.
    pub kind: Kind,
}

/// Why a walk stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Reason {
    /// The next name is not cached: call [`lookup_or_fill`](crate::Dcache::lookup_or_fill).
    Miss,
    /// The directory is not [reachable](crate::DentryRef::is_reachable), so what is cached below it
    /// may be out of date: likewise.
    Detached,
    /// A symbolic link: read it and continue.
    Symlink,
    /// A component with a slash or another component after it is not a directory.
    NotADirectory,
    /// The directory may not be searched.
    Denied,
    /// `..` at the floor.
    Floor,
    /// The next name is longer than 255 bytes.
    NameTooLong,
    /// Writers invalidated every attempt: continue as from a miss, at the start.
    Busy,
}

impl Reason {
    /// Number of reasons.
    pub const COUNT: usize = 8;
    /// All, in the order of [`Stats::stopped`](crate::Stats::stopped).
    pub const ALL: [Reason; Reason::COUNT] = [
        Reason::Miss,
        Reason::Detached,
        Reason::Symlink,
        Reason::NotADirectory,
        Reason::Denied,
        Reason::Floor,
        Reason::NameTooLong,
        Reason::Busy,
    ];
}

/// Whether [batches](crate::Dcache::find_many) prefetch their cache lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PrefetchMode {
    /// Never: best if the working set fits the processor's caches.
    Off,
    /// Always: best if it does not.
    On,
    /// By occasional measurement of both.
    #[default]
    Auto,
}
