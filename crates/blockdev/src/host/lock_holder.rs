//! Finds the writer of a file: lock holders in `/proc/locks`, loop devices in `/sys/block`.

use crate::Holder;
use rustix::fs::{major, minor};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The process that has the file at `path` open for writing. `None`: no process, or the system does
/// not tell.
pub fn writer_of(path: &Path) -> Option<Holder> {
    let found = fs::metadata(path).ok()?;
    lock_holder(found.dev(), found.ino())
}

/// Holder of an exclusive `flock`.
pub(crate) fn lock_holder(dev: u64, ino: u64) -> Option<Holder> {
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let pid = holder_in(&locks, dev, ino)?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok();
    Some(Holder::Process { pid, name: name.map(|name| name.trim_end().to_owned()) })
}

/// Lines: `1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF`, devices in hex, inode in decimal.
/// Processes of other namespaces are 0 or less.
fn holder_in(locks: &str, dev: u64, ino: u64) -> Option<u32> {
    // macOS: 32-bit numbers, no `/proc/locks`.
    #[cfg_attr(target_os = "linux", expect(clippy::useless_conversion))]
    let dev = dev.try_into().ok()?;
    let wanted = format!("{:02x}:{:02x}:{ino}", major(dev), minor(dev));
    locks.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let is_flock = fields.next()? == "FLOCK" && fields.nth(1)? == "WRITE";
        let pid = fields.next()?.parse().ok().filter(|&pid| pid > 0);
        (is_flock && fields.next()? == wanted).then_some(pid).flatten()
    })
}

/// `None` if unknown.
pub(crate) fn loop_device(dev: u64, ino: u64) -> Option<Holder> {
    loop_device_in(Path::new("/sys/block"), dev, ino).map(Holder::LoopDevice)
}

fn loop_device_in(blocks: &Path, dev: u64, ino: u64) -> Option<String> {
    fs::read_dir(blocks).ok()?.flatten().find_map(|entry| {
        let backing = fs::read_to_string(entry.path().join("loop/backing_file")).ok()?;
        let found = fs::metadata(backing.trim_end_matches('\n')).ok()?;
        let is_writable = fs::read_to_string(entry.path().join("ro")).ok()?.trim() == "0";
        let is_it = is_writable && (found.dev(), found.ino()) == (dev, ino);
        is_it.then(|| entry.file_name().to_string_lossy().into_owned())
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

    #[test]
    fn the_loop_device_is_the_one_with_that_file_behind_it_unless_it_only_reads() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path();
        let (image, other) = (dir.join("disk.img"), dir.join("other.img"));
        let blocks = dir.join("block");
        for (name, file, ro) in [("loop0", &other, "0\n"), ("loop1", &image, "1\n"), ("loop2", &image, "0\n")]
        {
            fs::create_dir_all(blocks.join(name).join("loop")).unwrap();
            fs::write(file, "").unwrap();
            fs::write(blocks.join(name).join("ro"), ro).unwrap();
            fs::write(blocks.join(name).join("loop/backing_file"), format!("{}\n", file.display())).unwrap();
        }
        fs::create_dir_all(blocks.join("vda")).unwrap();
        let found = fs::metadata(&image).unwrap();
        assert_eq!(loop_device_in(&blocks, found.dev(), found.ino()).as_deref(), Some("loop2"));
        fs::write(blocks.join("loop2/ro"), "1\n").unwrap();
        assert_eq!(loop_device_in(&blocks, found.dev(), found.ino()), None);
        assert_eq!(loop_device_in(&dir.join("none"), found.dev(), found.ino()), None);
    }
}
