//! A mount, from mount(2) to its end.

use crate::adapter::{Adapter, Running, Shared};
use crate::convert::NodeIds;
use crate::mountpoint::{Attached, MountAccess};
use crate::options::{MountError, Options, Visibility};
use dentree_vfs::{Error, FileSystem, Vfs};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// A mounted file system that is ready to be served. Dropping it unmounts.
pub struct Session<F: FileSystem> {
    // Declared first, so dropped first: unmounts before the connection closes.
    mounted: UnmountOnDrop,
    /// `None` if it was unmounted before the first request.
    requests: Option<fuser::Session<Adapter<F>>>,
}

/// Unmounts a session or reports its state, from any thread.
#[derive(Clone)]
pub struct Handle {
    attached: Arc<Attached>,
    shared: Arc<dyn Running>,
}

/// No mount outlives its server, whatever holds handles.
struct UnmountOnDrop(Handle);

impl Drop for UnmountOnDrop {
    fn drop(&mut self) {
        // No caller is left to tell; `fusermount3 -u` still works for the user.
        let _ = self.0.unmount();
    }
}

/// Mounts `vfs` at the directory `dir`. On return the mount is in place, and programs that enter it
/// wait for [`Session::serve`]; or it is unmounted again already.
pub fn mount<F: FileSystem>(
    vfs: Arc<Vfs<F>>,
    dir: &Path,
    options: &Options,
) -> Result<Session<F>, MountError> {
    let access = if vfs.fs().is_read_only() { MountAccess::ReadOnly } else { MountAccess::ReadWrite };
    let shared = Arc::new(Shared::new());
    let notified = Arc::clone(&shared);
    let adapter = Adapter {
        ids: NodeIds { root: vfs.root().ino() },
        vfs,
        shared: shared.clone(),
        ownership: options.ownership,
        kernel_caches: options.visibility != Visibility::OwnerAndRoot,
        changes: access == MountAccess::ReadWrite,
        writes_back: false,
        drops_set_id: false,
        no_open: false,
        no_opendir: false,
    };
    let (attached, connection) = Attached::new(dir, options, access)?;
    let mounted = UnmountOnDrop(Handle { attached: Arc::new(attached), shared });

    let mut config = fuser::Config::default();
    config.n_threads = Some(options.threads.get());
    // One queue per thread, where the user may open the device a second time.
    config.clone_fd = File::options().read(true).write(true).open("/dev/fuse").is_ok();
    let acl = match options.visibility {
        // The kernel refuses other users by itself; its own write-back comes as root.
        Visibility::Owner => fuser::SessionACL::All,
        Visibility::OwnerAndRoot => fuser::SessionACL::RootAndOwner,
        Visibility::Everyone => fuser::SessionACL::All,
    };
    let requests = match fuser::Session::from_fd(adapter, connection, acl, config) {
        Ok(requests) => Some(requests),
        // An unmount does not wait for the handshake.
        Err(error) if error.kind() == io::ErrorKind::NotConnected => None,
        Err(error) => return Err(MountError::Protocol(error)),
    };
    if let Some(requests) = &requests {
        // The first and only one.
        let _ = notified.notifier.set(requests.notifier());
    }
    Ok(Session { mounted, requests })
}

impl<F: FileSystem> Session<F> {
    /// A handle to unmount from elsewhere.
    pub fn handle(&self) -> Handle {
        self.mounted.0.clone()
    }

    /// Sets the `listener` of errors that say that the image is damaged ([`Error::Corrupt`]) or
    /// that its device fails ([`Error::Io`]): the program that made the request gets an errno only.
    /// The threads that reply call it, before the reply.
    pub fn listen(&self, listener: impl Fn(&Error) + Send + Sync + 'static) {
        self.mounted.0.shared.listen(Box::new(listener));
    }

    /// Serves requests until the mount is gone.
    pub fn serve(self) -> io::Result<()> {
        let Session { mounted: until_the_end, requests } = self;
        let served = requests.map_or(Ok(()), fuser::Session::run);
        // Handles may live on while the caller closes the file system: free unlinked files first.
        until_the_end.0.shared.forget_all();
        served
    }
}

impl Handle {
    /// Unmounts. The session ends when no program uses a file of it. Does nothing if it is
    /// unmounted.
    pub fn unmount(&self) -> io::Result<()> {
        self.attached.detach()
    }

    /// Whether requests may come: mounted, or unmounted with open files.
    pub fn is_alive(&self) -> bool {
        !self.attached.is_disconnected()
    }

    /// Number of inodes that the kernel knows, the root among them.
    pub fn known_inodes(&self) -> usize {
        self.shared.known_inodes()
    }

    /// Number of requests for a node. What the kernel has cached needs none.
    pub fn requests(&self) -> u64 {
        self.shared.requests()
    }
}
