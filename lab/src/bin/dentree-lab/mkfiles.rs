//! The plans of `mkfiles`.

use crate::agenda::Agenda;
use crate::args::MkfilesArgs;
use dentree_blockdev::SlowDevice;
use dentree_lab::mkfiles::{Plan, Size};
use std::time::Duration;

/// The command line's plan, with an image in a file added.
pub(crate) fn agenda(args: &MkfilesArgs) -> Agenda {
    let latency = |milliseconds: &f64| Some(Duration::from_secs_f64(milliseconds / 1e3));
    let size = Size {
        directories: usize::from(args.directories),
        files: args.files as usize,
        creates: args.creates as usize,
        laid_out: args.laid_out,
    };
    let latencies = [None].into_iter().chain(args.latency.iter().map(latency)).collect();
    let plan = Plan { size, latencies, caches: args.cache.clone(), depth: usize::from(args.depth) };
    Agenda { mkfiles: Some(plan), passes: usize::from(args.runs), ..Agenda::default() }
}

/// The plan for `all`: directories as long as the source's, a tenth of a second per mode.
pub(crate) fn short() -> Plan {
    Plan {
        size: Size { directories: 16, files: 2000, creates: 160, laid_out: false },
        latencies: vec![None, Some(Duration::from_millis(1))],
        caches: vec![0.5, 4.0],
        depth: SlowDevice::DEPTH,
    }
}
