//! Names in directories that ignore case (`EXT4_CASEFOLD_FL`).
//!
//! Two names are equal there if their folded forms are: full case folding (CaseFolding.txt, status
//! C and F), canonical decomposition, default-ignorable code points removed. ext4's one encoding
//! (`s_encoding` 1) is UTF-8 of Unicode 12.1. A name that is not UTF-8, or has a code point that
//! 12.1 lacks, is invalid: it is compared and hashed as bytes, or refused by a strict file system
//! (`s_encoding_flags` bit 0).
//!
//! The tables come from crates with newer Unicode versions. They agree with 12.1, because Unicode
//! never changes the folding or decomposition of assigned code points, and later ones are refused
//! first. Linux 6.12 kept ignorable code points; versions before and after remove them.

#[cfg(feature = "casefold")]
use caseless::Caseless as _;
#[cfg(feature = "casefold")]
use regex_syntax::hir::{ClassUnicode, HirKind};
use std::borrow::Cow;
#[cfg(feature = "casefold")]
use std::sync::LazyLock;
#[cfg(feature = "casefold")]
use unicode_normalization::UnicodeNormalization as _;

/// A name that a strict file system refuses: not UTF-8, or with a code point that Unicode 12.1
/// lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the name is not valid Unicode 12.1 text in UTF-8, which this file system insists on")]
pub struct InvalidName;

/// A name prepared for many comparisons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoldedName<'a> {
    bytes: Cow<'a, [u8]>,
    valid: bool,
}

impl<'a> FoldedName<'a> {
    /// Folds `name`. A `strict` file system refuses an invalid name; others treat it as bytes.
    pub fn new(name: &'a [u8], strict: bool) -> Result<Self, InvalidName> {
        match fold(name) {
            Some(bytes) => Ok(Self { bytes, valid: true }),
            None if strict => Err(InvalidName),
            None => Ok(Self { bytes: Cow::Borrowed(name), valid: false }),
        }
    }

    /// Whether a directory entry's name is this name.
    pub fn matches(&self, entry: &[u8]) -> bool {
        match fold(entry) {
            Some(folded) => self.valid && folded == self.bytes,
            None => !self.valid && entry == &*self.bytes,
        }
    }

    /// The bytes whose hash places the name in an htree.
    pub fn hash_input(&self) -> &[u8] {
        &self.bytes
    }
}

/// The folded form of `name`; `None` if it is invalid.
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
    // Ignorable code points are removed last: until then they separate the marks on both sides.
    let folded: String = text.chars().default_case_fold().nfd().filter(|&c| !IGNORABLE.contains(c)).collect();
    Some(folded.into_bytes())
}

/// Never called: without the feature, file systems with such names are not opened.
#[cfg(not(feature = "casefold"))]
fn fold_unicode(_: &str) -> Option<Vec<u8>> {
    None
}

/// A set of code points as sorted ranges.
#[cfg(feature = "casefold")]
struct CodePoints(Vec<(char, char)>);

#[cfg(feature = "casefold")]
static ASSIGNED: LazyLock<CodePoints> = LazyLock::new(|| CodePoints::with_property(r"\p{Age=12.1}"));
/// U+180F became ignorable when Unicode 14 assigned it. Other ignorable unassigned code points were
/// so in 12.1, and ext4 removes them.
#[cfg(feature = "casefold")]
static IGNORABLE: LazyLock<CodePoints> =
    LazyLock::new(|| CodePoints::with_property(r"[\p{Default_Ignorable_Code_Point}--\x{180F}]"));

#[cfg(feature = "casefold")]
impl CodePoints {
    /// The code points of the regular expression `class`. An invalid one is the empty set; the
    /// tests check ours.
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
        // U+1FAE0, the melting face, came with Unicode 14.
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
