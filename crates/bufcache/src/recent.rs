//! What each processor used last, in front of the shards: the buffer LRU.
//!
//! # Data
//! A [`Seat`] for each processor: so many block numbers, their buffers, and when each was used. A look-up compares the numbers one after
//! the other; the one used longest ago makes room. The arrays are made once, on the heap, whatever their size.
//! Seats are dealt to threads in turn, as many as there are processors: to ask which processor this is would cost as much as
//! the shard. Two threads may share a seat, which costs time, never more.
//!
//! # Who protects what
//! A seat's mutex protects the seat. A shard's mutex protects, for each of its slots, the set of seats that *may* have its block
//! ([`Seats`]). Lock order: a shard, then a seat; a hit takes the seat alone.
//!
//! # The promise
//! *A block that a seat has is in its slot, in the same version, and the slot's set names the seat.* It is made so by one who holds the shard
//! and then the seat ([`Recent::install`]). Whoever changes the block, drops it or evicts it holds the shard, and first takes it from all
//! seats of the set ([`Recent::recall`]), each under its mutex. Two cases for a look-up that runs beside that:
//! - it took the seat first: it gets the version before the change, and at that moment there was no other;
//! - the recall took the seat first: the look-up does not find the block, and goes to the shard, which it gets after the change.
//!
//! Once recalled, a block comes back only through the shard, so that who holds the shard may then trust `strong_count` as if
//! there were no seats: a change in place is seen by nobody.
//!
//! A seat may lose a block by itself, to another one: then the set names a seat too many, which costs a look.
//!
//! # Whether it pays
//! Not here, so it is off unless asked for. A hit in a seat takes 140 instructions and one in a shard 194, but three quarters of the time of either go
//! into the same four atomic operations (lock, unlock, one more user, one less): 121 ns against 119 on a busy machine with two processors. A block
//! that the seat does not have costs 380 to 880 instructions, by the seat's size. Linux gains by its buffer LRU because the
//! level behind it is a tree under a lock that is shared by the whole device; here it is one of 64 hash tables. Numbers of another machine:
//! `cargo run --release -p dentree-bufcache --example hit_cost`.

use crate::claim::Buffer;
use crate::sync::{Mutex, lock, thread_number};

/// How many buffers each processor remembers in front of the shards, 1 to 64; or none, which is what measures best and so the default.
///
/// ```
/// use dentree_bufcache::BhLruSize;
///
/// assert_eq!(BhLruSize::default(), BhLruSize::OFF);
/// assert_eq!(BhLruSize::new(16).unwrap().buffers(), 16);
/// assert!(BhLruSize::new(0).is_none() && BhLruSize::new(65).is_none());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BhLruSize(u8);

impl BhLruSize {
    /// None: each look-up goes to the shards.
    pub const OFF: BhLruSize = BhLruSize(0);

    /// So many, from 1 to 64.
    pub fn new(buffers: usize) -> Option<BhLruSize> {
        match u8::try_from(buffers) {
            Ok(buffers @ 1..=64) => Some(BhLruSize(buffers)),
            _ => None,
        }
    }

    /// How many; 0 where it is off.
    pub fn buffers(self) -> usize {
        self.0.into()
    }
}

/// The seats that may have a block, one bit each.
#[derive(Clone, Copy, Default)]
pub(crate) struct Seats(u64);

impl Seats {
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn iter(self) -> impl Iterator<Item = usize> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let seat = (rest != 0).then(|| rest.trailing_zeros() as usize);
            rest &= rest.wrapping_sub(1);
            seat
        })
    }
}

const MAX_SEATS: usize = u64::BITS as usize;

/// The seats have this share of the cache's blocks at most, so that a small cache is not all of it recent.
const SHARE: usize = 4;

/// The seats cost the budget this much for each block that the cache has room for.
pub(crate) const SEAT_OVERHEAD: usize = (size_of::<u64>() + size_of::<Held>()).div_ceil(SHARE);

/// All seats of a cache.
pub(crate) struct Recent {
    seats: Box<[Seat]>,
    size: usize,
}

/// On cache lines of its own: neighbours are locked by other threads.
#[repr(align(128))]
struct Seat(Mutex<Places>);

struct Places {
    /// Blocks, [`NOBODY`] where there is none; as many as there are places.
    blocks: Box<[u64]>,
    /// What the place of the same index has.
    held: Box<[Held]>,
    /// Counts uses.
    now: u64,
    hits: u64,
}

#[derive(Clone, Default)]
struct Held {
    buffer: Option<Buffer>,
    used_at: u64,
    /// Found here since it was installed.
    was_used: bool,
}

/// No block that a cache has: its last byte would lie behind any device's end.
const NOBODY: u64 = u64::MAX;

impl Recent {
    /// Seats for a cache that has room for `capacity` blocks.
    pub(crate) fn new(size: BhLruSize, capacity: usize) -> Recent {
        let seats = crate::sync::seats().min(MAX_SEATS);
        let size = size.buffers().min(capacity / SHARE / seats);
        let seat = |_| {
            let (blocks, held) = (vec![NOBODY; size].into(), vec![Held::default(); size].into());
            Seat(Mutex::new(Places { blocks, held, now: 0, hits: 0 }))
        };
        Recent { seats: (0..if size == 0 { 0 } else { seats }).map(seat).collect(), size }
    }

    #[inline]
    fn mine(&self) -> usize {
        thread_number() % self.seats.len()
    }

    /// The buffer of `block`, if this processor used it lately.
    #[inline]
    pub(crate) fn get(&self, block: u64) -> Option<Buffer> {
        if self.size == 0 {
            return None;
        }
        let mut places = lock(&self.seats[self.mine()].0);
        let places = &mut *places;
        let at = places.blocks.iter().position(|&held| held == block)?;
        let held = &mut places.held[at];
        let buffer = held.buffer.clone()?;
        places.now += 1;
        (held.used_at, held.was_used) = (places.now, true);
        places.hits += 1;
        Some(buffer)
    }

    /// Gives this processor a block whose slot is ready and whose shard the caller holds, and notes that in the slot's set.
    pub(crate) fn install(&self, block: u64, buffer: &Buffer, set: &mut Seats) {
        if self.size == 0 || block == NOBODY {
            return;
        }
        let mine = self.mine();
        let mut places = lock(&self.seats[mine].0);
        let places = &mut *places;
        // Two threads that share a seat may both have missed it here.
        let is_here = |&held: &u64| held == block;
        let here = if set.0 >> mine & 1 == 1 { places.blocks.iter().position(is_here) } else { None };
        let at = here.unwrap_or_else(|| places.oldest());
        places.now += 1;
        places.blocks[at] = block;
        places.held[at] = Held { buffer: Some(buffer.clone()), used_at: places.now, was_used: false };
        set.0 |= 1 << mine;
    }

    /// Takes a block, whose shard the caller holds, from all seats that may have it. Returns whether one of them had it and
    /// found it there.
    pub(crate) fn recall(&self, block: u64, set: &mut Seats) -> bool {
        let mut was_used = false;
        for seat in std::mem::take(set).iter() {
            let mut places = lock(&self.seats[seat].0);
            if let Some(at) = places.blocks.iter().position(|&held| held == block) {
                places.blocks[at] = NOBODY;
                was_used |= std::mem::take(&mut places.held[at]).was_used;
            }
        }
        was_used
    }

    /// How many seats have a block whose shard the caller holds.
    pub(crate) fn holders(&self, block: u64, set: Seats) -> usize {
        set.iter().filter(|&seat| lock(&self.seats[seat].0).blocks.contains(&block)).count()
    }

    pub(crate) fn hits(&self) -> u64 {
        self.seats.iter().map(|seat| lock(&seat.0).hits).sum()
    }
}

impl Places {
    /// The place that was used longest ago. An empty one was used never.
    fn oldest(&self) -> usize {
        let oldest = self.held.iter().enumerate().min_by_key(|(_, held)| held.used_at);
        oldest.map_or(0, |(at, _)| at)
    }
}
