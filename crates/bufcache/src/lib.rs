//! Cached blocks of a device.
#![forbid(unsafe_code)]
