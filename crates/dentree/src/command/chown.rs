//! `dentree chown`: owner and group, by number or by the image's own names.

use crate::args::ChownArgs;
use crate::image::{SUPERUSER, Session};
use crate::owners::OwnersByImage;
use crate::report::{Problem, Stop};
use crate::tree::Tree;
use dentree_vfs::{SetAttr, WalkOptions};

pub(crate) fn run(session: &Session, args: &ChownArgs) -> Result<(), Stop> {
    let owners = OwnersByImage::default();
    let last_link = if args.no_dereference { WalkOptions::KEEP_LINK } else { WalkOptions::FOLLOW };
    session.change_each(&args.locations, |at| {
        let vfs = &at.image.vfs;
        let owner = owners.of(&at.image).parse(&args.owner);
        let (uid, gid) = owner.map_err(|why| Problem::usage(format!("{:?}", args.owner), why))?;
        let changes = SetAttr { uid, gid, ..SetAttr::default() };
        let node = at.walk(last_link)?;
        if !args.recursive {
            return vfs.set_attr(SUPERUSER, &node, &changes).map_err(|error| at.problem(&error));
        }
        let tree = Tree::new(&at.image, &session.report);
        tree.each(&node, &at.path, || session.is_interrupted(), &mut |node, _| {
            vfs.set_attr(SUPERUSER, node, &changes)
        });
        Ok(())
    });
    Ok(())
}
