//! Counts that cost a walk no shared line: each thread adds to its own slot, readers sum the slots
//! up.

use dentree_sync::atomic::{AtomicU64, Ordering};

/// A count that one thread at a time writes.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds without a locked instruction: only the slot's thread writes.
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What one thread has counted.
        #[derive(Default)]
        pub(crate) struct Counters {
            $($(#[$doc])* pub(crate) $name: Counter,)*
            /// Walks that stopped, by [`Reason`](crate::Reason).
            pub(crate) stopped: [Counter; crate::Reason::COUNT],
        }

        impl Counters {
            /// Adds another thread's counts to a sum.
            pub(crate) fn add_all(&self, other: &Counters) {
                $(self.$name.add(other.$name.get());)*
                for (sum, part) in self.stopped.iter().zip(&other.stopped) {
                    sum.add(part.get());
                }
            }
        }
    };
}

counters! {
    /// Walks begun, each path of a batch counted.
    walks,
    /// Components that walks resolved without asking anyone.
    components,
    /// Walks that ended at an entry.
    found,
    /// Walks that ended at a negative entry.
    negative,
    /// Walks that ended at a name which a complete directory does not have.
    complete_negative,
    /// Walks begun anew because something they had read was changed meanwhile.
    retries,
    /// Intermediate directories whose search permission had to be asked for.
    searches_asked,
    /// Walks that asked for all of their lines beforehand.
    prefetched,
    /// Walks that the path cache ended.
    cached_paths,
    /// Paths inserted into the path cache.
    inserted_paths,
    /// Names found only under the directory's lock.
    locked_hits,
    /// Questions put to the file system.
    fills,
    /// Waits for another thread's question about the same name.
    fill_waits,
    /// Answers that were not kept because the name had changed meanwhile.
    fills_overtaken,
    /// Names made, removed and renamed.
    changes,
    /// Entries that gained their first user less entries that lost their last (wrapping, as threads
    /// differ).
    held,
}
