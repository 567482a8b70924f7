//! Blocks that a thread asks for again and again while others change little: copies of its own.
//!
//! To take a block from a shard writes a lock, counts, and the number of the block's users: lines that go from processor to processor where
//! all threads begin at one block, as they do at the root of a large directory's index. A copy that is still good is used without
//! writing anything that another thread reads.
//!
//! # Data
//! Each thread has up to [`COPIES`] copies, of all caches together; the one used longest ago makes room. A block is copied when it is asked for
//! while the thread still knows that it has asked for it before: of those that come once only the number is noted. A copy comes with the [`Watch`]
//! on its version, which stands in the block's slot, too, for all threads that have copies of it.
//!
//! # Who protects what
//! Copies are the thread's own. That a slot has a watch is guarded by its shard's mutex. A watch is two flags, which are never locked.
//!
//! # The promise
//! *A copy whose watch is not over is the newest version.* A watch is put into a slot under the shard's mutex, and there the version to be copied
//! is compared with the slot's. Whoever changes the block, drops or evicts it holds the mutex and ends the watch first. Two cases for who looks
//! at the flag beside that:
//! - it is not set yet: the change is not made yet, and who looks has the version before it, as if it had taken the mutex first;
//! - it is set: who looks goes to the shard.
//!
//! Relaxed: no memory is read on account of the flag but the copy, which is the thread's own. Who has learnt of the change, by whatever the changer
//! did after it (giving back the mutex is the first of that), has the flag's setting before its look, and finds it set.
//!
//! # Known limits
//! Copies are no part of the budget: 8 blocks a thread. They stay until others take their places, or the thread ends, also where their cache is gone.

use std::cell::RefCell;
use std::sync::Arc;

use crate::claim::Buffer;
use crate::sync::atomic::{AtomicBool, Ordering::Relaxed};
use crate::sync::thread_local;

/// So many blocks a thread has.
const COPIES: usize = 8;

/// So many that it has asked for it remembers by their numbers.
const ASKED: usize = 8;

/// On a version of a block that threads have copies of.
#[derive(Default)]
pub(crate) struct Watch {
    /// It is not the newest any more.
    is_over: AtomicBool,
    /// A copy was used since the block's turn to go last came. Written once for each such turn.
    was_used: AtomicBool,
}

impl Watch {
    /// Says that the version goes. The caller holds the shard.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Relaxed);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Relaxed)
    }

    fn note_use(&self) {
        if !self.was_used.load(Relaxed) {
            self.was_used.store(true, Relaxed);
        }
    }

    /// Whether a copy was used since this was last asked.
    pub(crate) fn take_use(&self) -> bool {
        self.was_used.swap(false, Relaxed)
    }
}

/// A block of a cache, by the cache's number.
type Name = (u64, u64);

struct Own {
    of: Name,
    used_at: u64,
    copy: Buffer,
    watch: Arc<Watch>,
}

#[derive(Default)]
struct Mine {
    copies: Vec<Own>,
    /// A ring.
    asked: [Option<Name>; ASKED],
    next: usize,
    /// Counts uses.
    now: u64,
}

thread_local! {
    static MINE: RefCell<Mine> = RefCell::default();
}

/// What a thread has of a block.
pub(crate) enum Known {
    /// A copy of the newest version.
    Copy(Buffer),
    /// Nothing, but it is worth a copy.
    Often,
    Nothing,
}

/// Looks for a block among this thread's copies, and notes that it was asked for.
pub(crate) fn look(of: Name) -> Known {
    let look = |mine: &RefCell<Mine>| {
        let mine = &mut *mine.borrow_mut();
        if let Some(at) = mine.copies.iter().position(|own| own.of == of) {
            let own = &mut mine.copies[at];
            if own.watch.is_over() {
                mine.copies.swap_remove(at);
                return Known::Often;
            }
            own.watch.note_use();
            mine.now += 1;
            own.used_at = mine.now;
            return Known::Copy(own.copy.clone());
        }
        if mine.asked.contains(&Some(of)) {
            return Known::Often;
        }
        mine.asked[mine.next] = Some(of);
        mine.next = (mine.next + 1) % ASKED;
        Known::Nothing
    };
    MINE.try_with(look).unwrap_or(Known::Nothing)
}

/// Keeps a copy for this thread.
pub(crate) fn keep(of: Name, copy: Buffer, watch: Arc<Watch>) {
    let keep = |mine: &RefCell<Mine>| {
        let mine = &mut *mine.borrow_mut();
        mine.copies.retain(|own| own.of != of);
        if mine.copies.len() == COPIES {
            let oldest = mine.copies.iter().enumerate().min_by_key(|(_, own)| own.used_at);
            if let Some((at, _)) = oldest {
                mine.copies.swap_remove(at);
            }
        }
        mine.now += 1;
        mine.copies.push(Own { of, used_at: mine.now, copy, watch });
    };
    // A thread that ends keeps nothing.
    let _ = MINE.try_with(keep);
}

/// Whether `version` is the newest, where it is a copy that this thread has; else `None`.
pub(crate) fn is_newest(of: Name, version: &Buffer) -> Option<bool> {
    let look = |mine: &RefCell<Mine>| {
        let mine = mine.borrow();
        let own = mine.copies.iter().find(|own| own.of == of && own.copy.is_same(version))?;
        Some(!own.watch.is_over())
    };
    MINE.try_with(look).ok().flatten()
}
