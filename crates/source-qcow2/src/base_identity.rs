//! What an overlay's base was: a text in a header extension of the overlay's qcow2 file.
//!
//! qemu and imago keep extensions that they do not know. All numbers are big-endian: 32 bits of
//! type, 32 of length, then the content up to a multiple of 8 bytes. Type 0 ends the list.

use dentree_blockdev::BlockDevice;
use std::fs::File;
use std::io::{self, Read, Seek, Write};

/// Ours: any number that the specification does not name.
const TYPE: u32 = 0x4465_6e74;

/// Bytes of the file in which the header, its extensions and the backing file's name are: the
/// smallest cluster. Files that are made here have larger ones, and keep the rest free.
const AREA: usize = 512 << 3;

/// The longest text.
const LONGEST: usize = 1024;

/// Offset and length of the backing file's name, and the header's length.
const NAME_AT: usize = 8;
const NAME_LEN: usize = 16;
const HEADER_LEN: usize = 100;

fn word(area: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(area.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn long(area: &[u8], at: usize) -> Option<u64> {
    Some(u64::from(word(area, at)?) << 32 | u64::from(word(area, at.checked_add(4)?)?))
}

/// The extensions: type, where each begins, and where its content is.
fn extensions(area: &[u8]) -> Vec<(u32, usize, std::ops::Range<usize>)> {
    let mut found = Vec::new();
    let mut at = word(area, HEADER_LEN).map_or(AREA, |len| len as usize);
    while let (Some(kind), Some(len)) = (word(area, at), word(area, at.saturating_add(4))) {
        let (start, len) = (at + 8, len as usize);
        let next = start.saturating_add(len).checked_next_multiple_of(8).unwrap_or(AREA);
        if next > area.len() {
            break;
        }
        found.push((kind, at, start..start + len));
        if kind == 0 {
            break;
        }
        at = next;
    }
    found
}

fn read_area(file: &dyn BlockDevice) -> io::Result<Vec<u8>> {
    let mut area = vec![0; AREA.min(usize::try_from(file.size()).unwrap_or(AREA))];
    file.read_at(0, &mut area)?;
    Ok(area)
}

/// What an overlay says of its base; `None` where it says nothing, as one made by qemu-img.
pub(crate) fn recorded(file: &dyn BlockDevice) -> io::Result<Option<String>> {
    let area = read_area(file)?;
    let ours = extensions(&area).into_iter().find(|(kind, ..)| *kind == TYPE);
    Ok(ours.and_then(|(.., content)| String::from_utf8(area[content].to_vec()).ok()))
}

/// Records it in a new overlay, whose backing file's name moves. Not through the device, which was
/// opened on the empty file and has no bytes.
pub(crate) fn record(mut file: File, identity: &str) -> io::Result<()> {
    file.rewind()?;
    let mut area = vec![0; AREA];
    file.read_exact(&mut area)?;
    match with_extension(&area, identity) {
        Some(area) => {
            file.rewind()?;
            file.write_all(&area)
        }
        // The name of the base fills the cluster: it is known by that and its size.
        None => Ok(()),
    }
}

fn with_extension(area: &[u8], identity: &str) -> Option<Vec<u8>> {
    let text = identity.as_bytes();
    let (_, end, _) = extensions(area).into_iter().find(|(kind, ..)| *kind == 0)?;
    let (name_at, name_len) = (usize::try_from(long(area, NAME_AT)?).ok()?, word(area, NAME_LEN)? as usize);
    let name = area.get(name_at..name_at.checked_add(name_len)?)?.to_vec();
    if name_at < end || text.len() > LONGEST {
        return None;
    }
    let mut new = area[..end].to_vec();
    new.extend(TYPE.to_be_bytes());
    new.extend((text.len() as u32).to_be_bytes());
    new.extend(text);
    // The last extension has neither content nor type.
    new.resize(new.len().next_multiple_of(8) + 8, 0);
    let place = new.len();
    new.extend(name);
    if new.len() > area.len() {
        return None;
    }
    new.resize(area.len(), 0);
    new[NAME_AT..NAME_AT + 8].copy_from_slice(&(place as u64).to_be_bytes());
    Some(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header of version 3 with one extension, the end, and a name.
    fn header() -> Vec<u8> {
        let mut area = vec![0; AREA];
        area[HEADER_LEN..HEADER_LEN + 4].copy_from_slice(&104_u32.to_be_bytes());
        area[104..112].copy_from_slice(&[0xe2, 0x79, 0x2a, 0xca, 0, 0, 0, 3]);
        area[112..115].copy_from_slice(b"raw");
        area[NAME_AT..NAME_AT + 8].copy_from_slice(&128_u64.to_be_bytes());
        area[NAME_LEN..NAME_LEN + 4].copy_from_slice(&9_u32.to_be_bytes());
        area[128..137].copy_from_slice(b"/base.img");
        area
    }

    #[test]
    fn the_name_moves_behind_the_text() {
        let area = with_extension(&header(), "2 bytes, changed").unwrap();
        let found = extensions(&area);
        let kinds: Vec<_> = found.iter().map(|(kind, ..)| *kind).collect();
        assert_eq!(kinds, [0xe279_2aca, TYPE, 0]);
        assert_eq!(&area[found[1].2.clone()], b"2 bytes, changed");
        let name = long(&area, NAME_AT).unwrap() as usize;
        assert_eq!(&area[name..name + 9], b"/base.img");
        assert!(with_extension(&header(), &"x".repeat(LONGEST + 1)).is_none());
    }

    #[test]
    fn damaged_headers_end_the_list() {
        for len in [0_u32, 103, 4090, u32::MAX] {
            for at in [HEADER_LEN, 108] {
                let mut area = header();
                area[at..at + 4].copy_from_slice(&len.to_be_bytes());
                assert!(extensions(&area).iter().all(|(.., content)| content.end <= AREA));
                with_extension(&area, "text");
            }
        }
    }
}
