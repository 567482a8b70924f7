//! From the words of a command line to an expression, with the grammar of find(1):
//!
//! ```text
//! list = or { , or }        or = and { -o and }        and = not { [-a] not }
//! not  = { ! } primary      primary = ( list ) | option | test | action
//! ```

mod tests;
mod words;

use crate::expression::{Action, Expression, Part};
use crate::owners::Owners;
use crate::regex::Syntax;
use crate::test::{Test, TimeField};
use dentree_vfs::{Ino, Timestamp};
use std::ffi::{OsStr, OsString};
use std::ops::RangeInclusive;
use std::sync::Arc;
pub use words::{Words, Wrong};

/// Parentheses within each other, which the stack has to hold.
const DEEPEST: usize = 1000;

/// When symbolic links stand for what they lead to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Follow {
    /// As by `-P`.
    Never,
    /// Where they are starts: `-H`.
    Starts,
    /// `-L`.
    Always,
}

/// What a search does, besides its expression.
#[derive(Clone, Debug)]
pub struct Settings {
    /// When links are followed.
    pub follow: Follow,
    /// Levels below the start that the expression is evaluated for.
    pub depth: RangeInclusive<u32>,
    /// A directory comes after its contents.
    pub contents_first: bool,
}

/// What words mean.
pub struct Parsed<A> {
    /// Tests and actions.
    pub expression: Expression<A>,
    /// Options.
    pub settings: Settings,
}

/// What an expression is compiled for: the caller's actions and options, and the image.
pub trait Compile {
    /// What is done of a file.
    type Action: Action;
    /// Why words cannot be compiled.
    type Error: From<Wrong>;

    /// The action that `name` begins, with its arguments taken from `words`.
    fn action(&mut self, name: &str, words: &mut Words<'_>) -> Result<Option<Self::Action>, Self::Error>;

    /// Takes an option of the caller's own; false if it is none.
    fn option(&mut self, name: &str, words: &mut Words<'_>) -> Result<bool, Self::Error>;

    /// The owners in the image. Without an image only the syntax is checked.
    fn owners(&self) -> Option<Arc<Owners>>;

    /// The time of the file that a test of `-newerXY` names.
    fn time_of(&self, file: &OsStr, field: TimeField, follow: Follow) -> Result<Timestamp, Self::Error>;

    /// The inode number of the file of `-samefile`, if it is in this image.
    fn inode_of(&self, file: &OsStr, follow: Follow) -> Result<Option<Ino>, Self::Error>;
}

/// Whether the word is one of `-newerXY`.
pub fn is_newer(word: &str) -> bool {
    word.len() == "-newerXY".len() && word.starts_with("-newer")
}

/// Compiles an expression; without words it is true. Ages are counted from `now`.
pub fn parse<C: Compile>(
    words: &[OsString],
    follow: Follow,
    now: Timestamp,
    compile: &mut C,
) -> Result<Parsed<C::Action>, C::Error> {
    let settings = Settings { follow, depth: 0..=u32::MAX, contents_first: false };
    let words = Words::new(words);
    let mut parser = Parser { words, compile, settings, now, today: None, syntax: Syntax::Find, depth: 0 };
    let expression =
        if parser.words.is_empty() { Expression::all() } else { Expression::new(parser.list()?) };
    if let [word, ..] = parser.words.left() {
        return Err(Wrong::word(word, "has no '(' before it").into());
    }
    Ok(Parsed { expression, settings: parser.settings })
}

struct Parser<'w, 'c, C> {
    words: Words<'w>,
    compile: &'c mut C,
    settings: Settings,
    now: Timestamp,
    /// The end of today, where `-daystart` came before.
    today: Option<Timestamp>,
    syntax: Syntax,
    /// Open parentheses.
    depth: usize,
}

/// A part of the expression, or why there is none.
type Compiled<C> = Result<Part<<C as Compile>::Action>, <C as Compile>::Error>;

/// Makes one part of several.
type Join<A> = fn(Vec<Part<A>>) -> Part<A>;

impl<C: Compile> Parser<'_, '_, C> {
    fn list(&mut self) -> Compiled<C> {
        self.series(&[","], Self::or, Part::List)
    }

    fn or(&mut self) -> Compiled<C> {
        self.series(&["-o", "-or"], Self::and, Part::Or)
    }

    fn series(
        &mut self,
        operators: &[&'static str],
        part: fn(&mut Self) -> Compiled<C>,
        join: Join<C::Action>,
    ) -> Compiled<C> {
        let mut parts = vec![part(self)?];
        while let Some(operator) = self.words.take(operators) {
            self.needs_operand(operator)?;
            parts.push(part(self)?);
        }
        Ok(Part::joined(join, parts))
    }

    fn and(&mut self) -> Compiled<C> {
        let mut parts = vec![self.not()?];
        loop {
            match self.words.take(&["-a", "-and"]) {
                Some(operator) => self.needs_operand(operator)?,
                None if self.words.is_at(&["-o", "-or", ",", ")"]) || self.words.is_empty() => break,
                None => {}
            }
            parts.push(self.not()?);
        }
        Ok(Part::joined(Part::And, parts))
    }

    fn not(&mut self) -> Compiled<C> {
        let mut is_negated = false;
        while let Some(operator) = self.words.take(&["!", "-not"]) {
            self.needs_operand(operator)?;
            is_negated = !is_negated;
        }
        let part = self.primary()?;
        Ok(if is_negated { Part::Not(Box::new(part)) } else { part })
    }

    fn primary(&mut self) -> Compiled<C> {
        let Some(word) = self.words.next() else {
            return Err(Wrong::new("the expression ends where a test was expected").into());
        };
        let name = word.to_str().unwrap_or("");
        match name {
            "(" => return self.group(),
            ")" | "," | "-o" | "-or" | "-a" | "-and" => {
                return Err(Wrong::word(word, "has nothing before it").into());
            }
            _ => {}
        }
        if !word.as_encoded_bytes().starts_with(b"-") {
            let why = "is out of place: paths come before the expression; a pattern needs quotes";
            return Err(Wrong::word(word, why).into());
        }
        if self.option(name)? || self.compile.option(name, &mut self.words)? {
            return Ok(Part::Test(Test::Constant(true)));
        }
        if let Some(test) = self.test(name)? {
            return Ok(Part::Test(test));
        }
        if let Some(action) = self.compile.action(name, &mut self.words)? {
            return Ok(Part::Action(action));
        }
        Err(Wrong::word(word, "is no option, test or action of find").into())
    }

    fn group(&mut self) -> Compiled<C> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(Wrong::new(format!("there are more than {DEEPEST} '(' within each other")).into());
        }
        if self.words.is_at(&[")"]) {
            return Err(Wrong::new("'(' and ')' have nothing between them").into());
        }
        self.needs_operand("(")?;
        let inner = self.list()?;
        self.depth -= 1;
        self.words.take(&[")"]).ok_or_else(|| Wrong::new("'(' has no ')' after it"))?;
        Ok(inner)
    }

    /// Options stand anywhere, and are true.
    fn option(&mut self, name: &str) -> Result<bool, C::Error> {
        match name {
            "-d" | "-depth" => self.settings.contents_first = true,
            "-mindepth" => {
                self.settings.depth = self.level(name)?..=*self.settings.depth.end();
            }
            "-maxdepth" => {
                self.settings.depth = *self.settings.depth.start()..=self.level(name)?;
            }
            "-follow" => self.settings.follow = Follow::Always,
            "-daystart" => self.start_of_day(),
            "-regextype" => {
                let name = self.words.text(name)?;
                self.syntax = Syntax::parse(name).ok_or_else(|| {
                    Wrong::new(format!("'{name}' is no type of -regextype: {} are known", Syntax::NAMES))
                })?;
            }
            // An image is one file system, and nothing else changes it.
            "-mount"
            | "-xdev"
            | "-noleaf"
            | "-warn"
            | "-nowarn"
            | "-ignore_readdir_race"
            | "-noignore_readdir_race" => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn level(&mut self, name: &str) -> Result<u32, Wrong> {
        let text = self.words.text(name)?;
        let digits = Some(text).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        let level = digits.and_then(|digits| digits.parse().ok());
        level.ok_or_else(|| Wrong::new(format!("'{text}' is no number of levels for {name}")))
    }

    fn needs_operand(&self, operator: &str) -> Result<(), Wrong> {
        let ends = self.words.is_empty() || self.words.is_at(&[")"]);
        if ends { Err(Wrong::new(format!("'{operator}' has nothing after it"))) } else { Ok(()) }
    }
}
