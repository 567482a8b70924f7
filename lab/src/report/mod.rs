//! The page of `dentree-lab all`, and its data.
//!
//! One self-contained HTML file: style inside, charts as SVG inside, no script. The same figures
//! are in `rows.jsonl`, one figure per line, and `locks.jsonl`, one lock table per line.
//!
//! - [`charts`]: lines over clients, percentiles and CPUs, drawn by plotters;
//! - [`claims`]: the sources' findings, ours, and the reasons of differences;
//! - [`compare`]: whether two runs agree;
//! - [`model`]: the universal scalability law;
//! - [`page`]: the page itself;
//! - [`sources`]: the sources' tables, line by line.

pub mod charts;
pub mod claims;
pub mod compare;
mod html;
pub mod machine;
pub mod model;
pub mod page;
pub mod sources;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::placement::Comparison;
use crate::rows::write_json_lines;
use crate::workloads::Study;
use machine::Machine;

/// The data of a page.
#[derive(Debug, Default)]
pub struct Findings {
    /// The machine of the measurement.
    pub machine: Machine,
    /// The loads.
    pub studies: Vec<Study>,
    /// Layouts and prefetch.
    pub comparisons: Vec<Comparison>,
    /// Large directories on a slow device.
    pub mkfiles: Option<crate::mkfiles::Results>,
    /// Shared attribute blocks.
    pub attributes: Option<crate::xattr::Results>,
    /// What was not measured, and why.
    pub skipped: Vec<String>,
}

impl Findings {
    /// The study of a load.
    pub fn study(&self, load: &str) -> Option<&Study> {
        self.studies.iter().find(|study| study.load == load)
    }
}

/// Writes page and data into a directory, which is made if it is missing. Returns the page's path.
///
/// # Errors
/// Those of the file system.
pub fn write(folder: &Path, findings: &Findings) -> std::io::Result<PathBuf> {
    fs::create_dir_all(folder)?;
    let studied = findings.studies.iter().flat_map(|study| &study.rows);
    let compared = findings.comparisons.iter().flat_map(|comparison| &comparison.rows);
    let shared = findings.attributes.iter().flat_map(|results| &results.rows);
    let made = findings.mkfiles.iter().flat_map(|results| &results.rows);
    let rows: Vec<_> =
        studied.chain(compared).chain(shared).chain(made).cloned().chain(model::rows(findings)).collect();
    write_json_lines(&folder.join("rows.jsonl"), &rows)?;
    let mut locks = std::io::BufWriter::new(fs::File::create(folder.join("locks.jsonl"))?);
    for table in findings.studies.iter().flat_map(|study| &study.locks) {
        serde_json::to_writer(&mut locks, table)?;
        locks.write_all(b"\n")?;
    }
    locks.flush()?;
    let page = folder.join("index.html");
    fs::write(&page, page::html(findings))?;
    Ok(page)
}
