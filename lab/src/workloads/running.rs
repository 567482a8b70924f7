//! One cache under one load.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use dentree_lockmeter::{Recording, Report};
use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};

use super::{Client, Front, Workload};
use crate::harness::pin_to_cpu;
use crate::schemes::{Config, OwnLocks, Usage, Variant};

/// How many clients, on how many CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Clients; each has a thread of its own.
    pub threads: usize,
    /// CPUs that they share, at most as many as the process may use.
    pub cpus: usize,
}

/// What is watched beside throughput. Watching costs time, so that throughput is measured without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// Nothing.
    Throughput,
    /// The time of every operation.
    Latency,
    /// Who takes which lock, holds it and waits for it.
    Locks,
}

/// What clients got done.
#[derive(Debug)]
pub struct Measured {
    /// From the first client's beginning to the last one's end.
    pub elapsed: Duration,
    /// Time that the clients' threads were given, by role.
    pub cpu: BTreeMap<&'static str, Duration>,
    /// Operations by role.
    pub operations: BTreeMap<&'static str, u64>,
    /// Nanoseconds of each operation, by role, where [`Watch::Latency`] asked for it.
    pub latencies: BTreeMap<&'static str, Histogram<u64>>,
    /// Lock figures, where [`Watch::Locks`] asked for them.
    pub locks: Option<Report>,
}

impl Measured {
    /// Operations a second of a role.
    pub fn rate(&self, role: &str) -> f64 {
        let done = self.operations.get(role).copied().unwrap_or(0);
        done as f64 / self.elapsed.as_secs_f64()
    }

    /// Operations of a role for each second that a CPU gave its clients: what others on the machine take does not count, and what
    /// clients burn in waiting does.
    pub fn efficiency(&self, role: &str) -> f64 {
        let done = self.operations.get(role).copied().unwrap_or(0);
        let given = self.cpu.get(role).copied().unwrap_or_default().as_secs_f64();
        done as f64 / given.max(1e-9)
    }
}

/// A cache that is filled, and its clients, between two slices of work.
pub struct Running<'w> {
    front: Front,
    clients: Vec<Box<dyn Client + 'w>>,
    cpus: usize,
}

impl std::fmt::Debug for Running<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").field("clients", &self.clients.len()).finish_non_exhaustive()
    }
}

impl<'w> Running<'w> {
    /// Builds a cache and fills it. `adjust` may change what the load asks for.
    pub fn new(
        workload: &'w dyn Workload,
        scheme: &Variant,
        shape: Shape,
        adjust: impl Fn(Config) -> Config,
    ) -> Self {
        let front = Front::new((scheme.build)(adjust(workload.config(shape.threads))));
        workload.prepare(&front, shape.threads);
        let clients = (0..shape.threads).map(|number| workload.client(number, shape.threads)).collect();
        Self { front, clients, cpus: shape.cpus }
    }

    /// How full the cache is.
    pub fn usage(&self) -> Usage {
        self.front.usage()
    }

    /// What the scheme counted by itself.
    pub fn own_locks(&self) -> Option<OwnLocks> {
        self.front.cache().own_locks()
    }

    /// Lets all clients work for a while, and do at least one operation each.
    ///
    /// # Panics
    /// If a client finds a wrong answer.
    pub fn work(&mut self, time: Duration, watch: Watch) -> Measured {
        let barrier = Barrier::new(self.clients.len() + 1);
        let stop = AtomicBool::new(false);
        let (front, cpus) = (&self.front, self.cpus);
        let recording = (watch == Watch::Locks).then(Recording::start);
        let done: Vec<Done> = std::thread::scope(|scope| {
            let threads: Vec<_> = self
                .clients
                .iter_mut()
                .enumerate()
                .map(|(number, client)| {
                    let (barrier, stop) = (&barrier, &stop);
                    scope.spawn(move || {
                        pin_to_cpu(number % cpus);
                        let _end = StopAll(stop);
                        barrier.wait();
                        drive(&mut **client, front, stop, watch)
                    })
                })
                .collect();
            barrier.wait();
            let start = Instant::now();
            while start.elapsed() < time && !stop.load(Relaxed) {
                std::thread::sleep(time.saturating_sub(start.elapsed()).min(Duration::from_millis(20)));
            }
            stop.store(true, Relaxed);
            threads.into_iter().map(|thread| thread.join().expect("no client finds a wrong answer")).collect()
        });
        let locks = recording.map(Recording::finish);
        gather(done, locks)
    }
}

/// Ends the others when a client ends: it does so by itself only in a panic, and nobody should wait for the clock then.
struct StopAll<'a>(&'a AtomicBool);

impl Drop for StopAll<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// One client's slice.
struct Done {
    role: &'static str,
    start: Instant,
    end: Instant,
    cpu: Duration,
    operations: u64,
    latencies: Option<Histogram<u64>>,
}

fn drive(client: &mut dyn Client, front: &Front, stop: &AtomicBool, watch: Watch) -> Done {
    let mut latencies = (watch == Watch::Latency).then(histogram);
    let (start, given) = (Instant::now(), thread_time());
    let mut operations = 0;
    let mut end = start;
    // At least one each: a client that got no CPU in its slice would otherwise have done nothing at all.
    loop {
        client.step(front);
        operations += 1;
        if let Some(latencies) = &mut latencies {
            let now = Instant::now();
            latencies.saturating_record(u64::try_from((now - end).as_nanos()).unwrap_or(u64::MAX));
            end = now;
        }
        if stop.load(Relaxed) {
            break;
        }
    }
    let (end, cpu) = (Instant::now(), thread_time().saturating_sub(given));
    Done { role: client.role(), start, end, cpu, operations, latencies }
}

/// Time that CPUs have given this thread.
pub(crate) fn thread_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// From a nanosecond to a minute, to three digits.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are in order")
}

fn gather(done: Vec<Done>, locks: Option<Report>) -> Measured {
    let start = done.iter().map(|done| done.start).min();
    let end = done.iter().map(|done| done.end).max();
    let elapsed = start.zip(end).map_or(Duration::ZERO, |(start, end)| end - start);
    let mut measured = Measured {
        elapsed,
        cpu: BTreeMap::new(),
        operations: BTreeMap::new(),
        latencies: BTreeMap::new(),
        locks,
    };
    for client in done {
        *measured.operations.entry(client.role).or_default() += client.operations;
        *measured.cpu.entry(client.role).or_default() += client.cpu;
        if let Some(latencies) = client.latencies {
            let all = measured.latencies.entry(client.role).or_insert_with(histogram);
            all.add(latencies).expect("all histograms have the same bounds");
        }
    }
    measured
}
