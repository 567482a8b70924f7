//! How many queues, entries and bytes.

use std::fs;

/// The kernel takes no smaller payload.
const PAYLOAD_MIN: usize = 128 << 10;
const PAYLOAD_MAX: usize = 1 << 20;
/// Requests of one processor that may wait for the disk at a time.
const DEPTH_MAX: usize = 16;
const DEPTH_MIN: usize = 2;

/// Sizes of the rings.
///
/// An entry's memory is touched when the first request needs it, the hottest entry first: the
/// budget is a limit, not what a mount takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Queues: one for each possible processor.
    pub queues: usize,
    /// Processors that are online, in ascending order.
    pub online: Vec<usize>,
    /// Entries of the queue of a processor that is online.
    pub depth: usize,
    /// Bytes of a payload: the longest read and write.
    pub payload: usize,
}

impl Shape {
    /// The deepest queues with the longest payloads within `budget` bytes; `None` if there are too
    /// many processors for it.
    ///
    /// Payloads shrink before queues: a stream loses little by requests of 128 KiB, and a request
    /// that finds no entry waits.
    ///
    /// ```
    /// use dentree_fuse_uring::Shape;
    /// let shape = Shape::within(64 << 20, 64, (0..64).collect()).unwrap();
    /// assert_eq!((shape.depth, shape.payload), (8, 128 << 10));
    /// ```
    pub fn within(budget: usize, queues: usize, online: Vec<usize>) -> Option<Shape> {
        if online.is_empty() || queues == 0 {
            return None;
        }
        let mut shape = Shape { queues, online, depth: DEPTH_MAX, payload: PAYLOAD_MAX };
        while shape.bytes() > budget && shape.payload > PAYLOAD_MIN {
            shape.payload /= 2;
        }
        while shape.bytes() > budget && shape.depth > DEPTH_MIN {
            shape.depth /= 2;
        }
        (shape.bytes() <= budget).then_some(shape)
    }

    /// [`within`](Shape::within) for this machine.
    pub fn of_machine(budget: usize) -> Option<Shape> {
        let list = |name| fs::read_to_string(format!("/sys/devices/system/cpu/{name}")).ok();
        let (possible, online) = (processors(&list("possible")?)?, processors(&list("online")?)?);
        Shape::within(budget, possible.last()? + 1, online)
    }

    /// Entries of `queue`.
    pub fn entries(&self, queue: usize) -> usize {
        if self.online.contains(&queue) { self.depth } else { 1 }
    }

    /// Entries of all queues.
    pub fn all_entries(&self) -> usize {
        self.online.len() * self.depth + self.queues.saturating_sub(self.online.len())
    }

    /// Memory of all payloads.
    fn bytes(&self) -> usize {
        self.all_entries() * self.payload
    }
}

/// Whether the kernel offers FUSE over io_uring.
pub fn is_enabled() -> bool {
    cfg!(target_pointer_width = "64")
        && fs::read_to_string("/sys/module/fuse/parameters/enable_uring")
            .is_ok_and(|value| value.trim() == "Y")
}

/// The numbers of a list such as `0-3,8`.
fn processors(list: &str) -> Option<Vec<usize>> {
    let mut numbers = Vec::new();
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        numbers.extend(first.parse::<usize>().ok()?..=last.parse().ok()?);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_shrink_before_queues_and_too_many_processors_have_no_ring() {
        let shape = |queues: usize, online: usize| {
            let shape = Shape::within(64 << 20, queues, (0..online).collect())?;
            Some((shape.depth, shape.payload >> 10))
        };
        assert_eq!(shape(2, 2), Some((16, 1024)));
        assert_eq!(shape(8, 8), Some((16, 512)));
        assert_eq!(shape(32, 32), Some((16, 128)));
        assert_eq!(shape(256, 256), Some((2, 128)));
        assert_eq!(shape(512, 512), None);
        assert_eq!(shape(64, 2), Some((16, 512)));
        assert_eq!(shape(0, 0), None);
    }

    #[test]
    fn lists_of_processors_are_parsed() {
        assert_eq!(processors("0-1\n"), Some(vec![0, 1]));
        assert_eq!(processors("0,2-3"), Some(vec![0, 2, 3]));
        assert_eq!(processors(""), None);
    }
}
