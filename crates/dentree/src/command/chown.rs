//! `dentree chown`: owner and group, by number.

use crate::args::ChownArgs;
use crate::image::{SUPERUSER, Session};
use crate::report::{Problem, Stop};
use crate::tree::Tree;
use dentree_vfs::{SetAttr, WalkOptions};

pub(crate) fn run(session: &Session, args: &ChownArgs) -> Result<(), Stop> {
    let changes = parse(&args.owner).map_err(|why| Problem::usage(format!("{:?}", args.owner), why))?;
    let last_link = if args.no_dereference { WalkOptions::KEEP_LINK } else { WalkOptions::FOLLOW };
    session.change_each(&args.locations, |at| {
        let vfs = &at.image.vfs;
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

/// `UID`, `UID:GID`, `:GID`.
fn parse(text: &str) -> Result<SetAttr, &'static str> {
    const NAMES: &str =
        "owner and group are numbers, UID:GID; the image's /etc/passwd and /etc/group have those of names";
    // The highest number means "unchanged" in system calls.
    let number = |text: &str| text.parse().ok().filter(|number| *number != u32::MAX).ok_or(NAMES);
    let (uid, gid) = text.split_once(':').map_or((text, None), |(uid, gid)| (uid, Some(gid)));
    let uid = if uid.is_empty() && gid.is_some() { None } else { Some(number(uid)?) };
    let gid = gid.map(number).transpose()?;
    Ok(SetAttr { uid, gid, ..SetAttr::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_and_group_are_numbers_or_left_out() {
        let both = |text| parse(text).map(|changes| (changes.uid, changes.gid));
        assert_eq!(both("0"), Ok((Some(0), None)));
        assert_eq!(both("1000:100"), Ok((Some(1000), Some(100))));
        assert_eq!(both(":7"), Ok((None, Some(7))));
        for wrong in ["", ":", "5:", "root", "0:wheel", "-1", "4294967295", "1:2:3", "1.2"] {
            assert!(both(wrong).is_err(), "{wrong}");
        }
    }
}
