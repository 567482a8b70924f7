//! System calls that differ between hosts.

mod in_root;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod macos;

#[cfg(target_os = "linux")]
pub(crate) use linux::*;
#[cfg(not(target_os = "linux"))]
pub(crate) use macos::*;

/// Major and minor number of a device number of the host.
pub(crate) fn major_minor(dev: u64) -> (u32, u32) {
    // The width differs between hosts.
    let dev = dev as rustix::fs::Dev;
    (rustix::fs::major(dev), rustix::fs::minor(dev))
}
