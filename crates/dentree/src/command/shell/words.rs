//! The words of a line: blanks separate them, quotes and backslashes protect, `#` begins a comment.
//!
//! In single quotes every byte is itself; in double quotes a backslash protects `"` and `\`.

/// A word, and where it begins in the line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) at: usize,
    pub(super) text: Vec<u8>,
}

/// A line up to its end, or up to a cursor in it.
#[derive(Debug, Default)]
pub(super) struct Words {
    pub(super) words: Vec<Word>,
    /// The length of the line.
    pub(super) end: usize,
    /// The last word may go on behind the end, which a quote or nothing protects.
    pub(super) open: Option<Quote>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Quote {
    Bare,
    Single,
    Double,
}

impl Words {
    pub(super) fn of(line: &[u8]) -> Words {
        let mut all = Words { end: line.len(), ..Words::default() };
        let mut bytes = line.iter().copied().enumerate();
        while let Some((at, byte)) = bytes.next() {
            let (open, text) = match (all.open, byte) {
                (None, b' ' | b'\t' | b'\r' | b'\n') => continue,
                (None, b'#') => break,
                (None, _) => {
                    all.words.push(Word { at, text: Vec::new() });
                    (Quote::Bare, byte)
                }
                (Some(open), _) => (open, byte),
            };
            let escaped = |next: Option<(usize, u8)>| next.map(|(_, next)| next);
            let (open, add) = match (open, text) {
                (Quote::Bare, b' ' | b'\t' | b'\r' | b'\n') => (None, None),
                (Quote::Bare, b'\'') => (Some(Quote::Single), None),
                (Quote::Bare, b'"') => (Some(Quote::Double), None),
                (Quote::Bare, b'\\') => (Some(Quote::Bare), escaped(bytes.next())),
                (Quote::Single, b'\'') | (Quote::Double, b'"') => (Some(Quote::Bare), None),
                (Quote::Double, b'\\') if matches!(line.get(at + 1), Some(b'"' | b'\\')) => {
                    (Some(Quote::Double), escaped(bytes.next()))
                }
                (open, byte) => (Some(open), Some(byte)),
            };
            all.open = open;
            if let Some(last) = all.words.last_mut() {
                last.text.extend(add);
            }
        }
        all
    }

    /// Whether a quote has no end.
    pub(super) fn is_unclosed(&self) -> bool {
        matches!(self.open, Some(Quote::Single | Quote::Double))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        let words = Words::of(line.as_bytes()).words.into_iter();
        words.map(|word| String::from_utf8(word.text).unwrap()).collect()
    }

    #[test]
    fn blanks_separate_words_and_a_hash_begins_a_comment() {
        assert_eq!(words(" ls  -l\t/etc # all\n"), ["ls", "-l", "/etc"]);
        assert_eq!(words("cat a#b"), ["cat", "a#b"]);
        assert_eq!(words("# ls"), [""; 0]);
    }

    #[test]
    fn quotes_and_backslashes_protect() {
        assert_eq!(words(r#"rm 'a b' "c\"d\e" f\ g '' h'i'"j""#), ["rm", "a b", "c\"d\\e", "f g", "", "hij"]);
    }

    #[test]
    fn the_last_word_may_go_on() {
        let line = Words::of(b"get 'a b");
        assert_eq!((line.words[1].at, line.open), (4, Some(Quote::Single)));
        assert!(line.is_unclosed());
        assert_eq!(Words::of(b"get ").open, None);
        assert_eq!(Words::of(b"get a").open, Some(Quote::Bare));
    }
}
