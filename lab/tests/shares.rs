//! The acquisitions of the locks under the real loads, counted: the study's shares, and ours.
//!
//! Clients take turns on one thread, so the counts are the same on every machine and in every run.

use dentree_lab::schemes::{SCHEMES, Variant};
use dentree_lab::tree::HOT;
use dentree_lab::workloads::dbench::Dbench;
use dentree_lab::workloads::find::Find;
use dentree_lab::workloads::study::LockTable;
use dentree_lab::workloads::web::Web;
use dentree_lab::workloads::{Front, Workload};
use dentree_lockmeter::Recording;
use dentree_sync::Mutex;

const CLIENTS: usize = 2;

/// Recordings cover the whole process: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn scheme(number: usize) -> Variant {
    SCHEMES[number - 1]
}

/// The lock table of `steps` operations of each client, after as many for warming up; and the
/// scheme's own count of lookups.
fn record(load: &dyn Workload, number: usize, steps: usize) -> (LockTable, u64) {
    let _alone = ALONE.lock();
    let variant = scheme(number);
    let front = Front::new((variant.build)(load.config(CLIENTS)));
    load.prepare(&front, CLIENTS);
    let mut clients: Vec<_> = (0..CLIENTS).map(|number| load.client(number, CLIENTS)).collect();
    let mut work = || (0..steps).for_each(|_| clients.iter_mut().for_each(|client| client.step(&front)));
    let own = || front.cache().own_locks().map_or(0, |own| own.lookups);
    work();
    let before = own();
    let recording = Recording::start();
    work();
    let report = recording.finish();
    let table = LockTable::new(variant.name, CLIENTS, (steps * CLIENTS) as u64, &report);
    (table, own() - before)
}

/// Requests for the global lock, and the percentage of them that lookups made.
fn global_lock(table: &LockTable) -> (f64, f64) {
    let lock = table.class("dcache_lock").expect("the global lock was taken");
    let by_lookups = lock.functions.iter().filter(|line| ["lookup", "walk"].contains(&line.name.as_str()));
    let by_lookups: u64 = by_lookups.map(|line| line.total).sum();
    (lock.total as f64, 100.0 * by_lookups as f64 / lock.total as f64)
}

/// `None`, with the reason printed, if dbench's package is not installed.
fn dbench() -> Option<Dbench> {
    match Dbench::installed() {
        Ok(file) => Some(Dbench::read(&file).expect("dbench's own loadfile")),
        Err(why) => {
            println!("skipped: {why}");
            None
        }
    }
}

#[test]
fn under_dbench_lookups_take_the_global_lock_most_and_lazy_lru_takes_that_away() {
    let Some(load) = dbench() else { return };
    let (first, _) = record(&load, 1, load.operations());
    let (requests, share) = global_lock(&first);
    println!("scheme 1: {share:.1}% of the acquisitions are lookups', 84% in the source");
    assert!((80.0..88.0).contains(&share), "{share}");

    let (lazy, _) = record(&load, 8, load.operations());
    let (left, share) = global_lock(&lazy);
    let gone = 100.0 * (1.0 - left / requests);
    println!("scheme 8: −{gone:.1}% acquisitions, −84.5% in the source");
    assert!((80.0..90.0).contains(&gone) && share == 0.0, "{gone}, {share}% by lookups");
}

#[test]
fn on_the_web_fastwalk_saves_most_acquisitions_and_lazy_lru_nearly_all() {
    let load = Web::new(100);
    let requests = |number| global_lock(&record(&load, number, 5_000).0).0;
    let base = requests(1);
    let [fastwalk, lazy] = [4, 8].map(|number| 100.0 * (1.0 - requests(number) / base));
    println!("fastwalk: −{fastwalk:.1}%, −69.2% in the source; lazy LRU: −{lazy:.1}%, −87.4% in the source");
    assert!((65.0..80.0).contains(&fastwalk), "{fastwalk}");
    assert!((85.0..95.0).contains(&lazy), "{lazy}");
}

#[test]
fn a_walk_of_ours_that_hits_takes_no_lock_at_all() {
    let loads: [Box<dyn Workload>; 2] = [Box::new(Web::new(100)), Box::new(Find::new(HOT, 16))];
    for load in loads {
        let (table, own) = record(&*load, 12, 10_000);
        let metered: u64 = table.locks.iter().map(|lock| lock.total).sum();
        assert_eq!((metered, own), (0, 0), "{}:\n{}", load.name(), table.text);
    }
    // Under dbench the first lookup of a deleted name takes a lock, all others none.
    let Some(load) = dbench() else { return };
    let (table, own) = record(&load, 12, load.operations());
    println!("scheme 12 under dbench: {own} by lookups in {} operations", table.operations);
    assert!(own * 1000 < table.operations, "{own}");
}
