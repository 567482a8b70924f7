//! What a machine has once, and which tests change: locked across threads and across processes.

use rustix::fs::FlockOperation;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;

const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";
const FUSE: &str = "/dev/fuse";

/// A lock on something that the whole machine shares, by flock(2) on the file that stands for it.
/// Held until it is dropped. A thread that takes a second one of the same file waits for ever.
#[derive(Debug)]
pub struct Global {
    _file: File,
}

impl Global {
    /// The kernel's caches of names, inodes and pages stay as they are meanwhile, as far as tests
    /// are concerned: for tests that count what the kernel asks.
    ///
    /// # Panics
    /// Where the caches cannot be dropped by this process, which takes root.
    pub fn caches_stay() -> Global {
        Self::lock(DROP_CACHES, FlockOperation::LockShared)
    }

    /// No other test relies on the kernel's caches meanwhile: for tests that [`drop_caches`].
    ///
    /// # Panics
    /// Where the caches cannot be dropped by this process, which takes root.
    pub fn caches_go() -> Global {
        Self::lock(DROP_CACHES, FlockOperation::LockExclusive)
    }

    fn lock(path: &str, how: FlockOperation) -> Global {
        // For writing: the one may not be read, not even by root.
        let file = File::options().write(true).open(path).expect(path);
        rustix::fs::flock(&file, how).expect(path);
        Global { _file: file }
    }
}

/// Has the kernel forget names and inodes that nobody uses. It does so in its own time: ask again
/// until it has.
///
/// # Panics
/// Where it may not be asked to.
pub fn drop_caches(_alone: &Global) {
    fs::write(DROP_CACHES, "2").expect(DROP_CACHES);
}

/// Everybody may open /dev/fuse, as on a desktop. It is as before when this is dropped.
#[derive(Debug)]
pub struct DeviceForAll {
    before: Permissions,
    _alone: Global,
}

/// Lets everybody open /dev/fuse. Other tests that want it so wait.
///
/// # Panics
/// Where there is no such device, or it is not ours to change.
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
