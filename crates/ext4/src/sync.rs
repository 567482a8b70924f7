//! Locks of directories: those of `lockmeter`, or of `loom` in models.

#[cfg(not(loom))]
pub(crate) use dentree_lockmeter::{Mutex, MutexGuard, ReadGuard, RwLock, WriteGuard};
#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard, RwLock, RwLockReadGuard as ReadGuard, RwLockWriteGuard as WriteGuard,
};

/// `count` mutexes of one class.
#[cfg(not(loom))]
pub(crate) fn mutexes(name: &'static str, count: usize) -> Box<[Mutex<()>]> {
    let class = dentree_lockmeter::Class::named(name);
    (0..count).map(|_| Mutex::new(class, ())).collect()
}

/// `count` reader-writer locks of one class.
#[cfg(not(loom))]
pub(crate) fn rw_locks(name: &'static str, count: usize) -> Box<[RwLock<()>]> {
    let class = dentree_lockmeter::Class::named(name);
    (0..count).map(|_| RwLock::new(class, ())).collect()
}

#[cfg(loom)]
pub(crate) fn mutexes(_: &'static str, count: usize) -> Box<[Mutex<()>]> {
    (0..count).map(|_| Mutex::new(())).collect()
}

#[cfg(loom)]
pub(crate) fn rw_locks(_: &'static str, count: usize) -> Box<[RwLock<()>]> {
    (0..count).map(|_| RwLock::new(())).collect()
}

#[cfg(not(loom))]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

#[cfg(not(loom))]
pub(crate) fn share<T>(lock: &RwLock<T>) -> ReadGuard<'_, T> {
    lock.read()
}

#[cfg(not(loom))]
pub(crate) fn alone<T>(lock: &RwLock<T>) -> WriteGuard<'_, T> {
    lock.write()
}

#[cfg(loom)]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(loom)]
pub(crate) fn share<T>(lock: &RwLock<T>) -> ReadGuard<'_, T> {
    lock.read().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(loom)]
pub(crate) fn alone<T>(lock: &RwLock<T>) -> WriteGuard<'_, T> {
    lock.write().unwrap_or_else(std::sync::PoisonError::into_inner)
}
