//! Which crate may use which: the arrows of docs/ARCHITECTURE.md.

use crate::Findings;
use cargo_metadata::{DependencyKind, Metadata};

/// A crate and all of ours that it may use. Development dependencies are free: tests may reach across.
const ARROWS: &[(&str, &[&str])] = &[
    ("dentree-blockdev", &[]),
    ("dentree-bufcache", &["dentree-blockdev"]),
    ("dentree-dcache", &[]),
    ("dentree-ext4-format", &[]),
    ("dentree-mbcache", &[]),
    ("dentree-jbd2", &["dentree-blockdev", "dentree-bufcache"]),
    ("dentree-lockmeter", &[]),
    ("dentree-vfs", &["dentree-dcache", "dentree-lockmeter"]),
    (
        "dentree-ext4",
        &[
            "dentree-blockdev",
            "dentree-bufcache",
            "dentree-ext4-format",
            "dentree-jbd2",
            "dentree-lockmeter",
            "dentree-mbcache",
            "dentree-vfs",
        ],
    ),
    ("dentree-fuse", &["dentree-vfs"]),
    ("dentree-http", &["dentree-vfs"]),
    (
        "dentree-lab",
        &[
            "dentree-blockdev",
            "dentree-dcache",
            "dentree-ext4",
            "dentree-lockmeter",
            "dentree-mbcache",
            "dentree-vfs",
        ],
    ),
    (
        "dentree",
        &["dentree-blockdev", "dentree-ext4", "dentree-fuse", "dentree-http", "dentree-lab", "dentree-vfs"],
    ),
    ("dentree-testing", &[]),
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
