//! Power cuts and failing devices: nothing acknowledged is lost.

#[path = "../common/mod.rs"]
mod common;

mod faults;
mod nbd_power_cuts;
mod power_cuts;
mod resize_power_cuts;
mod shrink_power_cuts;
mod tune_power_cuts;
mod xattr_power_cuts;
