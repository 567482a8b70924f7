//! A whole path leads to the same end as its components one by one.

use dentree_dcache::*;
use proptest::prelude::*;

/// Renamed directories, directories that not everyone may search, and names of every length about
/// the sizes that walks read at once.
fn fill(cache: &Dcache<u64>, depth: usize) -> Vec<String> {
    let names: Vec<String> = [1, 2, 15, 16, 17, 31, 32, 33, 64, 130, 255]
        .into_iter()
        .map(|len| "n".repeat(len))
        .chain(["closed", "moved", "link", "file"].map(String::from))
        .collect();
    let mut dir = cache.root();
    let mut inode = 0;
    for level in 0..depth {
        let mut next = None;
        for (i, name) in names.iter().enumerate() {
            inode += 1;
            let child = match &name[..] {
                "link" => Child::symlink(inode),
                "file" => Child::other(inode),
                "closed" => Child { search: false, ..Child::directory(inode) },
                _ => Child::directory(inode),
            };
            let made = if name == "moved" {
                let made = cache.create(&dir, b"before", child);
                cache.rename(&dir, b"before", &dir, name.as_bytes());
                made
            } else {
                cache.create(&dir, name.as_bytes(), child)
            };
            if (level * 5 + 3) % names.len() == i || next.is_none() {
                next = Some(made);
            }
        }
        dir = next.expect("there are names");
    }
    drop(dir);
    names
}

/// The end of a walk: an inode, nothing, or a reason and a place.
type Seen = Result<u64, Option<(Reason, usize)>>;

fn seen(walk: Walk<'_, u64>) -> Seen {
    match walk {
        Walk::Found(entry) => Ok(*entry.handle()),
        Walk::Negative { .. } => Err(None),
        Walk::Stopped(stopped) => Err(Some((stopped.why, stopped.rest))),
    }
}

/// Walks one component at a time, each but the last with a slash.
fn one_by_one(cache: &Dcache<u64>, path: &str) -> Seen {
    let mut dir = cache.root();
    let mut at = 0;
    while at < path.len() {
        let end = path[at..].find('/').map_or(path.len(), |len| at + len + 1);
        match cache.walk(&dir, &path.as_bytes()[at..end], WalkOptions::default(), |_| true) {
            Walk::Found(entry) => dir = entry,
            other => return seen(other).map_err(|why| why.map(|(why, rest)| (why, at + rest))),
        }
        at = end;
    }
    Ok(*dir.handle())
}

fn agree(cache: &Dcache<u64>, path: &str) -> Result<(), TestCaseError> {
    let whole = seen(cache.walk(&cache.root(), path.as_bytes(), WalkOptions::default(), |_| true));
    prop_assert_eq!(whole, one_by_one(cache, path), "{}", path);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn a_path_leads_where_its_components_lead(
        choices in prop::collection::vec((0..40_usize, 0..20_usize), 0..24),
    ) {
        let cache = Dcache::builder().seed(7).build(Child::directory(0));
        let names = fill(&cache, 20);
        let mut path = String::new();
        for (level, (choice, special)) in choices.into_iter().enumerate() {
            // Mostly the name that continues, now and then another one, a dot, an extra slash, or a
            // missing name.
            let on = &names[(level * 5 + 3) % names.len()];
            let name = match (choice, special) {
                (_, 0) => "..",
                (_, 1) => ".",
                (_, 2) => "",
                (_, 3) => "none",
                (_, 4) => "before",
                (0..6, _) => &names[choice],
                _ => on,
            };
            path.push_str(name);
            path.push('/');
            agree(&cache, &path)?;
            agree(&cache, path.trim_end_matches('/'))?;
        }
    }
}

#[test]
fn a_directory_renamed_above_costs_no_answer() {
    let cache = Dcache::builder().seed(7).build(Child::directory(0_u64));
    let mut dir = cache.root();
    for level in 1..=40_u64 {
        dir = cache.create(&dir, format!("dir{level}").as_bytes(), Child::directory(level));
    }
    let mut names: Vec<String> = (1..=40).map(|level| format!("dir{level}")).collect();
    for level in [0, 5, 6, 20, 39] {
        let above = seen_dir(&cache, &names[..level].join("/"));
        cache.rename(&above, names[level].as_bytes(), &above, b"renamed");
        names[level] = "renamed".to_owned();
        for len in 1..=40 {
            let path = names[..len].join("/");
            let walk = cache.walk(&cache.root(), path.as_bytes(), WalkOptions::default(), |_| true);
            assert_eq!(seen(walk), Ok(len as u64), "{path}");
        }
    }
    assert_eq!(cache.stats().retries, 0);
}

fn seen_dir<'c>(cache: &'c Dcache<u64>, path: &str) -> DentryRef<'c, u64> {
    match cache.walk(&cache.root(), path.as_bytes(), WalkOptions::default(), |_| true) {
        Walk::Found(dir) => dir,
        other => panic!("{path}: {other:?}"),
    }
}
