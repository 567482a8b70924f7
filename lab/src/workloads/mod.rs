//! Loads for name caches, the same for every scheme.
//!
//! A [`Workload`] fills a cache and makes [`Client`]s; [`Running`] gives each client a thread and
//! counts operations. Clients reach the cache through [`Front`], which does what the VFS does: it
//! asks the file system on a miss, and locks a directory while its names change.
//!
//! - [`Running`]: one cache under one load;
//! - [`study`](mod@study): all schemes under one load in turn; rows, lock tables and percentiles.

pub mod build;
pub mod change;
pub mod dbench;
pub mod find;
mod front;
mod running;
pub mod study;
pub mod web;

use front::Components;
pub use front::{Front, PATH_MAX};
pub(crate) use running::thread_time;
pub use running::{Measured, Running, Shape, Watch};
pub use study::{Plan, Study, study};

use crate::schemes::Config;

/// A load.
pub trait Workload: Sync {
    /// Its name, which begins the `case` of its rows: `dbench`.
    fn name(&self) -> &'static str;

    /// The cache's size for this many clients. Options may override `heads` and `prefetch`.
    fn config(&self, clients: usize) -> Config;

    /// Fills a cache before the clients start. Not measured.
    fn prepare(&self, front: &Front, clients: usize);

    /// Client `number` of `clients`, at its start.
    fn client(&self, number: usize, clients: usize) -> Box<dyn Client + '_>;
}

/// A user of the cache, on its own thread. At its end it starts over.
pub trait Client: Send {
    /// The client's kind: figures are summed by role. Rows of the role `""` have the load's name as
    /// `case`, others `LOAD-ROLE`.
    fn role(&self) -> &'static str {
        ""
    }

    /// Does one operation: a line of a recording, a request, a file visited.
    ///
    /// # Panics
    /// If the cache returns a wrong result: a scheme that is fast and wrong must not get a figure.
    fn step(&mut self, front: &Front);
}
