//! Colours of names by type and suffix, from `$LS_COLORS` over the defaults of ls(1).

use clap::ValueEnum;
use dentree_vfs::{Attr, FileType};
use std::collections::HashMap;

/// When to do something that is meant for a terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum When {
    #[value(aliases = ["yes", "force"])]
    Always,
    #[value(aliases = ["tty", "if-tty"])]
    Auto,
    #[value(aliases = ["no", "none"])]
    Never,
}

impl When {
    pub(crate) fn holds(self, terminal: bool) -> bool {
        self == When::Always || (self == When::Auto && terminal)
    }
}

const DEFAULTS: &str = "di=01;34:ln=01;36:pi=33:so=01;35:bd=01;33:cd=01;33:ex=01;32:su=37;41:sg=30;43:\
                        tw=30;42:ow=34;42:st=37;44";

#[derive(Debug)]
pub(crate) struct Colors {
    /// By two-letter key.
    types: HashMap<String, String>,
    /// Suffixes of names; the last match counts.
    suffixes: Vec<(Vec<u8>, String)>,
}

impl Colors {
    pub(crate) fn from_environment() -> Colors {
        Colors::parse(&std::env::var("LS_COLORS").unwrap_or_default())
    }

    fn parse(text: &str) -> Colors {
        let mut colors = Colors { types: HashMap::new(), suffixes: Vec::new() };
        let is_code = |code: &str| code.bytes().all(|byte| byte.is_ascii_digit() || byte == b';');
        for (key, code) in DEFAULTS.split(':').chain(text.split(':')).filter_map(|item| item.split_once('='))
        {
            match key.strip_prefix('*') {
                _ if !is_code(code) => {}
                Some(suffix) => colors.suffixes.push((suffix.as_bytes().to_vec(), code.to_owned())),
                None => drop(colors.types.insert(key.to_owned(), code.to_owned())),
            }
        }
        colors
    }

    /// The code for a file, `None` for plain text.
    pub(crate) fn code(&self, name: &[u8], kind: FileType, attr: Option<&Attr>) -> Option<&str> {
        let bits = attr.map_or(0, |attr| attr.permissions);
        let keys: &[(bool, &str)] = match kind {
            FileType::Directory => &[
                (bits & 0o1002 == 0o1002, "tw"),
                (bits & 0o002 != 0, "ow"),
                (bits & 0o1000 != 0, "st"),
                (true, "di"),
            ],
            FileType::Regular => {
                &[(bits & 0o4000 != 0, "su"), (bits & 0o2000 != 0, "sg"), (bits & 0o111 != 0, "ex")]
            }
            FileType::Symlink => &[(true, "ln")],
            FileType::Fifo => &[(true, "pi")],
            FileType::Socket => &[(true, "so")],
            FileType::BlockDevice => &[(true, "bd")],
            FileType::CharDevice => &[(true, "cd")],
        };
        let set = |key: &str| self.types.get(key).map(String::as_str).filter(|code| is_visible(code));
        if let Some(code) = keys.iter().filter(|(holds, _)| *holds).find_map(|(_, key)| set(key)) {
            return Some(code);
        }
        let by_suffix = || self.suffixes.iter().rev().find(|(suffix, _)| name.ends_with(suffix));
        let by_suffix = (kind == FileType::Regular).then(by_suffix).flatten();
        by_suffix.map(|(_, code)| &**code).or_else(|| set("fi").filter(|_| kind == FileType::Regular))
    }
}

fn is_visible(code: &str) -> bool {
    !matches!(code, "" | "0" | "00")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_come_before_suffixes_and_the_environment_before_defaults() {
        let colors = Colors::parse("di=01;33:*.tar=01;31:*.x=\x1b]evil:fi=0");
        let code = |name: &str, kind| colors.code(name.as_bytes(), kind, None);
        assert_eq!(code("a.tar", FileType::Regular), Some("01;31"));
        assert_eq!(code("a.tar", FileType::Directory), Some("01;33"));
        assert_eq!(code("a", FileType::Symlink), Some("01;36"));
        assert_eq!((code("a.x", FileType::Regular), code("a", FileType::Regular)), (None, None));
    }
}
