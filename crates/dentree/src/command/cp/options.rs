//! What the options of one run come to.

use crate::args::CpArgs;
use crate::args::cp::Attribute;
use crate::ask::confirms;
use crate::command::chmod::parse_mode;
use crate::host::{OsStrExt, os_str};
use crate::image::Session;
use crate::progress::{Progress, Total};
use crate::report::Problem;
use dentree_find::ModeChange;
use dentree_vfs::Timestamp;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};

/// The attributes that are kept.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(in crate::command) struct Keep {
    pub(in crate::command) mode: bool,
    pub(in crate::command) owner: bool,
    pub(in crate::command) times: bool,
    pub(in crate::command) links: bool,
    pub(in crate::command) xattrs: bool,
    /// New files get the permissions of files that are made without a source.
    pub(in crate::command) drops_mode: bool,
}

impl Keep {
    pub(in crate::command) const ALL: Keep =
        Keep { mode: true, owner: true, times: true, links: true, xattrs: true, drops_mode: false };

    fn new(args: &CpArgs) -> Keep {
        let mut keep = if args.archive { Keep::ALL } else { Keep::default() };
        keep.links |= args.keep_links;
        let common = [Attribute::Mode, Attribute::Ownership, Attribute::Timestamps];
        let common: &[Attribute] = if args.keep_common { &common } else { &[] };
        common.iter().chain(&args.preserve).for_each(|attribute| keep.set(*attribute, true));
        args.no_preserve.iter().for_each(|attribute| keep.set(*attribute, false));
        keep.drops_mode =
            args.no_preserve.iter().any(|dropped| matches!(dropped, Attribute::Mode | Attribute::All));
        keep
    }

    fn set(&mut self, attribute: Attribute, is_kept: bool) {
        match attribute {
            Attribute::Mode => self.mode = is_kept,
            Attribute::Ownership => self.owner = is_kept,
            Attribute::Timestamps => self.times = is_kept,
            Attribute::Links => self.links = is_kept,
            Attribute::Xattr => self.xattrs = is_kept,
            Attribute::All if is_kept => *self = Keep::ALL,
            Attribute::All => *self = Keep::default(),
        }
    }

    /// Whether an extended attribute is kept; access control lists are part of the mode.
    pub(super) fn keeps_xattr(self, name: &[u8]) -> bool {
        self.xattrs || (self.mode && name.starts_with(b"system.posix_acl_"))
    }
}

pub(super) struct Options<'a> {
    pub(super) args: &'a CpArgs,
    pub(super) sources: Vec<OsString>,
    pub(super) target: &'a OsStr,
    pub(super) keep: Keep,
    pub(super) chmod: Option<ModeChange>,
}

impl<'a> Options<'a> {
    pub(super) fn new(args: &'a CpArgs) -> Result<Self, Problem> {
        let (target, sources) = match (&args.target.target_directory, args.locations.split_last()) {
            (Some(directory), _) => (directory.as_os_str(), &args.locations[..]),
            (None, Some((target, sources))) if !sources.is_empty() => (target.as_os_str(), sources),
            _ => return Err(Problem::usage("cp", "needs a SOURCE and a TARGET")),
        };
        // Names of standard output and input; `./-` is a file.
        let target = if target == "-" { OsStr::new("/dev/stdout") } else { target };
        let strip = |source: &OsString| {
            if source == "-" {
                return "/dev/stdin".into();
            }
            let bytes = source.as_bytes();
            let end = bytes.iter().rposition(|byte| *byte != b'/').map_or(1, |last| last + 1);
            let is_stripped = args.target.strip_trailing_slashes && !bytes[..end].ends_with(b":");
            if is_stripped { os_str(&bytes[..end]).into_owned() } else { source.clone() }
        };
        let chmod = args.chmod.as_deref().map(parse_mode).transpose()?;
        let sources = sources.iter().map(strip).collect();
        Ok(Options { args, sources, target, keep: Keep::new(args), chmod })
    }

    /// Options with a target and no sources.
    pub(super) fn of(args: &'a CpArgs, target: &'a OsStr) -> Self {
        Options { args, sources: Vec::new(), target, keep: Keep::new(args), chmod: None }
    }

    /// Whether a SOURCE that is a link is followed.
    pub(super) fn follows_sources(&self) -> bool {
        let args = self.args;
        let keeps = args.no_dereference || args.archive || args.keep_links || args.recursive;
        args.dereference || args.dereference_sources || !keeps
    }

    /// Whether links below a SOURCE are followed.
    pub(super) fn follows_all(&self) -> bool {
        self.args.dereference
    }

    /// Whether a pipe or device is copied as its bytes.
    pub(super) fn copies_bytes(&self, named: bool) -> bool {
        self.args.copy_contents || (named && !self.args.archive && !self.args.recursive)
    }

    /// The target must be a directory (`-t`), must not be taken as one (`-T`), or may be.
    pub(super) fn target_is_directory(&self) -> Option<bool> {
        let target = &self.args.target;
        let is_directory = target.target_directory.is_some() || target.parents;
        if is_directory { Some(true) } else { target.no_target_directory.then_some(false) }
    }

    /// Whether attributes are set on an existing file, too.
    pub(super) fn sets_attributes(&self) -> bool {
        let Keep { mode, owner, times, xattrs, .. } = self.keep;
        mode || owner || times || xattrs || self.args.chown.is_some() || self.chmod.is_some()
    }

    /// Whether an existing file `label`, last changed at `existing`, is written over by one of
    /// `new`.
    pub(super) fn overwrites(&self, existing: Timestamp, new: Timestamp, label: &str) -> bool {
        let args = self.args;
        let is_kept = args.no_clobber || (args.update && existing >= new);
        !is_kept && (!args.interactive || confirms(format_args!("overwrite '{label}'")))
    }

    /// Shows progress, unless the command tells of each file or asks.
    pub(super) fn progress(&self, session: &Session, total: Option<Total>) -> Progress {
        session.progress(total, self.args.verbose || self.args.interactive)
    }

    pub(super) fn tell(&self, from: &str, to: &str) {
        if self.args.verbose {
            // A closed output is told by the next one that matters.
            let _ = writeln!(io::stdout(), "'{from}' -> '{to}'");
        }
    }
}
