//! HTTP/1.1 adapter: serves the files of a [`Vfs`](dentree_vfs::Vfs) to browsers and programs.
//!
//! [`Server::bind`] takes an address, [`Server::serve`] runs until a [`Handle`] stops it. Clients
//! may rely on this:
//!
//! - `GET` and `HEAD` alone; single and several ranges, `If-Range`, and every conditional of RFC
//!   9110 §13. More than [`RANGES_MAX`] ranges or overlapping ranges get the whole file.
//! - An entity tag is strong and covers file system, inode, generation, size and time of change.
//! - A directory is a page of its entries; an `index.html` in it is a file like any other. The page
//!   has no validators, because it shows attributes of other inodes. Clients that accept JSON get
//!   JSON; `?archive=tar` sends the tree below.
//! - Paths are decoded once, by component. `.`, `..`, and components with a decoded `/` or NUL are
//!   refused. The root of the file system is its own parent: no link leads outside.
//! - A client that can connect, and has a password where [`Passwords`] are set, may read everything
//!   ([`Identity::Superuser`]), as a holder of the image can. Against DNS rebinding, a server on a
//!   loopback address accepts only a `Host` of `localhost` or an address.
//! - Documents that can run scripts are sandboxed and cannot read other files.
//! - The time limit of a request's head also covers the handshake of [`Tls`]. Slow readers are cut
//!   off by bytes that the socket takes.
//! - Memory is bounded: [`Limits::buffers`] for all responses, [`Limits::contents`] for cached
//!   files, a request's head and two TLS records per connection. A failure in mid-file cuts the
//!   connection: the body is short, never wrong.
//!
//! ```no_run
//! # struct Quiet;
//! # impl dentree_http::Log for Quiet {
//! #     fn access(&self, _: &dentree_http::Access) {}
//! #     fn problem(&self, _: &[u8], _: &dentree_vfs::Error) {}
//! # }
//! # fn example<F: dentree_vfs::FileSystem>(vfs: std::sync::Arc<dentree_vfs::Vfs<F>>) -> std::io::Result<()> {
//! let options = dentree_http::Options::new("disk.img");
//! let server = dentree_http::Server::bind(vfs, options, std::sync::Arc::new(Quiet))?;
//! println!("http://{}/", server.address());
//! let handle = server.handle(); // for a signal handler: handle.stop()
//! server.serve();
//! # Ok(())
//! # }
//! ```
//!
//! [`Identity::Superuser`]: dentree_vfs::Identity::Superuser
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod archive;
mod body;
mod conditional;
mod contents;
mod exchange;
mod files;
mod json;
mod listing;
mod log;
mod media;
mod metrics;
#[cfg(not(feature = "tls"))]
mod no_tls;
mod options;
mod passwords;
mod range;
mod reply;
mod server;
mod service;
mod site;
mod sort;
mod stall;
mod target;
#[cfg(feature = "tls")]
mod tls;
mod tls_error;

#[cfg(not(feature = "tls"))]
use no_tls as tls;

pub use log::{Access, Log};
pub use metrics::{Figure, Growth};
pub use options::{Limits, Options, WriteArchive};
pub use passwords::Passwords;
pub use range::RANGES_MAX;
pub use server::{Handle, Server};
pub use tls::Tls;
pub use tls_error::TlsError;
