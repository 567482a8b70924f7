//! NBD servers that end when their values are dropped.

use crate::wait_until;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A server program on a socket; killed on drop.
#[derive(Debug)]
pub struct NbdServer {
    child: Child,
    socket: PathBuf,
}

impl NbdServer {
    /// nbdkit with `args` on `socket`; `None`, with a printed reason, where it is not installed.
    pub fn nbdkit(socket: &Path, args: &[&str]) -> Option<NbdServer> {
        let mut command = Command::new("nbdkit");
        command.arg("--foreground").arg("--unix").arg(socket).args(args);
        Self::start(command, socket)
    }

    /// qemu-nbd with `args` on `socket`; `None`, with a printed reason, where it is not installed.
    pub fn qemu_nbd(socket: &Path, args: &[&str]) -> Option<NbdServer> {
        let mut command = Command::new("qemu-nbd");
        command.args(["--persistent", "--shared=8", "--socket"]).arg(socket).args(args);
        Self::start(command, socket)
    }

    fn start(mut command: Command, socket: &Path) -> Option<NbdServer> {
        // Left by a server that was killed.
        let _ = fs::remove_file(socket);
        let child = match command.stdin(Stdio::null()).stderr(Stdio::null()).spawn() {
            Ok(child) => child,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                println!("skipped: {} is not installed", command.get_program().display());
                return None;
            }
            Err(error) => panic!("{command:?}: {error}"),
        };
        let mut server = NbdServer { child, socket: socket.to_owned() };
        wait_until("listening", || {
            assert!(server.child.try_wait().expect("a child").is_none(), "{command:?} ended");
            UnixStream::connect(&server.socket).is_ok()
        });
        Some(server)
    }

    /// The address of its default export.
    pub fn address(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }

    /// Kills it, as a power cut would.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for NbdServer {
    fn drop(&mut self) {
        self.kill();
    }
}
