//! Machine-wide state that tests change: locked across threads and processes.

use rustix::fs::FlockOperation;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;

const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";
const FUSE: &str = "/dev/fuse";

/// A flock(2) on a file that stands for machine-wide state, held until it is dropped. A second lock
/// of one file in the same thread deadlocks.
#[derive(Debug)]
pub struct Global {
    _file: File,
}

impl Global {
    /// Keeps other tests from dropping the kernel's caches of names, inodes and pages: for tests
    /// that count requests of the kernel.
    ///
    /// # Panics
    /// Without root.
    pub fn caches_stay() -> Global {
        Self::lock(DROP_CACHES, FlockOperation::LockShared)
    }

    /// Excludes tests that rely on the kernel's caches: for tests that [`drop_caches`].
    ///
    /// # Panics
    /// Without root.
    pub fn caches_go() -> Global {
        Self::lock(DROP_CACHES, FlockOperation::LockExclusive)
    }

    fn lock(path: &str, how: FlockOperation) -> Global {
        // For writing: drop_caches cannot be read, not even by root.
        let file = File::options().write(true).open(path).expect(path);
        rustix::fs::flock(&file, how).expect(path);
        Global { _file: file }
    }
}

/// Asks the kernel to drop unused names and inodes. It may do so later: ask again until it has.
///
/// # Panics
/// Without root.
pub fn drop_caches(_alone: &Global) {
    fs::write(DROP_CACHES, "2").expect(DROP_CACHES);
}

/// All users may open /dev/fuse, as on a desktop, until this is dropped.
#[derive(Debug)]
pub struct DeviceForAll {
    before: Permissions,
    _alone: Global,
}

/// Lets all users open /dev/fuse. Other tests that want it wait.
///
/// # Panics
/// Where the device is missing, or its mode cannot be changed.
pub fn device_for_all() -> DeviceForAll {
    let alone = Global::lock(FUSE, FlockOperation::LockExclusive);
    let before = fs::metadata(FUSE).expect(FUSE).permissions();
    fs::set_permissions(FUSE, Permissions::from_mode(0o666)).expect(FUSE);
    DeviceForAll { before, _alone: alone }
}

impl Drop for DeviceForAll {
    fn drop(&mut self) {
        let _ = fs::set_permissions(FUSE, self.before.clone());
    }
}

const ENABLE_URING: &str = "/sys/module/fuse/parameters/enable_uring";

/// The kernel offers FUSE over io_uring to new mounts, until the last of these is dropped.
#[derive(Debug)]
pub struct OverIoUring {
    file: File,
}

impl OverIoUring {
    /// Has the kernel offer it; `None`, with the reason printed, where it cannot.
    ///
    /// # Panics
    /// Where the parameter is there and cannot be locked.
    pub fn enable() -> Option<OverIoUring> {
        let Ok(file) = File::options().read(true).write(true).open(ENABLE_URING) else {
            println!("skipped: needs root, and a kernel with {ENABLE_URING}");
            return None;
        };
        rustix::fs::flock(&file, FlockOperation::LockShared).expect(ENABLE_URING);
        fs::write(ENABLE_URING, "Y").expect(ENABLE_URING);
        Some(OverIoUring { file })
    }
}

impl Drop for OverIoUring {
    fn drop(&mut self) {
        // Only the last one gets the lock. Off is the kernel's default.
        if rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = fs::write(ENABLE_URING, "N");
        }
    }
}
