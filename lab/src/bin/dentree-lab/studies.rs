//! Runs the study that the command line names.

use crate::agenda::{Agenda, Measured};
use crate::args::{
    AllArgs, BuildArgs, Cli, CompareArgs, DbenchArgs, FindArgs, LoadArgs, MkfilesArgs, PlacementArgs, Study,
    WebArgs,
};
use crate::plans::{agenda, short_agenda};
use crate::show::{keep, print};
use crate::stop::{Stop, failed};
use crate::{loads, replacement, xattr};
use dentree_lab::placement;
use dentree_lab::report::compare::agreement;
use dentree_lab::report::machine::Machine;
use dentree_lab::report::{Findings, write};
use dentree_lab::xattr::bench::Cell;
use dentree_lab::xattr::mounted::be_client;
use std::io::{self, Write};

pub(crate) fn run(args: &Cli) -> Result<(), Stop> {
    if let Some(number) = args.pass {
        return agenda(&args.study)?.pass(number);
    }
    match &args.study {
        Study::All(args) => all(args),
        Study::Dbench(DbenchArgs { load, .. }) => print_load(&args.study, load),
        Study::Churn(load) | Study::Invalidate(load) => print_load(&args.study, load),
        Study::Build(BuildArgs { load, .. }) => print_load(&args.study, load),
        Study::Layout(placement) | Study::Prefetch(placement) => print_placement(&args.study, placement),
        Study::Locks(DbenchArgs { load, .. }) => print_locks(&args.study, load),
        Study::Replacement(args) => replacement::run(args),
        Study::Compare(args) => compare(args),
        Study::Once { layout, chain, lookups } => placement::once(layout, *chain, *lookups).map_err(failed),
        Study::Xattr(args) => xattr::run(args),
        Study::XattrClient { mount, client, files, values, sets, round } => {
            let cell = Cell { clients: client + 1, files: *files, values: *values, sets: *sets };
            be_client(mount, &cell, *client, *round).map_err(failed)
        }
        Study::Web(web) if web.sockets => loads::web_sockets(web),
        Study::Web(WebArgs { load, .. }) => print_load(&args.study, load),
        Study::Find(find) if find.kernel => loads::find_beside_kernel(find),
        Study::Find(FindArgs { load, .. }) => print_load(&args.study, load),
        Study::Record(args) => loads::record(args),
        Study::Mkfiles(mkfiles) => print_mkfiles(&args.study, mkfiles),
    }
}

fn print_load(study: &Study, args: &LoadArgs) -> Result<(), Stop> {
    let measured = agenda(study)?.measure()?;
    measured.studies.iter().try_for_each(|study| print(&study.text(), &study.rows, args.json.as_deref()))
}

fn print_locks(study: &Study, args: &LoadArgs) -> Result<(), Stop> {
    let measured = Agenda { passes: 0, ..agenda(study)? }.measure()?;
    let mut out = io::stdout().lock();
    for study in measured.studies {
        for table in &study.locks {
            writeln!(
                out,
                "{}, {} clients, {} operations\n{}",
                table.variant, table.threads, table.operations, table.text
            )?;
        }
        keep(args.json.as_deref(), &study.rows)?;
    }
    Ok(())
}

fn print_placement(study: &Study, args: &PlacementArgs) -> Result<(), Stop> {
    let measured = agenda(study)?.measure()?;
    let mut comparisons = measured.comparisons.iter();
    comparisons.try_for_each(|found| print(&found.text(), &found.rows, args.json.as_deref()))
}

fn print_mkfiles(study: &Study, args: &MkfilesArgs) -> Result<(), Stop> {
    let Some(results) = agenda(study)?.measure()?.mkfiles else { return Ok(()) };
    print(&results.text(), &results.rows, args.json.as_deref())
}

/// All studies in the short form, as a page.
fn all(args: &AllArgs) -> Result<(), Stop> {
    let agenda = short_agenda(args)?;
    eprintln!("dentree-lab: loads, layouts, prefetch and large directories, in {} passes", agenda.passes);
    let Measured { studies, comparisons, mkfiles } = agenda.measure()?;
    eprintln!("dentree-lab: xattr");
    let findings = Findings {
        machine: Machine::this(),
        studies,
        comparisons,
        mkfiles,
        attributes: Some(xattr::short()),
        skipped: agenda.skipped,
    };
    let page = write(&args.out, &findings).map_err(|why| failed(format!("{}: {why}", args.out.display())))?;
    let mut out = io::stdout().lock();
    findings.skipped.iter().try_for_each(|skipped| writeln!(out, "not measured: {skipped}"))?;
    writeln!(out, "{}", page.display())?;
    Ok(())
}

fn compare(args: &CompareArgs) -> Result<(), Stop> {
    let found = agreement(&args.one, &args.other).map_err(failed)?;
    io::stdout().write_all(found.text().as_bytes())?;
    if found.is_good() { Ok(()) } else { Err(failed("the two runs differ by more than their intervals")) }
}
