//! The result of a recording: figures, text in the layout of the study's tables, and JSON.

use dentree_sync::lockstat::{Class, Kind};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::time::Duration;

/// The heading of the part of the text for locks of this kind.
#[must_use]
pub fn heading(kind: Kind) -> &'static str {
    match kind {
        Kind::Spin => "SPINLOCKS",
        Kind::Bit => "BIT LOCKS",
        Kind::Mutex => "MUTEXES",
        Kind::BigRead => "BRLOCK READS",
        Kind::BigWrite => "BRLOCK WRITES",
        Kind::Read => "RWLOCK READS",
        Kind::Write => "RWLOCK WRITES",
    }
}

/// A lock and a call site: file, line and column, which are equal for equal sites.
pub(crate) type Place = (Class, Kind, &'static str, u32, u32);

/// Counters of one call site, of one thread or several; times in ticks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    pub(crate) total: u64,
    pub(crate) waiters: u64,
    pub(crate) refused: u64,
    pub(crate) held: u64,
    pub(crate) held_max: u64,
    pub(crate) waited: u64,
    pub(crate) waited_max: u64,
}

impl Sums {
    pub(crate) fn merge(&mut self, other: &Self) {
        self.total += other.total;
        self.waiters += other.waiters;
        self.refused += other.refused;
        self.held += other.held;
        self.held_max = self.held_max.max(other.held_max);
        self.waited += other.waited;
        self.waited_max = self.waited_max.max(other.waited_max);
    }
}

/// The columns of one line of the study's tables.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Time held ÷ time recorded, in percent; above 100 where holds overlap.
    pub util: f64,
    /// Requests that found the lock taken, in percent of all.
    pub con: f64,
    /// Mean time held, in nanoseconds.
    pub hold_mean: f64,
    /// Longest time held, in nanoseconds.
    pub hold_max: f64,
    /// Mean wait of the requests that waited, in nanoseconds.
    pub wait_mean: f64,
    /// Longest wait, in nanoseconds.
    pub wait_max: f64,
    /// All waits ÷ (time recorded × CPUs), in percent.
    pub wait_cpu: f64,
    /// Requests.
    pub total: u64,
    /// Requests granted at once, in percent of all.
    pub nowait: f64,
    /// Requests granted after a wait, in percent of all.
    pub spin: f64,
    /// Requests refused, in percent of all.
    pub rject: f64,
}

/// Converts ticks to figures.
struct Scale {
    nanoseconds_per_tick: f64,
    elapsed: f64, // nanoseconds
    cpus: f64,
}

impl Figures {
    fn new(sums: &Sums, scale: &Scale) -> Self {
        let nanoseconds = |ticks: u64| ticks as f64 * scale.nanoseconds_per_tick;
        let percent = |part: f64, of: f64| if of > 0.0 { 100.0 * part / of } else { 0.0 };
        let mean = |sum: u64, of: u64| if of > 0 { nanoseconds(sum) / of as f64 } else { 0.0 };
        let total = sums.total as f64;
        let granted = sums.total.saturating_sub(sums.refused);
        Self {
            util: percent(nanoseconds(sums.held), scale.elapsed),
            con: percent((sums.waiters + sums.refused) as f64, total),
            hold_mean: mean(sums.held, granted),
            hold_max: nanoseconds(sums.held_max),
            wait_mean: mean(sums.waited, sums.waiters),
            wait_max: nanoseconds(sums.waited_max),
            wait_cpu: percent(nanoseconds(sums.waited), scale.elapsed * scale.cpus),
            total: sums.total,
            nowait: percent(granted.saturating_sub(sums.waiters) as f64, total),
            spin: percent(sums.waiters as f64, total),
            rject: percent(sums.refused as f64, total),
        }
    }

    /// One line of the study's tables, without its end.
    #[must_use]
    pub fn line(&self, name: &str) -> String {
        let waits = if self.wait_mean > 0.0 {
            let (mean, max, cpu) = (time(self.wait_mean), time(self.wait_max), percent(self.wait_cpu));
            format!("{mean:>7}({max:>6})({cpu:>5})")
        } else {
            format!("{:>7}{:15}", "0us", "")
        };
        format!(
            "{:>6}{:>6}{:>7}({:>6}){waits}{:>10}{:>6}{:>6}{:>6}  {name}",
            percent(self.util),
            percent(self.con),
            time(self.hold_mean),
            time(self.hold_max),
            self.total,
            percent(self.nowait),
            percent(self.spin),
            percent(self.rject),
        )
    }

    fn json(&self) -> String {
        format!(
            "\"util\":{},\"con\":{},\"hold_mean_ns\":{},\"hold_max_ns\":{},\"wait_mean_ns\":{},\"wait_max_ns\":{},\
             \"wait_cpu\":{},\"total\":{},\"nowait\":{},\"spin\":{},\"rject\":{}",
            self.util,
            self.con,
            self.hold_mean,
            self.hold_max,
            self.wait_mean,
            self.wait_max,
            self.wait_cpu,
            self.total,
            self.nowait,
            self.spin,
            self.rject
        )
    }
}

/// Percent in five characters: `0%`, `0.19%`, `4.4%`, `15.7%`, `100%`.
fn percent(value: f64) -> String {
    if value == 0.0 {
        "0%".to_owned()
    } else if value < 0.995 {
        format!("{value:.2}%")
    } else if value < 99.95 {
        format!("{value:.1}%")
    } else {
        format!("{value:.0}%")
    }
}

/// A time in six characters: `0us`, `45ns`, `2.1us`, `23us`, `6668us`, `14ms`. The study's tables
/// have no nanoseconds: no lock was held so briefly.
fn time(nanoseconds: f64) -> String {
    let microseconds = nanoseconds / 1e3;
    if nanoseconds == 0.0 {
        "0us".to_owned()
    } else if microseconds < 0.0995 {
        format!("{nanoseconds:.0}ns")
    } else if microseconds < 9.95 {
        format!("{microseconds:.1}us")
    } else if microseconds < 9999.5 {
        format!("{microseconds:.0}us")
    } else if microseconds < 9_999_500.0 {
        format!("{:.0}ms", microseconds / 1e3)
    } else {
        format!("{:.0}s", microseconds / 1e6)
    }
}

/// The figures of one call site of a lock class.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteFigures {
    /// The source file.
    pub file: &'static str,
    /// The line, from 1.
    pub line: u32,
    /// Its figures.
    pub figures: Figures,
}

/// The figures of one lock class and kind.
#[derive(Clone, Debug, PartialEq)]
pub struct LockFigures {
    /// What was taken.
    pub kind: Kind,
    /// The class's name.
    pub name: &'static str,
    /// All call sites together.
    pub all: Figures,
    /// Each call site, by file and line.
    pub sites: Vec<SiteFigures>,
}

/// The result of a [`Recording`](crate::Recording).
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Time recorded.
    pub elapsed: Duration,
    /// CPUs that this process may use.
    pub cpus: usize,
    /// Requests that are in no figure, because their thread's table was full.
    pub unplaced: u64,
    /// The classes that were used, by kind and name.
    pub locks: Vec<LockFigures>,
}

/// Call sites of one class, by file and line.
type Sites = BTreeMap<(&'static str, u32), Sums>;

impl Report {
    pub(crate) fn new(places: HashMap<Place, Sums>, unplaced: u64, elapsed: Duration, ticks: u64) -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let nanoseconds = elapsed.as_secs_f64() * 1e9;
        let scale = Scale {
            nanoseconds_per_tick: nanoseconds / ticks as f64,
            elapsed: nanoseconds,
            cpus: cpus as f64,
        };
        let mut classes: BTreeMap<(Kind, &'static str), Sites> = BTreeMap::new();
        for ((class, kind, file, line, _), sums) in places {
            let sites = classes.entry((kind, Class::name(class))).or_default();
            sites.entry((file, line)).or_default().merge(&sums);
        }
        let locks = classes.into_iter().map(|((kind, name), sites)| {
            let mut all = Sums::default();
            sites.values().for_each(|sums| all.merge(sums));
            let sites = sites
                .into_iter()
                .map(|((file, line), sums)| SiteFigures { file, line, figures: Figures::new(&sums, &scale) })
                .collect();
            LockFigures { kind, name, all: Figures::new(&all, &scale), sites }
        });
        Self { elapsed, cpus, unplaced, locks: locks.collect() }
    }

    /// The figures of the class `name`; of the kind with most requests, if there are several.
    #[must_use]
    pub fn lock(&self, name: &str) -> Option<&LockFigures> {
        self.locks.iter().filter(|lock| lock.name == name).max_by_key(|lock| lock.all.total)
    }

    /// The study's tables, call sites as `file:line`.
    #[must_use]
    pub fn text(&self) -> String {
        self.text_with(|file, line| {
            format!("{}:{line}", file.rsplit_once(['/', '\\']).map_or(file, |(_, name)| name))
        })
    }

    /// The study's tables, call sites as `name` returns them, such as `d_lookup+0x58`.
    #[must_use]
    pub fn text_with(&self, name: impl Fn(&str, u32) -> String) -> String {
        let mut text = String::new();
        let mut kind = None;
        for lock in &self.locks {
            if kind != Some(lock.kind) {
                let gap = if kind.is_some() { "\n" } else { "" };
                kind = Some(lock.kind);
                let _ = writeln!(text, "{gap}{:<18}HOLD            WAIT", heading(lock.kind));
                let columns =
                    "  UTIL  CON    MEAN(  MAX )   MEAN(  MAX )(% CPU)     TOTAL NOWAIT SPIN RJECT  NAME";
                let _ = writeln!(text, "{columns}");
            }
            let _ = writeln!(text, "{}", lock.all.line(lock.name));
            for site in &lock.sites {
                let name = format!("  {}", name(site.file, site.line));
                let _ = writeln!(text, "{}", site.figures.line(&name));
            }
        }
        if self.unplaced > 0 {
            let _ = writeln!(text, "{} requests had no room in the tables", self.unplaced);
        }
        text
    }

    /// The same as one JSON object.
    #[must_use]
    pub fn json(&self) -> String {
        let locks: Vec<String> = self.locks.iter().map(json_of_lock).collect();
        format!(
            "{{\"elapsed_ns\":{},\"cpus\":{},\"unplaced\":{},\"locks\":[{}]}}",
            self.elapsed.as_nanos(),
            self.cpus,
            self.unplaced,
            locks.join(",")
        )
    }
}

fn json_of_lock(lock: &LockFigures) -> String {
    let sites: Vec<String> = lock
        .sites
        .iter()
        .map(|site| {
            format!("{{\"file\":{},\"line\":{},{}}}", json_string(site.file), site.line, site.figures.json())
        })
        .collect();
    format!(
        "{{\"kind\":{},\"name\":{},{},\"sites\":[{}]}}",
        json_string(heading(lock.kind)),
        json_string(lock.name),
        lock.all.json(),
        sites.join(",")
    )
}

fn json_string(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            control if control < ' ' => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(control));
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: f64 = 1e3;
    const MS: f64 = 1e6;

    /// The first lines of the SPECweb99 table of the study.
    #[test]
    fn a_line_looks_as_in_the_sources() {
        let whole = Figures {
            util: 15.7,
            con: 20.8,
            hold_mean: 2.1 * US,
            hold_max: 6668.0 * US,
            wait_mean: 23.0 * US,
            wait_max: 14.0 * MS,
            wait_cpu: 4.4,
            total: 5_215_460,
            nowait: 79.2,
            spin: 20.8,
            rject: 0.0,
        };
        assert_eq!(
            whole.line("dcache_lock"),
            " 15.7% 20.8%  2.1us(6668us)   23us(  14ms)( 4.4%)   5215460 79.2% 20.8%    0%  dcache_lock"
        );
        let site = Figures {
            util: 0.19,
            con: 19.4,
            hold_mean: 1.7 * US,
            hold_max: 1327.0 * US,
            wait_mean: 66.0 * US,
            wait_max: 13.0 * MS,
            wait_cpu: 0.17,
            total: 75_355,
            nowait: 80.6,
            spin: 19.4,
            rject: 0.0,
        };
        assert_eq!(
            site.line("  d_alloc+0x130"),
            " 0.19% 19.4%  1.7us(1327us)   66us(  13ms)(0.17%)     75355 80.6% 19.4%    0%    d_alloc+0x130"
        );
    }

    /// A line of the dbench table of the study, without waits.
    #[test]
    fn a_line_without_waits_leaves_their_columns_empty() {
        let figures = Figures {
            util: 0.001,
            hold_mean: 1.7 * US,
            hold_max: 1.8 * US,
            total: 2,
            nowait: 100.0,
            ..Figures::default()
        };
        assert_eq!(
            figures.line("  link_path_walk+0x618"),
            " 0.00%    0%  1.7us( 1.8us)    0us                        2  100%    0%    0%    link_path_walk+0x618"
        );
    }

    #[test]
    fn shares_add_up_when_some_are_refused() {
        let sums =
            Sums { total: 10, waiters: 3, refused: 2, held: 80, held_max: 20, waited: 30, waited_max: 15 };
        let scale = Scale { nanoseconds_per_tick: 0.5, elapsed: 400.0, cpus: 2.0 };
        let figures = Figures::new(&sums, &scale);
        assert_eq!(figures.nowait + figures.spin + figures.rject, 100.0);
        assert_eq!((figures.con, figures.util), (50.0, 10.0));
        assert_eq!((figures.hold_mean, figures.hold_max), (5.0, 10.0));
        assert_eq!((figures.wait_mean, figures.wait_max, figures.wait_cpu), (5.0, 7.5, 1.875));
    }

    #[test]
    fn json_strings_are_escaped() {
        assert_eq!(json_string("a\"b\\c\n"), "\"a\\\"b\\\\c\\u000a\"");
    }
}
