//! Checks over the tests: what fails on a busy machine stands in `crates/testing` alone.

use crate::Findings;
use crate::sources::{read, source_files};
use cargo_metadata::Metadata;
use std::path::Path;

/// What a test does not do by itself, and what there is for it in `dentree_testing`.
const INSTEAD: &[(&str, &str)] = &[
    ("thread::sleep(", "wait_until, for a condition; linger, where the outcome is the same without"),
    ("fs::copy(env!(", "program_in: another thread's fork may hold the copy open (\"Text file busy\")"),
    ("fs::copy(std::env::current_exe", "program_in: another thread's fork may hold the copy open"),
    ("Command::new(\"umount\")", "unmount: another thread's fork may hold a file open"),
    ("tool(\"umount\"", "unmount: another thread's fork may hold a file open"),
    ("run(\"umount\"", "unmount: another thread's fork may hold a file open"),
    ("\"umount ", "unmount: another thread's fork may hold a file open"),
    ("Command::new(\"losetup\")", "LoopDevice, which ends with the test"),
    ("\"/proc/sys/vm/drop_caches\"", "drop_caches, which no other test runs into"),
    ("set_permissions(\"/dev/", "device_for_all, which no other test runs into"),
];

/// Lines of tests that do by themselves what fails now and then on a busy machine.
pub(crate) fn alone(metadata: &Metadata) -> Findings {
    let mut findings = Findings::new();
    for path in source_files(metadata) {
        let file = path.strip_prefix(&metadata.workspace_root).unwrap_or(&path);
        if file.starts_with("crates/testing") || file.starts_with("xtask") {
            continue;
        }
        for (number, line) in test_lines(file, &read(&path)) {
            let found = INSTEAD.iter().filter(|(pattern, _)| line.contains(pattern));
            findings.extend(found.map(|(pattern, instead)| {
                format!("{}:{number}: {pattern}: use dentree_testing::{instead}", path.display())
            }));
        }
    }
    findings
}

/// The lines of a file that are tests, with their numbers: all below `tests`, else from
/// `#[cfg(test)]` on.
fn test_lines<'a>(file: &Path, text: &'a str) -> Vec<(usize, &'a str)> {
    let are_all = file.iter().any(|part| part == "tests");
    let lines = text.lines().zip(1..).map(|(line, number)| (number, line));
    lines.skip_while(|(_, line)| !are_all && !line.starts_with("#[cfg(test)]")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_before_the_tests_of_a_file_is_no_test() {
        let text = "sleep\n#[cfg(test)]\nmod tests {\n}";
        assert_eq!(test_lines(Path::new("crates/x/src/lib.rs"), text).first(), Some(&(2, "#[cfg(test)]")));
        assert_eq!(test_lines(Path::new("crates/x/tests/it.rs"), text).len(), 4);
    }
}
