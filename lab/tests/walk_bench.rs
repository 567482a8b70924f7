//! The benchmark runs from end to end, at the smallest size.

use dentree_lab::walk_bench::{Plan, Surroundings, run};

#[test]
fn the_walk_benchmark_measures_every_variant_in_every_case() {
    let around = Surroundings { allocated: &|| 0, progress: &|_| {} };
    let outcome = run(&Plan::smoke(), &around).unwrap();
    for case in [
        "walk-tiny-uniform",
        "walk-tiny-zipf-negative",
        "walk-tiny-uniform-rename",
        "walk-tiny-uniform-moved",
    ] {
        for variant in ["chained", "rwlock-hashmap", "dashmap", "papaya", "scc", "moka"] {
            for threads in [1, 2] {
                let found = outcome.rows.iter().any(|row| {
                    (row.case.as_str(), row.variant.as_str(), row.threads, row.metric)
                        == (case, variant, threads, "ns/component")
                });
                assert!(found, "{case}, {variant}, {threads}");
            }
        }
    }
    for ratio in ["dentree/chained", "dentree-batch/chained"] {
        let found = |case| {
            outcome.rows.iter().any(|row| (&*row.case, &*row.variant, row.metric) == (case, ratio, "ratio"))
        };
        assert!(found("walk-tiny-uniform") && found("walk-tiny-zipf-negative"), "{ratio}");
    }
    assert!(outcome.text().contains("Targets"));
}
