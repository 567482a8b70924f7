//! `dentree serve` of an image made by mke2fs.

use dentree_testing::{PATIENCE, wait_until};
use rustix::process::{Pid, Resource, Signal, getrlimit, kill_process, setrlimit};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use tempfile::TempDir;

const IDLE: u64 = 10_000;

/// Size of `large.bin`: more than the sockets buffer.
const LARGE: u32 = 24 << 20;

/// A temporary directory with `disk.img`, made from `tree` in it.
fn image() -> TempDir {
    image_with(|_| ())
}

/// As [`image`], with more files by `fill`.
fn image_with(fill: impl FnOnce(&Path)) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    fs::create_dir_all(tree.join("etc")).unwrap();
    fs::write(tree.join("etc/hosts"), "127.0.0.1 localhost\n").unwrap();
    let content: Vec<u8> = (0..LARGE / 4).flat_map(u32::to_le_bytes).collect();
    fs::write(tree.join("large.bin"), content).unwrap();
    fill(&tree);
    let made = Command::new("mke2fs")
        .env("PATH", format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default()))
        .args(["-q", "-F", "-t", "ext4", "-d"])
        .args([&tree, &dir.path().join("disk.img")])
        .arg("48M")
        .stdout(Stdio::null())
        .status();
    assert!(made.unwrap().success());
    dir
}

/// A server, killed on drop.
struct Serving {
    child: Child,
    stderr: BufReader<std::process::ChildStderr>,
    files: SocketAddr,
    metrics: SocketAddr,
    log: PathBuf,
    _dir: TempDir,
}

impl Serving {
    fn new(image: &Path) -> Self {
        Self::with(image, |_| ())
    }

    /// As [`new`](Self::new), with changes to the command.
    fn with(image: &Path, change: impl FnOnce(&mut Command)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("access.log");
        let mut command = Command::new(env!("CARGO_BIN_EXE_dentree"));
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--access-log"])
            .args([&log, image]);
        change(&mut command);
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut address = || {
            let mut line = String::new();
            stderr.read_line(&mut line).unwrap();
            let address = line.split("http://").nth(1).and_then(|rest| rest.split('/').next());
            address.unwrap_or_else(|| panic!("no address: {line}")).parse().unwrap()
        };
        let (files, metrics) = (address(), address());
        Serving { child, stderr, files, metrics, log, _dir: dir }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("ended", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// Ends the server; returns the line of `--stats` on memory pressure.
    fn pressure(&mut self) -> String {
        self.signal(Signal::TERM);
        assert!(self.wait().success());
        let mut text = String::new();
        self.stderr.read_to_string(&mut text).unwrap();
        let line = text.lines().find_map(|line| line.trim().strip_prefix("pressure  "));
        line.unwrap_or_else(|| panic!("no line in {text}")).to_owned()
    }

    fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim_end_matches("kB").trim().parse().unwrap()
    }

    fn get(&self, path: &str) -> Vec<u8> {
        get(self.files, path).1
    }

    fn figure(&self, name: &str) -> u64 {
        let text = String::from_utf8(get(self.metrics, "/metrics").1).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Head and body of a response, on a new connection.
fn get(address: SocketAddr, path: &str) -> (String, Vec<u8>) {
    let mut stream = connect(address);
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all);
    let end = all.windows(4).position(|at| at == b"\r\n\r\n").expect("a head");
    let body = all.split_off(end + 4);
    (String::from_utf8(all).unwrap(), body)
}

#[test]
fn files_of_an_image_arrive_as_they_were_put_in() {
    let dir = image();
    let mut serving = Serving::new(&dir.path().join("disk.img"));
    for name in ["etc/hosts", "large.bin"] {
        assert!(
            serving.get(&format!("/{name}")) == fs::read(dir.path().join("tree").join(name)).unwrap(),
            "{name}"
        );
    }
    let page = String::from_utf8(serving.get("/")).unwrap();
    assert!(page.contains("<title>disk.img: /</title>") && page.contains("href=\"lost%2Bfound/\""));
    assert!(serving.figure("dentree_device_reads_total") > 0);
    assert!(serving.figure("dentree_names_walks_total") >= 3);
    serving.signal(Signal::TERM);
    assert!(serving.wait().success());
    let log = fs::read_to_string(&serving.log).unwrap();
    let requests: Vec<&str> = log.lines().map(|line| line.split_once("] ").unwrap().1).collect();
    // A request is logged after its end, which the client may see first.
    for expected in ["\"GET /etc/hosts HTTP/1.1\" 200 20", "\"GET /large.bin HTTP/1.1\" 200 25165824"] {
        assert!(requests.contains(&expected), "{expected} in {requests:?}");
    }
    assert_eq!(requests.len(), 3, "every request was written before the end");
}

#[test]
fn memory_pressure_shrinks_the_caches_of_a_server() {
    const NAMES: u32 = 600;
    let dir = image_with(|tree| {
        (0..NAMES).for_each(|n| fs::write(tree.join(format!("etc/{n}")), "x").unwrap());
    });
    let image = dir.path().join("disk.img");
    let fifo = dir.path().join("pressure");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let mut events = File::options().read(true).write(true).open(&fifo).unwrap();
    let mut serving = Serving::with(&image, |command| {
        command.arg("--stats").env("MEMORY_PRESSURE_WATCH", &fifo);
    });
    for n in 0..NAMES {
        assert_eq!(serving.get(&format!("/etc/{n}")), b"x");
    }
    let names = serving.figure("dentree_names_entries");
    assert!(names >= NAMES.into(), "{names}");
    events.write_all(b"x").unwrap();
    wait_until("shrunk", || serving.figure("dentree_pressure_shrinks_total") == 1);
    let dropped = serving.figure("dentree_pressure_names_total");
    assert!(dropped > 0 && dropped < names, "{dropped} of {names} names");
    events.write_all(b"xyz").unwrap();
    wait_until("shrunk again", || serving.figure("dentree_pressure_shrinks_total") == 2);
    assert_eq!(serving.get("/etc/hosts").len(), 20);
    let dropped = serving.figure("dentree_pressure_names_total");
    let expected = format!("shrunk 2 times, by {}; {dropped} names and ", fifo.display());
    let told = serving.pressure();
    assert!(told.starts_with(&expected) && told.contains("; last cause: "), "{told}");
}

#[test]
fn a_server_that_cannot_watch_memory_pressure_says_why() {
    let dir = image();
    for (file, expected) in
        [("/dev/null", "turned off by $MEMORY_PRESSURE_WATCH"), ("/no", "/no: No such file")]
    {
        let mut serving = Serving::with(&dir.path().join("disk.img"), |command| {
            command.arg("--stats").env("MEMORY_PRESSURE_WATCH", file);
        });
        let told = serving.pressure();
        assert!(told.starts_with(&format!("shrunk 0 times, not watched: {expected}")), "{told}");
    }
}

#[test]
fn an_image_that_cannot_be_served_is_reported() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let serve =
        |args: &[&str]| Command::new(env!("CARGO_BIN_EXE_dentree")).arg("serve").args(args).output().unwrap();
    let dir = image();
    let image = dir.path().join("disk.img");
    let output = serve(&[image.to_str().unwrap(), "--listen", &address]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("in use; choose another"));
    assert_eq!(serve(&["none.img"]).status.code(), Some(1));
    assert_eq!(serve(&["x.img", "--listen", "everywhere"]).status.code(), Some(2));
}

#[test]
fn an_image_that_shrinks_in_mid_file_gives_a_short_body() {
    let dir = image();
    let image = dir.path().join("disk.img");
    let mut serving = Serving::new(&image);
    assert_eq!(serving.get("/etc/hosts").len(), 20);
    let whole = fs::read(dir.path().join("tree/large.bin")).unwrap();
    wait_until("closed", || serving.figure("dentree_http_connections") == 0);
    let files = serving.descriptors();
    let mut stream = connect(serving.files);
    write!(stream, "GET /large.bin HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut body = vec![0; 4096];
    stream.read_exact(&mut body).unwrap();
    File::options().write(true).open(&image).unwrap().set_len(0).unwrap();
    let _ = stream.read_to_end(&mut body);
    let head = body.windows(4).position(|at| at == b"\r\n\r\n").unwrap() + 4;
    assert!(body.len() - head < whole.len() && whole.starts_with(&body[head..]));
    let (head, text) = get(serving.files, "/large.bin");
    assert!(head.starts_with("HTTP/1.1 500 "), "{head}");
    assert!(!String::from_utf8(text).unwrap().contains("disk.img"));
    let mut told = String::new();
    serving.stderr.read_line(&mut told).unwrap();
    assert!(told.contains("disk.img:/large.bin: "), "{told}");
    drop(stream);
    wait_until("as before", || serving.descriptors() <= files);
    serving.signal(Signal::INT);
    assert!(serving.wait().success());
}

#[test]
fn ten_thousand_idle_connections_cost_little_and_leave_nothing() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|files| files < IDLE + 500) {
        limit.current = limit.maximum;
        let raised = setrlimit(Resource::Nofile, limit);
        if raised.is_err() || limit.maximum.is_some_and(|files| files < IDLE + 500) {
            println!("skipped: this process may not open {IDLE} files");
            return;
        }
    }
    let dir = image();
    let mut serving = Serving::new(&dir.path().join("disk.img"));
    serving.get("/etc/hosts");
    serving.figure("dentree_http_connections");
    wait_until("closed", || serving.figure("dentree_http_connections") == 0);
    let (files, memory) = (serving.descriptors(), serving.resident());

    let silent: Vec<TcpStream> = (0..IDLE / 2).map(|_| connect(serving.files)).collect();
    let kept: Vec<TcpStream> = (0..IDLE / 2)
        .map(|_| {
            let mut stream = connect(serving.files);
            write!(stream, "HEAD /etc/hosts HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
            assert!(stream.read(&mut [0; 1000]).unwrap() > 0);
            stream
        })
        .collect();
    let open = serving.figure("dentree_http_connections");
    let each = (serving.resident() - memory) * 1024 / IDLE;
    println!("{open} connections open, {each} bytes of memory each");
    if open > IDLE / 2 {
        assert!(each < 32 << 10);
    } else {
        println!("skipped: this machine is so busy that the first were cut off before the last came");
    }
    assert_eq!(serving.get("/etc/hosts").len(), 20, "it still answers");
    drop((silent, kept));
    wait_until("closed", || serving.figure("dentree_http_connections") == 0);
    wait_until("as before", || serving.descriptors() <= files + 1);
    serving.signal(Signal::TERM);
    assert!(serving.wait().success());
}
