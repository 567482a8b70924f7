//! Sockets to a server.

use std::io::{self, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use crate::address::{Address, Endpoint};
use crate::unix;

/// For each address of a host.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// A connected socket.
pub(crate) trait Socket: Read + Write + Send + Sync + 'static {
    fn try_clone(&self) -> io::Result<Self>
    where
        Self: Sized;

    /// Limits each later read and write.
    fn limit(&self, within: Duration) -> io::Result<()>;

    /// Ends the connection; reads and writes that wait return.
    fn shut_down(&self);
}

impl Socket for TcpStream {
    fn try_clone(&self) -> io::Result<Self> {
        self.try_clone()
    }

    fn limit(&self, within: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(within))?;
        self.set_write_timeout(Some(within))
    }

    fn shut_down(&self) {
        // After an error it is down already.
        let _ = self.shutdown(Shutdown::Both);
    }
}

/// A reading and a writing half of a socket, and a handle that ends both.
pub(crate) struct Stream {
    pub(crate) reader: Reader,
    pub(crate) writer: Box<dyn Write + Send>,
    pub(crate) socket: Arc<dyn Socket>,
}

pub(crate) type Reader = BufReader<Box<dyn Read + Send>>;

impl Stream {
    /// Over a socket that is connected; `within` limits each later read and write.
    pub(crate) fn over(socket: impl Socket, within: Duration) -> io::Result<Stream> {
        socket.limit(within)?;
        let reader: Box<dyn Read + Send> = Box::new(socket.try_clone()?);
        Ok(Stream {
            reader: BufReader::with_capacity(64 << 10, reader),
            writer: Box::new(socket.try_clone()?),
            socket: Arc::new(socket),
        })
    }
}

/// `within` limits each read and write.
pub(crate) fn connect(address: &Address, within: Duration) -> io::Result<Stream> {
    match &address.endpoint {
        Endpoint::Unix(path) => unix::connect(path, within),
        Endpoint::Tcp { host, port } => {
            let socket = connect_tcp(host, *port)?;
            // Requests are gathered by the sender.
            socket.set_nodelay(true)?;
            Stream::over(socket, within)
        }
    }
}

/// Connects to the first address of the host that answers.
fn connect_tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut error = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_WITHIN) {
            Ok(socket) => return Ok(socket),
            Err(failed) => error = failed,
        }
    }
    Err(error)
}
