//! A mount, from mount(2) to its end.

use crate::adapter::{Adapter, Running, Shared};
use crate::classic::{self, Classic};
use crate::convert::NodeIds;
use crate::counts::Requests;
use crate::init::{Agreed, Limits, MAX_WRITE};
use crate::mountpoint::{Attached, MountAccess};
use crate::notify::Notifier;
use crate::options::{MountError, Options, Visibility};
use crate::pool::Pool;
use crate::requests::Serve;
use crate::ring::{BUDGET, OverRings};
use dentree_fuse_uring::{Handler, Rings, Shape, is_enabled};
use dentree_vfs::{Error, FileSystem, Vfs};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A mounted file system that is ready to be served. Dropping it unmounts.
pub struct Session<F: FileSystem> {
    // Declared first, so dropped first: unmounts before the connection closes.
    mounted: UnmountOnDrop,
    /// `None` if it was unmounted before the first request.
    server: Option<Server<F>>,
}

struct Server<F: FileSystem> {
    adapter: Arc<Adapter<F>>,
    connection: Arc<OwnedFd>,
    rings: Option<(Rings, Shape)>,
    threads: usize,
}

/// How requests come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Channel {
    /// Threads read `/dev/fuse`.
    Classic,
    /// Over io_uring.
    Ring,
}

/// Unmounts a session or reports its state, from any thread.
#[derive(Clone)]
pub struct Handle {
    attached: Arc<Attached>,
    shared: Arc<dyn Running>,
    /// Whether the kernel has refused the rings; `None` without.
    ring_refused: Option<Arc<AtomicBool>>,
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
    let shape = shape(options)?;
    let mut adapter = Adapter {
        ids: NodeIds { root: vfs.root().ino() },
        vfs,
        shared: shared.clone(),
        ownership: options.ownership,
        kernel_caches: options.visibility != Visibility::OwnerAndRoot,
        // Else the kernel refuses other users by itself; its own write-back comes as root.
        filtered: (options.visibility == Visibility::OwnerAndRoot)
            .then(|| rustix::process::geteuid().as_raw()),
        changes: access == MountAccess::ReadWrite,
        agreed: Agreed::default(),
    };
    let (attached, connection) = Attached::new(dir, options, access)?;
    let handle = Handle { attached: Arc::new(attached), shared: shared.clone(), ring_refused: None };
    let mut mounted = UnmountOnDrop(handle);

    let connection = Arc::new(connection);
    let rings = match shape.map(|shape| Rings::prepare(&connection, &shape).map(|rings| (rings, shape))) {
        Some(Err(error)) if options.io_uring == Some(true) => return Err(MountError::Ring(error)),
        rings => rings.and_then(Result::ok),
    };
    let over_io_uring = rings.is_some();
    let max_write = rings.as_ref().map_or(MAX_WRITE, |(_, shape)| shape.payload);
    let mut agreed = Agreed::default();
    let greeted = classic::handshake(&connection, |offered| {
        let reply;
        (reply, agreed) = adapter.agree(offered, Limits { max_write, over_io_uring });
        reply
    });
    // The first and only one.
    let _ = shared.notifier.set(Notifier(connection.clone()));
    let rings = rings.filter(|_| agreed.over_io_uring);
    mounted.0.ring_refused = rings.as_ref().map(|(rings, _)| rings.is_refused());
    let threads = options.threads.get();
    let server = Server { adapter: Arc::new(adapter), connection, rings, threads };
    let server = greeted.map_err(MountError::Protocol)?.map(|()| server);
    Ok(Session { mounted, server })
}

/// The rings to make, if any.
fn shape(options: &Options) -> Result<Option<Shape>, MountError> {
    if options.io_uring == Some(false) {
        return Ok(None);
    }
    let shape = is_enabled().then(|| Shape::of_machine(BUDGET)).flatten();
    if shape.is_none() && options.io_uring == Some(true) { Err(MountError::NoRing) } else { Ok(shape) }
}

impl<F: FileSystem> Server<F> {
    fn serve(self) -> io::Result<()> {
        let Server { adapter, connection, rings, threads } = self;
        let pool = Arc::new(Pool::default());
        if let Some((rings, shape)) = &rings {
            let handler: Arc<dyn Handler> = Arc::new(OverRings::new(adapter.clone(), pool.clone(), shape));
            rings.start(&handler);
        }
        // What does not come over rings comes here: FORGET, and everything where they are refused.
        let served = Classic::new(connection, adapter, pool.clone(), threads).run();
        let joined = rings.map_or(Ok(()), |(rings, _)| rings.join());
        pool.end();
        served.and(joined)
    }
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
        let Session { mounted: until_the_end, server } = self;
        let served = server.map_or(Ok(()), Server::serve);
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

    /// How requests come.
    pub fn channel(&self) -> Channel {
        match &self.ring_refused {
            Some(refused) if !refused.load(Relaxed) => Channel::Ring,
            _ => Channel::Classic,
        }
    }

    /// The requests that have come. What the kernel has cached needs none.
    pub fn requests(&self) -> Requests {
        self.shared.requests()
    }
}
