//! The kernel's end of FUSE over io_uring: requests come, and replies go, through queues of entries
//! instead of `/dev/fuse`.
//!
//! The kernel has a queue for each possible processor, and puts a request into that of the
//! processor on which the caller runs. An entry is a header and a payload buffer in our memory. We
//! *register* each entry once; the kernel completes that with a request in the entry; we *commit*
//! the reply and so fetch the next request, in one system call for all entries of a thread.
//!
//! | thing | owned by |
//! |---|---|
//! | an entry's memory, from its completion to [`RingEntry::finish`] | the [`RingEntry`] |
//! | an entry's memory, from its commit to its completion | the kernel |
//! | the ring | its thread alone (`SINGLE_ISSUER`, `DEFER_TASKRUN`) |
//! | finished entries | the mutex of `Home` |
//!
//! There is a ring and a thread for each processor that is online, bound to it. The queues of other
//! processors have one entry each, spread over the threads: the kernel sends nothing over the ring
//! until each possible processor's queue has an entry.
//!
//! # Guarantees
//! - U1: at most one [`RingEntry`] exists for an entry's memory, and none while the kernel owns it.
//! - U2: memory outlives each [`RingEntry`], the ring, and what the kernel still has of it: a ring
//!   that ends by an error leaves its memory mapped.
//! - U3: an [`RingEntry`] that is dropped without a reply, by a panic, replies EIO.
//!
//! # Known limits
//! FORGET and INTERRUPT still come over `/dev/fuse`: the caller must read it, too. A kernel that
//! refuses a registration sends everything there. There are no rings on 32-bit processors.
//!
//! Facts: `Documentation/filesystems/fuse/fuse-io-uring.rst`, `include/uapi/linux/fuse.h`.

#[cfg(target_pointer_width = "64")]
mod entry;
#[cfg(target_pointer_width = "64")]
mod memory;
#[cfg(not(target_pointer_width = "64"))]
mod no_ring;
#[cfg(target_pointer_width = "64")]
mod queue;
mod shape;

#[cfg(target_pointer_width = "64")]
pub use entry::RingEntry;
#[cfg(not(target_pointer_width = "64"))]
pub use no_ring::{Afterwards, Handler, RingEntry, Rings};
#[cfg(target_pointer_width = "64")]
pub use queue::{Afterwards, Handler, Rings};
pub use shape::{Shape, is_enabled};
