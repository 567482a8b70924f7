//! Wire format of NBD (`doc/proto.md` of NetworkBlockDevice/nbd). Integers are big-endian.

use std::io::{self, Read};

pub(crate) const SIMPLE_REPLY: u32 = 0x6744_6698;
pub(crate) const STRUCTURED_REPLY: u32 = 0x668e_33ef;
const REQUEST: u32 = 0x2560_9513;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Read = 0,
    Write = 1,
    Disconnect = 2,
    Flush = 3,
    Trim = 4,
}

/// Export flags (`NBD_FLAG_*`).
pub(crate) mod flag {
    pub(crate) const READ_ONLY: u16 = 1 << 1;
    pub(crate) const FLUSH: u16 = 1 << 2;
    pub(crate) const TRIM: u16 = 1 << 5;
}

/// Chunk types of structured replies.
pub(crate) mod chunk {
    /// Flag of the last chunk.
    pub(crate) const DONE: u16 = 1 << 0;
    pub(crate) const NONE: u16 = 0;
    pub(crate) const DATA: u16 = 1;
    pub(crate) const HOLE: u16 = 2;
    /// Flag of error types.
    pub(crate) const ERROR: u16 = 1 << 15;
}

/// `ESHUTDOWN`: the server stops serving the connection.
pub(crate) const SHUTDOWN: u32 = 108;

pub(crate) fn request(command: Command, cookie: u64, offset: u64, len: u32) -> [u8; 28] {
    const FLAGS: u16 = 0;
    let mut bytes = [0; 28];
    bytes[..4].copy_from_slice(&REQUEST.to_be_bytes());
    bytes[4..6].copy_from_slice(&FLAGS.to_be_bytes());
    bytes[6..8].copy_from_slice(&(command as u16).to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes[16..24].copy_from_slice(&offset.to_be_bytes());
    bytes[24..].copy_from_slice(&len.to_be_bytes());
    bytes
}

pub(crate) fn read_u16(from: &mut impl Read) -> io::Result<u16> {
    array(from).map(u16::from_be_bytes)
}

pub(crate) fn read_u32(from: &mut impl Read) -> io::Result<u32> {
    array(from).map(u32::from_be_bytes)
}

pub(crate) fn read_u64(from: &mut impl Read) -> io::Result<u64> {
    array(from).map(u64::from_be_bytes)
}

fn array<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

pub(crate) fn skip(from: &mut impl Read, len: u64) -> io::Result<()> {
    match io::copy(&mut from.take(len), &mut io::sink())? {
        skipped if skipped == len => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

pub(crate) fn violation(what: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the server breaks the protocol: {what}"))
}

/// Server text, cut to a printable line.
pub(crate) fn shown(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(&text[..text.len().min(500)]);
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

/// `number` is an errno of Linux (`NBD_E*`).
pub(crate) fn server_error(number: u32, what: impl std::fmt::Display) -> io::Error {
    use io::ErrorKind as Kind;
    let (kind, name) = match number {
        1 => (Kind::PermissionDenied, "operation not permitted"),
        5 => (Kind::Other, "input/output error"),
        12 => (Kind::OutOfMemory, "out of memory"),
        22 => (Kind::InvalidInput, "invalid argument"),
        28 => (Kind::StorageFull, "no space left on device"),
        75 => (Kind::InvalidInput, "value too large"),
        95 => (Kind::Unsupported, "not supported"),
        SHUTDOWN => (Kind::ConnectionAborted, "shutting down"),
        _ => (Kind::Other, "an error without a name"),
    };
    io::Error::new(kind, format!("the NBD server answers a request to {what}: {name} ({number})"))
}
