//! A walk returns the same handle as a reference to the entry, whether it reads it in the record,
//! the path cache or the dentry.

use dentree_dcache::*;

/// A handle that is a word where the number is even.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
struct Sometimes(u64);

impl Handle for Sometimes {
    fn to_word(&self) -> Option<u64> {
        self.0.is_multiple_of(2).then_some(self.0)
    }

    fn from_word(word: u64) -> Option<Self> {
        assert!(word.is_multiple_of(2), "{word} was never made");
        Some(Sometimes(word))
    }
}

fn seen<H: Handle>(cache: &Dcache<H>, path: &str) -> Option<Seen<H>> {
    let options = WalkOptions { keep_last_link: true, ..WalkOptions::default() };
    match cache.find(&cache.root(), path.as_bytes(), options, |_| true) {
        Walk::Found(seen) => Some(seen),
        _ => None,
    }
}

/// Walks by steps and by the path cache, alone and in batches.
fn check<H: Handle + std::fmt::Debug>(cache: &Dcache<H>, path: &str, entry: &DentryRef<'_, H>) {
    let expected = Seen { id: entry.id(), handle: entry.handle().clone(), kind: entry.kind() };
    for turn in 0..4 {
        assert_eq!(seen(cache, path).as_ref(), Some(&expected), "{path}, walk {turn}");
        let options = WalkOptions { keep_last_link: true, ..WalkOptions::default() };
        let many = cache.find_many(&cache.root(), &[path, path], options, |_| true);
        assert!(many.iter().all(|walk| matches!(walk, Walk::Found(seen) if *seen == expected)), "{path}");
    }
    assert!(cache.is_linked(expected.id), "{path}");
}

/// All kinds, under paths of one to nine names. Each slot is used for the second time, so that
/// generations are not those of fresh memory.
fn look_everywhere<H: Handle + std::fmt::Debug>(handle: impl Fn(u64) -> H) {
    let cache = Dcache::builder().seed(7).build(Child::directory(handle(0)));
    let kinds: [fn(H) -> Child<H>; 3] = [Child::directory, Child::symlink, Child::other];
    for round in 0..2 {
        let (mut dir, mut above, mut number) = (cache.root(), String::new(), 1_000 * round);
        for depth in 0..9 {
            for (kind, child) in kinds.iter().enumerate() {
                for parity in 0..2 {
                    number += 2;
                    let name = format!("{depth}-{kind}-{parity}");
                    let entry = cache.create(&dir, name.as_bytes(), child(handle(number + parity)));
                    check(&cache, &format!("{above}{name}"), &entry);
                }
            }
            let below = cache.create(&dir, b"below", Child::directory(handle(number)));
            above.push_str("below/");
            dir = below;
        }
        drop(dir);
        cache.invalidate(&cache.root(), b"below");
        cache.prune(usize::MAX);
    }
}

#[test]
fn a_walk_sees_handles_that_are_words() {
    look_everywhere(|number| number);
    look_everywhere(|number| u64::MAX - number);
    look_everywhere(|number| number as u32);
}

#[test]
fn a_walk_sees_handles_that_are_no_words() {
    look_everywhere(std::sync::Arc::new);
}

#[test]
fn a_walk_sees_handles_of_which_some_are_words() {
    look_everywhere(Sometimes);
}

#[test]
fn a_file_keeps_its_handle_whatever_is_done_to_directories() {
    let cache = Dcache::builder().seed(7).build(Child::directory(1_u64));
    let root = cache.root();
    let [a, b] = [b"a", b"b"].map(|name| cache.create(&root, name, Child::directory(2)));
    // Of the second generation.
    cache.create(&a, b"file", Child::other(3));
    cache.unlink(&a, b"file");
    let file = cache.create(&a, b"file", Child::other(4));
    check(&cache, "a/file", &file);
    cache.set_search(&file, true);
    check(&cache, "a/file", &file);
    cache.rename(&a, b"file", &b, b"moved");
    check(&cache, "b/moved", &file);
    cache.exchange(&root, b"a", &root, b"b");
    check(&cache, "a/moved", &file);
    cache.unlink(&b, b"moved");
    assert!(!cache.is_linked(file.id()) && seen(&cache, "a/moved").is_none());
}
