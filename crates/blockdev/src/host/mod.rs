//! Files of the host: opening, the lock against other writers, positioned access.

#[cfg(unix)]
mod lock_holder;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub use unix::*;
#[cfg(windows)]
pub use windows::*;
