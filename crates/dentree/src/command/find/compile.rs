//! The words of `dentree find`: places, an expression of `dentree-find`, and actions.

use super::action::{Action, Line};
use super::sink::LocalFiles;
use crate::host::{self, OsStrExt};
use crate::image::{Image, Location, Node, Session};
use crate::report::{Problem, Status};
use dentree_find::{Compile, Cost, Expression, Follow, Owners, Settings, TimeField, Words, Wrong, parse};
use dentree_vfs::{Ino, Timestamp, WalkOptions};
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::Arc;

/// Words split into what comes before the starts, the starts, and the expression.
pub(super) struct Split<'w> {
    follow: Follow,
    pub(super) starts: &'w [OsString],
    expression: &'w [OsString],
}

pub(super) struct Plan {
    pub(super) expression: Expression<Action>,
    pub(super) settings: Settings,
    pub(super) deletes: bool,
    /// The file of `-files0-from`.
    pub(super) starts_from: Option<OsString>,
}

/// What an expression is compiled for.
pub(super) struct Context<'a> {
    pub(super) session: &'a Session,
    /// Without an image only the syntax is checked.
    pub(super) image: Option<&'a Arc<Image>>,
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
            b"-D" => {
                return Err(Wrong::new("-D prints what findutils does within, and means nothing here").into());
            }
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

pub(super) fn plan(split: &Split<'_>, context: Context<'_>) -> Result<Plan, Problem> {
    let owners = context.image.map(|image| Arc::new(Owners::of(&image.vfs)));
    let now = context.now;
    let mut compiler = Compiler { context, owners, prints: false, deletes: false, starts_from: None };
    let parsed = parse(split.expression, split.follow, now, &mut compiler)?;
    let (expression, mut settings) = (parsed.expression, parsed.settings);
    let Compiler { context, prints, deletes, starts_from, .. } = compiler;
    let mut prunes = false;
    expression.each_action(&mut |action| prunes |= matches!(action, Action::Prune));
    if deletes && prunes && !settings.contents_first {
        let why =
            "-delete looks into directories first, where -prune does nothing; -depth says that this is meant";
        return Err(Wrong::new(why).into());
    }
    settings.contents_first |= deletes;
    let last = match context.row {
        Some(cost) => Some(Action::Row(cost)),
        None => (!prints).then_some(Action::Print(Line::Path(b'\n'), None)),
    };
    let expression = match last {
        Some(last) => expression.and_then(last),
        None => expression,
    };
    Ok(Plan { expression, settings, deletes, starts_from })
}

/// The file of an argument. A dangling link stands for itself.
pub(super) fn walk(at: &Location, follows: bool) -> Result<Node, Problem> {
    let itself = || at.walk(WalkOptions::KEEP_LINK);
    if follows { at.walk(WalkOptions::FOLLOW).or_else(|_| itself()) } else { itself() }
}

/// An error of syntax: one line, and exit status 1 as of find(1).
impl From<Wrong> for Problem {
    fn from(wrong: Wrong) -> Self {
        Problem::new("find", Status::Failed, wrong.to_string())
    }
}

pub(super) struct Compiler<'a> {
    pub(super) context: Context<'a>,
    pub(super) owners: Option<Arc<Owners>>,
    /// An action other than -prune and -quit is there: nothing is printed by itself.
    prints: bool,
    pub(super) deletes: bool,
    starts_from: Option<OsString>,
}

impl Compile for Compiler<'_> {
    type Action = Action;
    type Error = Problem;

    fn action(&mut self, name: &str, words: &mut Words<'_>) -> Result<Option<Action>, Problem> {
        let action = self.of_words(name, words)?;
        self.prints |= action.as_ref().is_some_and(|action| !matches!(action, Action::Prune | Action::Quit));
        Ok(action)
    }

    fn option(&mut self, name: &str, words: &mut Words<'_>) -> Result<bool, Problem> {
        if name != "-files0-from" {
            return Ok(false);
        }
        self.starts_from = Some(words.argument(name)?.to_owned());
        Ok(true)
    }

    fn owners(&self) -> Option<Arc<Owners>> {
        self.owners.clone()
    }

    /// Of a file on this machine, or in an image.
    fn time_of(&self, file: &OsStr, field: TimeField, follow: Follow) -> Result<Timestamp, Problem> {
        if self.context.image.is_none() {
            return Ok(Timestamp::default());
        }
        if self.is_local(file) {
            let found = host::stat(Path::new(file), follow != Follow::Never)
                .map_err(|error| Problem::local(file.as_bytes(), &error))?;
            return Ok(field.of(&found.attr).ok_or_else(|| no_birth(file))?);
        }
        let (_, node) = self.reference(file, follow)?;
        Ok(field.of(&node.attr()).ok_or_else(|| no_birth(file))?)
    }

    fn inode_of(&self, file: &OsStr, follow: Follow) -> Result<Option<Ino>, Problem> {
        let Some(image) = self.context.image else { return Ok(None) };
        if self.is_local(file) {
            return Err(Wrong::word(file, "is no IMAGE:PATH for -samefile").into());
        }
        let (at, node) = self.reference(file, follow)?;
        Ok(Arc::ptr_eq(&at.image, image).then(|| node.ino()))
    }
}

impl Compiler<'_> {
    /// Whether the reference is a file of this machine, and no part of an image.
    fn is_local(&self, file: &OsStr) -> bool {
        !self.context.session.names_image(file)
    }

    /// A file of an image to compare with.
    fn reference(&self, file: &OsStr, follow: Follow) -> Result<(Location, Node), Problem> {
        let at = self.context.session.locate(file)?;
        let node = walk(&at, follow != Follow::Never)?;
        Ok((at, node))
    }
}

fn no_birth(file: &OsStr) -> Wrong {
    Wrong::word(file, "has no time of birth")
}
