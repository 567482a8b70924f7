//! Returning free heap pages to the system.

/// Returns the heap's free pages to the system, which the allocator keeps below pages in use. It
/// locks its arenas in turn, for milliseconds if the heap is large: call it on memory pressure, not
/// in a request. Does nothing with other allocators than glibc's.
pub fn release_free_heap() {
    #[cfg(all(target_os = "linux", target_env = "gnu", not(any(loom, shuttle, miri))))]
    {
        unsafe extern "C" {
            fn malloc_trim(pad: usize) -> std::ffi::c_int;
        }
        // SAFETY: malloc_trim(3) has no precondition, is thread-safe, and frees nothing that is
        // allocated.
        let _ = unsafe { malloc_trim(0) };
    }
}
