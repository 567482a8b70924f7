//! Lock order, checked in debug builds.
//!
//! "B was taken while A was held" is an arrow from class A to class B, kept for good. A circle of
//! arrows means that threads can wait for each other.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::Location;
use std::sync::{Mutex, PoisonError};

use super::Class;

type Site = &'static Location<'static>;

struct HeldLock {
    class: Class,
    address: usize,
    site: Site,
}

/// Arrows, each with the first place that held one class and took the other.
type Arrows = BTreeMap<Class, BTreeMap<Class, (Site, Site)>>;

static ARROWS: Mutex<Arrows> = Mutex::new(BTreeMap::new());

thread_local! {
    static HELD: RefCell<Vec<HeldLock>> = const { RefCell::new(Vec::new()) };
    /// Arrows that this thread has found in `ARROWS`.
    static SEEN: RefCell<BTreeSet<(Class, Class)>> = const { RefCell::new(BTreeSet::new()) };
}

/// Panics if waiting for this lock can deadlock.
pub(super) fn check(class: Class, address: usize, site: Site) {
    let conflict =
        HELD.try_with(|held| held.borrow().iter().find_map(|held| conflict(held, class, address, site)));
    if let Ok(Some(conflict)) = conflict {
        panic!("lock order: {conflict}");
    }
}

fn conflict(held: &HeldLock, class: Class, address: usize, site: Site) -> Option<String> {
    let (name, held_name) = (class.name(), held.class.name());
    if held.class == class {
        return (address <= held.address).then(|| {
            format!(
                "{name} taken at {site} while one of the same class and no lower address is held since {}; \\
                 take them by address",
                held.site
            )
        });
    }
    let arrow = (held.class, class);
    if SEEN.try_with(|seen| seen.borrow().contains(&arrow)).unwrap_or(true) {
        return None;
    }
    let mut arrows = ARROWS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((back_held, back_taken)) = path(&arrows, class, held.class) {
        return Some(format!(
            "{name} taken at {site} while {held_name} is held since {}; but {name} is held at {back_held} while \\
             others are taken at {back_taken}, and so on to {held_name}",
            held.site
        ));
    }
    arrows.entry(held.class).or_default().entry(class).or_insert((held.site, site));
    let _ = SEEN.try_with(|seen| seen.borrow_mut().insert(arrow));
    None
}

/// The first arrow of a path between two classes.
fn path(arrows: &Arrows, from: Class, to: Class) -> Option<(Site, Site)> {
    let mut seen = BTreeSet::from([from]);
    let mut pending: Vec<(Class, Option<(Site, Site)>)> = vec![(from, None)];
    while let Some((class, first)) = pending.pop() {
        for (next, arrow) in arrows.get(&class).into_iter().flatten() {
            let first = first.unwrap_or(*arrow);
            if *next == to {
                return Some(first);
            }
            if seen.insert(*next) {
                pending.push((*next, Some(first)));
            }
        }
    }
    None
}

pub(super) fn acquired(class: Class, address: usize, site: Site) {
    let _ = HELD.try_with(|held| held.borrow_mut().push(HeldLock { class, address, site }));
}

pub(super) fn released(class: Class, address: usize) {
    let _ = HELD.try_with(|held| {
        let mut held = held.borrow_mut();
        if let Some(at) = held.iter().rposition(|held| held.class == class && held.address == address) {
            held.remove(at);
        }
    });
}
