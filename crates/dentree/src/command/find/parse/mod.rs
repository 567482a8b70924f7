//! From the words of a command line to an expression, with the grammar of find(1):
//!
//! ```text
//! list = or { , or }        or = and { -o and }        and = not { [-a] not }
//! not  = { ! } primary      primary = ( list ) | option | test | action
//! ```

mod actions;
mod tests;

use super::action::{Action, Line};
use super::expression::Expression;
use super::regex::Syntax;
use super::sink::LocalFiles;
use super::test::{Cost, Test};
use super::words::is_newer;
use crate::image::{Image, Location, Node, Session};
use crate::output::escape;
use crate::owners::Owners;
use crate::report::{Problem, Status};
use dentree_vfs::{Timestamp, WalkOptions};
use std::ffi::{OsStr, OsString};
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// Parentheses within each other, which the stack has to hold.
const DEEPEST: usize = 1000;

/// When symbolic links stand for what they lead to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Follow {
    Never,
    /// Where they are starts: `-H`.
    Starts,
    /// `-L`.
    Always,
}

/// Words split into what comes before the starts, the starts, and the expression.
pub(super) struct Split<'w> {
    follow: Follow,
    pub(super) starts: &'w [OsString],
    expression: &'w [OsString],
}

/// What a search does, besides its expression.
pub(super) struct Settings {
    pub(super) follow: Follow,
    pub(super) depth: RangeInclusive<u32>,
    /// A directory comes after its contents.
    pub(super) contents_first: bool,
    pub(super) deletes: bool,
    /// The file of `-files0-from`.
    pub(super) starts_from: Option<OsString>,
}

pub(super) struct Plan {
    pub(super) expression: Expression,
    pub(super) settings: Settings,
}

/// What an expression is compiled for.
pub(super) struct Context<'a> {
    pub(super) session: &'a Session,
    /// Without an image only the syntax is checked.
    pub(super) image: Option<&'a Arc<Image>>,
    pub(super) owners: Arc<Owners>,
    pub(super) now: Timestamp,
    pub(super) files: &'a mut LocalFiles,
    /// What a row costs, where a table is written.
    pub(super) row: Option<Cost>,
}

pub(super) fn split(words: &[OsString]) -> Result<Split<'_>, Problem> {
    let mut follow = Follow::Never;
    let mut rest = words;
    while let Some((word, behind)) = rest.split_first() {
        match word.as_bytes() {
            b"-P" => follow = Follow::Never,
            b"-H" => follow = Follow::Starts,
            b"-L" => follow = Follow::Always,
            [b'-', b'O', ..] => {}
            b"-D" => return Err(wrong("-D prints what findutils does within, and means nothing here")),
            b"--" => {
                rest = behind;
                break;
            }
            _ => break,
        }
        rest = behind;
    }
    let begins = |word: &OsString| matches!(word.as_bytes(), [b'-', _, ..] | b"(" | b"!");
    let starts = rest.iter().position(begins).unwrap_or(rest.len());
    let (starts, expression) = rest.split_at(starts);
    Ok(Split { follow, starts, expression })
}

pub(super) fn parse(split: &Split<'_>, context: Context<'_>) -> Result<Plan, Problem> {
    let settings = Settings {
        follow: split.follow,
        depth: 0..=u32::MAX,
        contents_first: false,
        deletes: false,
        starts_from: None,
    };
    let mut parser = Parser {
        rest: split.expression,
        context,
        settings,
        today: None,
        syntax: Syntax::Find,
        depth: 0,
        prints: false,
        prunes: false,
        asks_depth: false,
    };
    let expression = match parser.rest {
        [] => Expression::Test(Test::Constant(true)),
        _ => parser.list()?,
    };
    if let [word, ..] = parser.rest {
        return Err(wrong(format!("'{}' has no '(' before it", shown(word))));
    }
    if parser.settings.deletes && parser.prunes && !parser.asks_depth {
        let why =
            "-delete looks into directories first, where -prune does nothing; -depth says that this is meant";
        return Err(wrong(why));
    }
    let last = match parser.context.row {
        Some(cost) => Some(Action::Row(cost)),
        None => (!parser.prints).then_some(Action::Print(Line::Path(b'\n'), None)),
    };
    let expression = match last {
        Some(last) => Expression::joined(Expression::And, vec![expression, Expression::Action(last)]),
        None => expression,
    };
    Ok(Plan { expression, settings: parser.settings })
}

/// The file of an argument. A dangling link stands for itself.
pub(super) fn walk(at: &Location, follows: bool) -> Result<Node, Problem> {
    let itself = || at.walk(WalkOptions::KEEP_LINK);
    if follows { at.walk(WalkOptions::FOLLOW).or_else(|_| itself()) } else { itself() }
}

/// An error of syntax: one line, and exit status 1 as of find(1).
fn wrong(message: impl Into<String>) -> Problem {
    Problem::new("find", Status::Failed, message)
}

fn shown(word: &OsStr) -> String {
    escape::terminal(word.as_bytes()).into_owned()
}

struct Parser<'w, 'c> {
    rest: &'w [OsString],
    context: Context<'c>,
    settings: Settings,
    /// The end of today, where `-daystart` came before.
    today: Option<Timestamp>,
    syntax: Syntax,
    /// Open parentheses.
    depth: usize,
    /// An action other than -prune and -quit is there: nothing is printed by itself.
    prints: bool,
    prunes: bool,
    asks_depth: bool,
}

impl<'w> Parser<'w, '_> {
    fn list(&mut self) -> Result<Expression, Problem> {
        self.series(&[","], Self::or, Expression::List)
    }

    fn or(&mut self) -> Result<Expression, Problem> {
        self.series(&["-o", "-or"], Self::and, Expression::Or)
    }

    fn series(
        &mut self,
        operators: &[&'static str],
        part: fn(&mut Self) -> Result<Expression, Problem>,
        join: fn(Vec<Expression>) -> Expression,
    ) -> Result<Expression, Problem> {
        let mut parts = vec![part(self)?];
        while let Some(operator) = self.take(operators) {
            self.needs_operand(operator)?;
            parts.push(part(self)?);
        }
        Ok(Expression::joined(join, parts))
    }

    fn and(&mut self) -> Result<Expression, Problem> {
        let mut parts = vec![self.not()?];
        loop {
            match self.take(&["-a", "-and"]) {
                Some(operator) => self.needs_operand(operator)?,
                None if self.is_at(&["-o", "-or", ",", ")"]) || self.rest.is_empty() => break,
                None => {}
            }
            parts.push(self.not()?);
        }
        Ok(Expression::joined(Expression::And, parts))
    }

    fn not(&mut self) -> Result<Expression, Problem> {
        let mut is_negated = false;
        while let Some(operator) = self.take(&["!", "-not"]) {
            self.needs_operand(operator)?;
            is_negated = !is_negated;
        }
        let part = self.primary()?;
        Ok(if is_negated { Expression::Not(Box::new(part)) } else { part })
    }

    fn primary(&mut self) -> Result<Expression, Problem> {
        let Some((word, behind)) = self.rest.split_first() else {
            return Err(wrong("the expression ends where a test was expected"));
        };
        self.rest = behind;
        let name = word.to_str().unwrap_or("");
        match name {
            "(" => return self.group(),
            ")" | "," | "-o" | "-or" | "-a" | "-and" => {
                return Err(wrong(format!("'{name}' has nothing before it")));
            }
            _ => {}
        }
        if !word.as_bytes().starts_with(b"-") {
            let why = "paths come before the expression; a pattern needs quotes";
            return Err(wrong(format!("'{}' is out of place: {why}", shown(word))));
        }
        if let Some(test) = self.option(name)? {
            return Ok(Expression::Test(Test::Constant(test)));
        }
        if let Some(test) = self.test(name)? {
            return Ok(Expression::Test(test));
        }
        if let Some(action) = self.action(name)? {
            self.prints |= !matches!(action, Action::Prune | Action::Quit);
            self.prunes |= matches!(action, Action::Prune);
            return Ok(Expression::Action(action));
        }
        Err(wrong(format!("'{}' is no option, test or action of find", shown(word))))
    }

    fn group(&mut self) -> Result<Expression, Problem> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(wrong(format!("there are more than {DEEPEST} '(' within each other")));
        }
        if self.is_at(&[")"]) {
            return Err(wrong("'(' and ')' have nothing between them"));
        }
        self.needs_operand("(")?;
        let inner = self.list()?;
        self.depth -= 1;
        self.take(&[")"]).ok_or_else(|| wrong("'(' has no ')' after it"))?;
        Ok(inner)
    }

    /// Options stand anywhere, and are true.
    fn option(&mut self, name: &str) -> Result<Option<bool>, Problem> {
        match name {
            "-d" | "-depth" => {
                self.settings.contents_first = true;
                self.asks_depth = true;
            }
            "-mindepth" => {
                self.settings.depth = self.level(name)?..=*self.settings.depth.end();
            }
            "-maxdepth" => {
                self.settings.depth = *self.settings.depth.start()..=self.level(name)?;
            }
            "-follow" => self.settings.follow = Follow::Always,
            "-daystart" => self.start_of_day(),
            "-regextype" => {
                let name = self.text(name)?;
                self.syntax = Syntax::parse(name).ok_or_else(|| {
                    wrong(format!("'{name}' is no type of -regextype: {} are known", Syntax::NAMES))
                })?;
            }
            "-files0-from" => self.settings.starts_from = Some(self.argument(name)?.to_owned()),
            // An image is one file system, and nothing else changes it.
            "-mount"
            | "-xdev"
            | "-noleaf"
            | "-warn"
            | "-nowarn"
            | "-ignore_readdir_race"
            | "-noignore_readdir_race" => {}
            _ => return Ok(None),
        }
        Ok(Some(true))
    }

    fn level(&mut self, name: &str) -> Result<u32, Problem> {
        let text = self.text(name)?;
        let digits = Some(text).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        let level = digits.and_then(|digits| digits.parse().ok());
        level.ok_or_else(|| wrong(format!("'{text}' is no number of levels for {name}")))
    }

    /// The word after `name`.
    fn argument(&mut self, name: &str) -> Result<&'w OsStr, Problem> {
        let (word, behind) =
            self.rest.split_first().ok_or_else(|| wrong(format!("{name} lacks its argument")))?;
        self.rest = behind;
        Ok(word)
    }

    /// The argument as text.
    fn text(&mut self, name: &str) -> Result<&'w str, Problem> {
        let word = self.argument(name)?;
        word.to_str().ok_or_else(|| self.invalid(name, word))
    }

    fn invalid(&self, name: &str, word: &OsStr) -> Problem {
        wrong(format!("'{}' is no argument for {name}", shown(word)))
    }

    fn needs_operand(&self, operator: &str) -> Result<(), Problem> {
        let ends = self.rest.is_empty() || self.is_at(&[")"]);
        if ends { Err(wrong(format!("'{operator}' has nothing after it"))) } else { Ok(()) }
    }

    fn is_at(&self, words: &[&str]) -> bool {
        self.rest.first().is_some_and(|word| words.iter().any(|other| word == other))
    }

    /// Takes the next word if it is one of these.
    fn take(&mut self, words: &[&'static str]) -> Option<&'static str> {
        let found = words.iter().find(|word| self.is_at(&[word]))?;
        self.rest = &self.rest[1..];
        Some(found)
    }
}
