//! Sockets to a server.

use std::io::{self, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

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

/// Sockets of the standard library have these methods, and no trait of their own.
macro_rules! socket {
    ($socket:ty) => {
        impl $crate::stream::Socket for $socket {
            fn try_clone(&self) -> std::io::Result<Self> {
                self.try_clone()
            }

            fn limit(&self, within: std::time::Duration) -> std::io::Result<()> {
                self.set_read_timeout(Some(within))?;
                self.set_write_timeout(Some(within))
            }

            fn shut_down(&self) {
                // After an error it is down already.
                let _ = self.shutdown(std::net::Shutdown::Both);
            }
        }
    };
}
pub(crate) use socket;

socket!(TcpStream);

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
