//! A real HTTP server with ranges: nginx, where it is installed.

use crate::wait_until;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// nginx that serves a directory at a socket in a file; ended when it is dropped.
#[derive(Debug)]
pub struct Nginx {
    child: Child,
    socket: PathBuf,
}

impl Nginx {
    /// Serves `directory`; its own files go to `work`. `None`, and a line that says so, where nginx
    /// is not installed.
    ///
    /// # Panics
    /// Where it does not start.
    pub fn start(directory: &Path, work: &Path) -> Option<Self> {
        let program = ["/usr/sbin/nginx", "/usr/bin/nginx"].into_iter().find(|path| Path::new(path).exists());
        let Some(program) = program else {
            eprintln!("skipped: nginx is not installed");
            return None;
        };
        let socket = work.join("nginx.socket");
        let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {}/{kind};", work.display()));
        let settings = format!(
            "daemon off; master_process off; pid {work}/nginx.pid; error_log stderr; events {{}}
             http {{ access_log off; {} server {{ listen unix:{}; root {}; }} }}",
            paths.join(" "),
            socket.display(),
            directory.display(),
            work = work.display(),
        );
        let file = work.join("nginx.conf");
        fs::write(&file, settings).expect("the directory can be written");
        let mut command = Command::new(program);
        command.arg("-e").arg("stderr").arg("-c").arg(&file).stdin(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("nginx is a program");
        wait_until("listening", || UnixStream::connect(&socket).is_ok());
        Some(Nginx { child, socket })
    }

    /// Where it listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // It has no workers.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
