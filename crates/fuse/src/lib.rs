//! FUSE adapter: mounts a [`Vfs`](dentree_vfs::Vfs) where every program can reach it, read-only
//! where the file system is.
//!
//! [`mount`] attaches the file system to a directory, as root by `mount(2)` and as anybody else
//! through `fusermount3`, and answers a [`Session`]; [`Session::serve`] answers the kernel's
//! requests until the mount is gone, by a [`Handle`] or from outside: those of its io_uring queues
//! where it offers them, else those of `/dev/fuse`.
//!
//! ```no_run
//! # fn example<F: dentree_vfs::FileSystem>(vfs: std::sync::Arc<dentree_vfs::Vfs<F>>) -> Result<(), Box<dyn std::error::Error>> {
//! let session = dentree_fuse::mount(vfs, "/mnt".as_ref(), &dentree_fuse::Options::default())?;
//! let handle = session.handle(); // for a signal handler: handle.unmount()
//! session.serve()?;
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod abi;
mod adapter;
mod changes;
mod classic;
mod convert;
mod counts;
mod init;
mod ioctl;
mod known;
mod mountpoint;
mod notify;
mod options;
mod pool;
mod reply;
mod request;
mod requests;
mod ring;
mod seek;
mod session;

pub use convert::Ownership;
pub use counts::Requests;
pub use mountpoint::unmount;
pub use options::{MountError, Options, Visibility};
pub use session::{Channel, Handle, Session, mount};
