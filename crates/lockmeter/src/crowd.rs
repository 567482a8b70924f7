//! Those who share something, counted apart: beside a lock that many share all the time, and few take alone.
//!
//! To share a lock is to write its word, twice: with many threads the line goes from one processor to the other each time. Here who shares
//! writes a line of its own, and who wants to be alone looks at all of them (after BRAVO: Dice and Kogan, USENIX ATC 2019).
//!
//! # Data
//! ```text
//! seats  ─► [ name | name | name | name ]     one cache line for each thread, of all crowds in the process
//! Crowd     state: closed | closing | open    read by who comes, written by who opens and closes
//! ```
//! A seat is taken by the crowd's name, which is its address, and is free at 0.
//!
//! # Who does what
//! The crowd has a lock of its owner's beside it. Who comes to share [sits](Crowd::sit) down; where that cannot be it shares the lock, and
//! [says so](Crowd::note_shared), which opens the crowd after a while. Who takes the lock alone then [clears](Crowd::clear) the crowd: nobody sits
//! down from there on, as it is opened by those alone who share the lock.
//!
//! # Guarantees
//! - **D1** When `clear` has returned nobody sits, and nobody sits down before the crowd is opened again. Who sits down writes its seat (*a*), then looks at
//!   the state (*b*); who clears writes the state (*c*), then looks at the seats (*d*). All four are sequentially consistent. Is *a* before
//!   *d*, the seat is seen, and waited for; else *c* is before *b*, and who wanted to sit gets up again.
//! - **D2** Who clears sees all that was done by those who sat, and who sits all that was done alone before: seats and the state are released and acquired.
//! - **D3** No wake-up is lost. Who gets up frees its seat, then looks at the state; who clears writes the state, then looks at the seats with the
//!   mutex held. Either it finds the seat free, or the other finds the crowd closing, and takes the mutex before it wakes.
//!
//! # Known limits
//! To clear an open crowd is to look at a line for each thread that has ever sat, at [`SEATS`] most. So it is opened only after [`PATIENCE`] have shared
//! the lock: who takes it alone for each operation finds the crowd closed, which is one load.
//! Threads share seats where there are more of them; who finds no seat free shares the lock.

use dentree_sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use dentree_sync::{Condvar, Mutex, fence_for_loom, thread_slot};

const SEATS: usize = if cfg!(loom) { 1 } else { 64 };
/// A thread sits in so many crowds at once.
const PLACES: usize = 4;
/// So often the lock is shared before its crowd is opened.
const PATIENCE: u32 = if cfg!(loom) { 1 } else { 64 };

const CLOSED: u32 = 0;
const CLOSING: u32 = 1;
const OPEN: u32 = 2;

/// Two lines, because processors fetch them in pairs.
#[repr(align(128))]
struct Seat([AtomicUsize; PLACES]);

struct Hall {
    seats: [Seat; SEATS],
    /// For those who clear a crowd.
    waiting: Mutex<()>,
    /// Somebody has got up whose crowd is closing.
    left: Condvar,
}

#[cfg(not(loom))]
fn hall() -> &'static Hall {
    static HALL: Hall = Hall {
        seats: [const { Seat([const { AtomicUsize::new(0) }; PLACES]) }; SEATS],
        waiting: Mutex::new(()),
        left: Condvar::new(),
    };
    &HALL
}

#[cfg(loom)]
fn hall() -> &'static Hall {
    loom::lazy_static! {
        static ref HALL: Hall = Hall {
            seats: [Seat(std::array::from_fn(|_| AtomicUsize::new(0)))],
            waiting: Mutex::new(()),
            left: Condvar::new(),
        };
    }
    &HALL
}

/// Those who share a lock without writing it: `crowd.rs` says how. Closed at first.
///
/// ```
/// use dentree_lockmeter::Crowd;
/// use std::sync::RwLock;
///
/// let (lock, crowd) = (RwLock::new(()), Crowd::default());
/// for _ in 0..64 {
///     assert!(crowd.sit().is_none());
///     let _shared = lock.read();
///     crowd.note_shared();
/// }
/// drop(crowd.sit().expect("many have shared the lock"));
/// let _alone = lock.write();
/// crowd.clear();
/// assert!(crowd.sit().is_none());
/// ```
#[derive(Debug)]
pub struct Crowd {
    state: AtomicU32,
    /// How often the lock was shared since the crowd was closed. A hint.
    shared: AtomicU32,
}

impl Default for Crowd {
    fn default() -> Self {
        Crowd { state: AtomicU32::new(CLOSED), shared: AtomicU32::new(0) }
    }
}

impl Crowd {
    fn name(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Shares what the crowd's lock guards; `None` where the lock itself is to be shared.
    #[inline]
    pub fn sit(&self) -> Option<Seated<'_>> {
        if self.state.load(Ordering::Relaxed) != OPEN {
            return None;
        }
        let Seat(places) = &hall().seats[thread_slot::index(SEATS)];
        let name = self.name();
        // D1 a.
        let place = places
            .iter()
            .find(|place| place.compare_exchange(0, name, Ordering::SeqCst, Ordering::Relaxed).is_ok())?;
        let seated = Seated { crowd: self, place };
        fence_for_loom();
        // D1 b, D2. Who may not stay gets up as everybody does.
        (self.state.load(Ordering::SeqCst) == OPEN).then_some(seated)
    }

    /// Says that the lock was shared, by who has it so: nobody has it alone, nor closes the crowd.
    #[inline]
    pub fn note_shared(&self) {
        if self.shared.fetch_add(1, Ordering::Relaxed) + 1 < PATIENCE {
            return;
        }
        self.shared.store(0, Ordering::Relaxed);
        // D2: what was done alone comes by the lock, and goes on from here.
        self.state.store(OPEN, Ordering::SeqCst);
    }

    /// Lets nobody sit down any more, and does not wait. By who sees to it that nobody [opens](Crowd::note_shared) the crowd
    /// before it has [cleared](Crowd::clear) it.
    pub fn close(&self) {
        if self.state.load(Ordering::Relaxed) == OPEN {
            // D1 c.
            self.state.store(CLOSING, Ordering::SeqCst);
        }
    }

    /// Lets nobody sit down any more, and returns when nobody sits (D1). By who has the lock alone, or otherwise sees to it that nobody opens the
    /// crowd meanwhile; several may.
    #[inline]
    pub fn clear(&self) {
        // Acquire: partner of the last line, by who has cleared it before.
        if self.state.load(Ordering::Acquire) != CLOSED {
            self.wait_until_empty();
        }
    }

    #[cold]
    fn wait_until_empty(&self) {
        // D1 c.
        self.state.store(CLOSING, Ordering::SeqCst);
        fence_for_loom();
        self.shared.store(0, Ordering::Relaxed);
        let (hall, name) = (hall(), self.name());
        let mut waiting = hall.waiting.lock();
        // D1 d, D3.
        let is_in = |place: &AtomicUsize| place.load(Ordering::SeqCst) == name;
        while hall.seats.iter().any(|Seat(places)| places.iter().any(is_in)) {
            waiting = hall.left.wait(waiting);
        }
        drop(waiting);
        self.state.store(CLOSED, Ordering::Release);
    }
}

/// Somebody shares what a crowd's lock guards, until this is dropped.
#[must_use = "the seat is given up when it is dropped"]
#[derive(Debug)]
pub struct Seated<'a> {
    crowd: &'a Crowd,
    place: &'static AtomicUsize,
}

impl Drop for Seated<'_> {
    #[inline]
    fn drop(&mut self) {
        // D2, D3.
        self.place.swap(0, Ordering::SeqCst);
        fence_for_loom();
        if self.crowd.state.load(Ordering::SeqCst) != OPEN {
            wake();
        }
    }
}

#[cold]
fn wake() {
    let hall = hall();
    // Who clears looks with the mutex held: either it looks after this, or it waits already.
    drop(hall.waiting.lock());
    hall.left.notify_all();
}
