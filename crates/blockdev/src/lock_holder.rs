//! Who holds a lock: what `/proc/locks` tells.

use rustix::fs::{major, minor};

/// The process that has an exclusive `flock` on a file, as `process 123 (name)`. `None` where the system does not tell.
pub(crate) fn lock_holder(dev: u64, ino: u64) -> Option<String> {
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let pid = holder_in(&locks, dev, ino)?;
    match std::fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(name) => Some(format!("process {pid} ({})", name.trim_end())),
        Err(_) => Some(format!("process {pid}")),
    }
}

/// Lines read `1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF`: device numbers in hex, inode in decimal. A process
/// in another namespace shows as 0 or less.
fn holder_in(locks: &str, dev: u64, ino: u64) -> Option<u32> {
    let wanted = format!("{:02x}:{:02x}:{ino}", major(dev), minor(dev));
    locks.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let is_flock = fields.next()? == "FLOCK" && fields.nth(1)? == "WRITE";
        let pid = fields.next()?.parse().ok().filter(|&pid| pid > 0);
        (is_flock && fields.next()? == wanted).then_some(pid).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_the_one_with_an_exclusive_flock_on_that_inode() {
        let dev = rustix::fs::makedev(0xfe, 0x10);
        let locks = "1: POSIX  ADVISORY  WRITE 11 fe:10:77 0 EOF\n\
                     2: FLOCK  ADVISORY  READ 12 fe:10:77 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 13 fe:10:77 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 14 fe:10:78 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE 15 fe:10:77 0 EOF\n\
                     5: FLOCK  ADVISORY  WRITE 0 fe:10:79 0 EOF\n\
                     nonsense\n";
        assert_eq!(holder_in(locks, dev, 77), Some(15));
        assert_eq!(holder_in(locks, dev, 79), None);
        assert_eq!(holder_in(locks, dev, 80), None);
    }
}
