//! Sockets to a server.

use std::io::{self, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::address::{Address, Endpoint};

/// Time limit of a TCP connection to one address of a host.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// A connected socket: a reading and a writing half, and a handle that ends both.
pub(crate) struct Stream {
    pub(crate) reader: Reader,
    pub(crate) writer: Box<dyn Write + Send>,
    pub(crate) socket: Socket,
}

pub(crate) type Reader = BufReader<Box<dyn Read + Send>>;

pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Ends the connection; reads and writes that wait return.
    pub(crate) fn shut_down(&self) {
        // After an error it is down already.
        let _ = match self {
            Socket::Tcp(socket) => socket.shutdown(Shutdown::Both),
            Socket::Unix(socket) => socket.shutdown(Shutdown::Both),
        };
    }
}

/// Connects; `within` limits each later read and write of the socket.
pub(crate) fn connect(address: &Address, within: Duration) -> io::Result<Stream> {
    match &address.endpoint {
        Endpoint::Unix(path) => over(UnixStream::connect(path)?, within),
        Endpoint::Tcp { host, port } => {
            let socket = connect_tcp(host, *port)?;
            // Requests are gathered before they are sent.
            socket.set_nodelay(true)?;
            socket.set_read_timeout(Some(within))?;
            socket.set_write_timeout(Some(within))?;
            let (reader, writer) = (Box::new(socket.try_clone()?), Box::new(socket.try_clone()?));
            Ok(Stream { reader: buffered(reader), writer, socket: Socket::Tcp(socket) })
        }
    }
}

/// A stream over a socket that is connected.
pub(crate) fn over(socket: UnixStream, within: Duration) -> io::Result<Stream> {
    socket.set_read_timeout(Some(within))?;
    socket.set_write_timeout(Some(within))?;
    let (reader, writer) = (Box::new(socket.try_clone()?), Box::new(socket.try_clone()?));
    Ok(Stream { reader: buffered(reader), writer, socket: Socket::Unix(socket) })
}

fn buffered(reader: Box<dyn Read + Send>) -> Reader {
    BufReader::with_capacity(64 << 10, reader)
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
