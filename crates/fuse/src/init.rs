//! The first request: what kernel and server can do.

use crate::abi::{self, InitIn, InitOut};
use std::time::Duration;

/// Bits of INIT's two words of flags.
pub(crate) mod flag {
    pub(crate) const ASYNC_READ: u64 = 1;
    pub(crate) const EXPORT_SUPPORT: u64 = 1 << 4;
    pub(crate) const BIG_WRITES: u64 = 1 << 5;
    pub(crate) const DONT_MASK: u64 = 1 << 6;
    pub(crate) const DO_READDIRPLUS: u64 = 1 << 13;
    pub(crate) const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub(crate) const WRITEBACK_CACHE: u64 = 1 << 16;
    pub(crate) const NO_OPEN_SUPPORT: u64 = 1 << 17;
    pub(crate) const PARALLEL_DIROPS: u64 = 1 << 18;
    pub(crate) const POSIX_ACL: u64 = 1 << 20;
    pub(crate) const MAX_PAGES: u64 = 1 << 22;
    pub(crate) const CACHE_SYMLINKS: u64 = 1 << 23;
    pub(crate) const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
    pub(crate) const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    pub(crate) const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub(crate) const INIT_EXT: u64 = 1 << 30;
    pub(crate) const OVER_IO_URING: u64 = 1 << 41;
}

/// What we want of the kernel where it can do it.
///
/// Not `FUSE_ASYNC_DIO`: the kernel drops the cached pages of a range before a direct write is
/// sent, and again after its reply only where the write is synchronous. A page that is read in
/// between would stay stale.
const WANTED: u64 = flag::ASYNC_READ
    | flag::BIG_WRITES
    | flag::MAX_PAGES
    | flag::PARALLEL_DIROPS
    | flag::DO_READDIRPLUS
    | flag::READDIRPLUS_AUTO
    | flag::CACHE_SYMLINKS
    | flag::EXPLICIT_INVAL_DATA
    | flag::POSIX_ACL
    // A default ACL stands in the umask's place: the side that knows both has to decide.
    | flag::DONT_MASK
    // File handles name nodes that were forgotten: see `Adapter::find`.
    | flag::EXPORT_SUPPORT
    | flag::INIT_EXT;

/// Reads that the kernel may have in flight for read-ahead; its own default of 12 starves the
/// threads.
const MAX_BACKGROUND: u16 = 64;

/// Longest write and read. The kernel's own limit is 256 pages, unless an administrator raises it.
pub(crate) const MAX_WRITE: usize = 1 << 20;

/// What both sides will do.
#[derive(Clone, Copy, Default)]
pub(crate) struct Agreed {
    /// The kernel has a write-back cache.
    pub(crate) writes_back: bool,
    /// The kernel leaves clearing setuid and setgid bits to us.
    pub(crate) drops_set_id: bool,
    /// The kernel opens without a request after an OPEN that returned ENOSYS.
    pub(crate) no_open: bool,
    /// As `no_open`, for OPENDIR.
    pub(crate) no_opendir: bool,
    /// Requests come over rings.
    pub(crate) over_io_uring: bool,
}

/// What depends on the mount.
pub(crate) struct Wishes {
    pub(crate) changes: bool,
    pub(crate) kernel_caches: bool,
    pub(crate) time_granularity: Duration,
    pub(crate) limits: Limits,
}

/// What depends on the channel.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// Longest write and read.
    pub(crate) max_write: usize,
    pub(crate) over_io_uring: bool,
}

/// The reply to INIT.
pub(crate) fn agree(offered: &InitIn, wishes: &Wishes) -> (InitOut, Agreed) {
    let can = u64::from(offered.flags) | u64::from(offered.flags2) << 32;
    let mut wanted = WANTED;
    if wishes.changes {
        // Else the kernel looks for capabilities of the file before every write that it gathers.
        wanted |= flag::HANDLE_KILLPRIV_V2;
    }
    if wishes.changes && wishes.kernel_caches {
        wanted |= flag::WRITEBACK_CACHE;
    }
    if wishes.limits.over_io_uring {
        wanted |= flag::OVER_IO_URING;
    }
    let flags = wanted & can;
    let agreed = Agreed {
        writes_back: flags & flag::WRITEBACK_CACHE != 0,
        drops_set_id: flags & flag::HANDLE_KILLPRIV_V2 != 0,
        no_open: wishes.kernel_caches && can & flag::NO_OPEN_SUPPORT != 0,
        no_opendir: wishes.kernel_caches && can & flag::NO_OPENDIR_SUPPORT != 0,
        over_io_uring: flags & flag::OVER_IO_URING != 0,
    };
    let reply = InitOut {
        major: abi::KERNEL_VERSION,
        minor: abi::KERNEL_MINOR_VERSION,
        max_readahead: offered.max_readahead,
        flags: flags as u32,
        flags2: (flags >> 32) as u32,
        max_background: MAX_BACKGROUND,
        congestion_threshold: MAX_BACKGROUND / 4 * 3,
        max_write: wishes.limits.max_write as u32,
        max_pages: (wishes.limits.max_write / rustix::param::page_size()) as u16,
        // At most a second.
        time_gran: wishes.time_granularity.as_nanos() as u32,
        ..InitOut::default()
    };
    (reply, agreed)
}

/// The reply to a kernel whose major version is newer.
pub(crate) fn version_only() -> InitOut {
    InitOut { major: abi::KERNEL_VERSION, minor: abi::KERNEL_MINOR_VERSION, ..InitOut::default() }
}
