//! Sockets of this machine.

use crate::stream::{Stream, socket};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

socket!(UnixStream);

pub(crate) fn connect(path: &Path, within: Duration) -> io::Result<Stream> {
    Stream::over(UnixStream::connect(path)?, within)
}
