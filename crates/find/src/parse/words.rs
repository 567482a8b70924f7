//! Words of an expression, taken one by one.

use std::ffi::{OsStr, OsString};
use std::fmt;

/// An error of syntax: one line, in which words stand as they were given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wrong(String);

impl Wrong {
    /// What is wrong, and what would not be.
    pub fn new(message: impl Into<String>) -> Self {
        Wrong(message.into())
    }

    /// What is wrong with a word.
    pub fn word(word: &OsStr, why: &str) -> Self {
        Wrong(format!("'{}' {why}", word.display()))
    }

    /// A word that cannot be the argument of `name`.
    pub(crate) fn argument(name: &str, word: &OsStr) -> Self {
        Wrong::word(word, &format!("is no argument for {name}"))
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Wrong {}

/// The words of an expression that are left.
#[derive(Clone, Copy, Debug)]
pub struct Words<'w>(&'w [OsString]);

impl<'w> Words<'w> {
    pub(crate) fn new(words: &'w [OsString]) -> Self {
        Words(words)
    }

    /// Those that are left.
    pub fn left(&self) -> &'w [OsString] {
        self.0
    }

    /// Takes away the first `count` of them.
    pub fn skip(&mut self, count: usize) {
        self.0 = self.0.get(count..).unwrap_or_default();
    }

    /// The word after `name`.
    pub fn argument(&mut self, name: &str) -> Result<&'w OsStr, Wrong> {
        self.next().ok_or_else(|| Wrong::new(format!("{name} lacks its argument")))
    }

    /// The argument as text.
    pub(crate) fn text(&mut self, name: &str) -> Result<&'w str, Wrong> {
        let word = self.argument(name)?;
        word.to_str().ok_or_else(|| Wrong::argument(name, word))
    }

    pub(crate) fn bytes(&mut self, name: &str) -> Result<&'w [u8], Wrong> {
        Ok(self.argument(name)?.as_encoded_bytes())
    }

    pub(crate) fn next(&mut self) -> Option<&'w OsStr> {
        let (word, behind) = self.0.split_first()?;
        self.0 = behind;
        Some(word)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn is_at(&self, words: &[&str]) -> bool {
        self.0.first().is_some_and(|word| words.iter().any(|other| word == other))
    }

    /// Takes the next word if it is one of these.
    pub(crate) fn take(&mut self, words: &[&'static str]) -> Option<&'static str> {
        let found = words.iter().find(|word| self.is_at(&[word]))?;
        self.0 = &self.0[1..];
        Some(found)
    }
}
