//! What named locks cost, and what they tell a recorder.
#![cfg(not(any(loom, shuttle)))]

#[cfg(not(feature = "lockstat"))]
#[test]
fn without_the_feature_a_named_lock_is_the_lock_inside_it() {
    use dentree_sync::lockstat::{Class, NamedMutex, NamedMutexGuard, NamedRwLock};
    assert_eq!(size_of::<Class>(), 0);
    assert_eq!(size_of::<NamedMutex<u64>>(), size_of::<std::sync::Mutex<u64>>());
    assert_eq!(size_of::<NamedMutexGuard<'_, u64>>(), size_of::<std::sync::MutexGuard<'_, u64>>());
    assert_eq!(size_of::<NamedRwLock<u64>>(), size_of::<std::sync::RwLock<u64>>());
}

#[cfg(feature = "lockstat")]
#[test]
fn a_recorder_learns_class_kind_place_and_times() {
    use dentree_sync::lockstat::{Class, Key, Kind, NamedMutex, Recorder, start, stop};
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    /// Each look at the clock takes one unit.
    struct Log(Mutex<Vec<String>>, AtomicU64);

    impl Log {
        fn add(&self, key: &Key, text: String) {
            let line = format!("{} {:?} {}", key.class.name(), key.kind, text);
            assert!(key.site.file().ends_with("lockstat.rs"));
            assert_eq!(key.kind, Kind::Mutex);
            self.0.lock().unwrap().push(line);
        }
    }

    impl Recorder for Log {
        fn now(&self) -> u64 {
            self.1.fetch_add(1, Relaxed)
        }
        fn released(&self, recording: u32, key: &Key, held: u64, waited: Option<u64>) {
            self.add(key, format!("{recording}: held {held}, waited {waited:?}"));
        }
        fn failed(&self, recording: u32, key: &Key) {
            self.add(key, format!("{recording}: failed"));
        }
    }

    static LOG: Log = Log(Mutex::new(Vec::new()), AtomicU64::new(0));
    let lock = NamedMutex::new(Class::named("a lock"), ());
    drop(lock.lock());
    start(&LOG, 7);
    let held = lock.lock();
    assert!(lock.try_lock().is_none());
    drop(held);
    stop();
    drop(lock.lock());
    assert_eq!(*LOG.0.lock().unwrap(), ["a lock Mutex 7: failed", "a lock Mutex 7: held 1, waited None"]);
}
