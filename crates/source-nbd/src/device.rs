//! The block device: splits and aligns requests, and waits for them.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use dentree_blockdev::{Access, BlockDevice, Done, check_range};

use crate::connect::connect;
use crate::connection::{Connection, End};
use crate::greeting::{self, Export};
use crate::keeper::Connect;
use crate::request::Request;
#[cfg(unix)]
use crate::stream::Socket;
use crate::stream::Stream;
use crate::wire::flag;
use crate::{Address, Error, Patience};

const MOST_TRIMMED: u64 = 1 << 30;

/// Export of an NBD server.
///
/// Requests of all threads are in flight at once. After a lost connection unanswered requests are
/// repeated, and writes since the last [`flush`](BlockDevice::flush), which the server may have
/// lost. Large requests are split; parts of server blocks are read, changed and written.
///
/// The protocol has no locks: nothing prevents a second writer.
pub struct NbdDevice {
    connection: Arc<Connection>,
    access: Access,
    /// Held for read-modify-write of server blocks.
    unaligned: Mutex<()>,
    /// Disconnects at the end.
    sender: Option<JoinHandle<()>>,
    /// A server for this device only.
    server: Option<Box<dyn Send + Sync>>,
}

impl NbdDevice {
    /// Connects to `address`.
    ///
    /// # Errors
    /// [`Error::NotWritable`]: read-only, or cannot be flushed. Also errors of connecting.
    pub fn open(address: &Address, access: Access, patience: Patience) -> Result<Self, Error> {
        let stream = connect(address, patience.answer)
            .map_err(|source| Error::Connect { at: address.to_string(), source })?;
        let again = address.clone();
        let connect = move || greet(connect(&again, patience.answer)?, again.export());
        Self::begin(stream, &address.to_string(), address.export(), access, patience, Some(Box::new(connect)))
    }

    /// The default export of the server behind `socket`, which is `server`: it is dropped when the
    /// device has closed the connection. A connection that is lost ends the device.
    #[cfg(unix)]
    pub(crate) fn over(
        socket: impl Socket,
        at: &str,
        access: Access,
        patience: Patience,
        server: Box<dyn Send + Sync>,
    ) -> Result<Self, Error> {
        let stream = Stream::over(socket, patience.answer)
            .map_err(|source| Error::Connect { at: at.to_owned(), source })?;
        let mut device = Self::begin(stream, at, "", access, patience, None)?;
        device.server = Some(server);
        Ok(device)
    }

    /// Greets and starts the threads.
    fn begin(
        stream: Stream,
        at: &str,
        export: &str,
        access: Access,
        patience: Patience,
        connect: Option<Box<Connect>>,
    ) -> Result<Self, Error> {
        let at = || at.to_owned();
        let (stream, export) = greet(stream, export).map_err(|source| match source.kind() {
            io::ErrorKind::ConnectionRefused => Error::Refused { at: at(), problem: source.to_string() },
            _ => Error::Greeting { at: at(), source },
        })?;
        check_access(&export, access).map_err(|problem| Error::NotWritable { at: at(), problem })?;
        Self::start(stream, export, access, patience, connect)
            .map_err(|source| Error::Connect { at: at(), source })
    }

    fn start(
        stream: Stream,
        export: Export,
        access: Access,
        patience: Patience,
        connect: Option<Box<Connect>>,
    ) -> io::Result<Self> {
        let connection = Arc::new(Connection::new(export, patience));
        let (sender, keeper) = (connection.clone(), connection.clone());
        let thread = |name: &str| thread::Builder::new().name(name.to_owned());
        thread("nbd-keep").spawn(move || keeper.keep(stream, connect.as_deref()))?;
        let sender = Some(thread("nbd-send").spawn(move || sender.send_requests())?);
        Ok(NbdDevice { connection, access, unaligned: Mutex::default(), sender, server: None })
    }

    fn export(&self) -> &Export {
        &self.connection.export
    }

    /// Widens a range to the server's units.
    fn whole_units(&self, offset: u64, len: usize) -> (u64, usize) {
        let unit = u64::from(self.export().unit);
        let start = offset - offset % unit;
        let end = (offset + len as u64).next_multiple_of(unit);
        // At most two units longer than the buffer.
        (start, (end - start) as usize)
    }

    /// `offset` and length are whole units within the export.
    fn start_read(&self, offset: u64, mut buf: Vec<u8>, done: Done) {
        let most = self.export().most as usize;
        if buf.is_empty() {
            return done(Ok(buf));
        }
        if buf.len() <= most {
            return self.connection.start(Request::read(offset, buf, done));
        }
        let len = buf.len();
        let count = len.div_ceil(most);
        buf.clear();
        let gathered =
            Arc::new(Mutex::new(Gathered { parts: vec![None; count], missing: count, done: Some(done) }));
        for part in 0..count {
            let (start, len) = (part * most, most.min(len - part * most));
            let gathered = gathered.clone();
            let done: Done = Box::new(move |read| Gathered::add(&gathered, part, read));
            self.connection.start(Request::read(offset + start as u64, vec![0; len], done));
        }
    }

    fn read_units(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let (done, ended) = channel();
        self.start_read(offset, vec![0; len], Box::new(move |read| drop(done.send(read))));
        ended.recv().unwrap_or_else(|_| Err(End::Closed.error()))
    }

    /// Starts requests without result and waits for all.
    fn all(&self, requests: impl Iterator<Item = Box<dyn FnOnce(Done) -> Request>>) -> io::Result<()> {
        let (done, ended) = channel();
        for request in requests {
            let done = done.clone();
            self.connection.start(request(Box::new(move |ended| drop(done.send(ended)))));
        }
        drop(done);
        let ended: Vec<_> = ended.iter().collect();
        ended.into_iter().try_for_each(|ended| ended.map(drop))
    }

    /// Writes whole units in requests of the server's size.
    fn write_units(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let most = self.export().most as usize;
        let pieces = data.chunks(most).enumerate().map(|(number, piece)| {
            let (offset, piece): (_, Arc<[u8]>) = (offset + (number * most) as u64, piece.into());
            Box::new(move |done| Request::write(offset, piece, done)) as Box<dyn FnOnce(Done) -> Request>
        });
        self.all(pieces)?;
        if self.connection.lock().log.is_full() { self.flush() } else { Ok(()) }
    }

    fn check_write(&self, offset: u64, len: u64) -> io::Result<()> {
        if self.access == Access::ReadOnly {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the export was opened read-only"));
        }
        check_range(offset, len, self.size())
    }
}

/// Parts of a read, in any order.
struct Gathered {
    parts: Vec<Option<Vec<u8>>>,
    missing: usize,
    done: Option<Done>,
}

impl Gathered {
    fn add(gathered: &Mutex<Self>, number: usize, part: io::Result<Vec<u8>>) {
        let mut this = gathered.lock().unwrap_or_else(PoisonError::into_inner);
        this.missing -= 1;
        let all = match part {
            Ok(part) => {
                this.parts[number] = Some(part);
                (this.missing == 0)
                    .then(|| Ok(this.parts.iter_mut().flat_map(Option::take).flatten().collect()))
            }
            Err(error) => Some(Err(error)),
        };
        // First error or last part.
        let done = if all.is_some() { this.done.take() } else { None };
        drop(this);
        if let (Some(all), Some(done)) = (all, done) {
            done(all);
        }
    }
}

fn greet(mut stream: Stream, export: &str) -> io::Result<(Stream, Export)> {
    let export = greeting::greet(&mut stream.reader, &mut stream.writer, export)?;
    Ok((stream, export))
}

fn check_access(export: &Export, access: Access) -> Result<(), &'static str> {
    match access {
        Access::ReadOnly => Ok(()),
        Access::ReadWrite if export.has(flag::READ_ONLY) => {
            Err("the server exports it read-only; start the server without its read-only option")
        }
        Access::ReadWrite if !export.has(flag::FLUSH) => Err(
            "the server offers no flush, so that nothing would be safe from a crash; turn flush on in its \
             configuration",
        ),
        Access::ReadWrite => Ok(()),
    }
}

impl BlockDevice for NbdDevice {
    fn size(&self) -> u64 {
        self.export().size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.read_vectored_at(offset, &mut [IoSliceMut::new(buf)])
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.check_write(offset, buf.len() as u64)?;
        let (start, len) = self.whole_units(offset, buf.len());
        if (start, len) == (offset, buf.len()) {
            return self.write_units(offset, buf);
        }
        let _alone = self.unaligned.lock().unwrap_or_else(PoisonError::into_inner);
        let mut units = self.read_units(start, len)?;
        // Less than a unit.
        units[(offset - start) as usize..][..buf.len()].copy_from_slice(buf);
        self.write_units(start, &units)
    }

    fn flush(&self) -> io::Result<()> {
        match self.access {
            Access::ReadOnly => Ok(()),
            Access::ReadWrite => {
                self.all(std::iter::once(Box::new(Request::flush) as Box<dyn FnOnce(Done) -> Request>))
            }
        }
    }

    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        let total: usize = bufs.iter().map(|buf| buf.len()).sum();
        check_range(offset, total as u64, self.size())?;
        let (start, len) = self.whole_units(offset, total);
        let units = self.read_units(start, len)?;
        // Less than a unit.
        let mut rest = &units[(offset - start) as usize..];
        for buf in bufs {
            let (part, behind) = rest.split_at(buf.len());
            buf.copy_from_slice(part);
            rest = behind;
        }
        Ok(())
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        match bufs {
            [only] => self.write_at(offset, only),
            bufs => {
                self.write_at(offset, &bufs.iter().flat_map(|buf| buf.iter().copied()).collect::<Vec<_>>())
            }
        }
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check_write(offset, len)?;
        if !self.export().has(flag::TRIM) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        // Only whole units can be trimmed.
        let unit = u64::from(self.export().unit);
        let (start, end) = (offset.next_multiple_of(unit), (offset + len) / unit * unit);
        let pieces = (start..end.max(start)).step_by(MOST_TRIMMED as usize).map(|at| {
            // At most MOST_TRIMMED.
            let len = MOST_TRIMMED.min(end - at) as u32;
            Box::new(move |done| Request::trim(at, len, done)) as Box<dyn FnOnce(Done) -> Request>
        });
        self.all(pieces)
    }

    fn submit(self: Arc<Self>, offset: u64, buf: Vec<u8>, done: Done) {
        if let Err(error) = check_range(offset, buf.len() as u64, self.size()) {
            return done(Err(error));
        }
        let (start, len) = self.whole_units(offset, buf.len());
        if (start, len) == (offset, buf.len()) {
            return self.start_read(offset, buf, done);
        }
        // Less than a unit.
        let (skipped, wanted) = ((offset - start) as usize, buf.len());
        let cut =
            move |read: io::Result<Vec<u8>>| done(read.map(|units| units[skipped..][..wanted].to_vec()));
        self.start_read(start, vec![0; len], Box::new(cut));
    }
}

impl Drop for NbdDevice {
    fn drop(&mut self) {
        self.connection.finish(End::Closed);
        if let Some(sender) = self.sender.take() {
            let _ = sender.join();
        }
        drop(self.server.take());
    }
}
