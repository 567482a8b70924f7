//! Loads next to other programs: `web --sockets`, `find --kernel` and `record`.

use crate::args::{FindArgs, RecordArgs, WebArgs};
use crate::plans::{find, schemes};
use crate::show::{bar, print_tables, tell};
use crate::stop::{Stop, failed};
use dentree_lab::programs::Programs;
use dentree_lab::workloads::build::record as trace;
use dentree_lab::workloads::find::against_kernel;
use dentree_lab::workloads::web::sockets;
use std::path::Path;

pub(crate) fn web_sockets(args: &WebArgs) -> Result<(), Stop> {
    let plan = sockets::Plan {
        dentree: Programs::beside_this().and_then(|programs| programs.dentree()).map_err(failed)?,
        connections: usize::from(args.connections),
        rate: args.rate.unwrap_or(2000),
        rounds: usize::from(args.load.rounds),
        seconds: u32::from(args.seconds),
    };
    // Both servers, both generators, and the image.
    let bar = bar(4 * u64::from(args.load.rounds) + 1);
    let compared = sockets::compare(&plan, &|what| tell(&bar, what));
    bar.finish_and_clear();
    let compared = compared.map_err(failed)?;
    for skipped in &compared.skipped {
        eprintln!("dentree-lab: not measured: {skipped}");
    }
    print_tables(&compared.rows, args.load.json.as_deref())
}

pub(crate) fn find_beside_kernel(args: &FindArgs) -> Result<(), Stop> {
    let (load, schemes, rounds) = (find(args), schemes(&args.load.scheme)?, usize::from(args.load.rounds));
    let bar = bar(((schemes.len() + 1) * rounds) as u64);
    let rows = against_kernel(&load, &schemes, rounds, &|what| tell(&bar, what));
    bar.finish_and_clear();
    let rows = rows.map_err(failed)?;
    print_tables(&rows, args.load.json.as_deref())
}

pub(crate) fn record(args: &RecordArgs) -> Result<(), Stop> {
    let (recording, status) = trace(&args.command, Path::new(".")).map_err(failed)?;
    let program = args.command.first().map(|program| Path::new(program).file_name().unwrap_or(program));
    let title = program.unwrap_or_default().to_string_lossy();
    std::fs::write(&args.out, recording.text(&title))
        .map_err(|why| failed(format!("{}: {why}", args.out.display())))?;
    eprintln!(
        "dentree-lab: {} operations on {} names are in {}; replay them with: dentree-lab build --recording {}",
        recording.operations().len(),
        recording.paths(),
        args.out.display(),
        args.out.display()
    );
    if status.success() {
        return Ok(());
    }
    Err(failed(format!("{title}: the command ended with {status}")))
}
