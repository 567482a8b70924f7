//! The heap: what evicted entries free stays with the allocator unless it is asked.

/// Returns the heap's free pages to the system. The allocator keeps them where something above them
/// is in use. It locks its arenas in turn, for milliseconds where the heap is large: call it on
/// memory pressure, not on the path of a request. Does nothing where the allocator is not glibc's.
pub fn release_free_heap() {
    #[cfg(all(target_os = "linux", target_env = "gnu", not(any(loom, shuttle, miri))))]
    {
        unsafe extern "C" {
            fn malloc_trim(pad: usize) -> std::ffi::c_int;
        }
        // SAFETY: malloc_trim(3) has no precondition, may be called by any thread, and frees
        // nothing that is allocated.
        let _ = unsafe { malloc_trim(0) };
    }
}
