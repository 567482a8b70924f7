//! Patterns of fnmatch(3), compiled to regular expressions, which match in linear time.

use regex::bytes::{Regex, RegexBuilder};
use std::fmt::Write;

/// A character of a pattern, or a byte that is not UTF-8.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Token {
    Char(char),
    Byte(u8),
}

/// Compiles a pattern of `*`, `?`, `[set]`, `[!set]` and `\`-escapes, anchored at both ends.
pub fn compile(pattern: &[u8], ignore_case: bool) -> Result<Regex, String> {
    let tokens = tokens(pattern);
    let mut regex = String::from("^");
    let mut rest = &tokens[..];
    while let Some((&token, behind)) = rest.split_first() {
        rest = behind;
        match token {
            Token::Char('*') => regex.push_str("(?-u:.)*"),
            Token::Char('?') => regex.push_str(r"(?:.|(?-u:[\x80-\xff]))"),
            Token::Char('[') => match set(behind, Brackets::GLOB) {
                Some((class, behind)) => {
                    regex.push_str(&class);
                    rest = behind;
                }
                None => literal(token, &mut regex),
            },
            Token::Char('\\') => match behind.split_first() {
                Some((&escaped, behind)) => {
                    literal(escaped, &mut regex);
                    rest = behind;
                }
                None => literal(token, &mut regex),
            },
            _ => literal(token, &mut regex),
        }
    }
    regex.push('$');
    RegexBuilder::new(&regex)
        .case_insensitive(ignore_case)
        .dot_matches_new_line(true)
        .build()
        .map_err(|_| format!("cannot search for the pattern {}", String::from_utf8_lossy(pattern)))
}

pub(crate) fn tokens(pattern: &[u8]) -> Vec<Token> {
    let mut tokens = Vec::with_capacity(pattern.len());
    for chunk in pattern.utf8_chunks() {
        tokens.extend(chunk.valid().chars().map(Token::Char));
        tokens.extend(chunk.invalid().iter().map(|&byte| Token::Byte(byte)));
    }
    tokens
}

pub(crate) fn literal(token: Token, regex: &mut String) {
    let _ = match token {
        Token::Char(c) => write!(regex, r"\x{{{:x}}}", u32::from(c)),
        Token::Byte(byte) => write!(regex, r"(?-u:\x{byte:02x})"),
    };
}

/// What has a meaning of its own in a set, besides `^`, `-` and `]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Brackets {
    /// `!` is `^`, and a backslash escapes.
    glob: bool,
    /// `[:alpha:]`.
    classes: bool,
}

impl Brackets {
    pub(crate) const GLOB: Brackets = Brackets { glob: true, classes: true };
    pub(crate) const POSIX: Brackets = Brackets { glob: false, classes: true };
    pub(crate) const EMACS: Brackets = Brackets { glob: false, classes: false };
}

/// The class after a `[`, and the tokens after its `]`; `None` where that is no set.
pub(crate) fn set(tokens: &[Token], brackets: Brackets) -> Option<(String, &[Token])> {
    let mut class = String::from("[");
    let mut rest = tokens;
    match rest {
        [Token::Char('^'), behind @ ..] => {
            class.push('^');
            rest = behind;
        }
        [Token::Char('!'), behind @ ..] if brackets.glob => {
            class.push('^');
            rest = behind;
        }
        _ => {}
    }
    let first = rest;
    loop {
        match rest {
            [Token::Char(']'), behind @ ..] if rest.len() < first.len() => {
                class.push(']');
                return Some((class, behind));
            }
            [Token::Char('['), Token::Char(':'), behind @ ..] if brackets.classes => {
                let end = behind.iter().position(|&token| token == Token::Char(':'))?;
                let [Token::Char(':'), Token::Char(']'), after @ ..] = &behind[end..] else { return None };
                class.push_str(posix_class(&behind[..end])?);
                rest = after;
            }
            _ => {
                let (from, behind) = member(rest, brackets)?;
                rest = behind;
                literal(Token::Char(from), &mut class);
                if let [Token::Char('-'), after @ ..] = rest
                    && !matches!(after, [Token::Char(']'), ..])
                {
                    let (to, behind) = member(after, brackets)?;
                    if to < from {
                        return None;
                    }
                    class.push('-');
                    literal(Token::Char(to), &mut class);
                    rest = behind;
                }
            }
        }
    }
}

/// One character of a set.
fn member(tokens: &[Token], brackets: Brackets) -> Option<(char, &[Token])> {
    match tokens {
        [Token::Char('\\'), Token::Char(c), behind @ ..] if brackets.glob => Some((*c, behind)),
        [Token::Char(c), behind @ ..] => Some((*c, behind)),
        _ => None,
    }
}

fn posix_class(name: &[Token]) -> Option<&'static str> {
    const CLASSES: [&str; 12] = [
        "[:alnum:]",
        "[:alpha:]",
        "[:blank:]",
        "[:cntrl:]",
        "[:digit:]",
        "[:graph:]",
        "[:lower:]",
        "[:print:]",
        "[:punct:]",
        "[:space:]",
        "[:upper:]",
        "[:xdigit:]",
    ];
    let name: String = name.iter().map(|&token| if let Token::Char(c) = token { c } else { '\0' }).collect();
    CLASSES.into_iter().find(|class| class[2..class.len() - 2] == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, name: &[u8]) -> bool {
        compile(pattern.as_bytes(), false).unwrap().is_match(name)
    }

    #[test]
    fn a_star_matches_any_run_also_dots_and_bytes_that_are_no_text() {
        assert!(matches("*", b".hidden"));
        assert!(matches("a*z", b"a\xff\n\xfez"));
        assert!(matches("*.c", b".c"));
        assert!(!matches("*.c", b"a.c2"));
        assert!(!matches("a", b"xa"));
    }

    #[test]
    fn a_question_mark_matches_one_character_or_stray_byte() {
        assert!(matches("?", "é".as_bytes()));
        assert!(matches("?", b"\xff"));
        assert!(matches("??", b"\xe9x"));
        assert!(!matches("?", b"ab"));
        assert!(!matches("?", b""));
    }

    #[test]
    fn sets_are_those_of_fnmatch() {
        assert!(matches("[abc]", b"b"));
        assert!(matches("[!abc]", b"d"));
        assert!(matches("[^a-c]x", b"dx"));
        assert!(!matches("[!a-c]", b"b"));
        assert!(matches("[]a]", b"]"));
        assert!(matches("[a-]", b"-"));
        assert!(matches("[[:digit:]x]", b"7"));
        assert!(matches(r"[\]]", b"]"));
    }

    #[test]
    fn an_incomplete_set_is_literal() {
        assert!(matches("[", b"["));
        assert!(matches("a[b", b"a[b"));
        assert!(matches("[z-a]", b"[z-a]"));
    }

    #[test]
    fn escaped_and_regex_characters_mean_themselves() {
        assert!(matches(r"\*", b"*"));
        assert!(!matches(r"\*", b"x"));
        assert!(matches("a.b+(c){d}|$", b"a.b+(c){d}|$"));
        assert!(matches("\\", b"\\"));
    }

    #[test]
    fn case_can_be_ignored() {
        let regex = compile("*.JpÉ".as_bytes(), true).unwrap();
        assert!(regex.is_match("x.jPé".as_bytes()));
    }

    #[test]
    fn many_stars_do_not_take_exponential_time() {
        let pattern = "*a".repeat(30) + "b";
        assert!(!matches(&pattern, &[b'a'; 255]));
    }
}
