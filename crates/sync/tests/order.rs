//! Debug builds find named locks that are taken in two orders, before they deadlock.
#![cfg(all(feature = "lockstat", debug_assertions, not(loom)))]

use dentree_sync::lockstat::{Class, NamedMutex};
use std::panic::{AssertUnwindSafe, catch_unwind};

fn lock(name: &'static str) -> NamedMutex<()> {
    NamedMutex::new(Class::named(name), ())
}

fn message(body: impl FnOnce()) -> Option<String> {
    let panic = catch_unwind(AssertUnwindSafe(body)).err()?;
    panic.downcast_ref::<String>().cloned()
}

#[test]
fn two_locks_in_two_orders_panic_with_both_places() {
    let (a, b) = (lock("order a"), lock("order b"));
    {
        let _a = a.lock();
        let _b = b.lock();
    }
    let found = message(|| {
        let _b = b.lock();
        let _a = a.lock();
    });
    let found = found.expect("an inversion");
    assert!(
        found.contains("order a") && found.contains("order b") && found.contains("tests/order.rs"),
        "{found}"
    );
}

#[test]
fn a_circle_of_three_is_found() {
    let (a, b, c) = (lock("circle a"), lock("circle b"), lock("circle c"));
    for (first, second) in [(&a, &b), (&b, &c)] {
        let _first = first.lock();
        let _second = second.lock();
    }
    let found = message(|| {
        let _c = c.lock();
        let _a = a.lock();
    });
    assert!(found.is_some());
}

#[test]
fn two_of_one_class_go_by_address() {
    let pair = [lock("pair"), lock("pair")];
    {
        let _low = pair[0].lock();
        let _high = pair[1].lock();
    }
    let found = message(|| {
        let _high = pair[1].lock();
        let _low = pair[0].lock();
    });
    assert!(found.is_some());
}

#[test]
fn taking_a_lock_twice_panics_instead_of_hanging() {
    let twice = lock("twice");
    let _held = twice.lock();
    assert!(message(|| drop(twice.lock())).is_some());
}

#[test]
fn try_lock_may_go_against_the_order() {
    let (a, b) = (lock("try a"), lock("try b"));
    {
        let _a = a.lock();
        let _b = b.lock();
    }
    let _b = b.lock();
    assert!(a.try_lock().is_some());
}
