//! What a name cache has to do: loads that every scheme can carry, in one form.
//!
//! A [`Workload`] fills a cache and makes [`Client`]s; [`Running`] puts each client on a thread of its own and counts
//! what they get done. Clients reach the cache through [`Front`], which does what a kernel's callers do around it: ask the
//! file system on a miss, and hold a directory's lock while its names change.
//!
//! - [`Running`]: one cache under one load;
//! - [`study`](mod@study): all schemes under one load in turn, and what came out as rows, lock tables and percentiles.

pub mod build;
pub mod change;
pub mod dbench;
pub mod find;
mod front;
mod running;
pub mod study;
pub mod web;

pub use front::{Front, PATH_MAX};
pub(crate) use running::thread_time;
pub use running::{Measured, Running, Shape, Watch};
pub use study::{Plan, Study, study};

use crate::schemes::Config;

/// A load.
pub trait Workload: Sync {
    /// Its name, which begins the `case` of its rows: `dbench`.
    fn name(&self) -> &'static str;

    /// How large a cache for so many clients must be. `heads` and `prefetch` may be changed by the user's options.
    fn config(&self, clients: usize) -> Config;

    /// Fills a cache before any client begins. Not measured.
    fn prepare(&self, front: &Front, clients: usize);

    /// Client `number` of `clients`, at its beginning.
    fn client(&self, number: usize, clients: usize) -> Box<dyn Client + '_>;
}

/// Somebody who uses the cache, on a thread of their own. It goes on for ever: at its end it begins again.
pub trait Client: Send {
    /// Who this is, where a load has several kinds: figures are added up by role. Rows of the role `""` have the load's name as
    /// `case`, others `LOAD-ROLE`.
    fn role(&self) -> &'static str {
        ""
    }

    /// Does one operation: what one line of a recording, one request or one file visited is.
    ///
    /// # Panics
    /// If the cache gives a wrong answer: a fast and wrong scheme must not get a figure.
    fn step(&mut self, front: &Front);
}
