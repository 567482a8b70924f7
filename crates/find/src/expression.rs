//! Expressions: tests and actions joined by operators.

use crate::candidate::{Candidate, FoundAt, Named};
use crate::test::{Cost, Test};
use dentree_vfs::FileSystem;

/// What is done of a file, by the caller.
pub trait Action {
    /// What it reads.
    fn cost(&self) -> Cost;
}

/// An expression with actions of type `A`.
pub struct Expression<A>(Part<A>);

pub(crate) enum Part<A> {
    Test(Test),
    Action(A),
    Not(Box<Part<A>>),
    /// All, in this order, until one is false.
    And(Vec<Part<A>>),
    /// In this order, until one is true.
    Or(Vec<Part<A>>),
    /// All; the last one counts.
    List(Vec<Part<A>>),
}

impl<A: Action> Expression<A> {
    /// The one that always holds.
    pub fn all() -> Self {
        Expression(Part::Test(Test::Constant(true)))
    }

    pub(crate) fn new(root: Part<A>) -> Self {
        Expression(root)
    }

    /// This expression, and where it holds the action.
    #[must_use]
    pub fn and_then(self, action: A) -> Self {
        Expression(Part::joined(Part::And, vec![self.0, Part::Action(action)]))
    }

    /// Calls `each` for every action.
    pub fn each_action(&self, each: &mut dyn FnMut(&A)) {
        self.0.each_action(each);
    }

    /// What its dearest part reads.
    pub fn cost(&self) -> Cost {
        self.0.cost()
    }

    /// Whether the name alone leaves open what the expression is, where links are not followed.
    pub fn may_match(&self, name: &[u8]) -> bool {
        match self.0.first_test() {
            Some(Test::Name(pattern)) => pattern.is_match(name),
            _ => true,
        }
    }

    /// What name and directory entry say; `None` where they leave open what the expression does.
    pub fn peek<F: FileSystem>(&self, place: FoundAt<'_, F>, entry: Named<'_>) -> Option<bool> {
        if self.0.first_test().is_some_and(|test| test.cost() >= Cost::Inode) {
            return None;
        }
        self.evaluate(&Candidate::peeking(place, entry), &mut |_| Some(true))
    }

    /// Whether it holds for `file`; calls `act` for its actions. `None` where the file cannot be
    /// judged, or `act` ends the search.
    pub fn evaluate<F: FileSystem>(
        &self,
        file: &Candidate<'_, F>,
        act: &mut dyn FnMut(&A) -> Option<bool>,
    ) -> Option<bool> {
        self.0.evaluate(file, act)
    }
}

impl<A: Action> Part<A> {
    /// Joins parts by `join`, and puts cheap tests first among neighbours without actions, where
    /// the order does not show.
    pub(crate) fn joined(join: fn(Vec<Self>) -> Self, mut parts: Vec<Self>) -> Self {
        if parts.len() == 1
            && let Some(only) = parts.pop()
        {
            return only;
        }
        let mut joined = join(parts);
        // The last part of a list says what it is worth.
        if let Part::And(parts) | Part::Or(parts) = &mut joined {
            for neighbours in parts.chunk_by_mut(|a, b| !a.acts() && !b.acts()) {
                neighbours.sort_by_key(Part::cost);
            }
        }
        joined
    }

    /// The parts below.
    fn parts(&self) -> &[Self] {
        match self {
            Part::Test(_) | Part::Action(_) => &[],
            Part::Not(part) => std::slice::from_ref(part),
            Part::And(parts) | Part::Or(parts) | Part::List(parts) => parts,
        }
    }

    fn acts(&self) -> bool {
        matches!(self, Part::Action(_)) || self.parts().iter().any(Part::acts)
    }

    fn cost(&self) -> Cost {
        match self {
            Part::Test(test) => test.cost(),
            Part::Action(action) => action.cost(),
            _ => self.parts().iter().map(Part::cost).max().unwrap_or(Cost::Name),
        }
    }

    /// The test that is evaluated for every file and before anything else; where it is false, the
    /// expression is, and does nothing.
    fn first_test(&self) -> Option<&Test> {
        match self {
            Part::Test(test) => Some(test),
            Part::And(parts) => parts.first()?.first_test(),
            _ => None,
        }
    }

    fn each_action(&self, each: &mut dyn FnMut(&A)) {
        if let Part::Action(action) = self {
            each(action);
        }
        self.parts().iter().for_each(|part| part.each_action(each));
    }

    fn evaluate<F: FileSystem>(
        &self,
        file: &Candidate<'_, F>,
        act: &mut dyn FnMut(&A) -> Option<bool>,
    ) -> Option<bool> {
        Some(match self {
            Part::Test(test) => test.holds(file)?,
            Part::Action(action) if file.peeks() => {
                return (action.cost() < Cost::Inode).then_some(true);
            }
            Part::Action(action) => act(action)?,
            Part::Not(part) => !part.evaluate(file, act)?,
            Part::And(parts) => {
                for part in parts {
                    if !part.evaluate(file, act)? {
                        return Some(false);
                    }
                }
                true
            }
            Part::Or(parts) => {
                for part in parts {
                    if part.evaluate(file, act)? {
                        return Some(true);
                    }
                }
                false
            }
            Part::List(parts) => {
                let mut last = true;
                for part in parts {
                    last = part.evaluate(file, act)?;
                }
                last
            }
        })
    }
}
