//! Lock order, checked in debug builds.
//!
//! Each thread keeps the locks that it holds. "B was taken while A was held" is an arrow A → B between classes;
//! arrows are kept for good. An arrow that closes a circle means that two threads can wait for each other, even if
//! they did not this time: the check runs before the lock is waited for, and panics with both places.

use crate::Class;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::Location;
use std::sync::{Mutex, PoisonError};

type Site = &'static Location<'static>;

struct Held {
    class: Class,
    address: usize,
    site: Site,
}

/// Arrows, each with where it was first seen: the place that held, and the place that took.
type Arrows = BTreeMap<Class, BTreeMap<Class, (Site, Site)>>;

static ARROWS: Mutex<Arrows> = Mutex::new(BTreeMap::new());

thread_local! {
    static HELD: RefCell<Vec<Held>> = const { RefCell::new(Vec::new()) };
    /// Arrows that this thread knows to be in `ARROWS`.
    static KNOWN: RefCell<BTreeSet<(Class, Class)>> = const { RefCell::new(BTreeSet::new()) };
}

/// Panics if waiting for this lock could deadlock.
pub(crate) fn check(class: Class, address: usize, site: Site) {
    let wrong =
        HELD.try_with(|held| held.borrow().iter().find_map(|held| conflict(held, class, address, site)));
    if let Ok(Some(wrong)) = wrong {
        panic!("lock order: {wrong}");
    }
}

fn conflict(held: &Held, class: Class, address: usize, site: Site) -> Option<String> {
    if held.class == class {
        return (address <= held.address).then(|| {
            format!(
                "{} taken at {site} while one of the same class and no lower address is held since {}; \
                 take them by address",
                class.name(),
                held.site
            )
        });
    }
    let arrow = (held.class, class);
    if KNOWN.try_with(|known| known.borrow().contains(&arrow)).unwrap_or(true) {
        return None;
    }
    let mut arrows = ARROWS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((back_held, back_taken)) = path(&arrows, class, held.class) {
        return Some(format!(
            "{} taken at {site} while {} is held since {}; but {} is held at {back_held} while others are taken \
             at {back_taken}, and so on to {}",
            class.name(),
            held.class.name(),
            held.site,
            class.name(),
            held.class.name()
        ));
    }
    arrows.entry(held.class).or_default().entry(class).or_insert((held.site, site));
    let _ = KNOWN.try_with(|known| known.borrow_mut().insert(arrow));
    None
}

/// The first arrow of a way from one class to another.
fn path(arrows: &Arrows, from: Class, to: Class) -> Option<(Site, Site)> {
    let mut seen = BTreeSet::from([from]);
    let mut ahead: Vec<(Class, Option<(Site, Site)>)> = vec![(from, None)];
    while let Some((at, first)) = ahead.pop() {
        for (next, arrow) in arrows.get(&at).into_iter().flatten() {
            let first = first.unwrap_or(*arrow);
            if *next == to {
                return Some(first);
            }
            if seen.insert(*next) {
                ahead.push((*next, Some(first)));
            }
        }
    }
    None
}

/// The lock is the thread's.
pub(crate) fn took(class: Class, address: usize, site: Site) {
    let _ = HELD.try_with(|held| held.borrow_mut().push(Held { class, address, site }));
}

/// The lock is not the thread's any more.
pub(crate) fn released(class: Class, address: usize) {
    let _ = HELD.try_with(|held| {
        let mut held = held.borrow_mut();
        if let Some(at) = held.iter().rposition(|held| held.class == class && held.address == address) {
            held.remove(at);
        }
    });
}
