//! `-regex`: patterns of GNU's regular expressions, compiled to the regex crate's, which match in
//! linear time. So there are no back-references.

use crate::glob::{self, Brackets, Token};
use regex::bytes::{Regex, RegexBuilder};

/// A syntax of `-regextype`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Syntax {
    /// `findutils-default`.
    Find,
    /// As the default, but `.` is no newline.
    Emacs,
    Basic,
    Extended,
}

impl Syntax {
    pub(crate) const NAMES: &str =
        "findutils-default, emacs, posix-basic, ed, sed, grep, posix-extended, posix-egrep, egrep";

    pub(crate) fn parse(name: &str) -> Option<Syntax> {
        Some(match name {
            "findutils-default" => Syntax::Find,
            "emacs" => Syntax::Emacs,
            "posix-basic" | "ed" | "sed" | "grep" => Syntax::Basic,
            "posix-extended" | "posix-egrep" | "egrep" => Syntax::Extended,
            _ => return None,
        })
    }

    /// What a character means, by itself or after a backslash; `None` where it is literal.
    fn operator(self, c: char, escaped: bool) -> Option<Operator> {
        Some(match c {
            '(' | ')' | '|' if escaped == (self != Syntax::Extended) => match c {
                '(' => Operator::Open,
                ')' => Operator::Close,
                _ => Operator::Or,
            },
            '+' | '?' if escaped == (self == Syntax::Basic) => Operator::Repeat(c),
            '{' if self == Syntax::Basic && escaped || self == Syntax::Extended && !escaped => {
                Operator::Interval
            }
            '*' if !escaped => Operator::Repeat(c),
            '.' if !escaped => Operator::Any,
            '^' if !escaped => Operator::Start,
            '$' if !escaped => Operator::End,
            '1'..='9' if escaped => Operator::BackReference,
            'w' | 'W' | 's' | 'S' | 'b' | 'B' if escaped => Operator::Class(match c {
                'w' => r"\w",
                'W' => r"\W",
                's' => r"\s",
                'S' => r"\S",
                'b' => r"\b",
                _ => r"\B",
            }),
            '<' if escaped => Operator::Class(r"\b{start}"),
            '>' if escaped => Operator::Class(r"\b{end}"),
            '`' if escaped => Operator::Class(r"\A"),
            '\'' if escaped => Operator::Class(r"\z"),
            _ => return None,
        })
    }

    fn any(self) -> &'static str {
        if self == Syntax::Emacs { r"(?:[^\n]|(?-u:[\x80-\xff]))" } else { r"(?:.|(?-u:[\x80-\xff]))" }
    }
}

enum Operator {
    Open,
    Close,
    Or,
    Repeat(char),
    Interval,
    Any,
    Start,
    End,
    BackReference,
    Class(&'static str),
}

/// Compiles a pattern, anchored at both ends.
pub(crate) fn compile(pattern: &[u8], syntax: Syntax, ignore_case: bool) -> Result<Regex, String> {
    let shown = || String::from_utf8_lossy(pattern).into_owned();
    let tokens = glob::tokens(pattern);
    let mut translation =
        Translation { syntax, rest: &tokens, regex: String::new(), open: Vec::new(), atom: None };
    translation.all().map_err(|why| format!("the pattern '{}' of -regex {why}", shown()))?;
    RegexBuilder::new(&format!(r"\A(?:{})\z", translation.regex))
        .case_insensitive(ignore_case)
        .dot_matches_new_line(true)
        .build()
        .map_err(|_| format!("the pattern '{}' of -regex is too large", shown()))
}

struct Translation<'t> {
    syntax: Syntax,
    rest: &'t [Token],
    regex: String,
    /// Where the open groups begin.
    open: Vec<usize>,
    /// Where the atom before begins, which an operator repeats.
    atom: Option<usize>,
}

impl Translation<'_> {
    fn all(&mut self) -> Result<(), &'static str> {
        while let Some((&token, behind)) = self.rest.split_first() {
            self.rest = behind;
            let (token, escaped) = match (token, behind.split_first()) {
                (Token::Char('\\'), Some((&next, behind))) => {
                    self.rest = behind;
                    (next, true)
                }
                (Token::Char('\\'), None) => return Err("ends with a backslash"),
                _ => (token, false),
            };
            match token {
                Token::Char('[') if !escaped => self.set()?,
                Token::Char(c) => match self.syntax.operator(c, escaped) {
                    Some(operator) => self.operator(operator, token)?,
                    None => self.literal(token),
                },
                Token::Byte(_) => self.literal(token),
            }
        }
        if self.open.is_empty() { Ok(()) } else { Err("has a group that is not closed") }
    }

    fn literal(&mut self, token: Token) {
        self.atom = Some(self.regex.len());
        glob::literal(token, &mut self.regex);
    }

    fn push(&mut self, text: &str) {
        self.atom = Some(self.regex.len());
        self.regex.push_str(text);
    }

    fn operator(&mut self, operator: Operator, token: Token) -> Result<(), &'static str> {
        match operator {
            Operator::Open => {
                self.open.push(self.regex.len());
                self.regex.push_str("(?:");
                self.atom = None;
            }
            Operator::Close => match self.open.pop() {
                Some(start) => {
                    self.regex.push(')');
                    self.atom = Some(start);
                }
                None if self.syntax == Syntax::Extended => self.literal(token),
                None => return Err("closes a group that is not open"),
            },
            Operator::Or => {
                self.regex.push('|');
                self.atom = None;
            }
            Operator::Repeat(c) => return self.repeat(&c.to_string(), token),
            Operator::Interval => {
                let bounds = self.interval()?;
                return self.repeat(&bounds, token);
            }
            Operator::Any => self.push(self.syntax.any()),
            Operator::Start if self.syntax == Syntax::Extended || self.atom.is_none() => {
                self.regex.push_str(r"\A");
            }
            Operator::End if self.syntax == Syntax::Extended || self.is_at_end() => self.push(r"\z"),
            Operator::Start | Operator::End => self.literal(token),
            Operator::BackReference => {
                return Err("has a back-reference, which is not supported: matching takes linear time");
            }
            Operator::Class(text) => self.push(text),
        }
        Ok(())
    }

    /// Repeats the atom before. Without one the operator is literal, or wrong in extended syntax.
    fn repeat(&mut self, bounds: &str, token: Token) -> Result<(), &'static str> {
        match self.atom {
            Some(start) => {
                self.regex.insert_str(start, "(?:");
                self.regex.push(')');
                self.regex.push_str(bounds);
                self.regex.insert_str(start, "(?:");
                self.regex.push(')');
            }
            None if self.syntax == Syntax::Extended => {
                return Err("has nothing before an operator to repeat");
            }
            None => self.literal(token),
        }
        Ok(())
    }

    /// The bounds after a `{`.
    fn interval(&mut self) -> Result<String, &'static str> {
        const WRONG: &str = "has an interval other than {N}, {N,}, {,M} and {N,M}";
        let end = if self.syntax == Syntax::Basic { &['\\', '}'][..] } else { &['}'][..] };
        let mut text = String::new();
        while !self.rest.iter().take(end.len()).eq(end
            .iter()
            .map(|&c| Token::Char(c))
            .collect::<Vec<_>>()
            .iter())
        {
            match self.rest.split_first() {
                Some((Token::Char(c @ ('0'..='9' | ',')), behind)) => {
                    text.push(*c);
                    self.rest = behind;
                }
                _ => return Err(WRONG),
            }
        }
        self.rest = &self.rest[end.len()..];
        let (low, high) = text.split_once(',').unwrap_or((&text, &text));
        if high.contains(',') || text.is_empty() {
            return Err(WRONG);
        }
        let low = if low.is_empty() { "0" } else { low };
        Ok(if text.contains(',') { format!("{{{low},{high}}}") } else { format!("{{{low}}}") })
    }

    fn set(&mut self) -> Result<(), &'static str> {
        let brackets = match self.syntax {
            Syntax::Find | Syntax::Emacs => Brackets::EMACS,
            Syntax::Basic | Syntax::Extended => Brackets::POSIX,
        };
        let (class, behind) =
            glob::set(self.rest, brackets).ok_or("has a [ without its ], or a wrong set")?;
        self.rest = behind;
        self.push(&class);
        Ok(())
    }

    /// Whether a `$` ends the pattern, a group or an alternative.
    fn is_at_end(&self) -> bool {
        matches!(self.rest, [] | [Token::Char('\\'), Token::Char(')' | '|'), ..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(syntax: &str, pattern: &str, path: &str) -> bool {
        let syntax = Syntax::parse(syntax).unwrap();
        compile(pattern.as_bytes(), syntax, false).unwrap().is_match(path.as_bytes())
    }

    #[test]
    fn each_syntax_has_its_own_operators() {
        // Pattern, and which of the default, posix-basic and posix-extended match the path.
        for (pattern, path, expected) in [
            ("./a+b", "./aab", [true, false, true]),
            (r"./a\+b", "./a+b", [true, false, true]),
            (r"./a\+b", "./aab", [false, true, false]),
            (r"./a\{1,2\}b", "./aab", [false, true, false]),
            ("./a{1,2}b", "./aab", [false, false, true]),
            ("./[[:alpha:]]*", "./abc", [false, true, true]),
            ("./a[0-9]", "./a1", [true; 3]),
            (r"./\(aab\|a1\)", "./a1", [true, true, false]),
            ("./(aab|a1)", "./a1", [false, false, true]),
            ("./a?ab", "./aab", [true, false, true]),
            (r"\./a\w", "./a1", [true; 3]),
            (r"./a1\'", "./a1", [true; 3]),
            ("^./a1$", "./a1", [true; 3]),
            (r"./\<aab\>", "./aab", [true; 3]),
            ("./a**", "./aa", [true; 3]),
            ("./a*?b", "./b", [true, false, true]),
            ("./a$b", "./a$b", [true, true, false]),
            ("a", "ba", [false; 3]),
        ] {
            let found = ["findutils-default", "posix-basic", "posix-extended"]
                .map(|syntax| matches(syntax, pattern, path));
            assert_eq!(found, expected, "{pattern} {path}");
        }
        assert!(matches("findutils-default", "*a", "*a") && matches("posix-basic", "*a", "*a"));
        assert!(matches("findutils-default", "a.b", "a\nb") && !matches("emacs", "a.b", "a\nb"));
    }

    #[test]
    fn wrong_patterns_are_refused_with_a_reason() {
        for (syntax, pattern) in [
            (Syntax::Find, r"\(a"),
            (Syntax::Find, r"a\)"),
            (Syntax::Find, "[a"),
            (Syntax::Find, "a\\"),
            (Syntax::Find, r"\(a\)\1"),
            (Syntax::Extended, "*"),
            (Syntax::Extended, "a{1"),
            (Syntax::Extended, "[[:foo:]]"),
            (Syntax::Extended, "a{1000}{1000}{1000}"),
        ] {
            assert!(compile(pattern.as_bytes(), syntax, false).is_err(), "{pattern}");
        }
    }
}
