//! `dentree xattr`: extended attributes in the form that `getfattr -d -m -` prints and `setfattr --restore` reads.

use crate::args::XattrArgs;
use crate::image::{Location, Node, Session};
use crate::output::Output;
use crate::output::escape;
use crate::report::Stop;
use dentree_vfs::{Result, WalkOptions};
use std::fmt::Write as _;
use std::io::Write;

pub(crate) fn run(session: &Session, args: &XattrArgs) -> Result<(), Stop> {
    let mut out = Output::new();
    for (at, node) in session.walk_each(&args.locations, WalkOptions::FOLLOW) {
        match attributes(&at, &node) {
            Ok(attributes) if attributes.is_empty() => {}
            Ok(attributes) => {
                writeln!(out, "# file: {}", escape::field(&at.path))?;
                for (name, value) in attributes {
                    out.write_all(escape::field(&name).as_bytes())?;
                    writeln!(out, "={}", show(&value))?;
                }
                writeln!(out)?;
            }
            Err(error) => session.report.problem(&at.image.problem(&at.path, &error)),
        }
    }
    Ok(out.flush()?)
}

/// Names and values, sorted.
fn attributes(at: &Location, node: &Node) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut names = at.image.vfs.listxattr(node)?;
    names.sort_unstable();
    names
        .into_iter()
        .map(|name| Ok((at.image.vfs.getxattr(node, &name)?, name)))
        .map(|pair| pair.map(|(value, name)| (name, value)))
        .collect()
}

/// Text in quotes; anything else in hex.
fn show(value: &[u8]) -> String {
    let text = std::str::from_utf8(value).ok().filter(|text| !text.chars().any(char::is_control));
    match text {
        Some(text) => format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")),
        None => value.iter().fold(String::from("0x"), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_quoted_and_bytes_are_hex() {
        assert_eq!(show(b"a \"b\\\""), r#""a \"b\\\"""#);
        assert_eq!(show(b"\x00\xff"), "0x00ff");
        assert_eq!(show(b""), "\"\"");
    }
}
