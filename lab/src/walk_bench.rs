//! The benchmark of walks: every size, pattern and load, every variant in the same run.
//!
//! Cases are `walk-SIZE-PATTERN[-LOAD]`. Loads: none (walks that hit), `negative` (the last
//! component is missing), `rename` (one operation in a hundred renames a file across directories;
//! its cost is part of the figure), `moved` (hits after every top directory was renamed, which must
//! neither rehash nor slow down what is below).

use dentree_dcache::PrefetchMode;

use crate::harness::{Contender, Course, Timing, WrongAnswer, race, verify};
use crate::outcome::{OURS, Outcome};
use crate::paths::{Ending, PathSet, Pattern, Rename, RenameLoad};
use crate::rivals::{CHAINED, DENTREE, KernelStat, MAPS, SPLIT_ONLY, Variant, Work};
use crate::rows::Heading;
use crate::stats::paired_ratio;
use crate::targets::{Bound, Verdict};
use crate::tree::{COLD, DEEP, HOT, NodeId, Shape, TINY, Tree, WARM};
use crate::valgrind;

const KERNEL: &str = "kernel-stat";
/// Our batches; judged against maps and the chained table like single walks.
const BATCH: &str = "dentree-batch";
const SEED: u64 = 20_02;
/// The prefetch of counted walks. By default the cache decides by timing, which is random under
/// valgrind.
const COUNTED: PrefetchMode = PrefetchMode::On;

/// What to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Shapes, and the number of walks per thread and round of each.
    pub sizes: Vec<(Shape, usize)>,
    /// Thread counts.
    pub threads: Vec<usize>,
    /// Rounds of each case.
    pub rounds: usize,
    /// Whether to measure the kernel, too.
    pub kernel: bool,
    /// Walks counted under valgrind; `None` skips valgrind.
    pub counted_walks: Option<usize>,
    /// Runs only the cases whose name contains this; the empty string selects all.
    pub only: String,
}

impl Plan {
    /// Everything that the targets need; about ten minutes on two cores.
    pub fn full() -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let mut threads = vec![1, 2, cpus];
        threads.retain(|&count| count <= cpus);
        threads.sort_unstable();
        threads.dedup();
        let sizes = vec![(HOT, 200_000), (WARM, 150_000), (COLD, 150_000)];
        Self { sizes, threads, rounds: 7, kernel: true, counted_walks: Some(10_000), only: String::new() }
    }

    /// Every step at the smallest size, for tests.
    pub fn smoke() -> Self {
        Self {
            sizes: vec![(TINY, 1_000)],
            threads: vec![1, 2],
            rounds: 2,
            kernel: true,
            counted_walks: None,
            only: String::new(),
        }
    }
}

/// What the benchmark needs from its program.
pub struct Surroundings<'a> {
    /// Bytes allocated and not freed, by a counting allocator.
    pub allocated: &'a dyn Fn() -> usize,
    /// Called before each step.
    pub progress: &'a dyn Fn(&str),
}

impl std::fmt::Debug for Surroundings<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Surroundings").finish_non_exhaustive()
    }
}

/// Every variant in this process.
pub fn variants() -> Vec<Variant> {
    let mut all = DENTREE.to_vec();
    all.push(CHAINED);
    all.extend(MAPS);
    all
}

/// Runs a plan.
///
/// # Errors
/// The first wrong result of any variant.
pub fn run(plan: &Plan, around: &Surroundings<'_>) -> Result<Outcome, WrongAnswer> {
    let mut outcome = Outcome::default();
    if let Some(walks) = plan.counted_walks {
        for shape in [WARM, DEEP] {
            if counted_case(shape).contains(&plan.only) {
                count_by_valgrind(shape, walks, around, &mut outcome);
            }
        }
    }
    for &(shape, walks) in &plan.sizes {
        let mut cases: Vec<(Pattern, Load)> = LOADS.to_vec();
        cases.retain(|&(pattern, load)| walk_case(shape, pattern, load).contains(&plan.only));
        if cases.is_empty() {
            continue;
        }
        let mut size = Size::build(plan, shape, walks, around, &mut outcome);
        for (pattern, load) in cases {
            if load == Load::Moved {
                size.move_top_directories();
            }
            size.measure(pattern, load, around, &mut outcome)?;
        }
    }
    Ok(outcome)
}

/// The cases of every size, in this order: `moved` is last because it changes the tree.
const LOADS: [(Pattern, Load); 7] = [
    (Pattern::Uniform, Load::Hit),
    (Pattern::Uniform, Load::Negative),
    (Pattern::Uniform, Load::Rename),
    (Pattern::Zipf, Load::Hit),
    (Pattern::Zipf, Load::Negative),
    (Pattern::Zipf, Load::Rename),
    (Pattern::Uniform, Load::Moved),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    Hit,
    Negative,
    Rename,
    Moved,
}

impl Load {
    fn suffix(self) -> &'static str {
        match self {
            Self::Hit => "",
            Self::Negative => "-negative",
            Self::Rename => "-rename",
            Self::Moved => "-moved",
        }
    }
}

/// One tree with every variant of it.
struct Size<'a> {
    plan: &'a Plan,
    shape: Shape,
    walks: usize,
    tree: Tree,
    renames: RenameLoad,
    contenders: Vec<Contender>,
}

impl<'a> Size<'a> {
    fn build(
        plan: &'a Plan,
        shape: Shape,
        walks: usize,
        around: &Surroundings<'_>,
        outcome: &mut Outcome,
    ) -> Self {
        (around.progress)(&format!("{}: making {} entries", shape.name, shape.entries()));
        let tree = Tree::generate(shape, SEED);
        let mut contenders = Vec::new();
        for variant in variants() {
            (around.progress)(&format!("{}: filling {}", shape.name, variant.name));
            let before = (around.allocated)();
            let cache = (variant.build)(&tree, PrefetchMode::Auto);
            let bytes = cache.own_bytes().unwrap_or_else(|| (around.allocated)().saturating_sub(before));
            let bytes = bytes as f64 / tree.len() as f64;
            outcome.count(memory_heading(&memory_case(shape), variant.name), bytes);
            if variant.name == OURS && shape.name == COLD.name {
                outcome.judge(format!("{OURS}, bytes an entry, {} entries", tree.len()), bytes, 160.0);
            }
            contenders.push(Contender { name: variant.name, cache });
        }
        if plan.kernel {
            (around.progress)(&format!("{}: filling {KERNEL}", shape.name));
            match KernelStat::build(&tree) {
                Ok(cache) => contenders.push(Contender { name: KERNEL, cache: Box::new(cache) }),
                Err(why) => outcome.skipped.push(format!("{KERNEL}, {}: {why}", shape.name)),
            }
            if let Some(bytes) = KernelStat::bytes_per_dentry() {
                outcome.count(memory_heading(&memory_case(shape), KERNEL), bytes as f64);
            }
        }
        Self { plan, shape, walks, tree, renames: RenameLoad::new(SEED), contenders }
    }

    /// One case at every thread count.
    fn measure(
        &mut self,
        pattern: Pattern,
        load: Load,
        around: &Surroundings<'_>,
        outcome: &mut Outcome,
    ) -> Result<(), WrongAnswer> {
        let case = walk_case(self.shape, pattern, load);
        let most = self.plan.threads.iter().copied().max().unwrap_or(1);
        let ending = if load == Load::Negative { Ending::Missing } else { Ending::Present };
        let count = self.walks * most * self.plan.rounds;
        let paths = PathSet::draw(&self.tree, pattern, ending, count, SEED);
        let mut single: Option<Vec<Timing>> = None;
        for &threads in &self.plan.threads {
            (around.progress)(&format!("{case}: {threads} thread(s)"));
            let renames = self.draw_renames(load, threads);
            let course = Course::cut(&case, &paths, self.walks, renames);
            if single.is_none() {
                self.contenders.iter().try_for_each(|contender| verify(&course, contender))?;
            }
            let timings = race(&course, &self.contenders)?;
            report(&case, threads, load, self.shape, &timings, outcome);
            match &single {
                None => single = Some(timings),
                Some(single) => report_scaling(&case, threads, load, single, &timings, outcome),
            }
        }
        self.report_locks(&case, load, &paths, outcome);
        Ok(())
    }

    fn draw_renames(&mut self, load: Load, threads: usize) -> Vec<Vec<Vec<Rename>>> {
        let count = if load == Load::Rename { Course::renames_for(self.walks) } else { 0 };
        (0..self.plan.rounds).map(|_| self.renames.draw(&mut self.tree, threads, count)).collect()
    }

    fn report_locks(&self, case: &str, load: Load, paths: &PathSet, outcome: &mut Outcome) {
        for contender in &self.contenders {
            let Some(before) = contender.cache.lock_acquisitions() else { continue };
            contender.cache.run(Work { paths, range: &(0..self.walks), renames: &[] });
            let taken = contender.cache.lock_acquisitions().unwrap_or(before) - before;
            let heading =
                Heading { case, variant: contender.name, threads: 1, metric: "locks/walk", unit: "locks" };
            let taken = taken as f64 / self.walks as f64;
            outcome.count(heading, taken);
            if contender.name == OURS && load == Load::Hit {
                outcome.judge(format!("{case}, {OURS}, lock acquisitions a walk"), taken, 0.0);
            }
        }
    }

    /// Renames every directory of the root, in the tree and in all variants.
    fn move_top_directories(&mut self) {
        for top in 1..=self.shape.fans[0] {
            let name = format!("moved{top}");
            let rename = Rename::apply(&mut self.tree, NodeId(top), NodeId::ROOT, name.as_bytes());
            self.contenders.iter().for_each(|contender| contender.cache.rename(&rename));
        }
    }
}

fn walk_case(shape: Shape, pattern: Pattern, load: Load) -> String {
    format!("walk-{}-{}{}", shape.name, pattern.name(), load.suffix())
}

fn memory_case(shape: Shape) -> String {
    format!("memory-{}", shape.name)
}

fn counted_case(shape: Shape) -> String {
    format!("counted-{}", shape.name)
}

fn memory_heading<'a>(case: &'a str, variant: &'a str) -> Heading<'a> {
    Heading { case, variant, threads: 1, metric: "bytes/entry", unit: "bytes" }
}

/// The rows of one race, and its targets.
fn report(case: &str, threads: usize, load: Load, shape: Shape, timings: &[Timing], outcome: &mut Outcome) {
    for timing in timings {
        let heading = Heading { case, variant: timing.name, threads, metric: "ns/component", unit: "ns" };
        outcome.rows.extend(timing.sample().map(|sample| heading.sampled(&sample)));
    }
    let find = |name: &str| timings.iter().find(|timing| timing.name == name);
    let judged = load == Load::Hit;
    let kernel_target = (judged && shape.name == HOT.name).then_some(1.0 / 5.0);
    let map_target = match shape.name {
        name if judged && name == HOT.name => Some(1.0 / 2.0),
        name if judged && name == COLD.name => Some(1.0 / 3.0),
        _ => None,
    };
    let chained_target = (judged && shape.name == COLD.name).then_some(1.0 / 3.0);
    let best_map =
        timings.iter().filter(|timing| MAPS.iter().any(|map| map.name == timing.name)).min_by(|a, b| {
            let median = |timing: &Timing| timing.sample().map_or(f64::INFINITY, |sample| sample.median());
            median(a).total_cmp(&median(b))
        });
    let (kernel, chained) = (find(KERNEL), find(CHAINED.name));
    let is_cold = shape.name == COLD.name;
    for (ours, theirs, target) in [
        (OURS, kernel, kernel_target),
        (OURS, best_map, map_target),
        (OURS, chained, chained_target),
        (BATCH, best_map, map_target.filter(|_| is_cold)),
        (BATCH, chained, chained_target),
    ] {
        if let (Some(ours), Some(theirs)) = (find(ours), theirs) {
            outcome.compare(case, threads, ours, theirs, target);
        }
    }
}

/// The throughput of `threads` threads relative to one: `threads` if a walk costs each of them what
/// it costs one alone.
fn report_scaling(
    case: &str,
    threads: usize,
    load: Load,
    single: &[Timing],
    many: &[Timing],
    outcome: &mut Outcome,
) {
    for (single, many) in single.iter().zip(many) {
        let scaled: Vec<f64> = single.rounds.iter().map(|cost| cost * threads as f64).collect();
        let Some(figure) = paired_ratio(&scaled, &many.rounds) else { continue };
        let heading = Heading { case, variant: single.name, threads, metric: "scaling", unit: "1" };
        outcome.rows.push(heading.ratio(&figure));
        if single.name == OURS && load == Load::Hit && threads == 2 {
            let what = format!("{case}, {OURS}, 2 threads / 1 thread");
            outcome.verdicts.push(Verdict { what, figure, bound: Bound::AtLeast, target: 1.9 });
        }
    }
}

/// Instructions and lines per component of every variant, counted in this program under valgrind.
/// Instructions include splitting the path; lines do not include the path's.
fn count_by_valgrind(shape: Shape, walks: usize, around: &Surroundings<'_>, outcome: &mut Outcome) {
    let Ok(program) = std::env::current_exe() else { return };
    let count = |name: &str| {
        (around.progress)(&format!("{}: counting {name} under valgrind", shape.name));
        let drawn = (2 * walks).to_string();
        valgrind::count_per_walk(program.as_os_str(), &["--once", name, shape.name, &drawn], walks)
    };
    let load = match count(SPLIT_ONLY.name) {
        Ok(load) => load,
        Err(why) => return outcome.skipped.push(format!("instructions and cache lines: {why}")),
    };
    let components = shape.fans.len() as f64;
    let case = counted_case(shape);
    let mut counted = Vec::new();
    for variant in variants() {
        match count(variant.name) {
            Ok(counts) => counted.push((variant.name, counts)),
            Err(why) => {
                outcome.skipped.push(format!("instructions and cache lines of {}: {why}", variant.name))
            }
        }
    }
    for (name, counts) in &counted {
        let heading = Heading {
            case: &case,
            variant: name,
            threads: 1,
            metric: "instructions/component",
            unit: "instructions",
        };
        outcome.count(heading, counts.instructions / components);
    }
    for (name, counts) in &counted {
        let heading =
            Heading { case: &case, variant: name, threads: 1, metric: "lines/component", unit: "lines" };
        let lines = (counts.last_level_misses - load.last_level_misses) / components;
        outcome.count(heading, lines);
        if *name == OURS {
            outcome.judge(
                format!("{case}, {OURS}, prefetch {COUNTED:?}, cache lines a component"),
                lines,
                1.3,
            );
        }
    }
}

/// Fills one variant, draws `drawn` paths and walks the first `walks` of them: the program under
/// valgrind. Two runs with the same `drawn` differ by walks alone. Nothing in it depends on time.
///
/// # Errors
/// The usage, if a name is unknown.
pub fn once(variant: &str, shape: &str, drawn: usize, walks: usize) -> Result<(), String> {
    let all = variants();
    let variant = all
        .iter()
        .chain([&SPLIT_ONLY])
        .find(|known| known.name == variant)
        .ok_or_else(|| format!("no variant {variant}"))?;
    let shape = [HOT, WARM, COLD, DEEP, TINY]
        .into_iter()
        .find(|known| known.name == shape)
        .ok_or_else(|| format!("no shape {shape}"))?;
    let tree = Tree::generate(shape, SEED);
    let paths = PathSet::draw(&tree, Pattern::Uniform, Ending::Present, drawn.max(walks), SEED);
    let cache = (variant.build)(&tree, COUNTED);
    std::hint::black_box(cache.run(Work { paths: &paths, range: &(0..walks), renames: &[] }));
    Ok(())
}
