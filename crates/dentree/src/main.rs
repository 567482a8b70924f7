//! ext4 images from the command line.
#![forbid(unsafe_code)]

fn main() {}
