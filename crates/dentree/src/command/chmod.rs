//! `dentree chmod`: permissions, in the syntax of chmod(1).

use crate::args::ChmodArgs;
use crate::host::umask;
use crate::image::{Node, SUPERUSER, Session};
use crate::report::{Problem, Stop};
use crate::tree::Tree;
use dentree_find::ModeChange;
use dentree_vfs::{FileType, SetAttr, WalkOptions};

pub(crate) fn run(session: &Session, args: &ChmodArgs) -> Result<(), Stop> {
    let mode = parse_mode(&args.mode)?;
    session.change_each(&args.locations, |at| {
        let vfs = &at.image.vfs;
        let node = at.walk(WalkOptions::FOLLOW)?;
        let change = |node: &Node| {
            let attr = node.attr();
            let changes =
                SetAttr { permissions: Some(mode.of(attr.permissions, node.is_dir())), ..SetAttr::default() };
            vfs.set_attr(SUPERUSER, node, &changes)
        };
        if !args.recursive {
            return change(&node).map_err(|error| at.problem(&error));
        }
        let tree = Tree::new(&at.image, &session.report);
        tree.each(&node, &at.path, || session.is_interrupted(), &mut |node, _| match node.kind() {
            // Links have no permissions.
            FileType::Symlink => Ok(()),
            _ => change(node),
        });
        Ok(())
    });
    Ok(())
}

/// A mode as the command line has it.
pub(super) fn parse_mode(text: &str) -> Result<ModeChange, Problem> {
    ModeChange::parse(text, umask()).ok_or_else(|| {
        let message = "not a mode: 0755, or u+rwX,go-w with letters of rwxXst, or one of u, g and o";
        Problem::usage(format!("{text:?}"), message)
    })
}
