//! `dentree info`: the superblock.

use crate::args::InfoArgs;
use crate::image::Session;
use crate::output::attributes::{Clock, epoch};
use crate::output::{Output, escape, human, json};
use crate::report::Stop;
use dentree_ext4::{Compat, Incompat, InodeTime, RoCompat, Superblock};
use dentree_vfs::Timestamp;
use serde::Serialize;
use std::io::{self, Write};

pub(crate) fn run(session: &Session, args: &InfoArgs) -> Result<(), Stop> {
    let image = session.locate(&args.image)?.image;
    let sb = image.vfs.fs().superblock();
    let info = Info::new(sb);
    let mut out = Output::new();
    if args.json {
        json::line(&mut out, &info)?;
    } else {
        print(&mut out, &info, sb)?;
    }
    Ok(out.flush()?)
}

/// Times are decimal strings of seconds since 1970, null for never.
#[derive(Serialize)]
struct Info {
    kind: &'static str,
    label: String,
    uuid: String,
    state: Vec<&'static str>,
    errors_recorded: u32,
    block_size: u32,
    blocks: u64,
    blocks_free: u64,
    blocks_reserved: u64,
    inodes: u32,
    inodes_free: u32,
    inode_size: u32,
    groups: u32,
    features: Vec<String>,
    last_mounted_on: String,
    mounts: u16,
    created: Option<String>,
    mounted: Option<String>,
    written: Option<String>,
    checked: Option<String>,
}

impl Info {
    fn new(sb: &Superblock) -> Self {
        let features = [sb.compat.names(), sb.incompat.names(), sb.ro_compat.names()].concat();
        let time =
            |time: InodeTime| Some(time).filter(|time| time.seconds != 0).map(|time| epoch(stamp(time)));
        Info {
            kind: kind(sb),
            label: String::from_utf8_lossy(&sb.volume_name).into_owned(),
            uuid: uuid(&sb.uuid),
            state: state(sb),
            errors_recorded: sb.error_count,
            block_size: sb.block_size.bytes(),
            blocks: sb.blocks_count,
            blocks_free: sb.free_blocks_count,
            blocks_reserved: sb.reserved_blocks_count,
            inodes: sb.inodes_count,
            inodes_free: sb.free_inodes_count,
            inode_size: sb.inode_size,
            groups: sb.groups,
            features,
            last_mounted_on: String::from_utf8_lossy(&sb.last_mounted).into_owned(),
            mounts: sb.mount_count,
            created: time(sb.mkfs_time),
            mounted: time(sb.mount_time),
            written: time(sb.write_time),
            checked: time(sb.lastcheck),
        }
    }
}

fn print(out: &mut Output, info: &Info, sb: &Superblock) -> io::Result<()> {
    let clock = Clock::local();
    let or_none = |text: &str| match text {
        "" => "-".to_owned(),
        text => escape::terminal(text.as_bytes()).into_owned(),
    };
    let time = |time: InodeTime| if time.seconds == 0 { "never".into() } else { clock.minute(stamp(time)) };
    let bytes = |blocks: u64| human(blocks.saturating_mul(u64::from(info.block_size)));
    writeln!(out, "{:>14}  {}", "file system", info.kind)?;
    writeln!(out, "{:>14}  {}", "label", or_none(&info.label))?;
    writeln!(out, "{:>14}  {}", "uuid", info.uuid)?;
    writeln!(out, "{:>14}  {}", "state", info.state.join(", "))?;
    let (all, free) = (bytes(info.blocks), bytes(info.blocks_free));
    writeln!(
        out,
        "{:>14}  {all} ({} blocks of {} bytes), {free} free",
        "size", info.blocks, info.block_size
    )?;
    writeln!(
        out,
        "{:>14}  {} of {} bytes, {} free",
        "inodes", info.inodes, info.inode_size, info.inodes_free
    )?;
    writeln!(out, "{:>14}  {}", "groups", info.groups)?;
    writeln!(out, "{:>14}  {}", "created", time(sb.mkfs_time))?;
    writeln!(out, "{:>14}  {}, {} times since the last check", "mounted", time(sb.mount_time), info.mounts)?;
    writeln!(out, "{:>14}  {}", "mounted on", or_none(&info.last_mounted_on))?;
    writeln!(out, "{:>14}  {}", "written", time(sb.write_time))?;
    writeln!(out, "{:>14}  {}", "checked", time(sb.lastcheck))?;
    writeln!(out, "{:>14}  {}", "features", info.features.join(" "))
}

/// The usual name of a file system with these features.
fn kind(sb: &Superblock) -> &'static str {
    let ext4 =
        Incompat(Incompat::EXTENTS.0 | Incompat::FLEX_BG.0 | Incompat::BITS64.0 | Incompat::INLINE_DATA.0);
    let ext4_ro = RoCompat(RoCompat::GDT_CSUM.0 | RoCompat::METADATA_CSUM.0 | RoCompat::HUGE_FILE.0);
    if sb.incompat.without(ext4) != sb.incompat || sb.ro_compat.without(ext4_ro) != sb.ro_compat {
        "ext4"
    } else if sb.compat.has(Compat::HAS_JOURNAL) {
        "ext3"
    } else {
        "ext2"
    }
}

fn state(sb: &Superblock) -> Vec<&'static str> {
    let mut state = Vec::new();
    if sb.incompat.has(Incompat::RECOVER) {
        state.push("journal needs recovery (read as if recovered; the image stays as it is)");
    }
    if sb.state & 2 != 0 || sb.error_count > 0 {
        state.push("errors were recorded (run e2fsck on a copy)");
    }
    if sb.last_orphan != 0 {
        state.push("holds deleted files that were still open");
    }
    match (state.is_empty(), sb.state & 1) {
        (true, 1) => vec!["clean"],
        (true, _) => vec!["not unmounted cleanly"],
        _ => state,
    }
}

pub(crate) fn uuid(bytes: &[u8; 16]) -> String {
    let hex = bytes.map(|byte| format!("{byte:02x}")).concat();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

fn stamp(time: InodeTime) -> Timestamp {
    Timestamp { seconds: time.seconds, nanos: time.nanos }
}
