//! The greeting (fixed newstyle), which selects an export.
//!
//! Replies to options are limited: the server's lengths never size an allocation.

use std::io::{self, Read, Write};

use crate::wire::{flag, read_u16, read_u32, read_u64, shown, skip, violation};

const MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
const OPTION: u64 = u64::from_be_bytes(*b"IHAVEOPT");
const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;

/// Handshake flags of both sides.
const FIXED_NEWSTYLE: u16 = 1 << 0;
const NO_ZEROES: u16 = 1 << 1;

const OPT_ABORT: u32 = 2;
const OPT_GO: u32 = 7;
const OPT_STRUCTURED_REPLY: u32 = 8;

const REP_ACK: u32 = 1;
const REP_INFO: u32 = 3;
const REP_ERROR: u32 = 1 << 31;

const INFO_EXPORT: u16 = 0;
const INFO_BLOCK_SIZE: u16 = 3;

/// Longest reply to an option, and their number.
const MAX_REPLY: u32 = 64 << 10;
const MAX_REPLIES: u32 = 1000;

/// Default of the server's limit.
const MAX_REQUEST: u32 = 32 << 20;
/// From the protocol.
const MAX_UNIT: u32 = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Export {
    /// In bytes; a multiple of `unit`.
    pub(crate) size: u64,
    pub(crate) flags: u16,
    /// Alignment of offsets and lengths; a power of two.
    pub(crate) unit: u32,
    /// Longest request; a multiple of `unit`.
    pub(crate) most: u32,
    /// Reads have structured replies.
    pub(crate) structured: bool,
}

impl Export {
    pub(crate) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// Selects export `name`. A refusal is [`io::ErrorKind::ConnectionRefused`].
pub(crate) fn greet(reader: &mut impl Read, writer: &mut impl Write, name: &str) -> io::Result<Export> {
    if read_u64(reader)? != MAGIC {
        return Err(violation("its first bytes are not NBD's"));
    }
    if read_u64(reader)? != OPTION || read_u16(reader)? & FIXED_NEWSTYLE == 0 {
        return Err(violation("it offers no options (fixed newstyle), as old servers do not"));
    }
    let flags = FIXED_NEWSTYLE | NO_ZEROES;
    writer.write_all(&u32::from(flags).to_be_bytes())?;
    let structured = ask(reader, writer, OPT_STRUCTURED_REPLY, &[], |_, _| Ok(()))?.is_ok();
    let mut told = Told::default();
    // At most 4096 bytes.
    let len = u32::try_from(name.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let infos = [1u16.to_be_bytes(), INFO_BLOCK_SIZE.to_be_bytes()].concat();
    let data = [&len.to_be_bytes()[..], name.as_bytes(), &infos].concat();
    match ask(reader, writer, OPT_GO, &data, |kind, info| told.add(kind, info))? {
        Ok(()) => told.export(structured),
        Err(refusal) => {
            // Needs no reply.
            let _ = ask_only(writer, OPT_ABORT, &[]);
            Err(io::Error::new(io::ErrorKind::ConnectionRefused, refusal))
        }
    }
}

/// Sends an option and collects information in `info`. The inner error is a refusal.
fn ask(
    reader: &mut impl Read,
    writer: &mut impl Write,
    option: u32,
    data: &[u8],
    mut info: impl FnMut(u16, &[u8]) -> io::Result<()>,
) -> io::Result<Result<(), String>> {
    ask_only(writer, option, data)?;
    for _ in 0..MAX_REPLIES {
        if read_u64(reader)? != OPTION_REPLY || read_u32(reader)? != option {
            return Err(violation("a reply to an option that was not sent"));
        }
        let (kind, len) = (read_u32(reader)?, read_u32(reader)?);
        if len > MAX_REPLY {
            return Err(violation(format_args!("a reply of {len} bytes to an option")));
        }
        let mut payload = vec![0; len as usize];
        reader.read_exact(&mut payload)?;
        match kind {
            REP_ACK => return Ok(Ok(())),
            REP_INFO if payload.len() >= 2 => {
                let (kind, rest) = payload.split_at(2);
                info(u16::from_be_bytes([kind[0], kind[1]]), rest)?;
            }
            _ if kind & REP_ERROR != 0 => return Ok(Err(refusal(kind & !REP_ERROR, &payload))),
            _ => return Err(violation(format_args!("reply type {kind} to option {option}"))),
        }
    }
    Err(violation("endless replies to an option"))
}

fn ask_only(writer: &mut impl Write, option: u32, data: &[u8]) -> io::Result<()> {
    let len = u32::try_from(data.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let head = [&OPTION.to_be_bytes()[..], &option.to_be_bytes(), &len.to_be_bytes()].concat();
    writer.write_all(&[&head, data].concat())?;
    writer.flush()
}

fn refusal(kind: u32, message: &[u8]) -> String {
    let reason = match kind {
        1 => "the server does not know this option; it is older than 2016",
        2 => "the server's policy forbids it",
        5 => "the server wants TLS",
        6 => "the server has no such export",
        7 => "the server is shutting down",
        8 => "the server has block sizes of its own and does not say which",
        _ => "the server refuses",
    };
    match message {
        b"" => reason.to_owned(),
        message => format!("{reason}: {}", shown(message)),
    }
}

/// Information so far.
#[derive(Default)]
struct Told {
    export: Option<(u64, u16)>,
    sizes: Option<(u32, u32)>,
}

impl Told {
    /// Unknown information is skipped, as the protocol requires.
    fn add(&mut self, kind: u16, mut info: &[u8]) -> io::Result<()> {
        let info = &mut info;
        match kind {
            INFO_EXPORT => self.export = Some((read_u64(info)?, read_u16(info)?)),
            INFO_BLOCK_SIZE => {
                let unit = read_u32(info)?;
                skip(info, 4)?;
                self.sizes = Some((unit, read_u32(info)?));
            }
            _ => {}
        }
        Ok(())
    }

    fn export(&self, structured: bool) -> io::Result<Export> {
        let Some((size, flags)) = self.export else { return Err(violation("no size of the export")) };
        let (unit, most) = self.sizes.unwrap_or((1, MAX_REQUEST));
        if !unit.is_power_of_two() || unit > MAX_UNIT || most < unit {
            return Err(violation(format_args!("requests of {unit} to {most} bytes")));
        }
        // A partial last unit cannot be read.
        let size = size - size % u64::from(unit);
        let most = most.min(MAX_REQUEST);
        Ok(Export { size, flags: flags & !1, unit, most: most - most % unit, structured })
    }
}

/// Whether `again` can replace `first` after a lost connection.
pub(crate) fn is_same(first: &Export, again: &Export) -> bool {
    let needed = flag::FLUSH | flag::TRIM;
    let keeps =
        first.flags & needed & !again.flags == 0 && first.has(flag::READ_ONLY) == again.has(flag::READ_ONLY);
    keeps && first.size == again.size && again.unit <= first.unit && again.most >= first.most
}
