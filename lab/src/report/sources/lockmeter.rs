//! The lock tables of "Scalable Directory Entry Cache" (2002), line by line.

use crate::workloads::study::LockLine;

/// One of the source's tables.
#[derive(Clone, Copy, Debug)]
pub struct SourceTable {
    /// The source's section.
    pub place: &'static str,
    /// The load and the machine.
    pub title: &'static str,
    /// The load of its counterpart here.
    pub load: &'static str,
    /// The scheme of its counterpart here.
    pub scheme: &'static str,
    /// The line of the whole lock, then those of functions.
    pub lines: &'static [SourceLine],
    /// The difference, and its reason.
    pub why: &'static str,
}

/// A line: the source's name, our corresponding functions, and its figures.
#[derive(Clone, Copy, Debug)]
pub struct SourceLine {
    /// Functions of the kernel.
    pub name: &'static str,
    /// Functions of our schemes, by their names in our tables.
    pub ours: &'static [&'static str],
    /// UTIL and CON, in percent.
    shares: [f64; 2],
    /// HOLD mean and maximum, WAIT mean and maximum, in microseconds.
    times: [f64; 4],
    total: u64,
}

impl SourceLine {
    /// In the form of our own lines.
    pub fn line(&self) -> LockLine {
        let [hold_mean, hold_max, wait_mean, wait_max] = self.times.map(|microseconds| microseconds * 1e3);
        let [util, con] = self.shares;
        LockLine {
            name: self.name.to_owned(),
            util,
            con,
            hold_mean,
            hold_max,
            wait_mean,
            wait_max,
            wait_cpu: 0.0,
            total: self.total,
            functions: Vec::new(),
        }
    }
}

const LOOKS_UP: &[&str] = &["lookup", "walk"];

const fn line(
    name: &'static str,
    ours: &'static [&'static str],
    shares: [f64; 2],
    times: [f64; 4],
    total: u64,
) -> SourceLine {
    SourceLine { name, ours, shares, times, total }
}

const fn all(shares: [f64; 2], times: [f64; 4], total: u64) -> SourceLine {
    line("dcache_lock", &[], shares, times, total)
}

const WEB: &[SourceLine] = &[
    all([15.7, 20.8], [2.1, 6668.0, 23.0, 14_000.0], 5_215_460),
    line("d_alloc", &["add"], [0.19, 19.4], [1.7, 1327.0, 66.0, 13_000.0], 75_355),
    line("d_instantiate", &["instantiate"], [0.12, 20.8], [1.1, 1225.0, 16.0, 2907.0], 75_353),
    line("d_lookup", LOOKS_UP, [13.5, 20.9], [2.1, 6668.0, 20.0, 13_000.0], 4_433_721),
    line("d_rehash", &["add"], [0.16, 14.1], [1.5, 1065.0, 17.0, 1930.0], 75_353),
    line("dput", &["dput"], [1.7, 21.0], [2.1, 1119.0, 40.0, 14_000.0], 555_661),
    line("link_path_walk", &[], [0.0, 5.9], [2.2, 5.8, 5.5, 5.5], 17),
];

const DBENCH: &[SourceLine] = &[
    all([5.3, 16.5], [0.6, 2787.0, 5.0, 3094.0], 15_069_563),
    line("d_alloc", &["add"], [0.01, 10.9], [0.2, 7.5, 5.3, 116.0], 119_448),
    line("d_delete", &["delete"], [0.04, 14.2], [0.3, 42.0, 6.3, 925.0], 233_290),
    line("d_delete", &["delete"], [0.0, 3.5], [0.2, 3.1, 5.6, 41.0], 5_050),
    line("d_instantiate", &["instantiate"], [0.04, 10.9], [0.2, 8.2, 5.3, 1269.0], 352_739),
    line("d_lookup", LOOKS_UP, [4.8, 17.2], [0.7, 1362.0, 4.8, 2692.0], 12_725_262),
    line("d_move", &["rename"], [0.02, 11.0], [0.9, 22.0, 5.4, 1310.0], 46_800),
    line("d_rehash", &["add"], [0.01, 5.1], [0.2, 37.0, 4.2, 84.0], 119_438),
    line("d_unhash", &["delete"], [0.0, 2.5], [0.2, 3.1, 5.6, 45.0], 1_680),
    line("dput", &["dput"], [0.31, 15.0], [0.4, 64.0, 6.2, 3094.0], 1_384_623),
    line("link_path_walk", &[], [0.0, 0.82], [0.4, 4.2, 6.4, 6.4], 122),
    line("link_path_walk", &[], [0.0, 0.0], [1.7, 1.8, 0.0, 0.0], 2),
    line("prune_dcache", &["prune"], [0.0, 6.4], [1.9, 832.0, 5.0, 49.0], 3_630),
    line("prune_dcache", &["prune"], [0.04, 9.4], [1.0, 1382.0, 4.7, 148.0], 70_974),
    line("select_parent", &["select_parent"], [0.04, 4.2], [11.0, 2787.0, 3.8, 24.0], 6_505),
];

const HTTPERF: &[SourceLine] = &[
    all([6.2, 4.3], [0.8, 390.0, 2.7, 579.0], 20_243_025),
    line("d_alloc", &["add"], [0.02, 6.5], [0.5, 45.0, 2.7, 281.0], 100_031),
    line("d_instantiate", &["instantiate"], [0.01, 4.9], [0.2, 4.6, 2.9, 58.0], 100_032),
    line("d_lookup", LOOKS_UP, [5.0, 4.5], [0.8, 387.0, 2.8, 579.0], 15_009_129),
    line("d_rehash", &["add"], [0.02, 5.8], [0.6, 34.0, 3.1, 45.0], 100_031),
    line("dput", &["dput"], [0.19, 8.8], [0.5, 296.0, 2.8, 315.0], 933_218),
    line("link_path_walk", &[], [0.89, 2.3], [0.6, 390.0, 2.5, 309.0], 4_000_584),
];

const DBENCH_LAZY: &[SourceLine] = &[
    all([0.89, 0.95], [0.6, 6516.0, 19.0, 6411.0], 2_330_127),
    line("d_alloc", &["add"], [0.02, 1.7], [0.2, 20.0, 17.0, 2019.0], 116_150),
    line("d_delete", &["delete"], [0.03, 0.42], [0.2, 49.0, 35.0, 6033.0], 233_290),
    line("d_delete", &["delete"], [0.0, 0.14], [0.8, 12.0, 3.4, 8.5], 5_050),
    line("d_instantiate", &["instantiate"], [0.03, 0.4], [0.1, 32.0, 34.0, 5251.0], 349_441),
    line("d_move", &["rename"], [0.05, 0.3], [1.7, 44.0, 22.0, 1770.0], 46_800),
    line("d_rehash", &["add"], [0.01, 0.16], [0.1, 21.0, 4.5, 334.0], 116_140),
    line("d_vfs_unhash", &["delete"], [0.0, 0.65], [0.7, 3.7, 8.4, 57.0], 1_680),
    line("dput", &["dput"], [0.56, 1.1], [0.7, 84.0, 18.0, 6411.0], 1_383_859),
    line("link_path_walk", &[], [0.0, 0.88], [0.4, 2.3, 1.3, 1.3], 114),
    line("link_path_walk", &[], [0.0, 0.0], [0.9, 1.6, 0.0, 0.0], 2),
    line("prune_dcache", &["prune"], [0.01, 4.4], [4.3, 6516.0, 4.8, 32.0], 3_566),
    line("prune_dcache", &["prune"], [0.07, 2.3], [1.8, 6289.0, 4.4, 718.0], 67_591),
    line("select_parent", &["select_parent"], [0.11, 0.79], [29.0, 4992.0, 28.0, 1116.0], 6_444),
];

const HTTPERF_LAZY: &[SourceLine] = &[
    all([1.4, 0.92], [0.7, 577.0, 2.2, 617.0], 4_821_866),
    line("d_alloc", &["add"], [0.02, 2.2], [0.6, 30.0, 1.9, 7.8], 100_031),
    line("d_instantiate", &["instantiate"], [0.01, 1.7], [0.2, 12.0, 2.2, 9.2], 100_032),
    line("d_rehash", &["add"], [0.03, 1.5], [0.7, 9.2, 2.3, 10.0], 100_031),
    line("dput", &["dput"], [0.24, 2.1], [1.2, 577.0, 1.9, 283.0], 521_329),
    line("link_path_walk", &[], [1.1, 0.7], [0.7, 366.0, 2.4, 617.0], 4_000_443),
];

/// The source's lock tables, in its order.
pub const TABLES: [SourceTable; 10] = [
    SourceTable {
        place: "2.1",
        title: "SPECweb99, one global lock, 8 CPUs",
        load: "web",
        scheme: "1 global lock",
        lines: WEB,
        why: "The file set here is cached whole before the clients begin, so nothing is added; the source's grew. Its clients also \
              served the files, so the lock was idle most of the time; ours do nothing but ask for names.",
    },
    SourceTable {
        place: "2.2",
        title: "dbench, one global lock, 8 CPUs",
        load: "dbench",
        scheme: "1 global lock",
        lines: DBENCH,
        why: "The same load, but of its lines only those that have a name. Nothing is pruned: there is room for all names. Holds are shorter by \
              what processors have become faster.",
    },
    SourceTable {
        place: "2.3",
        title: "httperf, one global lock, 8 CPUs",
        load: "httperf",
        scheme: "1 global lock",
        lines: HTTPERF,
        why: "Requests come at a fixed rate, ours chosen so that the lock is a few percent busy. The source's link_path_walk takes the lock for the \
              first component of each path; the scheme here starts at the root without it.",
    },
    SourceTable {
        place: "4.3.1",
        title: "dbench, lazy LRU, 8 CPUs",
        load: "dbench",
        scheme: "8 lazy lru",
        lines: DBENCH_LAZY,
        why: "d_lookup is gone from both. What is left is the same work in the same order of frequency, dput first.",
    },
    SourceTable {
        place: "4.3.2",
        title: "httperf, lazy LRU, 8 CPUs",
        load: "httperf",
        scheme: "8 lazy lru",
        lines: HTTPERF_LAZY,
        why: "Nine in ten of the source's are link_path_walk's, which takes no lock here; what is left is dput.",
    },
    SourceTable {
        place: "4.4.2",
        title: "SPECweb99, one global lock, the whole lock",
        load: "web",
        scheme: "1 global lock",
        lines: &[all([15.7, 20.8], [2.1, 6668.0, 23.0, 14_000.0], 5_215_460)],
        why: "The base of the two that follow.",
    },
    SourceTable {
        place: "4.4.2",
        title: "SPECweb99, fastwalk",
        load: "web",
        scheme: "4 fastwalk",
        lines: &[all([17.2, 17.7], [7.0, 13_000.0, 53.0, 30_000.0], 1_608_566)],
        why: "Once a path instead of once a component, and held over all of it, in both.",
    },
    SourceTable {
        place: "4.4.2",
        title: "SPECweb99, lazy LRU",
        load: "web",
        scheme: "8 lazy lru",
        lines: &[all([1.9, 2.3], [2.0, 3343.0, 71.0, 9406.0], 657_152)],
        why: "Only dput is left here; in the source also names that were new.",
    },
    SourceTable {
        place: "4.5.2",
        title: "Linux 2.5.30, the whole lock",
        load: "dbench",
        scheme: "1 global lock",
        lines: &[all([3.3, 7.8], [2.1, 2437.0, 4.8, 2415.0], 309_088)],
        why: "The source does not say under which load; dbench is what the section before is about. 2.5 walked paths under the \
              lock, as fastwalk does, so its requests are fewer and longer.",
    },
    SourceTable {
        place: "4.5.2",
        title: "Linux 2.5.30 with lazy LRU",
        load: "dbench",
        scheme: "8 lazy lru",
        lines: &[all([0.6, 1.1], [1.0, 1108.0, 6.0, 1260.0], 112_929)],
        why: "As above: requests fell to 37% there, from a base that had fewer.",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_a_table_add_up_to_its_whole() {
        for table in TABLES.iter().filter(|table| table.lines.len() > 1) {
            let (whole, lines) = table.lines.split_first().expect("a whole");
            let sum: u64 = lines.iter().map(|line| line.total).sum();
            assert_eq!(sum, whole.total, "{}: a figure was copied wrongly", table.place);
        }
    }
}
