//! Small models that loom explores in every interleaving and every outcome that the memory model
//! allows: `RUSTFLAGS="--cfg loom" cargo test -p dentree-dcache --release --lib models`.

use crate::Kind;
use crate::hash::name::{Digest, Hasher, Name};
use crate::lookup::path_cache::{Key, PathCache, PathEnd};
use crate::reclaim::epoch::Epoch;
use crate::table::dentry::{Dentry, Released};
use crate::table::id::Id;
use crate::table::index::Index;
use crate::table::record::{Count, Flags, InlineHandle, Record, order_reads};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use loom::thread;

/// Bounded, so that each model ends within a minute. Nine faults put in on purpose (a fence or a
/// check taken away, two steps swapped) are all found within three preemptions.
fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(check);
}

const DIR: Id = Id(7);

fn name(hasher: &Hasher, bytes: &'static [u8]) -> Name<'static> {
    hasher.name(DIR, bytes).expect("a valid name")
}

/// Writes all of a record that a walk reads; `version` shows in each field.
fn write(record: &Record, name: &Name<'_>, version: u64) {
    write_counted(record, &Count::default(), name, version);
}

/// As [`write`], with the separate count.
fn write_counted(record: &Record, count: &Count, name: &Name<'_>, version: u64) {
    let rewrite = record.rewrite(count);
    rewrite.inline_handle(version);
    rewrite.place(DIR, name);
    rewrite.flags(Flags::linked(Some(Kind::Other), Flags::INLINE_HANDLE, name.bytes.len()));
}

/// An inline handle; other tests cover the generation.
fn handle_of(word: u64) -> InlineHandle {
    InlineHandle { word, generation: 0 }
}

/// As a walk reads one record: the version under the name, or `Err` if the record changed.
fn read(record: &Record, name: &Name<'_>) -> Result<Option<u64>, ()> {
    if_believed(record, || record.flags_if_named(DIR, name).is_some())
}

fn if_believed(record: &Record, is_it: impl FnOnce() -> bool) -> Result<Option<u64>, ()> {
    let seq = record.begin();
    let seen = is_it().then(|| record.inline_handle());
    order_reads();
    let is_whole = seq & 1 == 0 && record.is_unchanged(seq);
    if is_whole { Ok(seen.map(version_of)) } else { Err(()) }
}

fn version_of(handle: InlineHandle) -> u64 {
    handle.word
}

#[test]
fn a_record_that_did_not_change_was_read_whole() {
    let hasher = Hasher::new(1);
    let (a, b) = (name(&hasher, b"a"), name(&hasher, b"b"));
    model(move || {
        let record = Arc::new(Record::default());
        write(&record, &a, 1);
        let writer = {
            let record = record.clone();
            thread::spawn(move || write(&record, &b, 2))
        };
        // Never the new handle under the old name, nor the other way round.
        if let Ok(Some(version)) = read(&record, &a) {
            assert_eq!(version, 1);
        }
        if let Ok(Some(version)) = read(&record, &b) {
            assert_eq!(version, 2);
        }
        writer.join().expect("no panic");
        assert_eq!(read(&record, &b), Ok(Some(2)));
    });
}

#[test]
fn writers_of_one_record_exclude_each_other() {
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

/// G2 at the index: an entry that exists throughout is never missed.
#[test]
fn a_split_hides_nothing() {
    model(|| {
        // Two entries in one bucket, of which the split moves one.
        let hash_of = |id: Id| id.0;
        let index = Arc::new(Index::new(2));
        for id in [1, 2] {
            index.insert(hash_of(Id(id)), Id(id), None, || {});
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
        index.insert(5, Id(1), None, || {});
        let writer = {
            let index = index.clone();
            thread::spawn(move || {
                index.insert(5, Id(2), None, || {});
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
    let hasher = Hasher::new(1);
    let (a, b) = (name(&hasher, b"a"), name(&hasher, b"b"));
    model(move || {
        let shared = Arc::new((Index::new(2), Record::default()));
        shared.0.insert(a.hash(), Id(1), None, || write(&shared.1, &a, 1));
        let renamer = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.0.relink([Some((Id(1), a.hash(), b.hash())), None], None, || write(&shared.1, &b, 1));
            })
        };
        let look = |name: &Name<'_>| {
            let (index, record) = &*shared;
            let found = index.search(index.extent(), name.hash(), |_| {
                let seq = record.begin();
                record.flags_if_named(DIR, name).map(|_| seq)
            });
            match found {
                Ok(seq) => {
                    order_reads();
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

/// As `Core::walk` looks one name up; `None` if the attempt is void.
fn look((index, records): &(Index, [Record; 3]), name: &Name<'_>) -> Option<Option<u64>> {
    let found = index.search(index.extent(), name.hash(), |id| {
        let record = &records[id.0 as usize];
        let seq = record.begin();
        record.flags_if_named(DIR, name).map(|_| (record, seq, record.inline_handle()))
    });
    match found {
        Ok((record, seq, handle)) => {
            order_reads();
            (seq & 1 == 0 && record.is_unchanged(seq)).then_some(Some(handle.word))
        }
        Err(miss) => index.still_misses(miss).then_some(None),
    }
}

/// G2: replaces `b`, which has version 2, by version 1, while it is looked up twice.
fn replace_while_looked_up(
    begin: impl Fn(&Index, &[Record; 3]) + Send + Sync + 'static,
    replace: impl Fn(&Index, &[Record; 3]) + Send + Sync + Clone + 'static,
) {
    let hasher = Hasher::new(1);
    let b = name(&hasher, b"b");
    model(move || {
        let shared = Arc::new((Index::new(2), std::array::from_fn(|_| Record::default())));
        begin(&shared.0, &shared.1);
        shared.0.insert(b.hash(), Id(2), None, || write(&shared.1[2], &b, 2));
        let replacer = {
            let (shared, replace) = (shared.clone(), replace.clone());
            thread::spawn(move || replace(&shared.0, &shared.1))
        };
        let looks = [look(&shared, &b), look(&shared, &b)];
        assert!(!looks.contains(&Some(None)), "the name is there all the time");
        assert_ne!(looks, [Some(Some(1)), Some(Some(2))], "what was replaced does not come back");
        replacer.join().expect("no panic");
        assert_eq!(look(&shared, &b), Some(Some(1)));
    });
}

#[test]
fn a_name_over_which_another_is_renamed_is_never_missed() {
    let hasher = Hasher::new(1);
    let (a, b) = (name(&hasher, b"a"), name(&hasher, b"b"));
    let begin = move |index: &Index, records: &[Record; 3]| {
        index.insert(a.hash(), Id(1), None, || write(&records[1], &a, 1));
    };
    replace_while_looked_up(begin, move |index, records| {
        let replaced = Some((Id(2), b.hash()));
        index.relink([Some((Id(1), a.hash(), b.hash())), None], replaced, || {
            records[2].rewrite(&Count::default()).unlink();
            write(&records[1], &b, 1);
        });
    });
}

#[test]
fn a_name_that_is_created_over_itself_is_never_missed() {
    let hasher = Hasher::new(1);
    let b = name(&hasher, b"b");
    replace_while_looked_up(
        |_, _| {},
        move |index, records| {
            index.insert(b.hash(), Id(1), Some(Id(2)), || {
                records[2].rewrite(&Count::default()).unlink();
                write(&records[1], &b, 1);
            });
        },
    );
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
        dentry.mark_dead();
        assert!(!dentry.revive(false, false));
        let clock = {
            let dentry = dentry.clone();
            thread::spawn(move || dentry.kill_unused())
        };
        let held = dentry.hold().is_some();
        if !held {
            assert_eq!(dentry.release(), Released::Held);
        }
        let killed_while_held = held && dentry.kill_unused();
        assert!(!killed_while_held);
        let killed = clock.join().expect("no panic");
        assert!(held != killed);
    });
}

/// G6: as `Core::become_negative` and `become_positive` change an entry while `Core::lookup`
/// takes it.
#[test]
fn an_entry_does_not_change_in_place_under_its_holder() {
    let hasher = Hasher::new(1);
    let a = name(&hasher, b"a");
    model(move || {
        let shared = Arc::new((Record::default(), Dentry::<u64>::default()));
        write(&shared.0, &a, 1);
        shared.1.mark_dead();
        assert!(!shared.1.revive(false, false));
        let changer = {
            let shared = shared.clone();
            thread::spawn(move || {
                if shared.1.begin_change(0) {
                    write(&shared.0, &a, 2);
                    let _has_users = shared.1.end_change(0);
                }
            })
        };
        let (record, dentry) = &*shared;
        let seq = record.begin();
        let version = record.inline_handle().word;
        if seq & 1 == 0 {
            if dentry.hold().is_some() {
                order_reads();
                if record.is_unchanged(seq) {
                    assert_eq!(record.inline_handle().word, version);
                }
            }
            dentry.release();
        }
        changer.join().expect("no panic");
        assert!(dentry.kill_unused(), "every count was undone");
    });
}

/// As `Core::hold` of an entry that changes in place and then loses its name: counted as
/// `Stats::held` counts, and dead in the end.
#[test]
fn a_user_that_finds_an_entry_dead_leaves_nothing_behind() {
    model(|| {
        let dentry = Arc::new(Dentry::<u64>::default());
        dentry.mark_dead();
        assert!(!dentry.revive(false, false));
        let user = {
            let dentry = dentry.clone();
            thread::spawn(move || {
                let first = i32::from(dentry.hold() == Some(true));
                (first, dentry.release())
            })
        };
        let mut held = 0;
        let mut deaths = 0;
        if dentry.begin_change(0) {
            held += i32::from(dentry.end_change(1));
            deaths += u32::from(dentry.detach());
            let released = dentry.release();
            held -= i32::from(released != Released::Held);
            deaths += u32::from(released == Released::Dead);
        } else {
            deaths += u32::from(dentry.detach());
        }
        let (first, released) = user.join().expect("no panic");
        held += first - i32::from(released != Released::Held);
        deaths += u32::from(released == Released::Dead);
        assert_eq!((held, deaths), (0, 1));
    });
}

#[test]
fn a_detached_entry_dies_exactly_once() {
    model(|| {
        let dentry = Arc::new(Dentry::<u64>::default());
        dentry.mark_dead();
        assert!(dentry.revive(true, false));
        dentry.pin();
        let user = {
            let dentry = dentry.clone();
            thread::spawn(move || u32::from(dentry.release() == Released::Dead))
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
    // As `Core::is_linked` and `Core::retire_entry`.
    let hasher = Hasher::new(1);
    let (a, b) = (name(&hasher, b"a"), name(&hasher, b"b"));
    model(move || {
        let record = Arc::new(Record::default());
        write(&record, &a, 0);
        record.rewrite(&Count::default()).unlink();
        let next = {
            let record = record.clone();
            thread::spawn(move || {
                record.next_generation();
                write(&record, &b, 1);
            })
        };
        let (flags, generation) = record.flags_and_generation();
        assert!(!flags.is_linked() || generation == 1);
        next.join().expect("no panic");
    });
}

const START: Id = Id(1);
const MOVING: Id = Id(2);
const FILE: Id = Id(3);

type Cached = (PathCache, [Record; 4], [Count; 4]);

/// A path's key, whose digest is that of its bytes.
fn key(path: u8) -> Key {
    Key { digest: Digest([u64::from(path); 2]), bytes: 1 }
}

/// Inserts the path `path` over [`MOVING`] to [`FILE`].
fn insert(cached: &Cached, path: u8) {
    insert_with(cached, path, cached.1[FILE.0 as usize].inline_handle());
}

/// The same with another handle.
fn insert_with((paths, records, _): &Cached, path: u8, handle: InlineHandle) {
    let read = [START, MOVING, FILE].map(|id| (id.0, records[id.0 as usize].begin()));
    paths.insert(key(path), &read, Some(Kind::Other), Some(handle), 0);
}

fn rewrite((_, records, counts): &Cached, id: Id, name: &Name<'_>, version: u64) {
    write_counted(&records[id.0 as usize], &counts[id.0 as usize], name, version);
}

/// A path cache with `path` over [`MOVING`], whose name is given, to [`FILE`].
fn cached(path: u8, name: &Name<'_>, file: &Name<'_>) -> Cached {
    let make = || (Record::default(), Count::default());
    let [a, b, c, d] = std::array::from_fn(|_| make());
    let cached = (PathCache::new(0), [a.0, b.0, c.0, d.0], [a.1, b.1, c.1, d.1]);
    rewrite(&cached, MOVING, name, 1);
    rewrite(&cached, FILE, file, 1);
    // In the other place, so that the next insertion replaces the first.
    insert(&cached, path);
    insert(&cached, b'z');
    cached
}

/// The path cache's entry for `path`, as `Core::cached_path` looks it up.
fn get((paths, _, counts): &Cached, path: u8) -> Option<PathEnd> {
    paths.get(key(path), START, |id| Some(counts.get(id.0 as usize)?.get()))
}

/// The version at the end of `path`, if it is valid.
fn believed(cached: &Cached, path: u8) -> Option<u64> {
    get(cached, path).map(|end| {
        assert_eq!((end.id, end.kind), (FILE, Some(Kind::Other)));
        version_of(end.handle.expect("inserted with its handle"))
    })
}

/// G6: as `Core::cached_path` reads the handle of the end while the entry is unlinked and its slot
/// reused.
#[test]
fn what_a_cached_path_leads_to_is_not_reused_under_its_reader() {
    let hasher = Hasher::new(1);
    let (a, file) = (name(&hasher, b"a"), name(&hasher, b"file"));
    model(move || {
        let shared = Arc::new((cached(b'a', &a, &file), Epoch::new(), AtomicU32::new(0)));
        let reader = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (cached, epoch, handle) = &*shared;
                let _pin = epoch.enter();
                if get(cached, b'a').is_some() {
                    assert_eq!(handle.load(Ordering::Relaxed), 0, "reused under a reader");
                }
            })
        };
        let ((_, records, counts), epoch, handle) = &*shared;
        records[FILE.0 as usize].rewrite(&counts[FILE.0 as usize]).unlink();
        let tag = epoch.tag();
        epoch.advance();
        if epoch.oldest() > tag {
            handle.store(1, Ordering::Relaxed);
        }
        reader.join().expect("no panic");
    });
}

/// The handle is outside the record: a reader of a path just inserted sees it filled.
#[test]
fn what_a_cached_path_leads_to_was_filled_before() {
    let hasher = Hasher::new(1);
    let (a, file) = (name(&hasher, b"a"), name(&hasher, b"file"));
    model(move || {
        let shared = Arc::new((cached(b'b', &a, &file), AtomicU32::new(0)));
        let maker = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.1.store(1, Ordering::Relaxed);
                rewrite(&shared.0, FILE, &file, 2);
                insert(&shared.0, b'a');
            })
        };
        if get(&shared.0, b'a').is_some() {
            assert_eq!(shared.1.load(Ordering::Relaxed), 1);
        }
        maker.join().expect("no panic");
        assert!(get(&shared.0, b'a').is_some());
    });
}

/// G1: `a/file` never existed with the later handle.
#[test]
fn a_cached_path_is_not_believed_of_what_came_after_its_directory_was_renamed() {
    let hasher = Hasher::new(1);
    let (a, b, file) = (name(&hasher, b"a"), name(&hasher, b"b"), name(&hasher, b"file"));
    model(move || {
        let shared = Arc::new(cached(b'a', &a, &file));
        let mover = {
            let shared = shared.clone();
            thread::spawn(move || {
                rewrite(&shared, MOVING, &b, 1);
                rewrite(&shared, FILE, &file, 2);
            })
        };
        assert!(matches!(believed(&shared, b'a'), None | Some(1)));
        mover.join().expect("no panic");
        assert_eq!(believed(&shared, b'a'), None);
    });
}

/// The count changes before any field can be seen changed.
#[test]
fn a_cached_path_is_not_believed_of_an_end_that_has_begun_to_change() {
    let hasher = Hasher::new(1);
    let (a, file) = (name(&hasher, b"a"), name(&hasher, b"file"));
    model(move || {
        let shared = Arc::new(cached(b'a', &a, &file));
        let writer = {
            let shared = shared.clone();
            thread::spawn(move || rewrite(&shared, FILE, &file, 2))
        };
        assert!(matches!(believed(&shared, b'a'), None | Some(1)));
        writer.join().expect("no panic");
        assert_eq!(believed(&shared, b'a'), None);
    });
}

/// In a sum, an older count than the inserted one would make up for a later one.
#[test]
fn a_cached_path_is_believed_of_no_count_that_is_older_than_it() {
    let hasher = Hasher::new(1);
    let (a, b, file) = (name(&hasher, b"a"), name(&hasher, b"b"), name(&hasher, b"file"));
    model(move || {
        let shared = Arc::new(cached(b'a', &a, &file));
        let mover = {
            let shared = shared.clone();
            thread::spawn(move || {
                drop(shared.1[START.0 as usize].rewrite(&shared.2[START.0 as usize]));
                insert(&shared, b'a');
                rewrite(&shared, MOVING, &b, 1);
                rewrite(&shared, FILE, &file, 2);
            })
        };
        assert!(matches!(believed(&shared, b'a'), None | Some(1)));
        mover.join().expect("no panic");
    });
}

/// The path of one entry with the records of another.
#[test]
fn a_cached_path_that_is_replaced_is_not_believed_half() {
    let hasher = Hasher::new(1);
    let (a, b, file) = (name(&hasher, b"a"), name(&hasher, b"b"), name(&hasher, b"file"));
    model(move || {
        let shared = cached(b'a', &a, &file);
        // The inserted path is no longer valid.
        rewrite(&shared, MOVING, &b, 1);
        let shared = Arc::new(shared);
        let writer = {
            let shared = shared.clone();
            thread::spawn(move || insert(&shared, b'b'))
        };
        assert_eq!(believed(&shared, b'a'), None);
        writer.join().expect("no panic");
        assert_eq!(believed(&shared, b'a'), None);
        assert_eq!(believed(&shared, b'b'), Some(1));
    });
}

/// The path of one entry with the handle of another.
#[test]
fn a_handle_is_that_of_the_path_which_is_believed() {
    let hasher = Hasher::new(1);
    let (a, file) = (name(&hasher, b"a"), name(&hasher, b"file"));
    model(move || {
        let shared = Arc::new(cached(b'a', &a, &file));
        let writer = {
            let shared = shared.clone();
            thread::spawn(move || insert_with(&shared, b'b', handle_of(2)))
        };
        assert!(matches!(believed(&shared, b'a'), None | Some(1)));
        writer.join().expect("no panic");
        assert_eq!(believed(&shared, b'a'), None);
    });
}
