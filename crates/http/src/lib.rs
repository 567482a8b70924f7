//! HTTP/1.1 adapter: serves the files of a [`Vfs`](dentree_vfs::Vfs) to browsers and programs.
//!
//! [`Server::bind`] takes a listening address, [`Server::serve`] answers until a [`Handle`] stops
//! it. What clients may rely on:
//!
//! - `GET` and `HEAD` alone; single and several ranges, `If-Range`, and every conditional of RFC
//!   9110 §13. A request for more than [`RANGES_MAX`] ranges, or for ranges that overlap, is
//!   answered with the whole file.
//! - An entity tag stands for file system, inode, generation, size and time of change; it is a
//!   strong one.
//! - A directory answers with a page of its entries, always: an `index.html` in it is a file like
//!   any other. The page has no validators, since it shows sizes and times of other inodes. A
//!   client that asks for JSON gets its entries as JSON, and `?archive=tar` all that is below it.
//! - A path is decoded once, component by component. `.`, `..`, and components that decode to
//!   something with a `/` or NUL in it are refused. Links lead where they lead within the file
//!   system, whose root is its own parent, so that nothing outside of it has a name.
//! - A client that can connect, and knows a password where there are [`Passwords`], may read
//!   everything: permissions are those of [`Identity::Superuser`], since a holder of the image's
//!   bytes can read them all. So a server on a loopback address answers only requests whose `Host`
//!   is `localhost` or an address: a web site that has its own name point here is refused.
//! - Files are not trusted: documents that can run scripts are sandboxed, so that they do not read
//!   their neighbours.
//! - A handshake of [`Tls`] may take as long as a head. Slow readers are cut off by the bytes that
//!   the socket takes, encrypted or not.
//! - Memory is bounded: all responses together hold [`Limits::buffers`], contents that are kept
//!   [`Limits::contents`], a connection no more than its request's head, and two records of TLS.
//!   A failure in mid-file cuts the connection: a client sees a short body, not a wrong one.
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
