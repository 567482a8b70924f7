//! Foreign formats through programs that serve them.
//!
//! A program serves this process alone and must not outlive it:
//! - nbdkit uses a socket pair and ends with its peer.
//! - qemu-nbd must listen. It inherits a listening socket that is already connected and unlinked,
//!   and ends after its last client. A client killed during the greeting does not count, so
//!   setpriv(1), if installed, also kills the program with the thread that started it (a SIGTERM
//!   during start is lost). Flushed data is in the image.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use dentree_blockdev::{Access, Engine, FileDevice, Format};

use crate::wire::shown;
use crate::{Error, NbdDevice, Patience};

/// Passes the listening socket, standard input, as systemd does; exits if the parent is gone.
const ACTIVATE: &str = r#"[ "$PPID" = "$DENTREE" ] || exit 1
LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" "$@" 3<&0 </dev/null"#;

/// Time to end without a kill.
const END_WITHIN: Duration = Duration::from_secs(10);

/// Opens a `file` of another format through `engine`, and keeps it locked.
///
/// # Errors
/// [`Error::Missing`]: not installed. [`Error::Engine`]: it fails. [`Error::NotWritable`].
pub fn open_foreign(
    file: Arc<FileDevice>,
    format: &Format,
    engine: Engine,
    access: Access,
) -> Result<NbdDevice, Error> {
    let at = file.path().display().to_string();
    let (program, package) = match engine {
        Engine::QemuNbd(_) => ("qemu-nbd", "qemu-utils"),
        Engine::Nbdkit(_) => ("nbdkit", "nbdkit"),
    };
    let Some(path) = find_program(program) else {
        let remedy = format.remedy;
        return Err(Error::Missing { at, format: format.name, program, package, remedy });
    };
    let failed = |problem: String| Error::Engine { at: at.clone(), program, problem };
    let started = match engine {
        Engine::QemuNbd(name) => qemu_nbd(&path, file.path(), name, access),
        Engine::Nbdkit(filter) => nbdkit(&path, file.path(), filter),
    };
    let (socket, server) = started.map_err(|error| failed(error.to_string()))?;
    let messages = server.messages.try_clone();
    match NbdDevice::over(socket, &at, access, Patience::default(), Box::new((server, file))) {
        Err(Error::Greeting { .. }) => Err(failed(messages.and_then(last_line).unwrap_or_default())),
        Err(Error::NotWritable { .. }) => {
            let problem = "it is compressed as a whole; unpack it first";
            Err(Error::NotWritable { at, problem })
        }
        opened => opened,
    }
}

fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|program| program.is_file())
}

fn qemu_nbd(program: &Path, file: &Path, format: &str, access: Access) -> io::Result<(UnixStream, Server)> {
    let dir = tempfile::tempdir()?;
    let listener = UnixListener::bind(dir.path().join("nbd"))?;
    let socket = UnixStream::connect(dir.path().join("nbd"))?;
    drop(dir);
    let mut command = match find_program("setpriv") {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", "KILL", "--", "sh"]);
            command
        }
        None => Command::new("sh"),
    };
    command.env("DENTREE", std::process::id().to_string()).args(["-c", ACTIVATE]).arg(program);
    command.arg(format!("--format={format}")).arg("--discard=unmap");
    if access == Access::ReadOnly {
        command.arg("--read-only");
    }
    // The leading slash prevents a protocol prefix.
    command.arg(std::path::absolute(file)?).stdin(OwnedFd::from(listener)).stdout(Stdio::null());
    Ok((socket, Server::start(command)?))
}

fn nbdkit(program: &Path, file: &Path, filter: &str) -> io::Result<(UnixStream, Server)> {
    let (socket, theirs) = UnixStream::pair()?;
    let mut name = std::ffi::OsString::from("file=");
    name.push(std::path::absolute(file)?);
    let mut command = Command::new(program);
    command.args(["--single", "--readonly"]).arg(format!("--filter={filter}")).arg("file").arg(name);
    command.stdin(OwnedFd::from(theirs.try_clone()?)).stdout(OwnedFd::from(theirs));
    Ok((socket, Server::start(command)?))
}

/// Last line of output.
fn last_line(mut messages: File) -> io::Result<String> {
    const LONGEST: u64 = 4096;
    messages.rewind()?;
    let mut text = Vec::new();
    messages.take(LONGEST).read_to_end(&mut text)?;
    let last = text.split(|&byte| byte == b'\n').rfind(|line| !line.is_empty());
    Ok(shown(last.unwrap_or(b"it ended without a message")))
}

/// Running program. After the last disconnect, dropping it waits for the end.
struct Server {
    child: Child,
    messages: File,
    /// Ends the starting thread, which must live as long.
    _starter: Sender<()>,
}

impl Server {
    fn start(mut command: Command) -> io::Result<Server> {
        let messages = tempfile::tempfile()?;
        command.stderr(messages.try_clone()?);
        let (started, child) = channel();
        let (starter, end) = channel::<()>();
        thread::Builder::new().name("nbd-engine".to_owned()).spawn(move || {
            let child = command.spawn();
            // Closes our copies of the sockets.
            drop(command);
            if started.send(child).is_ok() {
                let _ = end.recv();
            }
        })?;
        let child = child.recv().map_err(io::Error::other)??;
        Ok(Server { child, messages, _starter: starter })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let began = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if began.elapsed() > END_WITHIN {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
}
