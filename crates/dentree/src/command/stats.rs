//! `--stats`: what caches and device did.

use crate::image::Session;
use crate::output::human;
use dentree_blockdev::DeviceCounts;

/// Prints the figures of every image that was opened, on standard error.
pub(crate) fn print(session: &Session) {
    for image in session.images() {
        let stats = image.vfs.stats();
        let inodes = stats.inodes;
        eprintln!("{}", image.at(b""));
        eprintln!(
            "{:>14}  {} cached in {}; {} hits, {} loaded",
            "inodes",
            inodes.cached,
            human(inodes.bytes),
            inodes.hits,
            inodes.misses
        );
        let device = image.device.counts();
        let (reads, bytes) = (device.total_reads(), human(device.read_bytes));
        eprintln!("{:>14}  {reads} reads of {bytes} in all{}", "device", by_size(&device));
    }
}

fn by_size(device: &DeviceCounts) -> String {
    let mut text = String::new();
    for (class, count) in device.reads.iter().enumerate().filter(|(_, count)| **count > 0) {
        match DeviceCounts::class_limit(class) {
            Some(limit) => text += &format!("; {count} up to {}", human(limit)),
            None => text += &format!("; {count} larger"),
        }
    }
    text
}
