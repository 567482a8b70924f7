//! Expressions: tests and actions joined by operators.

use super::action::Action;
use super::candidate::Candidate;
use super::sink::{Found, Sink};
use super::test::{Cost, Test};

pub(super) enum Expression {
    Test(Test),
    Action(Action),
    Not(Box<Expression>),
    /// All, in this order, until one is false.
    And(Vec<Expression>),
    /// In this order, until one is true.
    Or(Vec<Expression>),
    /// All; the last one counts.
    List(Vec<Expression>),
}

impl Expression {
    /// Joins parts by `join`, and puts cheap tests first among neighbours without actions, where
    /// the order does not show.
    pub(super) fn joined(join: fn(Vec<Expression>) -> Expression, mut parts: Vec<Expression>) -> Expression {
        if parts.len() == 1
            && let Some(only) = parts.pop()
        {
            return only;
        }
        let mut joined = join(parts);
        // The last part of a list says what it is worth.
        if let Expression::And(parts) | Expression::Or(parts) = &mut joined {
            for neighbours in parts.chunk_by_mut(|a, b| !a.acts() && !b.acts()) {
                neighbours.sort_by_key(Expression::cost);
            }
        }
        joined
    }

    /// The parts below.
    fn parts(&self) -> &[Expression] {
        match self {
            Expression::Test(_) | Expression::Action(_) => &[],
            Expression::Not(part) => std::slice::from_ref(part),
            Expression::And(parts) | Expression::Or(parts) | Expression::List(parts) => parts,
        }
    }

    fn acts(&self) -> bool {
        matches!(self, Expression::Action(_)) || self.parts().iter().any(Expression::acts)
    }

    /// The dearest part's cost.
    pub(super) fn cost(&self) -> Cost {
        match self {
            Expression::Test(test) => test.cost(),
            Expression::Action(action) => action.cost(),
            _ => self.parts().iter().map(Expression::cost).max().unwrap_or(Cost::Name),
        }
    }

    /// The test that is evaluated for every file and before anything else; where it is false, the
    /// expression is, and does nothing.
    pub(super) fn first_test(&self) -> Option<&Test> {
        match self {
            Expression::Test(test) => Some(test),
            Expression::And(parts) => parts.first()?.first_test(),
            _ => None,
        }
    }

    /// Calls `each` for every action.
    pub(super) fn each_action(&self, each: &mut dyn FnMut(&Action)) {
        if let Expression::Action(action) = self {
            each(action);
        }
        self.parts().iter().for_each(|part| part.each_action(each));
    }

    /// Whether it holds for `file`; performs its actions. `None` where the file cannot be judged,
    /// or the search ends.
    pub(super) fn evaluate(&self, file: &Candidate<'_>, found: &mut Found, sink: &Sink) -> Option<bool> {
        Some(match self {
            Expression::Test(test) => test.holds(file)?,
            Expression::Action(action) if file.peeks() => {
                return (action.cost() < Cost::Inode).then_some(true);
            }
            Expression::Action(action) => action.perform(file, found, sink)?,
            Expression::Not(part) => !part.evaluate(file, found, sink)?,
            Expression::And(parts) => {
                for part in parts {
                    if !part.evaluate(file, found, sink)? {
                        return Some(false);
                    }
                }
                true
            }
            Expression::Or(parts) => {
                for part in parts {
                    if part.evaluate(file, found, sink)? {
                        return Some(true);
                    }
                }
                false
            }
            Expression::List(parts) => {
                let mut last = true;
                for part in parts {
                    last = part.evaluate(file, found, sink)?;
                }
                last
            }
        })
    }
}
