//! Without the feature `meter` a lock is what it locks with, and nothing else.
#![cfg(not(any(feature = "meter", loom)))]

use dentree_lockmeter::{BitLock, Class, SpinGuard, SpinLock};
use std::mem::size_of;

#[test]
fn locks_and_guards_carry_nothing_for_the_meter() {
    assert_eq!(size_of::<Class>(), 0);
    assert_eq!(size_of::<SpinLock<()>>(), 1);
    assert_eq!(size_of::<SpinGuard<'_, ()>>(), size_of::<&()>());
    assert_eq!(size_of::<BitLock>(), size_of::<u32>());
}
