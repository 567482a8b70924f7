//! Names in case-insensitive directories (`EXT4_CASEFOLD_FL`).
//!
//! Names are equal if their folded forms are: full case folding (CaseFolding.txt, status C and F),
//! canonical decomposition, without default-ignorable code points. The encoding is UTF-8 of Unicode
//! 12.1 (`s_encoding` 1). An invalid name is compared and hashed as bytes; strict file systems
//! (`s_encoding_flags` bit 0) refuse it.
//!
//! The tables are of newer Unicode versions. They agree with 12.1, because Unicode does not change
//! foldings and decompositions, and newer code points are refused first. Linux 6.12 kept ignorable
//! code points; other versions remove them.

#[cfg(feature = "casefold")]
use caseless::Caseless as _;
#[cfg(feature = "casefold")]
use regex_syntax::hir::{ClassUnicode, HirKind};
use std::borrow::Cow;
#[cfg(feature = "casefold")]
use std::sync::LazyLock;
#[cfg(feature = "casefold")]
use unicode_normalization::UnicodeNormalization as _;

/// A name that is not UTF-8 or has a code point that Unicode 12.1 lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the name is not valid UTF-8 of Unicode 12.1, which this file system requires")]
pub struct InvalidName;

/// A name to compare with many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoldedName<'a> {
    bytes: Cow<'a, [u8]>,
    valid: bool,
}

impl<'a> FoldedName<'a> {
    /// Folds `name`. Fails for an invalid name if `strict`.
    pub fn new(name: &'a [u8], strict: bool) -> Result<Self, InvalidName> {
        match fold(name) {
            Some(bytes) => Ok(Self { bytes, valid: true }),
            None if strict => Err(InvalidName),
            None => Ok(Self { bytes: Cow::Borrowed(name), valid: false }),
        }
    }

    /// Whether an entry's name equals this one.
    pub fn matches(&self, entry: &[u8]) -> bool {
        match fold(entry) {
            Some(folded) => self.valid && folded == self.bytes,
            None => !self.valid && entry == &*self.bytes,
        }
    }

    /// The input of the directory hash.
    pub fn hash_input(&self) -> &[u8] {
        &self.bytes
    }
}

/// `None`: invalid.
fn fold(name: &[u8]) -> Option<Cow<'_, [u8]>> {
    if name.is_ascii() {
        return Some(if name.iter().any(u8::is_ascii_uppercase) {
            Cow::Owned(name.to_ascii_lowercase())
        } else {
            Cow::Borrowed(name)
        });
    }
    fold_unicode(std::str::from_utf8(name).ok()?).map(Cow::Owned)
}

#[cfg(feature = "casefold")]
fn fold_unicode(text: &str) -> Option<Vec<u8>> {
    if !text.chars().all(|c| ASSIGNED.contains(c) || IGNORABLE.contains(c)) {
        return None;
    }
    // Last: until then they separate combining marks.
    let folded: String = text.chars().default_case_fold().nfd().filter(|&c| !IGNORABLE.contains(c)).collect();
    Some(folded.into_bytes())
}

/// Not called: such file systems are not opened.
#[cfg(not(feature = "casefold"))]
fn fold_unicode(_: &str) -> Option<Vec<u8>> {
    None
}

/// Sorted ranges.
#[cfg(feature = "casefold")]
struct CodePoints(Vec<(char, char)>);

#[cfg(feature = "casefold")]
static ASSIGNED: LazyLock<CodePoints> = LazyLock::new(|| CodePoints::with_property(r"\p{Age=12.1}"));
/// U+180F is ignorable only since Unicode 14 assigned it.
#[cfg(feature = "casefold")]
static IGNORABLE: LazyLock<CodePoints> =
    LazyLock::new(|| CodePoints::with_property(r"[\p{Default_Ignorable_Code_Point}--\x{180F}]"));

#[cfg(feature = "casefold")]
impl CodePoints {
    /// A regular expression's code points. An invalid one gives none; the tests check ours.
    fn with_property(class: &str) -> Self {
        let parsed = regex_syntax::parse(class).ok().map(regex_syntax::hir::Hir::into_kind);
        let class = match parsed {
            Some(HirKind::Class(regex_syntax::hir::Class::Unicode(class))) => class,
            _ => ClassUnicode::empty(),
        };
        Self(class.ranges().iter().map(|range| (range.start(), range.end())).collect())
    }

    fn contains(&self, c: char) -> bool {
        let after = self.0.partition_point(|&(first, _)| first <= c);
        after > 0 && self.0[after - 1].1 >= c
    }
}

#[cfg(all(test, feature = "casefold"))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn same(a: &str, b: &str) -> bool {
        FoldedName::new(a.as_bytes(), true).unwrap().matches(b.as_bytes())
    }

    #[test]
    fn names_that_differ_in_case_encoding_or_ignorables_are_equal() {
        assert!(same("README", "readme"));
        assert!(same("Straße", "STRASSE"));
        assert!(same("\u{e9}", "E\u{301}"));
        assert!(same("\u{212b}", "a\u{30a}"));
        assert!(same("\u{1f88}", "\u{1f00}\u{3b9}"));
        assert!(same("soft\u{ad}hyphen\u{200d}", "softhyphen"));
        assert!(same("\u{ac00}", "\u{1100}\u{1161}"));
        assert!(!same("e", "\u{e9}"));
        assert!(!same("\u{131}", "i"));
    }

    #[test]
    fn names_unknown_to_unicode_12_1_are_bytes_or_refused() {
        // U+1FAE0 is of Unicode 14.
        for name in [&b"caf\xe9"[..], b"\xed\xa0\x80", "\u{1fae0}".as_bytes()] {
            assert_eq!(FoldedName::new(name, true), Err(InvalidName));
            let folded = FoldedName::new(name, false).unwrap();
            assert_eq!(folded.hash_input(), name);
            assert!(folded.matches(name));
            assert!(!folded.matches(b"cafe"));
        }
        assert!(!FoldedName::new(b"CAF\xe9", false).unwrap().matches(b"caf\xe9"));
        assert!(!FoldedName::new(b"cafe", false).unwrap().matches(b"caf\xe9"));
    }

    #[test]
    fn the_code_point_tables_exist() {
        assert!(ASSIGNED.contains('\u{1fa95}'), "the banjo came with Unicode 12.0");
        assert!(ASSIGNED.contains('\u{32ff}'), "the Reiwa sign came with Unicode 12.1");
        assert!(!ASSIGNED.contains('\u{1fad6}'), "the teapot came with Unicode 13");
        assert!(IGNORABLE.contains('\u{200b}'));
        assert!(!IGNORABLE.contains('a'));
    }

    proptest! {
        #[test]
        fn any_two_byte_strings_compare_symmetrically(
            a in proptest::collection::vec(any::<u8>(), 0..64),
            b in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            let there = FoldedName::new(&a, false).unwrap();
            let back = FoldedName::new(&b, false).unwrap();
            prop_assert_eq!(there.matches(&b), back.matches(&a));
            prop_assert!(there.matches(&a));
        }

        #[test]
        fn folding_a_folded_name_changes_nothing(name in any::<String>()) {
            if let Ok(once) = FoldedName::new(name.as_bytes(), true) {
                let twice = FoldedName::new(once.hash_input(), true).unwrap();
                prop_assert_eq!(once.hash_input(), twice.hash_input());
                prop_assert!(once.matches(name.as_bytes()));
            }
        }
    }
}
