//! A mount from its beginning to its end.

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
    // Declared first, so dropped first: unmounted before the connection closes.
    mounted: UnmountOnDrop,
    /// `None` where it was unmounted before the first of them.
    requests: Option<fuser::Session<Adapter<F>>>,
}

/// Ends a session and tells about it, from any thread.
#[derive(Clone)]
pub struct Handle {
    attached: Arc<Attached>,
    shared: Arc<dyn Running>,
}

/// However a session ends and whatever holds handles of it, no mount stays behind that no process
/// serves.
struct UnmountOnDrop(Handle);

impl Drop for UnmountOnDrop {
    fn drop(&mut self) {
        // No caller is left to tell; `fusermount3 -u` still works for the user.
        let _ = self.0.unmount();
    }
}

/// Mounts `vfs` at the directory `dir`. When this returns, the mount is in place: programs that
/// enter it wait for [`Session::serve`]; or it is gone again, where it has been unmounted
/// meanwhile, and there is nothing to serve.
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
    // One queue for each thread, where an ordinary user may open the device a second time.
    config.clone_fd = File::options().read(true).write(true).open("/dev/fuse").is_ok();
    let acl = match options.visibility {
        // The kernel keeps others out by itself; what it writes back on its own account comes as
        // root.
        Visibility::Owner => fuser::SessionACL::All,
        Visibility::OwnerAndRoot => fuser::SessionACL::RootAndOwner,
        Visibility::Everyone => fuser::SessionACL::All,
    };
    let requests = match fuser::Session::from_fd(adapter, connection, acl, config) {
        Ok(requests) => Some(requests),
        // An unmount need not wait until kernel and server have agreed.
        Err(error) if error.kind() == io::ErrorKind::NotConnected => None,
        Err(error) => return Err(MountError::Protocol(error)),
    };
    if let Some(requests) = &requests {
        // It is the first.
        let _ = notified.notifier.set(requests.notifier());
    }
    Ok(Session { mounted, requests })
}

impl<F: FileSystem> Session<F> {
    /// For ending the session from elsewhere.
    pub fn handle(&self) -> Handle {
        self.mounted.0.clone()
    }

    /// Has `listener` told of each answer that says that the image is damaged ([`Error::Corrupt`])
    /// or its device fails ([`Error::Io`]): the program that asked gets no more than a number. It
    /// is called by the threads that answer, before the answer.
    pub fn listen(&self, listener: impl Fn(&Error) + Send + Sync + 'static) {
        self.mounted.0.shared.listen(Box::new(listener));
    }

    /// Answers requests until the mount is gone.
    pub fn serve(self) -> io::Result<()> {
        let Session { mounted: _until_the_end, requests } = self;
        requests.map_or(Ok(()), fuser::Session::run)
    }
}

impl Handle {
    /// Takes the mount out of the name space, and so ends the session as soon as no program uses a
    /// file of it. Does nothing where it is unmounted already.
    pub fn unmount(&self) -> io::Result<()> {
        self.attached.detach()
    }

    /// Whether there may still be requests: mounted, or unmounted while files are open.
    pub fn is_alive(&self) -> bool {
        !self.attached.is_disconnected()
    }

    /// How many inodes the kernel knows at the moment; the root is one of them.
    pub fn known_inodes(&self) -> usize {
        self.shared.known_inodes()
    }

    /// How many requests for something were answered so far; what the kernel answers by itself is
    /// not among them.
    pub fn requests(&self) -> u64 {
        self.shared.requests()
    }
}
