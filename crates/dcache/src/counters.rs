//! Per-thread counters: each thread adds to its own slot, readers sum the slots.

use dentree_sync::atomic::{AtomicU64, Ordering};

/// A counter with one writing thread at a time.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds without an atomic read-modify-write, as only the slot's thread writes.
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
        /// The counters of one thread.
        #[derive(Default)]
        pub(crate) struct Counters {
            $($(#[$doc])* pub(crate) $name: Counter,)*
            /// Walks that stopped, by [`Reason`](crate::Reason).
            pub(crate) stopped: [Counter; crate::Reason::COUNT],
        }

        impl Counters {
            /// Adds another thread's counters to a sum.
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
    /// Walks started, counting each path of a batch.
    walks,
    /// Components resolved by walks without a call.
    components,
    /// Walks that ended at an entry.
    found,
    /// Walks that ended at a negative entry.
    negative,
    /// Walks that ended at a name missing in a complete directory.
    complete_negative,
    /// Retries of walks whose read set was changed.
    retries,
    /// Intermediate directories whose search permission was asked of the caller.
    searches_asked,
    /// Walks that prefetched all of their cache lines.
    prefetched,
    /// Walks that the path cache ended.
    cached_paths,
    /// Paths inserted into the path cache.
    inserted_paths,
    /// Names found only under the directory's lock.
    locked_hits,
    /// Lookups in the file system.
    fills,
    /// Waits for another thread's lookup of the same name.
    fill_waits,
    /// Results discarded because the name changed during the lookup.
    fills_overtaken,
    /// Names created, removed and renamed.
    changes,
    /// Entries that gained their first reference minus those that lost their last. Wrapping, as the
    /// two may happen in different threads.
    held,
}
