//! The writer of a file, as messages name it.

use std::fmt;

/// The writer of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Holder {
    /// A process that has an exclusive `flock` on it.
    Process {
        /// Its number.
        pid: u32,
        /// Its name (`comm`), where the system tells.
        name: Option<String>,
    },
    /// The kernel, through the loop device of this name (`loop3`).
    LoopDevice(String),
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Holder::Process { pid, name: Some(name) } => write!(f, "process {pid} ({name})"),
            Holder::Process { pid, name: None } => write!(f, "process {pid}"),
            Holder::LoopDevice(name) => write!(f, "the kernel (/dev/{name})"),
        }
    }
}
