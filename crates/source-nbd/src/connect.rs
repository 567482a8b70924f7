//! Connections to the server of an address.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use crate::address::{Address, Endpoint};
use crate::stream::Stream;
use crate::unix;

/// Time limit of a TCP connection to one address of a host.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// Connects; `within` limits each later read and write of the socket.
pub(crate) fn connect(address: &Address, within: Duration) -> io::Result<Stream> {
    match &address.endpoint {
        Endpoint::Unix(path) => unix::connect(path, within),
        Endpoint::Tcp { host, port } => {
            let socket = connect_tcp(host, *port)?;
            // Requests are gathered before they are sent.
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
