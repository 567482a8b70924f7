//! Small models that loom explores in every interleaving and every outcome that the memory model allows:
//! `RUSTFLAGS="--cfg loom" cargo test -p dentree-dcache --release --lib models`.

use super::{
    Id,
    dentry::{Dentry, Left},
    epoch::Epoch,
    index::Index,
    name::{Hasher, INLINE, Name, Text},
    record::{Record, Shape, settle_reads},
    ways::Ways,
};
use crate::Kind;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use loom::thread;

/// Bounded, so that each model ends within a minute. Nine faults put in on purpose (a fence or a check taken away,
/// two steps swapped) are all found within three preemptions.
fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(check);
}

const DIR: Id = Id(7);

fn name(hasher: &Hasher, bytes: &'static [u8]) -> Name<'static> {
    hasher.name(0, bytes).expect("a valid name")
}

/// Writes all of a record that a walk reads; `version` shows in each field.
fn write(record: &Record, name: &Name<'_>, version: u64) {
    let rewrite = record.rewrite();
    rewrite.place(DIR, name);
    rewrite.seed(version);
    rewrite.shape(Shape::linked(Some(Kind::Other), 0, name.bytes.len()));
}

/// What a walk does at one record on its way down: the seed that it saw under the name, if it may believe it.
fn read(record: &Record, name: &Name<'_>) -> Result<Option<u64>, ()> {
    believed(record, || record.shape_if_named(DIR, name).is_some())
}

/// The same on the way up, where the record tells how much of the path to compare.
fn read_in_leap(record: &Record, name: &Name<'_>) -> Result<Option<u64>, ()> {
    believed(record, || {
        let (shape, mut window) = (record.shape(), [b'/'; INLINE]);
        window[..name.bytes.len()].copy_from_slice(name.bytes);
        let len = shape.name_len();
        Shape::plain_end().fits(shape)
            && len == name.bytes.len()
            && record.has_name(&window, len)
            && record.parent() == DIR
    })
}

fn believed(record: &Record, is_it: impl FnOnce() -> bool) -> Result<Option<u64>, ()> {
    let seq = record.begin();
    let seen = is_it().then(|| record.seed());
    settle_reads();
    if seq & 1 == 0 && record.is_unchanged(seq) { Ok(seen) } else { Err(()) }
}

#[test]
fn a_record_that_did_not_change_was_read_whole() {
    read_while_written(read);
}

#[test]
fn a_record_that_did_not_change_was_read_whole_in_a_leap() {
    read_while_written(read_in_leap);
}

fn read_while_written(read: fn(&Record, &Name<'_>) -> Result<Option<u64>, ()>) {
    // Once: its prime is looked for.
    let hasher = Hasher::new(1);
    let (a, b) = (name(&hasher, b"a"), name(&hasher, b"b"));
    model(move || {
        let record = Arc::new(Record::default());
        write(&record, &a, 1);
        let writer = {
            let record = record.clone();
            thread::spawn(move || write(&record, &b, 2))
        };
        // Never the new seed under the old name, nor the other way round.
        if let Ok(Some(seed)) = read(&record, &a) {
            assert_eq!(seed, 1);
        }
        if let Ok(Some(seed)) = read(&record, &b) {
            assert_eq!(seed, 2);
        }
        writer.join().expect("no panic");
        assert_eq!(read(&record, &b), Ok(Some(2)));
    });
}

#[test]
fn writers_of_one_record_exclude_each_other() {
    // Once: its prime is looked for.
    let hasher = Hasher::new(1);
    let (a, b) = (name(&hasher, b"a"), name(&hasher, b"b"));
    model(move || {
        let record = Arc::new(Record::default());
        let writer = {
            let record = record.clone();
            thread::spawn(move || write(&record, &b, 2))
        };
        write(&record, &a, 1);
        writer.join().expect("no panic");
        let seen = [read(&record, &a), read(&record, &b)];
        assert!(seen == [Ok(Some(1)), Ok(None)] || seen == [Ok(None), Ok(Some(2))], "{seen:?}");
    });
}

/// G2 at the index: what is there all the time is never believed to be missing.
#[test]
fn a_split_hides_nothing() {
    model(|| {
        // Two entries in one bucket, of which the split moves one.
        let hash_of = |id: Id| id.0;
        let index = Arc::new(Index::new(2));
        for id in [1, 2] {
            index.insert(hash_of(Id(id)), Id(id), || {});
        }
        let grower = {
            let index = index.clone();
            thread::spawn(move || index.grow(hash_of))
        };
        for id in [1, 2] {
            let found =
                index.search(index.extent(), hash_of(Id(id)), |found| (found == Id(id)).then_some(()));
            if let Err(miss) = found {
                assert!(!index.still_misses(miss), "{id} was there");
            }
        }
        grower.join().expect("no panic");
        for id in [1, 2] {
            assert!(index.search(index.extent(), id, |found| (found == Id(id)).then_some(())).is_ok());
        }
    });
}

#[test]
fn an_insertion_and_a_removal_disturb_no_other_entry() {
    model(|| {
        let index = Arc::new(Index::new(2));
        index.insert(5, Id(1), || {});
        let writer = {
            let index = index.clone();
            thread::spawn(move || {
                index.insert(5, Id(2), || {});
                index.remove(5, Id(2), || {});
            })
        };
        let found = index.search(index.extent(), 5, |found| (found == Id(1)).then_some(()));
        if let Err(miss) = found {
            assert!(!index.still_misses(miss));
        }
        writer.join().expect("no panic");
    });
}

/// "A walk finds the old name, or the new one, or both in turn, never neither."
#[test]
fn a_rename_is_never_seen_half_done() {
    // Once: its prime is looked for.
    let hasher = Hasher::new(1);
    let (a, b) = (name(&hasher, b"a"), name(&hasher, b"b"));
    model(move || {
        let shared = Arc::new((Index::new(2), Record::default()));
        shared.0.insert(a.hash(), Id(1), || write(&shared.1, &a, 1));
        let renamer = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.0.relink(&[(Id(1), a.hash(), b.hash())], || write(&shared.1, &b, 1));
            })
        };
        // As `Core::attempt` looks one name up; `None` is for an attempt that is void.
        let look = |name: &Name<'_>| {
            let (index, record) = &*shared;
            let found = index.search(index.extent(), name.hash(), |_| {
                let seq = record.begin();
                record.shape_if_named(DIR, name).map(|_| seq)
            });
            match found {
                Ok(seq) => {
                    settle_reads();
                    (seq & 1 == 0 && record.is_unchanged(seq)).then_some(true)
                }
                Err(miss) => index.still_misses(miss).then_some(false),
            }
        };
        let looks = [look(&a), look(&b)];
        assert_ne!(looks, [Some(false), Some(false)], "not under the old name, then not under the new one");
        renamer.join().expect("no panic");
        assert_eq!([look(&a), look(&b)], [Some(false), Some(true)]);
    });
}

/// G6: what a reader has found is not reused before it leaves.
#[test]
fn a_grace_period_ends_after_the_readers_that_may_have_found_the_thing() {
    model(|| {
        let shared = Arc::new((Epoch::new(), AtomicBool::new(true), AtomicU32::new(0)));
        let reader = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (epoch, linked, reused) = &*shared;
                let _pin = epoch.enter();
                if linked.load(Ordering::Acquire) {
                    assert_eq!(reused.load(Ordering::Relaxed), 0, "reused under a reader");
                }
            })
        };
        let (epoch, linked, reused) = &*shared;
        linked.store(false, Ordering::Release);
        let tag = epoch.tag();
        epoch.advance();
        if epoch.oldest() > tag {
            reused.store(1, Ordering::Relaxed);
        }
        reader.join().expect("no panic");
    });
}

/// G6: either the walk gets its reference or the clock gets the entry.
#[test]
fn an_entry_is_held_or_dead_never_both() {
    model(|| {
        let dentry = Arc::new(Dentry::<u64>::default());
        dentry.revive(false, false);
        let clock = {
            let dentry = dentry.clone();
            thread::spawn(move || dentry.kill_unused())
        };
        let held = dentry.hold().is_some();
        let killed_while_held = held && dentry.kill_unused();
        assert!(!killed_while_held);
        let killed = clock.join().expect("no panic");
        assert!(held != killed);
    });
}

#[test]
fn a_detached_entry_dies_exactly_once() {
    model(|| {
        let dentry = Arc::new(Dentry::<u64>::default());
        dentry.revive(true, false);
        dentry.pin();
        let user = {
            let dentry = dentry.clone();
            thread::spawn(move || u32::from(dentry.release() == Left::Dead))
        };
        let child = {
            let dentry = dentry.clone();
            thread::spawn(move || u32::from(dentry.unpin()))
        };
        let detached = u32::from(dentry.detach());
        let deaths = detached + user.join().expect("no panic") + child.join().expect("no panic");
        assert_eq!(deaths, 1);
    });
}

#[test]
fn an_id_does_not_mean_the_next_entry_of_its_slot() {
    // As `Core::is_linked` and `Core::bury` do it.
    let hasher = Hasher::new(1);
    let b = name(&hasher, b"b");
    model(move || {
        let slot = Arc::new((Record::default(), Dentry::<u64>::default()));
        let next = {
            let slot = slot.clone();
            thread::spawn(move || {
                slot.1.next_generation();
                write(&slot.0, &b, 2);
            })
        };
        let is_linked = slot.0.shape().is_linked();
        settle_reads();
        assert!(!is_linked || slot.1.generation() != 0);
        next.join().expect("no panic");
    });
}

const START: Id = Id(1);
const MOVING: Id = Id(2);
const FILE: Id = Id(3);

/// A table of ways, and the records from which it was noted that `path` leads to [`MOVING`].
fn noted(path: &[u8], name: &Name<'_>) -> (Ways, [Record; 4]) {
    let (ways, records) = (Ways::new(0), std::array::from_fn(|_| Record::default()));
    let moving: &Record = &records[MOVING.0 as usize];
    write(moving, name, 1);
    let mut tail = Text::TAIL;
    ways.note(START, Text::new(path, &mut tail), (0, path.len()), &[(MOVING, moving.begin())], 0);
    (ways, records)
}

/// As `Core::verify` and `Core::is_true`: whether `path` is believed to lead to what has the name `file`, if that is to be looked at, in
/// [`MOVING`].
fn believes((ways, records): &(Ways, [Record; 4]), path: &[u8], file: Option<&Name<'_>>) -> bool {
    let last = &records[FILE.0 as usize];
    let seq = last.begin();
    if file.is_some_and(|file| last.shape_if_named(DIR, file).is_none()) {
        return false;
    }
    let mut tail = Text::TAIL;
    let Some(way) = ways.find((START, MOVING), Text::new(path, &mut tail), (0, path.len())) else {
        return false;
    };
    settle_reads();
    seq & 1 == 0 && last.is_unchanged(seq) && way.holds(records)
}

/// G1: `a/file` was there at no time.
#[test]
fn a_way_is_not_believed_of_what_came_after_its_directory_was_renamed() {
    let hasher = Hasher::new(1);
    let (a, b, file) = (name(&hasher, b"a"), name(&hasher, b"b"), name(&hasher, b"file"));
    model(move || {
        let shared = Arc::new(noted(b"a", &a));
        let mover = {
            let shared = shared.clone();
            thread::spawn(move || {
                write(&shared.1[MOVING.0 as usize], &b, 1);
                write(&shared.1[FILE.0 as usize], &file, 1);
            })
        };
        assert!(!believes(&shared, b"a", Some(&file)));
        mover.join().expect("no panic");
        assert!(!believes(&shared, b"a", None));
    });
}

/// The path of one note with the records of another.
#[test]
fn a_way_that_is_written_over_is_not_believed_half() {
    let hasher = Hasher::new(1);
    let (a, b) = (name(&hasher, b"a"), name(&hasher, b"b"));
    model(move || {
        let shared = noted(b"long-name-a", &a);
        // What the first note says is no longer true.
        write(&shared.1[MOVING.0 as usize], &b, 1);
        let shared = Arc::new(shared);
        let writer = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (ways, records) = &*shared;
                let now = (MOVING, records[MOVING.0 as usize].begin());
                let mut tail = Text::TAIL;
                ways.note(START, Text::new(b"long-name-b", &mut tail), (0, 11), &[now], 0);
            })
        };
        assert!(!believes(&shared, b"long-name-a", None));
        writer.join().expect("no panic");
        assert!(!believes(&shared, b"long-name-a", None));
        assert!(believes(&shared, b"long-name-b", None));
    });
}
