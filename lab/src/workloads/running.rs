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

/// The numbers of clients and CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Clients; each has its own thread.
    pub threads: usize,
    /// CPUs that the clients share; at most those that the process may use.
    pub cpus: usize,
}

/// What is measured besides operations. It costs time, so throughput is measured without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// Nothing.
    Throughput,
    /// The time of every operation.
    Latency,
    /// The acquisitions, holds and waits of every lock.
    Locks,
}

/// The work of the clients.
#[derive(Debug)]
pub struct Measured {
    /// From the first client's start to the last one's end.
    pub elapsed: Duration,
    /// CPU time of the clients' threads, by role.
    pub cpu: BTreeMap<&'static str, Duration>,
    /// Operations by role.
    pub operations: BTreeMap<&'static str, u64>,
    /// Nanoseconds of each operation, by role, with [`Watch::Latency`].
    pub latencies: BTreeMap<&'static str, Histogram<u64>>,
    /// Lock figures, with [`Watch::Locks`].
    pub locks: Option<Report>,
}

impl Measured {
    /// A role's operations per second.
    pub fn rate(&self, role: &str) -> f64 {
        let done = self.operations.get(role).copied().unwrap_or(0);
        done as f64 / self.elapsed.as_secs_f64()
    }

    /// A role's operations per second of its clients' CPU time: other processes do not count,
    /// spinning does.
    pub fn efficiency(&self, role: &str) -> f64 {
        let done = self.operations.get(role).copied().unwrap_or(0);
        let given = self.cpu.get(role).copied().unwrap_or_default().as_secs_f64();
        done as f64 / given.max(1e-9)
    }
}

/// A filled cache and its clients, between two slices of work.
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
    /// Builds a cache and fills it. `adjust` may change the load's parameters.
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

    /// The use of the cache.
    pub fn usage(&self) -> Usage {
        self.front.usage()
    }

    /// Acquisitions that the scheme counted itself.
    pub fn own_locks(&self) -> Option<OwnLocks> {
        self.front.cache().own_locks()
    }

    /// Runs all clients for a while, at least one operation each.
    ///
    /// # Panics
    /// If a client finds a wrong result.
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

/// Stops the other clients when one panics.
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
    // At least one operation: a slice may pass without any CPU time.
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

/// CPU time of this thread.
pub(crate) fn thread_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// One nanosecond to one minute, to three digits.
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
