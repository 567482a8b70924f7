//! The members of an archive: headers, pax records, long names and maps of holes.
//!
//! The `tar` crate reads the fields of a header. Its own iterator is not used: it splits pax
//! records at newlines, which values of extended attributes may contain.

use super::sparse::{self, Segment, invalid};
use super::{ACLS, XATTR, acl};
use dentree_vfs::Timestamp;
use std::io::{self, ErrorKind, Read};
use tar::{EntryType, GnuExtSparseHeader, Header};

const BLOCK: usize = 512;
/// The most bytes of records or of a name: more than Linux allows in attributes of a file.
const RECORDS: u64 = 16 << 20;

/// Reads an archive, member by member. What is read in between is the present member's data.
pub(super) struct Members<R> {
    from: R,
    /// Data of the present member that was not read, and what fills its last block.
    left: u64,
    padding: u64,
    /// Records for all members.
    global: Vec<Record>,
    has_begun: bool,
}

/// A key with its value.
type Record = (Vec<u8>, Vec<u8>);

/// What headers and pax records say of a member.
pub(super) struct Head {
    pub(super) path: Vec<u8>,
    pub(super) kind: EntryType,
    pub(super) link: Vec<u8>,
    pub(super) device: (u32, u32),
    pub(super) permissions: u16,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) mtime: Timestamp,
    pub(super) xattrs: Vec<Record>,
    /// Lists that name users without their numbers.
    lists_by_name: Vec<&'static [u8]>,
    /// Bytes in the archive.
    pub(super) stored: u64,
    sparse: Sparse,
}

/// Where the map of holes is.
#[derive(Default)]
struct Sparse {
    /// Version 1.0: before the data.
    is_before_data: bool,
    /// The older ones.
    segments: Option<Vec<Segment>>,
    /// A name of this record is the file's; `path` then has the name of the map.
    has_name: bool,
    size: Option<u64>,
    offset: u64,
}

impl<R: Read> Members<R> {
    pub(super) fn new(from: R) -> Members<R> {
        Members { from, left: 0, padding: 0, global: Vec::new(), has_begun: false }
    }

    /// The next member; `None` at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<Head>> {
        let mut records = Vec::new();
        loop {
            self.skip()?;
            let Some(header) = self.header()? else { return Ok(None) };
            let size = header.entry_size()?;
            match header.entry_type() {
                EntryType::XHeader => records.extend(parse(&self.text(size)?)?),
                EntryType::XGlobalHeader => {
                    let text = self.text(size)?;
                    self.global.extend(parse(&text)?);
                }
                EntryType::GNULongName => records.push((b"path".to_vec(), self.name(size)?)),
                EntryType::GNULongLink => records.push((b"linkpath".to_vec(), self.name(size)?)),
                _ => return self.member(&header, size, &records).map(Some),
            }
        }
    }

    fn member(&mut self, header: &Header, size: u64, records: &[Record]) -> io::Result<Head> {
        let mut head = Head::of(header, size)?;
        for (key, value) in self.global.iter().chain(records) {
            head.record(key, value)?;
        }
        if head.kind == EntryType::GNUSparse {
            let (segments, size) = self.old_map(header)?;
            head.sparse = Sparse { segments: Some(segments), size: Some(size), ..Sparse::default() };
        }
        // Others have no data, whatever their headers say.
        let has_data = matches!(head.kind, EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse)
            || !head.is_known();
        self.begin(if has_data { head.stored } else { 0 });
        Ok(head)
    }

    fn begin(&mut self, size: u64) {
        self.left = size;
        self.padding = size.next_multiple_of(BLOCK as u64) - size;
    }

    /// Reads over what is left of the present member.
    fn skip(&mut self) -> io::Result<()> {
        let all = self.left.saturating_add(self.padding);
        if io::copy(&mut (&mut self.from).take(all), &mut io::sink())? < all {
            return Err(cut_short());
        }
        (self.left, self.padding) = (0, 0);
        Ok(())
    }

    fn block(&mut self) -> io::Result<[u8; BLOCK]> {
        let mut block = [0; BLOCK];
        self.from.read_exact(&mut block).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => cut_short(),
            _ => error,
        })?;
        Ok(block)
    }

    /// The next header; `None` where zeros or the end of the file end the archive.
    fn header(&mut self) -> io::Result<Option<Header>> {
        let mut first = [0; 1];
        loop {
            match self.from.read(&mut first) {
                Ok(0) if self.has_begun => return Ok(None),
                Ok(0) => return Err(invalid("it is empty, and no tar archive")),
                Ok(_) => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let mut block = [0; BLOCK];
        block[0] = first[0];
        self.from.read_exact(&mut block[1..]).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => cut_short(),
            _ => error,
        })?;
        self.has_begun = true;
        if block == [0; BLOCK] {
            return Ok(None);
        }
        let header = Header::from_byte_slice(&block).clone();
        let is_sum = |at: &usize| (148..156).contains(at);
        let byte = |(at, byte): (usize, &u8)| if is_sum(&at) { u32::from(b' ') } else { u32::from(*byte) };
        let sum: u32 = block.iter().enumerate().map(byte).sum();
        match header.cksum() {
            Ok(told) if told == sum => Ok(Some(header)),
            _ => Err(invalid("it is damaged, or no tar archive: a header has a wrong checksum")),
        }
    }

    fn text(&mut self, size: u64) -> io::Result<Vec<u8>> {
        if size > RECORDS {
            return Err(invalid("the records of a member are too long"));
        }
        self.begin(size);
        let mut text = Vec::new();
        (&mut *self).take(size).read_to_end(&mut text)?;
        Ok(text)
    }

    fn name(&mut self, size: u64) -> io::Result<Vec<u8>> {
        let mut name = self.text(size)?;
        name.truncate(name.iter().position(|&byte| byte == 0).unwrap_or(name.len()));
        Ok(name)
    }

    /// The map in the headers of GNU's own format.
    fn old_map(&mut self, header: &Header) -> io::Result<(Vec<Segment>, u64)> {
        let gnu = header.as_gnu().ok_or_else(|| invalid("a sparse member is not of GNU's format"))?;
        let segment = |entry: &tar::GnuSparseHeader| Ok((entry.offset()?, entry.length()?));
        let is_used = |entry: &&tar::GnuSparseHeader| !entry.is_empty();
        let mut segments: Vec<Segment> =
            gnu.sparse.iter().filter(is_used).map(segment).collect::<io::Result<_>>()?;
        let mut is_extended = gnu.is_extended();
        while is_extended {
            let mut more = GnuExtSparseHeader::new();
            more.as_mut_bytes().copy_from_slice(&self.block()?);
            for entry in more.sparse().iter().filter(is_used) {
                segments.push(segment(entry)?);
            }
            is_extended = more.is_extended();
            if segments.len() > sparse::MOST {
                return Err(invalid("a map of holes is too long"));
            }
        }
        Ok((segments, gnu.real_size()?))
    }
}

impl<R: Read> Read for Members<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let want = usize::try_from(self.left).map_or(buf.len(), |left| left.min(buf.len()));
        let len = self.from.read(&mut buf[..want])?;
        if len == 0 && want > 0 {
            return Err(cut_short());
        }
        self.left -= len as u64;
        Ok(len)
    }
}

impl Head {
    fn of(header: &Header, size: u64) -> io::Result<Head> {
        let device = |field: io::Result<Option<u32>>| field.ok().flatten().unwrap_or(0);
        let id = |id: u64| u32::try_from(id).map_err(|_| invalid("an owner's number has more than 32 bits"));
        Ok(Head {
            kind: header.entry_type(),
            device: (device(header.device_major()), device(header.device_minor())),
            // The mask leaves permission bits only.
            permissions: (header.mode()? & 0o7777) as u16,
            uid: id(header.uid()?)?,
            gid: id(header.gid()?)?,
            mtime: Timestamp { seconds: header.mtime()?.cast_signed(), nanos: 0 },
            path: header.path_bytes().into_owned(),
            link: header.link_name_bytes().map(|link| link.into_owned()).unwrap_or_default(),
            xattrs: Vec::new(),
            lists_by_name: Vec::new(),
            stored: size,
            sparse: Sparse::default(),
        })
    }

    fn record(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        let number = || {
            let text = std::str::from_utf8(value).ok();
            text.and_then(|text| text.parse::<u64>().ok()).ok_or_else(|| invalid("a pax record is damaged"))
        };
        let id = || u32::try_from(number()?).map_err(|_| invalid("an owner's number has more than 32 bits"));
        match key {
            b"GNU.sparse.name" => (self.path, self.sparse.has_name) = (value.to_vec(), true),
            b"path" if self.sparse.has_name => {}
            b"path" => self.path = value.to_vec(),
            b"linkpath" => self.link = value.to_vec(),
            b"size" => self.stored = number()?,
            b"uid" => self.uid = id()?,
            b"gid" => self.gid = id()?,
            b"mtime" => self.mtime = time(value).ok_or_else(|| invalid("a time is damaged"))?,
            b"GNU.sparse.major" => self.sparse.is_before_data = value == b"1",
            b"GNU.sparse.realsize" | b"GNU.sparse.size" => self.sparse.size = Some(number()?),
            b"GNU.sparse.map" => self.sparse.segments = Some(sparse::decode_list(value)?),
            b"GNU.sparse.offset" => self.sparse.offset = number()?,
            b"GNU.sparse.numbytes" => {
                let segment = (self.sparse.offset, number()?);
                self.sparse.segments.get_or_insert_default().push(segment);
            }
            _ => self.attribute(key, value),
        }
        Ok(())
    }

    fn attribute(&mut self, key: &[u8], value: &[u8]) {
        if let Some((_, attribute)) = ACLS.iter().find(|(list, _)| list.as_bytes() == key) {
            match acl::from_text(value) {
                Some(list) => self.xattrs.push((attribute.to_vec(), list)),
                None => self.lists_by_name.push(attribute),
            }
        } else if let Some(name) = key.strip_prefix(XATTR.as_bytes()) {
            let name = String::from_utf8_lossy(name).replace("%3D", "=").replace("%25", "%");
            self.xattrs.push((name.into_bytes(), value.to_vec()));
        }
    }

    /// Whether a member of this type can be extracted.
    fn is_known(&self) -> bool {
        use EntryType::{Block, Char, Directory, Fifo, Link, Symlink};
        matches!(self.kind, Block | Char | Directory | Fifo | Link | Symlink)
    }

    pub(super) fn parts(&self) -> Vec<&[u8]> {
        parts(&self.path)
    }

    /// Whether an access control list is only there with names of users, which mean others in an
    /// image.
    pub(super) fn has_lost_list(&self) -> bool {
        let is_there = |list: &[u8]| self.xattrs.iter().any(|(name, _)| name == list);
        self.lists_by_name.iter().any(|list| !is_there(list))
    }

    /// Bytes of extended attributes.
    pub(super) fn attribute_bytes(&self) -> u64 {
        self.xattrs.iter().map(|(name, value)| (name.len() + value.len()) as u64).sum()
    }

    /// The size of the file in its directory.
    pub(super) fn size(&self) -> u64 {
        self.sparse.size.unwrap_or(self.stored)
    }

    /// The data of the file in the order of the archive; reads a map that is before it.
    pub(super) fn segments(&self, member: &mut impl Read) -> io::Result<Vec<Segment>> {
        match &self.sparse {
            Sparse { is_before_data: true, .. } => sparse::decode(member),
            Sparse { segments: Some(segments), .. } => Ok(segments.clone()),
            _ => Ok(vec![(0, self.size())]),
        }
    }
}

/// The names of a path, without `.`.
pub(super) fn parts(path: &[u8]) -> Vec<&[u8]> {
    path.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".").collect()
}

fn cut_short() -> io::Error {
    invalid("it is cut short")
}

/// Records of the form `LENGTH KEY=VALUE\n`; the length counts all of it.
fn parse(mut text: &[u8]) -> io::Result<Vec<Record>> {
    let mut records = Vec::new();
    while !text.is_empty() && text[0] != 0 {
        let record = split_record(text).ok_or_else(|| invalid("a pax record is damaged"))?;
        let (key, value, rest) = record;
        records.push((key.to_vec(), value.to_vec()));
        text = rest;
    }
    Ok(records)
}

fn split_record(text: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = text.iter().position(|&byte| byte == b' ')?;
    let len: usize = std::str::from_utf8(&text[..space]).ok()?.parse().ok()?;
    let (record, rest) = text.split_at_checked(len)?;
    let record = record.get(space + 1..)?.strip_suffix(b"\n")?;
    let equals = record.iter().position(|&byte| byte == b'=')?;
    Some((&record[..equals], &record[equals + 1..], rest))
}

/// `-1.25`: a decimal fraction of seconds.
fn time(text: &[u8]) -> Option<Timestamp> {
    let text = std::str::from_utf8(text).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let nanos: u32 = digits.parse().ok()?;
    let seconds: i64 = whole.parse().ok()?;
    match whole.starts_with('-') && nanos > 0 {
        true => Some(Timestamp { seconds: seconds.checked_sub(1)?, nanos: 1_000_000_000 - nanos }),
        false => Some(Timestamp { seconds, nanos }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_decimal_fractions() {
        let at = |seconds, nanos| Some(Timestamp { seconds, nanos });
        assert_eq!(
            (time(b"12.5"), time(b"12"), time(b"0.000000001")),
            (at(12, 500_000_000), at(12, 0), at(0, 1))
        );
        assert_eq!((time(b"-0.5"), time(b"-2")), (at(-1, 500_000_000), at(-2, 0)));
        assert_eq!(time(b"-1.25"), at(-2, 750_000_000));
        assert_eq!((time(b""), time(b"1.x"), time(b"1e9")), (None, None, None));
    }

    #[test]
    fn names_have_no_empty_parts() {
        assert_eq!(parts(b"/./etc//x/"), [&b"etc"[..], b"x"]);
        assert!(parts(b"./").is_empty());
    }

    #[test]
    fn values_of_records_may_hold_newlines() {
        let records = parse(b"8 a=b\nc\n6 x=y\n").unwrap();
        let record = |key: &[u8], value: &[u8]| (key.to_vec(), value.to_vec());
        assert_eq!(records, [record(b"a", b"b\nc"), record(b"x", b"y")]);
    }

    #[test]
    fn damaged_records_are_refused() {
        for text in
            [&b"x"[..], b"999 a=b\n", b"7 a=b\n", b"6 a-b\n", b"1 a=b\n", b"18446744073709551616 a=b\n"]
        {
            assert!(parse(text).is_err(), "{}", text.escape_ascii());
        }
        assert_eq!(parse(b"6 a=b\n\0\0").unwrap().len(), 1);
    }
}
