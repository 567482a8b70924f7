//! Which crate may use which: the arrows of docs/ARCHITECTURE.md.

use crate::Findings;
use cargo_metadata::{DependencyKind, Metadata};
use std::collections::BTreeSet;

/// A crate and all of ours that it may use. Development dependencies are free: tests may reach
/// across.
const ARROWS: &[(&str, &[&str])] = &[
    ("dentree-blockdev", &[]),
    ("dentree-bufcache", &["dentree-blockdev", "dentree-sync"]),
    ("dentree-dcache", &["dentree-sync"]),
    ("dentree-ext4-format", &[]),
    ("dentree-mbcache", &["dentree-sync"]),
    ("dentree-jbd2", &["dentree-blockdev", "dentree-bufcache", "dentree-sync"]),
    ("dentree-lockmeter", &["dentree-sync"]),
    ("dentree-vfs", &["dentree-dcache", "dentree-sync"]),
    (
        "dentree-ext4",
        &[
            "dentree-blockdev",
            "dentree-bufcache",
            "dentree-ext4-format",
            "dentree-jbd2",
            "dentree-mbcache",
            "dentree-sync",
            "dentree-vfs",
        ],
    ),
    ("dentree-find", &["dentree-vfs"]),
    ("dentree-fuse", &["dentree-fuse-uring", "dentree-sync", "dentree-vfs"]),
    ("dentree-fuse-uring", &["dentree-sync"]),
    ("dentree-http", &["dentree-vfs"]),
    (
        "dentree-lab",
        &[
            "dentree-blockdev",
            "dentree-dcache",
            "dentree-ext4",
            "dentree-lockmeter",
            "dentree-mbcache",
            "dentree-sync",
            "dentree-testing",
            "dentree-vfs",
        ],
    ),
    (
        "dentree",
        &[
            "dentree-blockdev",
            "dentree-ext4",
            "dentree-find",
            "dentree-fuse",
            "dentree-http",
            "dentree-source",
            "dentree-sync",
            "dentree-table",
            "dentree-vfs",
        ],
    ),
    ("dentree-c", &["dentree-blockdev", "dentree-ext4", "dentree-source", "dentree-vfs"]),
    (
        "dentree-python",
        &[
            "dentree-blockdev",
            "dentree-ext4",
            "dentree-find",
            "dentree-source",
            "dentree-table",
            "dentree-vfs",
        ],
    ),
    (
        "dentree-source",
        &["dentree-blockdev", "dentree-source-nbd", "dentree-source-object", "dentree-source-qcow2"],
    ),
    ("dentree-source-blocks", &["dentree-blockdev"]),
    ("dentree-source-nbd", &["dentree-blockdev", "dentree-source-blocks"]),
    ("dentree-source-object", &["dentree-blockdev", "dentree-source-blocks"]),
    ("dentree-source-qcow2", &["dentree-blockdev"]),
    ("dentree-sync", &[]),
    ("dentree-table", &["dentree-ext4", "dentree-sync", "dentree-vfs"]),
    ("dentree-testing", &["dentree-blockdev"]),
    ("xtask", &[]),
];

/// Every arrow between crates of the workspace that the table does not have.
pub(crate) fn check(metadata: &Metadata) -> Findings {
    let ours = metadata.workspace_packages();
    let is_ours = |name: &str| ours.iter().any(|package| package.name.as_str() == name);
    let mut findings = Findings::new();
    for package in &ours {
        let Some((_, may_use)) = ARROWS.iter().find(|(from, _)| *from == package.name.as_str()) else {
            findings.push(format!("{}: add it to the table in xtask/src/arrows.rs", package.name));
            continue;
        };
        for dependency in &package.dependencies {
            let name = dependency.name.as_str();
            if dependency.kind != DependencyKind::Development && is_ours(name) && !may_use.contains(&name) {
                findings.push(format!("{} uses {name}: no such arrow in docs/ARCHITECTURE.md", package.name));
            }
        }
    }
    findings
}

/// The lab, its rivals and its instruments.
const LAB: &[&str] = &[
    "crossbeam-epoch",
    "dashmap",
    "dentree-lab",
    "dentree-lockmeter",
    "hdrhistogram",
    "moka",
    "papaya",
    "plotters",
    "rand_distr",
    "scc",
];

/// Crates of the lab that `dentree` is linked with.
pub(crate) fn product(metadata: &Metadata) -> Findings {
    let Some(graph) = &metadata.resolve else { return vec!["cargo metadata resolved nothing".to_owned()] };
    let ours = metadata.workspace_packages();
    let mut waiting: Vec<_> =
        ours.iter().filter(|package| package.name.as_str() == "dentree").map(|package| &package.id).collect();
    let mut seen = BTreeSet::new();
    while let Some(id) = waiting.pop() {
        let node = graph.nodes.iter().find(|node| node.id == *id);
        if let Some(node) = node.filter(|_| seen.insert(id)) {
            let linked = node.deps.iter().filter(|dependency| {
                dependency.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal)
            });
            waiting.extend(linked.map(|dependency| &dependency.pkg));
        }
    }
    let names = seen.into_iter().map(|id| metadata[id].name.as_str());
    names
        .filter(|name| LAB.contains(name))
        .map(|name| {
            format!("dentree is linked with {name}, which belongs to the lab: `cargo tree -i {name}`")
        })
        .collect()
}
