//! Freezing an image that another process has mounted, while it is checked.
//!
//! A mount for writing listens on an abstract socket, which is named after the image file. While a
//! client is connected, the mount commits nothing and writes no metadata in place: the file, with
//! its journal replayed, is one state of the file system. Changes go on in memory, and wait where
//! they need a commit. The freeze ends with the connection, also where the client dies.
//!
//! The mount accepts its own user and root.

use crate::image::Image;
use rustix::net::sockopt::socket_peercred;
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::{fs, thread};

/// What the mount sends when the image is frozen.
const FROZEN: u8 = b'f';

/// A connection that keeps a mounted image frozen.
pub(crate) struct Frozen(#[expect(dead_code, reason = "its end ends the freeze")] UnixStream);

/// Freezes the image file, if a process has it mounted for writing.
///
/// # Errors
/// The mount refuses, or ends.
pub(crate) fn freeze(image: &OsStr) -> io::Result<Option<Frozen>> {
    let Some(address) = address(image)? else { return Ok(None) };
    let mut stream = match UnixStream::connect_addr(&address) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(None),
        connected => connected?,
    };
    let mut said = [0];
    stream.read_exact(&mut said)?;
    Ok(Some(Frozen(stream)))
}

/// `None` for what is no local file.
fn address(image: &OsStr) -> io::Result<Option<SocketAddr>> {
    let Ok(found) = fs::metadata(Path::new(image)) else { return Ok(None) };
    let name = format!("dentree/{:x}:{:x}", found.dev(), found.ino());
    SocketAddr::from_abstract_name(name).map(Some)
}

/// Lets others freeze `image` from now on, until the process ends. An image without a local file
/// cannot be frozen.
pub(crate) fn serve(image: Arc<Image>) -> io::Result<()> {
    let Some(address) = address(image.name())? else { return Ok(()) };
    let listener = UnixListener::bind_addr(&address)?;
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            // It has gone: nothing is frozen any more.
            let _ = hold(&image, client);
        }
    });
    Ok(())
}

/// Keeps the image frozen until the client is gone.
fn hold(image: &Image, mut client: UnixStream) -> io::Result<()> {
    let user = socket_peercred(&client)?.uid;
    if !user.is_root() && user != rustix::process::geteuid() {
        return Ok(());
    }
    let frozen = image.vfs.fs().freeze().map_err(io::Error::other)?;
    client.write_all(&[FROZEN])?;
    let end = client.read(&mut [0]);
    drop(frozen);
    end.map(drop)
}
