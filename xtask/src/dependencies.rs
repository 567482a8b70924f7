//! Checks over the crates that are not ours.

use crate::Findings;
use cargo_metadata::Metadata;
use std::collections::BTreeSet;
use std::fs;

/// Licences under which a dependency may be shipped with MIT OR Apache-2.0.
const LICENCES: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    // The list of certificate authorities that reqwest has on systems without their own.
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Direct dependencies without a row in docs/DEPENDENCIES.md, and rows without a dependency.
pub(crate) fn reasons(metadata: &Metadata) -> Findings {
    let ours = metadata.workspace_packages();
    let is_ours = |name: &str| ours.iter().any(|package| package.name.as_str() == name);
    let direct = ours.iter().flat_map(|package| &package.dependencies);
    let direct: BTreeSet<&str> =
        direct.map(|dependency| dependency.name.as_str()).filter(|name| !is_ours(name)).collect();

    let page = metadata.workspace_root.join("docs/DEPENDENCIES.md");
    let page = fs::read_to_string(page).unwrap_or_default();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    let rows: BTreeSet<&str> = rows.filter(|row| *row != "crate").collect();

    let missing = direct.difference(&rows).map(|name| format!("{name}: say why in docs/DEPENDENCIES.md"));
    let idle = rows.difference(&direct).map(|name| format!("{name}: no crate uses it; delete its row"));
    missing.chain(idle).collect()
}

/// Packages under other licences of free software, which run in tests alone.
const IN_TESTS: &[&str] = &["cbindgen"];

/// Packages of the whole graph whose licence expression cannot be met from [`LICENCES`].
pub(crate) fn licences(metadata: &Metadata) -> Findings {
    let mut findings = Findings::new();
    for package in metadata.packages.iter().filter(|package| !IN_TESTS.contains(&package.name.as_str())) {
        let Some(licence) = &package.license else {
            findings.push(format!("{}: states no licence", package.name));
            continue;
        };
        let met = spdx::Expression::parse_mode(licence, spdx::ParseMode::LAX).is_ok_and(|expression| {
            expression.evaluate(|requirement| {
                requirement.license.id().is_some_and(|id| LICENCES.contains(&id.name))
            })
        });
        if !met {
            findings.push(format!("{} {}: {licence}", package.name, package.version));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_allowed_licence_is_known_to_spdx() {
        for name in LICENCES {
            assert!(spdx::license_id(name).is_some(), "{name}");
        }
    }
}
