//! Type-stable storage: slots under dense numbers that never move and are never given back.
//!
//! ```text
//! first   [0 .. n)          one allocation, backed by the system page by page as it is first touched
//! later   [n .. 2n) [2n .. 4n) …   only where more is held than the budget foresaw
//! ```
//!
//! A number that was ever handed out stays readable until the whole storage is dropped, which is what lets a
//! reader follow a stale number and find out by a sequence count or generation that it is stale. `get` costs a
//! compare that is always predicted, not a second dependent load as a table of chunks would.

use crate::sync::{AtomicPtr, Mutex, Ordering, lock};

/// Types for which all zero bytes are a value, and the one that a fresh slot shall have.
///
/// # Safety
/// Zeroed memory must be a valid `Self`, and `Self` must not need to be dropped.
pub(crate) unsafe trait Zeroed: Default {}

const LATER: usize = if cfg!(any(loom, shuttle)) { 5 } else { 24 };
const HUGE_PAGE: usize = 2 << 20;

/// See the module's text.
pub(crate) struct Chunks<T> {
    /// [immutable] `first.1` slots.
    first: (*mut T, u32),
    /// [growing] written once each; chunk `k` holds `first.1 << k` slots from number `first.1 << k`.
    later: [AtomicPtr<T>; LATER],
    growing: Mutex<()>,
}

// SAFETY: `Chunks` gives out shared references only, so it is as shareable as its slots.
unsafe impl<T: Send + Sync> Sync for Chunks<T> {}
// SAFETY: it owns its slots.
unsafe impl<T: Send> Send for Chunks<T> {}

impl<T: Zeroed> Chunks<T> {
    /// Room for `first` slots, and more on demand.
    pub(crate) fn new(first: u32) -> Self {
        let first = first.max(1);
        Chunks {
            first: (backing::allocate(first as usize), first),
            later: Default::default(),
            growing: Mutex::new(()),
        }
    }

    /// The slot with number `i`, which must have been [`ensure`](Self::ensure)d.
    #[inline(always)]
    pub(crate) fn get(&self, i: u32) -> &T {
        if i < self.first.1 {
            // SAFETY: in the bounds of the first chunk, which lives as long as `self`.
            unsafe { &*self.first.0.add(i as usize) }
        } else {
            self.far(i)
        }
    }

    /// The slots that the budget foresaw, as one piece: where they lie need not be looked up for each.
    #[inline(always)]
    pub(crate) fn foreseen(&self) -> &[T] {
        let (base, len) = self.first;
        // SAFETY: the first chunk has so many slots, and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(base, len as usize) }
    }

    #[cold]
    fn far(&self, i: u32) -> &T {
        let (chunk, offset) = self.locate(i);
        // Acquire: pairs with the Release in `ensure`, so that the zeroes of the chunk are seen with its address.
        let base = self.later[chunk].load(Ordering::Acquire);
        assert!(!base.is_null(), "slot {i} was never made");
        // SAFETY: a published chunk holds `first.1 << chunk` slots and is freed only with `self`; `locate` keeps
        // `offset` below that.
        unsafe { &*base.add(offset) }
    }

    /// Makes sure that slot `i` exists.
    pub(crate) fn ensure(&self, i: u32) {
        if i < self.first.1 {
            return;
        }
        let (chunk, _) = self.locate(i);
        // Without the lock where it is there already: walks of threads that sit far out come by here (G3).
        if !self.later[chunk].load(Ordering::Acquire).is_null() {
            return;
        }
        let _growing = lock(&self.growing);
        if self.later[chunk].load(Ordering::Relaxed).is_null() {
            let fresh = backing::allocate(self.chunk_len(chunk));
            self.later[chunk].store(fresh, Ordering::Release);
        }
    }

    fn chunk_len(&self, chunk: usize) -> usize {
        (self.first.1 as usize) << chunk
    }

    fn locate(&self, i: u32) -> (usize, usize) {
        let chunk = (i / self.first.1).ilog2() as usize;
        (chunk, i as usize - self.chunk_len(chunk))
    }
}

impl<T> Drop for Chunks<T> {
    fn drop(&mut self) {
        let first = (self.first.0, self.first.1 as usize);
        let later = self.later.iter().enumerate();
        let later = later.map(|(k, base)| (base.load(Ordering::Relaxed), first.1 << k));
        for (base, len) in later.chain([first]).filter(|(base, _)| !base.is_null()) {
            // SAFETY: `base` came from `backing::allocate(len)`, and nothing borrows `self` any more.
            unsafe { backing::free(base, len) };
        }
    }
}

/// Zeroed memory from the allocator, aligned to the slot, and to huge pages where it is worth it.
#[cfg(not(any(loom, shuttle)))]
mod backing {
    use super::{HUGE_PAGE, Zeroed};
    use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

    // Asking the allocator for the alignment would make it fetch plain memory and write the zeroes itself, which
    // touches every page; so this asks for more than is needed and aligns by hand. The pointer to free lies in
    // the word before the slots.
    fn layout<T>(len: usize) -> (Layout, usize) {
        let bytes = len.checked_mul(size_of::<T>()).expect("slots fit the address space");
        let align = if bytes >= HUGE_PAGE { HUGE_PAGE } else { align_of::<T>().max(16) };
        let total = bytes.checked_add(align + size_of::<usize>()).expect("slots fit the address space");
        (Layout::from_size_align(total, 16).expect("slots fit the address space"), align)
    }

    pub(super) fn allocate<T: Zeroed>(len: usize) -> *mut T {
        let (layout, align) = layout::<T>(len);
        // SAFETY: the size is not zero.
        let raw = unsafe { alloc_zeroed(layout) };
        if raw.is_null() {
            handle_alloc_error(layout);
        }
        let gap = size_of::<usize>();
        let skip = gap + (raw as usize + gap).wrapping_neg() % align;
        // SAFETY: `skip` ≤ `gap + align - 1` and the layout has `gap + align` bytes beyond the slots.
        let base = unsafe { raw.add(skip) };
        // SAFETY: the word before `base` is inside the allocation, and aligned since `base` is to ≥ 16.
        unsafe { base.cast::<*mut u8>().sub(1).write(raw) };
        advise_huge_pages(base, len * size_of::<T>());
        base.cast()
    }

    /// # Safety
    /// `base` must be what `allocate(len)` answered, and no longer in use.
    pub(super) unsafe fn free<T>(base: *mut T, len: usize) {
        // SAFETY: `allocate` left the allocation's own address there.
        let raw = unsafe { base.cast::<*mut u8>().sub(1).read() };
        // SAFETY: `raw` came from `alloc_zeroed` with the same layout.
        unsafe { dealloc(raw, layout::<T>(len).0) };
    }

    /// Records are met at random: with small pages each costs a TLB miss beside its cache miss.
    fn advise_huge_pages(base: *mut u8, bytes: usize) {
        if cfg!(all(target_os = "linux", not(miri))) && bytes >= HUGE_PAGE {
            let whole = bytes / HUGE_PAGE * HUGE_PAGE;
            // SAFETY: the range is inside the allocation that was just made, and the advice changes no content.
            // It is only advice, so a refusal does not matter.
            #[cfg(target_os = "linux")]
            let _ = unsafe { rustix::mm::madvise(base.cast(), whole, rustix::mm::Advice::LinuxHugepage) };
        }
    }
}

/// Model atomics have no all-zero value: make each.
#[cfg(any(loom, shuttle))]
mod backing {
    use super::Zeroed;

    const _: usize = super::HUGE_PAGE;

    pub(super) fn allocate<T: Zeroed>(len: usize) -> *mut T {
        let slots: Box<[T]> = (0..len).map(|_| T::default()).collect();
        Box::into_raw(slots).cast()
    }

    /// # Safety
    /// `base` must be what `allocate(len)` answered, and no longer in use.
    pub(super) unsafe fn free<T>(base: *mut T, len: usize) {
        // SAFETY: `allocate` made a boxed slice of that length.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(base, len)) });
    }
}

/// Asks for the line of `value` without waiting for it.
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
    use crate::sync::AtomicU64;

    // SAFETY: an atomic integer of zero bytes is zero.
    unsafe impl Zeroed for AtomicU64 {}

    #[test]
    fn slots_keep_their_place_while_the_storage_grows() {
        let chunks = Chunks::<AtomicU64>::new(3);
        let early: *const AtomicU64 = chunks.get(2);
        for i in 0..200 {
            chunks.ensure(i);
            chunks.get(i).store(u64::from(i) + 1, Ordering::Relaxed);
        }
        assert!((0..200).all(|i| chunks.get(i).load(Ordering::Relaxed) == u64::from(i) + 1));
        assert_eq!(early, chunks.get(2) as *const _);
    }

    #[test]
    fn large_storage_is_aligned_to_huge_pages_and_zero() {
        let chunks = Chunks::<AtomicU64>::new(1 << 20);
        assert_eq!(std::ptr::from_ref(chunks.get(0)) as usize % HUGE_PAGE, 0);
        assert_eq!(chunks.get((1 << 20) - 1).load(Ordering::Relaxed), 0);
    }

    #[test]
    #[should_panic(expected = "never made")]
    fn a_number_that_was_never_made_is_refused() {
        Chunks::<AtomicU64>::new(4).get(9);
    }
}
