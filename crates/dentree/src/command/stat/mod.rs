//! `dentree stat`: the attributes of inodes.

mod format;

use crate::args::StatArgs;
use crate::host::OsStrExt;
use crate::image::{Location, Node, Session};
use crate::listed;
use crate::output::attributes::{Clock, kind, mode};
use crate::output::quote::Quoting;
use crate::output::{Output, json};
use crate::owners::OwnersByImage;
use crate::report::Stop;
use dentree_find::Owners;
use dentree_vfs::{Attr, FileType, FsStat, Timestamp, WalkOptions};
use format::{Format, Sequence, Value};
use std::io::{self, Write};

const TERSE: &[u8] = b"%n %s %b %f %u %g %D %i %h %t %T %X %Y %Z %W %o";
const FS_TERSE: &[u8] = b"%n %i %l %t %s %S %b %f %a %c %d";
const FS_LONG: &[u8] = b"  File: \"%n\"\n    ID: %-8i Namelen: %-7l Type: %T\n\
Block size: %-10s Fundamental block size: %S\nBlocks: Total: %-10b Free: %-10f Available: %a\n\
Inodes: Total: %-10c Free: %d";

pub(crate) fn run(session: &Session, args: &StatArgs) -> Result<(), Stop> {
    let mut out = Output::new();
    let clock = Clock::local();
    let read = OwnersByImage::default();
    let format = format(args);
    let options = if args.dereference { WalkOptions::FOLLOW } else { WalkOptions::KEEP_LINK };
    listed::walk(session, &args.locations, &args.listed, options, |at, node| {
        let target = target(session, &at, &node);
        let path = [at.prefix(), at.path.clone()].concat();
        if args.json {
            return Ok(json::line(&mut out, &json::File::new(&path, &node.attr(), target.as_deref()))?);
        }
        let owners = read.of(&at.image);
        let (clock, target) = (&clock, target.as_deref());
        let file = Described { path: &path, at: &at, node: &node, clock, target, owners: &owners };
        match &format {
            Some(format) if args.file_system => match at.image.vfs.statfs() {
                Ok(found) => format.write(&mut out, |sequence| of_file_system(&path, &found, sequence))?,
                Err(error) => session.report.problem(&at.problem(&error)),
            },
            Some(format) => format.write(&mut out, |sequence| file.value(sequence))?,
            None => describe(&mut out, &file)?,
        }
        Ok(())
    })?;
    Ok(out.flush()?)
}

/// The format that the options come to; `None` is the description.
fn format(args: &StatArgs) -> Option<Format> {
    match (&args.format, &args.printf) {
        (Some(format), _) => Some(Format::parse(format.as_bytes(), false)),
        (_, Some(format)) => Some(Format::parse(format.as_bytes(), true)),
        _ if args.file_system => Some(Format::parse(if args.terse { FS_TERSE } else { FS_LONG }, false)),
        _ => args.terse.then(|| Format::parse(TERSE, false)),
    }
}

/// A file, and what is needed to show it.
struct Described<'a> {
    path: &'a [u8],
    at: &'a Location,
    node: &'a Node,
    clock: &'a Clock,
    target: Option<&'a [u8]>,
    owners: &'a Owners,
}

impl Described<'_> {
    fn value(&self, sequence: Sequence) -> Option<Value> {
        use Value::{Decimal, Hex, Octal, Seconds, Text};
        let attr = self.node.attr();
        let (major, minor) = (attr.rdev_major, attr.rdev_minor);
        let unknown = || "UNKNOWN".to_owned();
        let text = |text: String| Some(Text(text.into_bytes()));
        let name = |name: Option<&str>| text(name.map_or_else(unknown, str::to_owned));
        let seconds = |time: Timestamp| Some(Seconds(time.seconds, time.nanos));
        match (sequence.part, sequence.letter) {
            (None, b'a') => Some(Octal(attr.permissions.into())),
            (None, b'A') => text(mode(&Attr { has_acl: false, ..attr })),
            (None, b'b') => Some(Decimal(attr.blocks)),
            (None, b'B') => Some(Decimal(512)),
            (None, b'C') => Some(Text(self.context())),
            // An image is no device.
            (_, b'd') => Some(Decimal(0)),
            (None, b'D') => Some(Hex(0)),
            (None, b'f') => Some(Hex(attr.mode().into())),
            (None, b'F') => text(file_type(&attr).to_owned()),
            (None, b'g') => Some(Decimal(attr.gid.into())),
            (None, b'G') => name(self.owners.group(attr.gid)),
            (None, b'h') => Some(Decimal(attr.nlink.into())),
            (None, b'i') => Some(Decimal(attr.ino.0)),
            (None, b'm') => text("/".to_owned()),
            (None, b'n') => Some(Text(self.path.to_vec())),
            (None, b'N') => Some(Text(self.quoted())),
            (None, b'o') => Some(Decimal(attr.block_size.into())),
            (None, b's') => Some(Decimal(attr.size)),
            (None, b'r') => Some(Decimal(device_number(major, minor))),
            (None, b'R') => Some(Hex(device_number(major, minor))),
            (Some(b'H'), b'r') => Some(Decimal(major.into())),
            (Some(_), b'r') => Some(Decimal(minor.into())),
            (None, b't') => Some(Hex(major.into())),
            (None, b'T') => Some(Hex(minor.into())),
            (None, b'u') => Some(Decimal(attr.uid.into())),
            (None, b'U') => name(self.owners.user(attr.uid)),
            (None, b'w') => text(attr.crtime.map_or("-".to_owned(), |time| self.clock.exact(time))),
            (None, b'W') => seconds(attr.crtime.unwrap_or_default()),
            (None, b'x') => text(self.clock.exact(attr.atime)),
            (None, b'X') => seconds(attr.atime),
            (None, b'y') => text(self.clock.exact(attr.mtime)),
            (None, b'Y') => seconds(attr.mtime),
            (None, b'z') => text(self.clock.exact(attr.ctime)),
            (None, b'Z') => seconds(attr.ctime),
            _ => None,
        }
    }

    fn quoted(&self) -> Vec<u8> {
        let mut text = Quoting::ShellEscapeAlways.quote(self.path).into_owned();
        if let Some(target) = self.target {
            text.extend_from_slice(b" -> ");
            text.extend_from_slice(&Quoting::ShellEscapeAlways.quote(target));
        }
        text
    }

    fn context(&self) -> Vec<u8> {
        let mut context = self.at.image.vfs.getxattr(self.node, b"security.selinux").unwrap_or(b"?".to_vec());
        context.pop_if(|last| *last == 0);
        context
    }
}

/// Linux's number of a device, on every host.
fn device_number(major: u32, minor: u32) -> u64 {
    let (major, minor) = (u64::from(major), u64::from(minor));
    (major & !0xfff) << 32 | (minor & !0xff) << 12 | (major & 0xfff) << 8 | minor & 0xff
}

/// The type in the words of stat(1).
fn file_type(attr: &Attr) -> &'static str {
    match attr.kind {
        FileType::Regular if attr.size == 0 => "regular empty file",
        FileType::CharDevice => "character special file",
        FileType::BlockDevice => "block special file",
        other => kind(other),
    }
}

fn of_file_system(path: &[u8], found: &FsStat, sequence: Sequence) -> Option<Value> {
    Some(match sequence.letter {
        b'n' => Value::Text(path.to_vec()),
        // The first of its two words is the lower one.
        b'i' => Value::Hex(found.fsid.rotate_left(32)),
        b'l' => Value::Decimal(found.name_max.into()),
        // The type's number and name for all of ext2, ext3 and ext4.
        b't' => Value::Hex(0xef53),
        b'T' => Value::Text(b"ext2/ext3".to_vec()),
        b's' | b'S' => Value::Decimal(found.block_size.into()),
        b'b' => Value::Decimal(found.blocks),
        b'f' => Value::Decimal(found.blocks_free),
        b'a' => Value::Decimal(found.blocks_available),
        b'c' => Value::Decimal(found.inodes),
        b'd' => Value::Decimal(found.inodes_free),
        _ => return None,
    })
}

fn target(session: &Session, at: &Location, node: &Node) -> Option<Vec<u8>> {
    if node.attr().kind != FileType::Symlink {
        return None;
    }
    match at.image.vfs.readlink(node) {
        Ok(target) => Some(target),
        Err(error) => {
            session.report.problem(&at.image.problem(&at.path, &error));
            None
        }
    }
}

fn describe(out: &mut Output, file: &Described<'_>) -> io::Result<()> {
    let Described { path, node, clock, target, owners, .. } = *file;
    let attr = node.attr();
    let names = out.names();
    out.write_all(b"  File: ")?;
    out.write_all(&names.show(path))?;
    if let Some(target) = target {
        out.write_all(b" -> ")?;
        out.write_all(&names.show(target))?;
    }
    writeln!(out, "\n  Type: {}", kind(attr.kind))?;
    write!(out, "  Size: {:<15} Blocks: {:<10} IO block: {}", attr.size, attr.blocks, attr.block_size)?;
    writeln!(out, "\n Inode: {:<16} Links: {:<8} Generation: {}", attr.ino, attr.nlink, attr.generation)?;
    let owner = |id: u32, name: Option<&str>| name.map_or(id.to_string(), |name| format!("{id} ({name})"));
    let (uid, gid) = (owner(attr.uid, owners.user(attr.uid)), owner(attr.gid, owners.group(attr.gid)));
    writeln!(out, "Access: {:04o} {}  Uid: {uid}  Gid: {gid}", attr.permissions, mode(&attr))?;
    if matches!(attr.kind, FileType::BlockDevice | FileType::CharDevice) {
        writeln!(out, "Device: {}:{}", attr.rdev_major, attr.rdev_minor)?;
    }
    writeln!(out, " Flags: {}", flags(attr.flags))?;
    writeln!(out, "Access: {}", clock.exact(attr.atime))?;
    writeln!(out, "Modify: {}", clock.exact(attr.mtime))?;
    writeln!(out, "Change: {}", clock.exact(attr.ctime))?;
    writeln!(out, " Birth: {}", attr.crtime.map_or("-".into(), |time| clock.exact(time)))
}

/// `FS_*_FL` under the names of chattr(1) and the kernel.
fn flags(flags: u32) -> String {
    const NAMES: [(u32, &str); 17] = [
        (0x8, "sync"),
        (0x10, "immutable"),
        (0x20, "append-only"),
        (0x40, "no-dump"),
        (0x80, "no-atime"),
        (0x800, "encrypted"),
        (0x1000, "indexed-directory"),
        (0x4000, "journalled-data"),
        (0x8000, "no-tail"),
        (0x1_0000, "synchronous-directory"),
        (0x2_0000, "top-of-directory-hierarchy"),
        (0x4_0000, "huge-file"),
        (0x8_0000, "extents"),
        (0x10_0000, "verity"),
        (0x20_0000, "attribute-value"),
        (0x1000_0000, "inline-data"),
        (0x4000_0000, "casefold"),
    ];
    let known = NAMES.iter().filter(|(bit, _)| flags & bit != 0);
    let names: Vec<&str> = known.map(|(_, name)| *name).collect();
    if names.is_empty() { format!("{flags:#x}") } else { format!("{flags:#x} ({})", names.join(", ")) }
}
