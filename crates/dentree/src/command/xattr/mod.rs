//! `dentree xattr`: lists, prints, sets and removes extended attributes; dumps are those of
//! getfattr(1).

mod text;

use crate::args::{XattrArgs, XattrCommand, XattrGet, XattrSet};
use crate::host::OsStrExt;
use crate::image::{Location, Node, SUPERUSER, Session};
use crate::output::Output;
use crate::output::escape;
use crate::report::{Problem, Stop};
use crate::tree::Tree;
use dentree_vfs::{Result, SetXattr, WalkOptions};
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use text::{Line, parse_line, parse_value, show_name, show_value};

pub(crate) fn run(session: &Session, args: &XattrArgs) -> Result<(), Stop> {
    match &args.command {
        XattrCommand::Ls(args) => {
            let mut out = Output::new();
            for (at, node) in session.walk_each(&args.locations, WalkOptions::FOLLOW) {
                match names(&at, &node) {
                    Ok(names) => {
                        for name in names {
                            writeln!(out, "{}", escape::terminal(&name))?;
                        }
                    }
                    Err(error) => session.report.problem(&at.problem(&error)),
                }
            }
            Ok(out.flush()?)
        }
        XattrCommand::Get(args) => get(session, args),
        XattrCommand::Set(args) => set(session, args),
        XattrCommand::Rm(args) => {
            let at = session.locate_for_writing(&args.location)?;
            let node = at.walk(WalkOptions::FOLLOW)?;
            for name in &args.names {
                let removed = at.image.vfs.removexattr(SUPERUSER, &node, name.as_bytes());
                if let Err(error) = removed {
                    session.report.problem(&of_attribute(&at, name.as_bytes(), &error));
                }
            }
            Ok(())
        }
    }
}

fn of_attribute(at: &Location, name: &[u8], error: &dentree_vfs::Error) -> Problem {
    at.refusal(format!("{}: {error}", escape::terminal(name)))
}

fn get(session: &Session, args: &XattrGet) -> Result<(), Stop> {
    let at = session.locate(&args.location)?;
    let node = at.walk(WalkOptions::FOLLOW)?;
    let mut out = Output::new();
    if let Some(name) = &args.name {
        let value = at.image.vfs.getxattr(&node, name.as_bytes());
        out.write_all(&value.map_err(|error| of_attribute(&at, name.as_bytes(), &error))?)?;
        return Ok(out.flush()?);
    }
    let mut failed = None;
    let mut dump_one = |node: &Node, path: &[u8]| {
        let mut shown = Vec::new();
        let done = dump(&at, node, path, &mut shown);
        if let Err(error) = out.write_all(&shown) {
            failed.get_or_insert(error);
        }
        done
    };
    if args.recursive {
        Tree::new(&at.image, &session.report).each(&node, &at.path, || false, &mut dump_one);
    } else if let Err(error) = dump_one(&node, &at.path) {
        session.report.problem(&at.problem(&error));
    }
    match failed {
        Some(error) => Err(error.into()),
        None => Ok(out.flush()?),
    }
}

/// Appends all attributes of one file, if it has any.
fn dump(at: &Location, node: &Node, path: &[u8], shown: &mut Vec<u8>) -> Result<()> {
    let names = names(at, node)?;
    if names.is_empty() {
        return Ok(());
    }
    // Relative to the root, as setfattr expects it.
    let relative = match path.strip_prefix(b"/").unwrap_or(path) {
        b"" => b".",
        relative => relative,
    };
    shown.extend_from_slice(b"# file: ");
    shown.extend(show_name(relative, b""));
    shown.push(b'\n');
    for name in names {
        let value = at.image.vfs.getxattr(node, &name)?;
        shown.extend(show_name(&name, b"="));
        shown.push(b'=');
        shown.extend_from_slice(show_value(&value).as_bytes());
        shown.push(b'\n');
    }
    shown.push(b'\n');
    Ok(())
}

fn names(at: &Location, node: &Node) -> Result<Vec<Vec<u8>>> {
    let mut names = at.image.vfs.listxattr(node)?;
    names.sort_unstable();
    Ok(names)
}

fn set(session: &Session, args: &XattrSet) -> Result<(), Stop> {
    let at = session.locate_for_writing(&args.location)?;
    if let Some(file) = &args.restore {
        return restore(session, &at, file);
    }
    let (Some(name), value) = (&args.name, args.value.as_deref().unwrap_or_default()) else { return Ok(()) };
    let value = parse_value(value.as_bytes()).ok_or_else(|| {
        let shown = escape::terminal(value.as_bytes()).into_owned();
        Problem::usage(shown, "is neither hexadecimal (0x…) nor Base64 (0s…)")
    })?;
    let node = at.walk(WalkOptions::FOLLOW)?;
    let done = at.image.vfs.setxattr(SUPERUSER, &node, name.as_bytes(), &value, SetXattr::Any);
    Ok(done.map_err(|error| of_attribute(&at, name.as_bytes(), &error))?)
}

/// Sets the attributes of a dump on files below `at`.
fn restore(session: &Session, at: &Location, file: &OsStr) -> Result<(), Stop> {
    let mut dump = Vec::new();
    let read = match file.as_bytes() {
        b"-" => io::stdin().lock().read_to_end(&mut dump),
        _ => std::fs::File::open(file).and_then(|mut file| file.read_to_end(&mut dump)),
    };
    read.map_err(|error| Problem::local(file.as_bytes(), &error))?;
    let mut of = None;
    for (number, line) in dump.split(|&byte| byte == b'\n').enumerate() {
        if session.is_interrupted() {
            break;
        }
        let source = format!("{}, line {}", escape::terminal(file.as_bytes()), number + 1);
        match (parse_line(line), &of) {
            (Some(Line::Nothing), _) => {}
            (Some(Line::File(path)), _) => {
                let path = if path == b"." { Vec::new() } else { path };
                let location = at.below(&path);
                of = Some(location.walk(WalkOptions::KEEP_LINK).map(|node| (location, node)));
                if let Some(Err(problem)) = &of {
                    session.report.problem(problem);
                }
            }
            (Some(Line::Attribute(name, value)), Some(Ok((location, node)))) => {
                if let Err(error) = location.image.vfs.setxattr(SUPERUSER, node, &name, &value, SetXattr::Any)
                {
                    session.report.problem(&of_attribute(location, &name, &error));
                }
            }
            // The missing file was reported.
            (Some(Line::Attribute(..)), Some(Err(_))) => {}
            (Some(Line::Attribute(..)), None) => {
                return Err(Problem::usage(source, "no \"# file:\" stands before the attribute").into());
            }
            (None, _) => return Err(Problem::usage(source, "is not a line of a getfattr dump").into()),
        }
    }
    Ok(())
}
