//! The function of a scheme that contains a call site: lock tables name functions as the study
//! does.

/// The schemes' sources, by file name.
const SOURCES: [(&str, &str); 12] = [
    ("big_reader.rs", include_str!("big_reader.rs")),
    ("fastwalk.rs", include_str!("fastwalk.rs")),
    ("fastwalk_lazy.rs", include_str!("fastwalk_lazy.rs")),
    ("global.rs", include_str!("global.rs")),
    ("lazy_lru.rs", include_str!("lazy_lru.rs")),
    ("listed.rs", include_str!("listed.rs")),
    ("per_bucket.rs", include_str!("per_bucket.rs")),
    ("rcu_global_lru.rs", include_str!("rcu_global_lru.rs")),
    ("rcu_lru_lock.rs", include_str!("rcu_lru_lock.rs")),
    ("rcu_per_bucket.rs", include_str!("rcu_per_bucket.rs")),
    ("seq_count.rs", include_str!("seq_count.rs")),
    ("table.rs", include_str!("table.rs")),
];

/// The function that contains a line of a scheme's file, and the line's distance from its
/// beginning; `None` for other files.
///
/// The documentation of the trait's methods names the kernel's functions.
#[must_use]
pub fn function_at(file: &str, line: u32) -> Option<(&'static str, u32)> {
    let (folder, name) = file.rsplit_once(['/', '\\'])?;
    if !folder.ends_with("schemes") {
        return None;
    }
    let (_, text) = SOURCES.iter().find(|(known, _)| *known == name)?;
    (1..=line).zip(text.lines()).filter_map(|(at, text)| Some((function_name(text)?, line - at))).last()
}

/// The name of the function that begins on a line.
fn function_name(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let begins = before.trim().is_empty() || before.trim_start().starts_with("pub");
    let end = after.find(|character: char| !character.is_alphanumeric() && character != '_')?;
    begins.then(|| &after[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_in_the_function_that_began_last() {
        let (_, text) = SOURCES[5];
        let begins = text.lines().position(|line| line.contains("fn dput")).expect("dput") as u32 + 1;
        assert_eq!(function_at("lab/src/schemes/listed.rs", begins + 2), Some(("dput", 2)));
        assert_eq!(function_at("lab/src/tree.rs", 20), None);
        assert_eq!(function_name("    pub(super) fn last(&self) {"), Some("last"));
        assert_eq!(function_name("// a fn in a comment ("), None);
    }
}
