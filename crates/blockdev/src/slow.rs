//! A device that answers late.

use std::collections::HashMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::{BlockDevice, Completion, ReadQueue, Request};

/// A device each of whose requests takes at least a given time, as a disk's or a network's do.
///
/// Requests in flight together wait together: eight reads in a queue of depth eight take as long as one.
/// A queue may be deeper than the device's own; one that is full waits for a read, as any does.
pub struct SlowDevice {
    device: Arc<dyn BlockDevice>,
    latency: Duration,
}

impl SlowDevice {
    /// `device`, with every read, write and flush taking at least `latency`.
    pub fn new(device: Arc<dyn BlockDevice>, latency: Duration) -> Self {
        SlowDevice { device, latency }
    }

    fn after_latency<T>(&self, request: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let due = Instant::now() + self.latency;
        let answer = request();
        sleep_until(due);
        answer
    }
}

fn sleep_until(due: Instant) {
    sleep(due.saturating_duration_since(Instant::now()));
}

impl BlockDevice for SlowDevice {
    fn size(&self) -> u64 {
        self.device.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.after_latency(|| self.device.read_at(offset, buf))
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.after_latency(|| self.device.write_at(offset, buf))
    }

    fn flush(&self) -> io::Result<()> {
        self.after_latency(|| self.device.flush())
    }

    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        self.after_latency(|| self.device.read_vectored_at(offset, bufs))
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.after_latency(|| self.device.write_vectored_at(offset, bufs))
    }

    fn queue(self: Arc<Self>, depth: usize) -> Box<dyn ReadQueue> {
        let inner = Arc::clone(&self.device).queue(depth);
        Box::new(SlowQueue::new(inner, self.latency, depth))
    }
}

/// Tags are replaced on the way down, because two requests may bear the same.
struct SlowQueue {
    inner: Box<dyn ReadQueue>,
    latency: Duration,
    depth: usize,
    next: u64,
    /// Tag given by the caller, and when the answer may come, by our tag.
    due: HashMap<u64, (u64, Instant)>,
    /// Ended while `submit` made room.
    ready: Vec<Completion>,
}

impl SlowQueue {
    fn new(inner: Box<dyn ReadQueue>, latency: Duration, depth: usize) -> Self {
        SlowQueue { inner, latency, depth: depth.max(1), next: 0, due: HashMap::new(), ready: Vec::new() }
    }

    fn receive(&mut self) -> Option<Completion> {
        let done = self.inner.complete()?;
        let (tag, due) = self.due.remove(&done.tag)?;
        sleep_until(due);
        Some(Completion { tag, result: done.result })
    }
}

impl ReadQueue for SlowQueue {
    fn submit(&mut self, request: Request) {
        if self.due.len() == self.depth {
            let done = self.receive();
            self.ready.extend(done);
        }
        let tag = self.next;
        self.next += 1;
        self.due.insert(tag, (request.tag, Instant::now() + self.latency));
        self.inner.submit(Request { tag, ..request });
    }

    fn complete(&mut self) -> Option<Completion> {
        self.ready.pop().or_else(|| self.receive())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    const LATENCY: Duration = Duration::from_millis(5);

    fn device() -> Arc<SlowDevice> {
        let memory = MemoryDevice::from((0..100).collect::<Vec<u8>>());
        Arc::new(SlowDevice::new(Arc::new(memory), LATENCY))
    }

    #[test]
    fn no_request_takes_less_than_the_latency() {
        let device = device();
        let start = Instant::now();
        device.read_at(0, &mut [0; 8]).unwrap();
        assert!(start.elapsed() >= LATENCY);
        let start = Instant::now();
        let mut queue = device.queue(1);
        queue.submit(Request { tag: 0, offset: 0, buf: vec![0] });
        queue.complete();
        assert!(start.elapsed() >= LATENCY);
    }

    #[test]
    fn requests_in_flight_are_all_due_one_latency_after_they_were_made() {
        let device = device();
        let inner = Arc::clone(&device.device).queue(16);
        let mut queue = SlowQueue::new(inner, LATENCY, 16);
        (0..16).for_each(|offset| queue.submit(Request { tag: 7, offset, buf: vec![0] }));
        let last = Instant::now() + LATENCY;
        assert!(queue.due.len() == 16 && queue.due.values().all(|&(_, due)| due <= last));
        let mut bytes: Vec<u8> = std::iter::from_fn(|| queue.complete())
            .map(|done| {
                assert_eq!(done.tag, 7);
                done.result.unwrap()[0]
            })
            .collect();
        bytes.sort_unstable();
        assert_eq!(bytes, (0..16).collect::<Vec<u8>>());
    }
}
