//! `cargo bench -p dentree-lab --bench walk`: walks, all variants in the same run; rows in
//! `target/bench/walk.jsonl`.
//!
//! Arguments after `--`: part of the names of the cases to run (`hot`, `cold-uniform`, `counted`);
//! `--json FILE` for the rows; `--once VARIANT SHAPE DRAWN WALKS` is the program under valgrind.
//! Without cargo's own `--bench` (as under `cargo test --benches`) everything runs once at a tiny
//! size.

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use dentree_lab::rows::default_file;
use dentree_lab::walk_bench::{Plan, Surroundings, once, run};

/// The system's allocator with a count of the allocated bytes. Its own overhead is not counted,
/// which favours the variants that allocate every entry.
struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every method passes its arguments to `System` unchanged and returns its result; the
// counter has no effect on either.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller keeps `alloc`'s contract, which is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size(), Relaxed);
        // SAFETY: as in `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the block came from `System` through this allocator, with this layout.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        ALLOCATED.fetch_add(new_size, Relaxed);
        ALLOCATED.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as in `dealloc`; the new size is the caller's.
        unsafe { System.realloc(block, layout, new_size) }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--once", variant, shape, drawn, walks] => once_from(variant, shape, drawn, walks),
        _ => bench(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("walk: {why}");
            ExitCode::FAILURE
        }
    }
}

fn once_from(variant: &str, shape: &str, drawn: &str, walks: &str) -> Result<(), String> {
    let number = |text: &str| text.parse().map_err(|why| format!("{text}: {why}"));
    once(variant, shape, number(drawn)?, number(walks)?)
}

fn bench(arguments: &[String]) -> Result<(), String> {
    let mut plan = Plan::smoke();
    let mut json = None;
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--bench" => {
                plan = Plan { only: plan.only, ..Plan::full() };
                json = json.or_else(|| default_file("walk"));
            }
            "--json" => json = Some(PathBuf::from(rest.next().ok_or("--json needs a file")?)),
            only => plan.only = only.to_owned(),
        }
    }
    let start = Instant::now();
    let around = Surroundings {
        allocated: &|| ALLOCATED.load(Relaxed),
        progress: &|what| eprintln!("{:7.1} s  {what}", start.elapsed().as_secs_f64()),
    };
    let outcome = run(&plan, &around).map_err(|why| why.to_string())?;
    outcome.keep(json.as_deref())
}
