//! A web server under SPECweb99's load, as in the study, and under httperf's.
//!
//! | what | here |
//! |---|---|
//! | file set | directories by SPECweb99's formula, each with 4 classes of 9 files, 102 B to 922 KB |
//! | directory | Zipf's law, exponent 1 |
//! | class | 35%, 50%, 14%, 1% |
//! | file in the class | Zipf's law in the order 5, 4, 6, 3, 7, 2, 8, 1, 9 |
//!
//! On a bare cache a request is what a server of that time asked of names: `stat(2)`, `open(2)`,
//! and the file held until the connection's next request. Requests follow each other at once, or,
//! as from httperf, at a fixed rate, where the use of the locks is the result. [`sockets`] sends
//! the same requests to real servers.

pub mod sockets;

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};

use super::{Client, Front, Workload};
use crate::schemes::{Config, Dentry, Inode, Path};

/// Classes of files.
pub const CLASSES: usize = 4;
/// Files per class and directory.
pub const FILES: usize = 9;
/// Percentage of requests by class.
pub const CLASS_MIX: [usize; CLASSES] = [35, 50, 14, 1];
/// The files of a class by popularity, from 1.
const FILE_ORDER: [usize; FILES] = [5, 4, 6, 3, 7, 2, 8, 1, 9];
/// The directory of the file set on a server of 2002.
const ABOVE: [&[u8]; 3] = [b"usr", b"htdocs", b"file_set"];
/// Requests drawn in advance; then they repeat.
const DRAWN: usize = 1 << 16;
const SEED: u64 = 99;
/// A client with a longer delay, for lack of a CPU, does not catch up.
const DELAY_MAX: Duration = Duration::from_millis(100);

/// A file of the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File {
    /// From 0, the most popular first.
    pub directory: usize,
    /// From 0.
    pub class: usize,
    /// From 1.
    pub number: usize,
}

impl File {
    /// Its length in bytes.
    pub fn bytes(self) -> usize {
        1024 * self.number * 10_usize.pow(self.class as u32) / 10
    }

    fn in_directory(self) -> usize {
        self.class * FILES + self.number - 1
    }

    /// Its path below the file set: `dir00017/class1_5`.
    pub fn path(self) -> String {
        format!("{}/{}", directory_name(self.directory), file_name(self.class, self.number))
    }
}

fn directory_name(directory: usize) -> String {
    format!("dir{directory:05}")
}

fn file_name(class: usize, number: usize) -> String {
    format!("class{class}_{number}")
}

/// SPECweb99's number of directories for this many simultaneous connections.
pub fn directories(connections: usize) -> usize {
    25 + (400_000.0 / 122_000.0 * connections as f64 / 5.0) as usize
}

/// Every file of a set.
pub fn files(directories: usize) -> impl Iterator<Item = File> {
    (0..directories).flat_map(|directory| {
        let class = move |class| (1..=FILES).map(move |number| File { directory, class, number });
        (0..CLASSES).flat_map(class)
    })
}

/// Draws requests, the same for the same arguments. The set has at least one directory.
pub fn requests(directories: usize, count: usize) -> Vec<File> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(SEED);
    let zipf =
        |ranks: usize| Zipf::new(ranks.max(1) as f64, 1.0).expect("at least one rank, and 1 is an exponent");
    let (directory, file) = (zipf(directories), zipf(FILES));
    let mut draw = || {
        let mut percent = random.random_range(0..100);
        let class = CLASS_MIX.iter().position(|share| {
            let here = percent < *share;
            percent = percent.saturating_sub(*share);
            here
        });
        File {
            directory: directory.sample(&mut random) as usize - 1,
            class: class.unwrap_or(CLASSES - 1),
            number: FILE_ORDER[file.sample(&mut random) as usize - 1],
        }
    };
    (0..count).map(|_| draw()).collect()
}

/// The load on a bare cache.
#[derive(Debug)]
pub struct Web {
    connections: usize,
    /// Requests per second of all clients; unlimited if `None`.
    rate: Option<f64>,
    directories: Vec<Vec<u8>>,
    files: Vec<Vec<u8>>,
    /// Paths of all files from the root, by directory.
    paths: Vec<Vec<u8>>,
    requests: Vec<File>,
}

impl Web {
    /// SPECweb99's load of this many connections, distributed to the clients.
    pub fn new(connections: usize) -> Self {
        let directories = directories(connections);
        let files = (0..CLASSES).flat_map(|class| (1..=FILES).map(move |number| file_name(class, number)));
        let files: Vec<_> = files.map(String::into_bytes).collect();
        let directory = |number| directory_name(number).into_bytes();
        let path = |at: usize| {
            [&ABOVE.join(&b'/')[..], &directory(at / files.len()), &files[at % files.len()]].join(&b'/')
        };
        Self {
            connections,
            rate: None,
            directories: (0..directories).map(directory).collect(),
            paths: (0..directories * files.len()).map(path).collect(),
            files,
            requests: requests(directories, DRAWN),
        }
    }

    /// The same at a fixed rate, in requests per second.
    pub fn at_rate(connections: usize, rate: f64) -> Self {
        Self { rate: Some(rate), ..Self::new(connections) }
    }

    fn file_name(&self, file: File) -> &[u8] {
        &self.files[file.in_directory()]
    }
}

/// Directories have lower numbers than files.
fn directory_inode(number: usize) -> Inode {
    Inode(NonZeroU64::MIN.saturating_add(number as u64))
}

fn inode(file: File) -> Inode {
    let number = (file.directory * CLASSES + file.class) * FILES + file.number;
    Inode(NonZeroU64::MIN.saturating_add((1 << 32) + number as u64))
}

impl Workload for Web {
    fn name(&self) -> &'static str {
        if self.rate.is_some() { "httperf" } else { "web" }
    }

    fn config(&self, clients: usize) -> Config {
        let entries = self.directories.len() * (1 + CLASSES * FILES) + self.connections + clients + 64;
        Config { entries, heads: entries, prefetch: false }
    }

    fn prepare(&self, front: &Front, _clients: usize) {
        let mut held = vec![Dentry::ROOT];
        for (name, depth) in ABOVE.into_iter().zip(1..) {
            held.push(front.create(held[depth - 1], name, directory_inode(depth)));
        }
        for (number, name) in self.directories.iter().enumerate() {
            let directory = front.create(held[ABOVE.len()], name, directory_inode(ABOVE.len() + 1 + number));
            for file in files(number + 1).skip(number * CLASSES * FILES) {
                front.close(front.create(directory, self.file_name(file), inode(file)));
            }
            front.close(directory);
        }
        held[1..].iter().for_each(|dentry| front.close(*dentry));
    }

    fn client(&self, number: usize, clients: usize) -> Box<dyn Client + '_> {
        let connections = (self.connections + number) / clients;
        Box::new(Server {
            load: self,
            next: number * self.requests.len() / clients,
            open: vec![None; connections.max(1)],
            connection: 0,
            pace: self.rate.map(|rate| Pace::new(rate / clients as f64, number as f64 / clients as f64)),
        })
    }
}

/// A thread of a server, and its connections.
struct Server<'w> {
    load: &'w Web,
    next: usize,
    /// The open file of each connection.
    open: Vec<Option<Dentry>>,
    connection: usize,
    pace: Option<Pace>,
}

impl Client for Server<'_> {
    fn step(&mut self, front: &Front) {
        if let Some(pace) = &mut self.pace {
            pace.wait();
        }
        let file = self.load.requests[self.next];
        self.next = (self.next + 1) % self.load.requests.len();
        let slot = self.connection;
        self.connection = (self.connection + 1) % self.open.len();
        if let Some(sent) = self.open[slot].take() {
            front.close(sent);
        }
        let [usr, htdocs, file_set] = ABOVE;
        let components =
            [usr, htdocs, file_set, &self.load.directories[file.directory], self.load.file_name(file)];
        let text = &self.load.paths[file.directory * self.load.files.len() + file.in_directory()];
        let path = Path::new(&components, text);
        let ask = |depth| {
            let above = ABOVE.len();
            Some(match depth {
                _ if depth <= above => directory_inode(depth),
                _ if depth == above + 1 => directory_inode(above + 1 + file.directory),
                _ => inode(file),
            })
        };
        assert_eq!(front.stat(path, ask), Some(inode(file)), "{}", file.path());
        let opened = front.open(path, ask);
        let found = opened.and_then(|dentry| front.cache().inode(dentry));
        assert_eq!(found, Some(inode(file)), "{}", file.path());
        self.open[slot] = opened;
    }
}

/// Starts operations at a fixed rate, whatever each takes.
struct Pace {
    interval: Duration,
    due: Instant,
}

impl Pace {
    /// Shorter waits yield instead of sleeping.
    const NAP: Duration = Duration::from_micros(200);

    /// `rate` per second, the first after `part` of the interval, which staggers the clients.
    fn new(rate: f64, part: f64) -> Self {
        let interval = Duration::from_secs_f64(1.0 / rate.max(0.001));
        Self { interval, due: Instant::now() + interval.mul_f64(part) }
    }

    fn wait(&mut self) {
        loop {
            let now = Instant::now();
            let Some(early) = self.due.checked_duration_since(now).filter(|early| !early.is_zero()) else {
                let late = now - self.due;
                self.due = if late > DELAY_MAX { now } else { self.due } + self.interval;
                return;
            };
            if early > Self::NAP { std::thread::sleep(early - Self::NAP) } else { std::thread::yield_now() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schemes::SCHEMES;
    use crate::workloads::{Running, Shape, Watch};

    #[test]
    fn the_file_set_is_specweb99s() {
        assert_eq!((directories(0), directories(2258), files(3).count()), (25, 1505, 108));
        let sizes = |class| [1, 9].map(|number| File { directory: 0, class, number }.bytes());
        assert_eq!(
            [sizes(0), sizes(1), sizes(2), sizes(3)],
            [[102, 921], [1024, 9216], [10_240, 92_160], [102_400, 921_600]]
        );
        assert_eq!(File { directory: 17, class: 1, number: 5 }.path(), "dir00017/class1_5");
    }

    #[test]
    fn requests_have_its_mix_and_its_law() {
        const COUNT: usize = 100_000;
        let requests = requests(100, COUNT);
        let share = |is: &dyn Fn(&File) -> bool| {
            requests.iter().filter(|file| is(file)).count() as f64 / COUNT as f64
        };
        for (class, percent) in CLASS_MIX.into_iter().enumerate() {
            assert!(
                (share(&|file| file.class == class) * 100.0 - percent as f64).abs() < 1.0,
                "class {class}"
            );
        }
        // The harmonic numbers of 100 and 9 are 5.187 and 2.829.
        for (rank, expected) in [(0, 1.0 / 5.187), (1, 0.5 / 5.187), (9, 0.1 / 5.187)] {
            assert!((share(&|file| file.directory == rank) - expected).abs() < 0.01, "directory {rank}");
        }
        for (number, expected) in [(5, 1.0 / 2.829), (4, 0.5 / 2.829), (9, 1.0 / 9.0 / 2.829)] {
            assert!((share(&|file| file.number == number) - expected).abs() < 0.01, "file {number}");
        }
        assert!(requests.iter().all(|file| file.directory < 100));
    }

    #[test]
    fn every_scheme_serves_it_with_right_answers() {
        let load = Web::new(7);
        for scheme in SCHEMES {
            let front = Front::new((scheme.build)(load.config(2)));
            load.prepare(&front, 2);
            let mut clients: Vec<_> = (0..2).map(|number| load.client(number, 2)).collect();
            for _ in 0..2000 {
                clients.iter_mut().for_each(|client| client.step(&front));
            }
        }
    }

    #[test]
    fn a_fixed_rate_is_not_overstepped() {
        const RATE: f64 = 2000.0;
        let load = Web::at_rate(8, RATE);
        let mut running = Running::new(&load, &SCHEMES[0], Shape { threads: 2, cpus: 1 }, |config| config);
        let measured = running.work(Duration::from_millis(50), Watch::Throughput);
        let most = RATE * (measured.elapsed + DELAY_MAX).as_secs_f64() + 2.0;
        let done = measured.operations[""];
        assert!(done > 0 && done as f64 <= most, "{done} of at most {most}");
    }
}
