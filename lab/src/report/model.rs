//! The universal scalability law: an extrapolation from two numbers to larger machines.
//!
//! ```text
//! throughput(N) = λN / (1 + σ(N − 1) + κN(N − 1))
//! ```
//! λ is one client's throughput. σ is the serial share of the work. It is not fitted but measured:
//! the share of a lone client's time in which it holds the lock with the longest holds, among those
//! that exist once. κ is the cost of each CPU to every other (cache line transfers, waits beyond
//! σ): the rest, by least squares, of the throughputs of 2 clients up to as many as CPUs; it is not
//! negative. With two CPUs that is a single point. Throughput is per CPU time of the clients, so
//! that other processes do not count as contention.
//!
//! Locks that exist many times (buckets, entries) do not count: their holders meet by chance. So
//! the law says nothing of hot entries, and it knows neither sockets nor NUMA.

use super::Findings;
use crate::rows::{Heading, Row};
use crate::workloads::Study;
use crate::workloads::study::{EFFICIENCY, THROUGHPUT};

/// Locks that exist once per cache.
const SINGLE: [&str; 6] = ["dcache_lock", "BRLOCK_DCACHE", "lru_lock", "rename_lock", "slab", "long names"];

/// The largest machine extrapolated to.
pub const CPUS_MAX: usize = 128;

/// A scheme's law under a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Law {
    /// One client's operations per second.
    pub lambda: f64,
    /// The serial share of the work.
    pub sigma: f64,
    /// The cost of each CPU to each other.
    pub kappa: f64,
}

impl Law {
    /// Operations per second on this many CPUs.
    pub fn throughput(&self, cpus: f64) -> f64 {
        self.lambda * cpus / (1.0 + self.sigma * (cpus - 1.0) + self.kappa * cpus * (cpus - 1.0))
    }

    /// From a serial share and throughputs by clients, including 1.
    fn fit(sigma: f64, points: &[(f64, f64)]) -> Option<Self> {
        let lambda = points.iter().find(|(clients, _)| *clients == 1.0)?.1;
        // λN/X − 1 − σ(N − 1) = κN(N − 1): a line through the origin.
        let line = points
            .iter()
            .filter(|(clients, rate)| *clients > 1.0 && *rate > 0.0)
            .map(|(n, rate)| (n * (n - 1.0), lambda * n / rate - 1.0 - sigma * (n - 1.0)));
        let (xy, xx) = line.fold((0.0, 0.0), |(xy, xx), (x, y)| (xy + x * y, xx + x * x));
        (xx > 0.0).then(|| Self { lambda, sigma, kappa: (xy / xx).max(0.0) })
    }

    /// A scheme's law under a load; `None` unless its locks were recorded with one client, and it
    /// ran with several.
    pub fn of(study: &Study, scheme: &str, cpus: usize) -> Option<Self> {
        let case = study.cases().into_iter().next()?;
        let rate =
            |threads: usize| Some(threads as f64 * study.find(&case, scheme, threads, EFFICIENCY)?.median);
        let alone = study.locks.iter().find(|table| table.variant == scheme && table.threads == 1)?;
        // UTIL: the share of a lone client's time in which it holds the lock. A preemption
        // meanwhile increases both.
        let utils = SINGLE.iter().filter_map(|name| alone.class(name)).map(|lock| lock.util / 100.0);
        let sigma = utils.fold(0.0, f64::max).min(1.0);
        let clients = study.threads(&case).into_iter().filter(|threads| *threads <= cpus.max(2));
        let points: Vec<_> = clients.filter_map(|threads| Some((threads as f64, rate(threads)?))).collect();
        Self::fit(sigma, &points)
    }
}

/// The law's prediction for 128 CPUs, as rows whose case begins with `model-`.
pub fn rows(findings: &Findings) -> Vec<Row> {
    let mut rows = Vec::new();
    for study in &findings.studies {
        let case = format!("model-{}", study.load);
        for scheme in study.cases().first().map(|case| study.schemes(case)).unwrap_or_default() {
            let Some(law) = Law::of(study, scheme, findings.machine.cpus) else { continue };
            let heading =
                |metric, unit| Heading { case: &case, variant: scheme, threads: CPUS_MAX, metric, unit };
            rows.push(heading(THROUGHPUT, "operations/s").counted(law.throughput(CPUS_MAX as f64)));
            rows.push(heading("sigma", "1").counted(law.sigma));
            rows.push(heading("kappa", "1").counted(law.kappa));
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_law_that_made_the_points_is_found_again() {
        let law = Law { lambda: 1000.0, sigma: 0.05, kappa: 0.002 };
        let points: Vec<_> = [1.0, 2.0, 4.0, 8.0].map(|n| (n, law.throughput(n))).to_vec();
        let found = Law::fit(0.05, &points).unwrap();
        assert!((found.kappa - 0.002).abs() < 1e-12);
        assert_eq!(found.lambda, 1000.0);
        let amdahl = Law { kappa: 0.0, ..law };
        assert!(
            (amdahl.throughput(1e9) - 20_000.0).abs() < 1.0,
            "a twentieth is serial: twenty times, no more"
        );
    }

    #[test]
    fn one_client_is_not_enough_and_better_than_linear_is_chance() {
        assert_eq!(Law::fit(0.1, &[(1.0, 10.0)]), None);
        assert_eq!(Law::fit(0.0, &[(1.0, 10.0), (2.0, 25.0)]).unwrap().kappa, 0.0);
    }
}
