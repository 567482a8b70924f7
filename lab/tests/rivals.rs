//! Every variant gives the same results, the kernel included, before any of them is timed.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use dentree_dcache::PrefetchMode;
use dentree_lab::harness::{Contender, Course, race, verify};
use dentree_lab::paths::{Ending, Path, PathSet, Pattern, Rename, RenameLoad};
use dentree_lab::rivals::{Chained, KernelStat, NameCache};
use dentree_lab::tree::{HOT, NodeId, TINY, Tree};
use dentree_lab::walk_bench::variants;

const WALKS: usize = 2_000;

/// All variants of a tree; the kernel if it is available.
fn contenders(tree: &Tree) -> Vec<Contender> {
    let mut all: Vec<Contender> = variants()
        .iter()
        .map(|variant| Contender { name: variant.name, cache: (variant.build)(tree, PrefetchMode::Auto) })
        .collect();
    match KernelStat::build(tree) {
        Ok(cache) => all.push(Contender { name: "kernel-stat", cache: Box::new(cache) }),
        Err(why) => println!("skipped: kernel-stat: {why}"),
    }
    all
}

fn no_renames(rounds: usize, threads: usize) -> Vec<Vec<Vec<Rename>>> {
    vec![vec![Vec::new(); threads]; rounds]
}

#[test]
fn every_variant_finds_what_is_there_and_nothing_else() {
    let tree = Tree::generate(HOT, 1);
    let all = contenders(&tree);
    for ending in [Ending::Present, Ending::Missing] {
        let paths = PathSet::draw(&tree, Pattern::Uniform, ending, WALKS, 2);
        let course = Course::cut("test", &paths, WALKS, no_renames(1, 1));
        for contender in &all {
            verify(&course, contender).unwrap();
        }
    }
}

#[test]
fn every_variant_is_right_while_two_threads_walk_and_rename() {
    let mut tree = Tree::generate(TINY, 1);
    let all = contenders(&tree);
    let mut load = RenameLoad::new(3);
    let paths = PathSet::draw(&tree, Pattern::Zipf, Ending::Present, WALKS * 6, 4);
    let renames = (0..3).map(|_| load.draw(&mut tree, 2, Course::renames_for(WALKS))).collect();
    let timings = race(&Course::cut("test", &paths, WALKS, renames), &all).unwrap();
    assert!(
        timings.iter().all(|timing| timing.rounds.len() == 3 && timing.rounds.iter().all(|&cost| cost > 0.0))
    );
    for mover in tree.movers().map(NodeId) {
        let path = path_of(&tree, mover);
        for contender in &all {
            let answer = contender.cache.walk(Path::from_bytes_with_nul(&path));
            assert_eq!(answer, Some(contender.cache.token(mover)), "{}", contender.name);
        }
    }
}

#[test]
fn every_variant_finds_all_below_a_renamed_directory_and_nothing_at_its_old_place() {
    let mut tree = Tree::generate(TINY, 1);
    let all = contenders(&tree);
    let old = PathSet::draw(&tree, Pattern::Uniform, Ending::Present, WALKS, 5);
    for top in 1..=TINY.fans[0] {
        let rename = Rename::apply(&mut tree, NodeId(top), NodeId::ROOT, format!("moved{top}").as_bytes());
        all.iter().for_each(|contender| contender.cache.rename(&rename));
    }
    let new = PathSet::draw(&tree, Pattern::Uniform, Ending::Present, WALKS, 5);
    let course = Course::cut("test", &new, WALKS, no_renames(1, 1));
    for contender in &all {
        verify(&course, contender).unwrap();
        assert!((0..old.len()).all(|at| contender.cache.walk(old.path(at)).is_none()), "{}", contender.name);
    }
}

#[test]
fn a_wrong_answer_stops_the_race() {
    struct Liar;
    impl NameCache for Liar {
        fn walk(&self, _path: Path<'_>) -> Option<u64> {
            Some(1)
        }
        fn rename(&self, _rename: &Rename) {}
    }
    let tree = Tree::generate(TINY, 1);
    let paths = PathSet::draw(&tree, Pattern::Uniform, Ending::Present, 10, 2);
    let course = Course::cut("test", &paths, 10, no_renames(1, 1));
    let liar = Contender { name: "liar", cache: Box::new(Liar) };
    assert!(verify(&course, &liar).is_err());
    assert!(race(&course, &[liar]).unwrap_err().to_string().starts_with("liar gave a wrong result in test"));
}

/// Readers of the chained table take no lock: an entry that moves between chains must not hide
/// others.
#[test]
fn walks_of_the_chained_table_miss_nothing_while_entries_move() {
    let mut tree = Tree::generate(TINY, 1);
    let table = Chained::build(&tree);
    let paths = PathSet::draw(&tree, Pattern::Uniform, Ending::Present, WALKS, 2);
    let renames = RenameLoad::new(1).draw(&mut tree, 1, 50_000).remove(0);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            renames.iter().for_each(|rename| table.rename(rename));
            done.store(true, Relaxed);
        });
        while !done.load(Relaxed) {
            for at in 0..paths.len() {
                assert_eq!(table.walk(paths.path(at)), paths.target(at).map(|node| table.token(node)));
            }
        }
    });
}

fn path_of(tree: &Tree, node: NodeId) -> Vec<u8> {
    let mut path = Vec::new();
    tree.push_path(node, &mut path);
    path.push(0);
    path
}
