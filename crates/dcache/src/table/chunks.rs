//! Type-stable storage: numbered slots that never move and are never freed.
//!
//! ```text
//! small   [0 .. s)          made at once: an empty cache takes little memory and address space
//! main    [s .. n)          one allocation in huge pages, made as slot `s` is
//! later   [n .. 2n) [2n .. 4n) …   only where more is held than the budget foresaw
//! ```
//!
//! A number that was ever given out stays readable until the storage is dropped, so a reader may
//! follow a stale number and notice it by sequence count or generation. `get` costs a predicted
//! compare and a choice between two pointers; a table of chunks would cost a dependent load.

use std::hint::select_unpredictable;

use dentree_sync::Mutex;
use dentree_sync::atomic::{AtomicPtr, Ordering};

/// Types for which zeroed memory is valid and equals the default.
///
/// # Safety
/// Zeroed memory is a valid `Self`, and `Self` needs no drop.
pub(crate) unsafe trait Zeroed: Default {}

const LATER: usize = if cfg!(any(loom, shuttle)) { 5 } else { 24 };
/// Part of the slots made at once, and its minimum.
const SHARE: u32 = if cfg!(any(loom, shuttle)) { 2 } else { 32 };
const SMALL_MIN: u32 = if cfg!(any(loom, shuttle)) { 4 } else { 1024 };

pub(crate) struct Chunks<T> {
    /// [immutable] first slot and length of the small chunk
    small: (*mut T, u32),
    /// [growing] where slot 0 would be if the main chunk began there; null until it is made
    main: AtomicPtr<T>,
    /// [immutable] slots of `small` and `main`
    foreseen: u32,
    /// [growing] chunk `k` holds `foreseen << k` slots from number `foreseen << k`; each written
    /// once
    later: [AtomicPtr<T>; LATER],
    growing: Mutex<()>,
}

// SAFETY: `Chunks` gives out shared references only.
unsafe impl<T: Send + Sync> Sync for Chunks<T> {}
// SAFETY: it owns its slots.
unsafe impl<T: Send> Send for Chunks<T> {}

impl<T: Zeroed> Chunks<T> {
    pub(crate) fn new(foreseen: u32) -> Self {
        let foreseen = foreseen.max(1);
        let small = (foreseen / SHARE).max(SMALL_MIN).min(foreseen);
        Chunks {
            small: (backing::allocate(small as usize, false), small),
            main: AtomicPtr::default(),
            foreseen,
            later: Default::default(),
            growing: Mutex::new(()),
        }
    }

    /// Slot `i` exists.
    #[inline(always)]
    pub(crate) fn get(&self, i: u32) -> &T {
        if i >= self.foreseen {
            return self.far(i).expect("the slot was made");
        }
        // Acquire: pairs with the Release in `ensure`, so that the zeroes are seen with the
        // address.
        let main = self.main.load(Ordering::Acquire);
        debug_assert!(i < self.small.1 || !main.is_null(), "slot {i} was never made");
        let base = select_unpredictable(i < self.small.1, self.small.0, main);
        // SAFETY: the slot was made, so it is inside its chunk, which lives as long as `self`.
        unsafe { &*base.wrapping_add(i as usize) }
    }

    #[inline(always)]
    pub(crate) fn get_if_made(&self, i: u32) -> Option<&T> {
        if i >= self.foreseen {
            return self.far(i);
        }
        let is_made = i < self.small.1 || !self.main.load(Ordering::Acquire).is_null();
        is_made.then(|| self.get(i))
    }

    #[cold]
    fn far(&self, i: u32) -> Option<&T> {
        let (chunk, offset) = self.locate(i);
        // Acquire: as in `get`.
        let base = self.later.get(chunk)?.load(Ordering::Acquire);
        // SAFETY: a published chunk holds `foreseen << chunk` slots, of which `offset` is one, and
        // is freed with `self`.
        (!base.is_null()).then(|| unsafe { &*base.add(offset) })
    }

    pub(crate) fn ensure(&self, i: u32) {
        // No lock for an existing slot, as walks of threads with high numbers come here (G3).
        if self.get_if_made(i).is_some() {
            return;
        }
        let _growing = self.growing.lock();
        if self.get_if_made(i).is_some() {
            return;
        }
        if i < self.foreseen {
            let main: *mut T = backing::allocate((self.foreseen - self.small.1) as usize, true);
            self.main.store(main.wrapping_sub(self.small.1 as usize), Ordering::Release);
        } else {
            let (chunk, _) = self.locate(i);
            self.later[chunk].store(backing::allocate(self.chunk_len(chunk), true), Ordering::Release);
        }
    }

    fn chunk_len(&self, chunk: usize) -> usize {
        (self.foreseen as usize) << chunk
    }

    fn locate(&self, i: u32) -> (usize, usize) {
        let chunk = (i / self.foreseen).ilog2() as usize;
        (chunk, i as usize - self.chunk_len(chunk))
    }
}

impl<T> Drop for Chunks<T> {
    fn drop(&mut self) {
        let (small, foreseen) = (self.small.1 as usize, self.foreseen as usize);
        let main = self.main.load(Ordering::Relaxed);
        let main = if main.is_null() { main } else { main.wrapping_add(small) };
        let later = self.later.iter().enumerate();
        let later = later.map(|(k, base)| (base.load(Ordering::Relaxed), foreseen << k));
        let all = later.chain([(self.small.0, small), (main, foreseen - small)]);
        for (base, len) in all.filter(|(base, _)| !base.is_null()) {
            // SAFETY: `base` came from `backing::allocate(len)`, and nothing borrows `self`.
            unsafe { backing::free(base, len) };
        }
    }
}

#[cfg(all(unix, not(any(loom, shuttle, miri))))]
mod backing {
    use super::Zeroed;
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
    use std::alloc::{Layout, handle_alloc_error};

    fn bytes<T>(len: usize) -> usize {
        len.checked_mul(size_of::<T>()).expect("slots fit the address space").max(1)
    }

    /// Huge pages suit random access, where small pages add a TLB miss to each cache miss, but not
    /// a mostly empty chunk.
    pub(crate) fn allocate<T: Zeroed>(len: usize, is_huge: bool) -> *mut T {
        const { assert!(align_of::<T>() <= 4096) };
        let (bytes, read_and_write) = (bytes::<T>(len), ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: a new mapping at an address of the system's choice.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, read_and_write, MapFlags::PRIVATE) };
        let Ok(base) = base else {
            handle_alloc_error(Layout::array::<T>(len).unwrap_or(Layout::new::<T>()))
        };
        #[cfg(target_os = "linux")]
        {
            use rustix::mm::{Advice, madvise};
            let advice = if is_huge { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
            // SAFETY: the mapping is new, and the advice changes no content. A refusal is harmless.
            let _ = unsafe { madvise(base, bytes, advice) };
        }
        #[cfg(not(target_os = "linux"))]
        let _ = is_huge;
        base.cast()
    }

    /// # Safety
    /// `base` came from `allocate(len)` and is no longer in use.
    pub(crate) unsafe fn free<T>(base: *mut T, len: usize) {
        // SAFETY: as the caller promises.
        let _ = unsafe { munmap(base.cast(), bytes::<T>(len)) };
    }
}

/// Model atomics are not valid as zeroes.
#[cfg(not(all(unix, not(any(loom, shuttle, miri)))))]
mod backing {
    use super::Zeroed;

    pub(crate) fn allocate<T: Zeroed>(len: usize, _is_huge: bool) -> *mut T {
        let slots: Box<[T]> = (0..len).map(|_| T::default()).collect();
        Box::into_raw(slots).cast()
    }

    /// # Safety
    /// `base` came from `allocate(len)` and is no longer in use.
    pub(crate) unsafe fn free<T>(base: *mut T, len: usize) {
        // SAFETY: `allocate` made a boxed slice of that length.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(base, len)) });
    }
}

#[inline(always)]
pub(crate) fn prefetch<T>(value: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch has no effect that a program can observe.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = value;
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use dentree_sync::atomic::AtomicU64;

    // SAFETY: an atomic integer of zero bytes is zero.
    unsafe impl Zeroed for AtomicU64 {}

    #[test]
    fn slots_keep_their_place_while_the_storage_grows() {
        let chunks = Chunks::<AtomicU64>::new(2000);
        let early: *const AtomicU64 = chunks.get(2);
        for i in 0..20_000 {
            chunks.ensure(i);
            chunks.get(i).store(u64::from(i) + 1, Ordering::Relaxed);
        }
        assert!((0..20_000).all(|i| chunks.get(i).load(Ordering::Relaxed) == u64::from(i) + 1));
        assert_eq!(early, chunks.get(2) as *const _);
    }

    #[test]
    fn only_what_was_made_is_there() {
        let chunks = Chunks::<AtomicU64>::new(1 << 20);
        let is_made = |i| chunks.get_if_made(i).is_some();
        assert!(is_made(0) && !is_made((1 << 20) - 1) && !is_made(1 << 20) && !is_made(u32::MAX));
        chunks.ensure((1 << 20) - 1);
        assert_eq!(chunks.get((1 << 20) - 1).load(Ordering::Relaxed), 0);
        assert!(is_made((1 << 20) - 1) && !is_made(1 << 20));
    }
}
