//! A file that an action is done of: what its expression was evaluated for, and how it is shown.

use crate::report::{Problem, Status};
use crate::tree::Tree;
use dentree_ext4::Ext4;
use std::borrow::Cow;
use std::ops::Deref;

pub(super) struct Candidate<'a> {
    pub(super) file: &'a dentree_find::Candidate<'a, Ext4>,
    pub(super) tree: &'a Tree<'a>,
    /// What is shown before paths: the image, where there are several.
    pub(super) prefix: &'a [u8],
}

/// An action asks what a test does.
impl<'a> Deref for Candidate<'a> {
    type Target = dentree_find::Candidate<'a, Ext4>;

    fn deref(&self) -> &Self::Target {
        self.file
    }
}

impl Candidate<'_> {
    /// Appends the path as it is shown.
    pub(super) fn push_shown(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.prefix);
        self.push_path(out);
    }

    /// The path as it is shown.
    pub(super) fn shown(&self) -> Cow<'_, [u8]> {
        match self.prefix {
            b"" => Cow::Borrowed(self.path()),
            prefix => Cow::Owned([prefix, self.path()].concat()),
        }
    }

    pub(super) fn refusal(&self, message: impl Into<String>) {
        let at = self.tree.image.at(self.path());
        self.tree.report.problem(&Problem::new(at, Status::Failed, message));
    }
}
