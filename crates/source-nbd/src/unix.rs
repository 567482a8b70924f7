//! Sockets of this machine.

use crate::stream::{Socket, Stream};
use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

impl Socket for UnixStream {
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

pub(crate) fn connect(path: &Path, within: Duration) -> io::Result<Stream> {
    Stream::over(UnixStream::connect(path)?, within)
}
