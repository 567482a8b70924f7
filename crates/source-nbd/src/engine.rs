//! Files in the formats of others, through the programs that read them.
//!
//! A program serves one client, this process, and nothing of it is left when that is gone:
//! - nbdkit speaks over a pair of sockets, has no name, and ends when its peer does.
//! - qemu-nbd wants to listen. It inherits a listening socket to which this process is connected
//!   already, and whose name is gone before the program starts. It ends after its last client. As a
//!   client that is killed during the greeting is none yet, it is also killed at the end of the
//!   thread that started it, where setpriv(1) is there to ask for that (a SIGTERM while it starts
//!   is lost). What was flushed is in the image.

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

/// Passes the listening socket, standard input, as systemd does; not for a parent that is gone.
const ACTIVATE: &str = r#"[ "$PPID" = "$DENTREE" ] || exit 1
LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" "$@" 3<&0 </dev/null"#;

/// Time that a program gets to end by itself.
const END_WITHIN: Duration = Duration::from_secs(10);

/// Opens `file`, which has another format, through `engine`. The file stays locked meanwhile.
///
/// # Errors
/// [`Error::Missing`] where the program is not installed, [`Error::Engine`] where it fails, and
/// [`Error::NotWritable`].
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

/// The program's path, or `None` where it is not installed.
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
    // With a slash in front, no part of the name is taken for a protocol.
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

/// The last line that a program wrote.
fn last_line(mut messages: File) -> io::Result<String> {
    const LONGEST: u64 = 4096;
    messages.rewind()?;
    let mut text = Vec::new();
    messages.take(LONGEST).read_to_end(&mut text)?;
    let last = text.split(|&byte| byte == b'\n').rfind(|line| !line.is_empty());
    Ok(shown(last.unwrap_or(b"it ended without a message")))
}

/// A running program. Dropped after the last goodbye to it, it waits for its end.
struct Server {
    child: Child,
    /// Standard error.
    messages: File,
    /// Ends the thread that started the program, which must live as long.
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
            // Its copies of the sockets: the program's are the last.
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
