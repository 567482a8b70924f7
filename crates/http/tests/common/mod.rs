//! A file system in memory, its server, and a byte-exact client.
#![allow(dead_code)] // each test file uses a part of it

use dentree_http::{Access, Handle, Log, Options, Server};
use dentree_testing::{PATIENCE, wait_until};
use dentree_vfs::*;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

/// 2001-09-09 01:46:40 UTC.
pub const CHANGED: i64 = 1_000_000_000;
pub const CHANGED_DATE: &str = "Sun, 09 Sep 2001 01:46:40 GMT";

#[derive(Clone, Debug)]
pub enum Thing {
    Dir,
    File(Vec<u8>),
    /// A file of [`pattern`] bytes; its device fails from the given byte on.
    Failing(u64, u64),
    /// A file of one byte; its device blocks while the mutex is locked.
    Stuck(Arc<Mutex<()>>),
    Link(&'static str),
    Fifo,
}

/// Byte of a large file at `offset`.
pub fn pattern(offset: u64) -> u8 {
    (offset % 251) as u8
}

pub fn large(len: u64) -> Thing {
    Thing::Failing(len, u64::MAX)
}

/// An inode: itself, parent, names.
pub struct Node {
    thing: Thing,
    parent: Ino,
    names: BTreeMap<Vec<u8>, Ino>,
}

pub struct MemFs {
    nodes: Vec<Node>,
    mtime: i64,
}

impl MemFs {
    /// Parents come before children.
    pub fn new<P: AsRef<[u8]>>(lines: impl IntoIterator<Item = (P, Thing)>) -> MemFs {
        let mut nodes = vec![Node { thing: Thing::Dir, parent: Ino(1), names: BTreeMap::new() }];
        let mut inodes = BTreeMap::from([(Vec::new(), Ino(1))]);
        for (path, thing) in lines {
            let path = path.as_ref();
            let (above, name) = match path.iter().rposition(|&byte| byte == b'/') {
                Some(slash) => (&path[..slash], &path[slash + 1..]),
                None => (&b""[..], path),
            };
            let parent = inodes[above];
            let ino = Ino(nodes.len() as u64 + 1);
            nodes[parent.0 as usize - 1].names.insert(name.to_vec(), ino);
            nodes.push(Node { thing, parent, names: BTreeMap::new() });
            inodes.insert(path.to_vec(), ino);
        }
        MemFs { nodes, mtime: CHANGED }
    }

    /// With another mtime.
    pub fn changed(self, mtime: i64) -> MemFs {
        MemFs { mtime, ..self }
    }

    fn node(&self, ino: Ino) -> &Node {
        &self.nodes[ino.0 as usize - 1]
    }

    fn kind(&self, ino: Ino) -> FileType {
        match self.node(ino).thing {
            Thing::Dir => FileType::Directory,
            Thing::File(_) | Thing::Failing(..) | Thing::Stuck(_) => FileType::Regular,
            Thing::Link(_) => FileType::Symlink,
            Thing::Fifo => FileType::Fifo,
        }
    }
}

impl FileSystem for MemFs {
    type Node = Ino;

    fn root(&self) -> Ino {
        Ino(1)
    }

    fn load(&self, ino: Ino) -> Result<Ino> {
        Ok(ino)
    }

    fn node_bytes(&self, _: &Ino) -> usize {
        0
    }

    fn attr(&self, ino: &Ino) -> Attr {
        Attr {
            ino: *ino,
            kind: self.kind(*ino),
            permissions: 0o755,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev_major: 0,
            rdev_minor: 0,
            size: match &self.node(*ino).thing {
                Thing::File(content) => content.len() as u64,
                Thing::Failing(len, _) => *len,
                Thing::Stuck(_) => 1,
                _ => 0,
            },
            blocks: 0,
            block_size: 4096,
            atime: Timestamp::default(),
            mtime: Timestamp { seconds: self.mtime, nanos: 0 },
            ctime: Timestamp::default(),
            crtime: None,
            generation: 7,
            flags: 0,
            has_acl: false,
        }
    }

    fn lookup(&self, dir: &Ino, name: &[u8]) -> Result<Option<Lookup>> {
        let found = self.node(*dir).names.get(name).copied();
        Ok(found.map(|ino| Lookup { ino, kind: Some(self.kind(ino)) }))
    }

    fn readdir(
        &self,
        dir: &Ino,
        start: ReaddirStart,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let behind = if let ReaddirStart::After(cookie) = start { cookie } else { 0 };
        let mut entries: Vec<_> = self.node(*dir).names.iter().filter(|(_, ino)| ino.0 > behind).collect();
        entries.sort_by_key(|(_, ino)| **ino);
        for (name, &ino) in entries {
            if each(DirEntry { name, ino, kind: Some(self.kind(ino)), cookie: ino.0 }).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn parent(&self, dir: &Ino) -> Result<Ino> {
        Ok(self.node(*dir).parent)
    }

    fn read(&self, ino: &Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let size = self.attr(ino).size;
        let len = buf.len().min(usize::try_from(size.saturating_sub(offset)).unwrap());
        let end = offset + len as u64;
        match &self.node(*ino).thing {
            Thing::File(content) => buf[..len].copy_from_slice(&content[offset as usize..end as usize]),
            Thing::Failing(_, from) if end > *from => return Err(Error::Io("the device's secret".into())),
            Thing::Stuck(gate) => drop(gate.lock().unwrap()),
            _ => buf[..len].iter_mut().zip(offset..).for_each(|(byte, at)| *byte = pattern(at)),
        }
        Ok(len)
    }

    fn extent(&self, _: &Ino, _: u64) -> Result<Extent> {
        Err(Error::NoExtent)
    }

    fn readlink(&self, ino: &Ino) -> Result<Vec<u8>> {
        match self.node(*ino).thing {
            Thing::Link(target) => Ok(target.into()),
            _ => Err(Error::Invalid),
        }
    }

    fn getxattr(&self, _: &Ino, _: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }

    fn listxattr(&self, _: &Ino) -> Result<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }

    fn statfs(&self) -> Result<FsStat> {
        Err(Error::Invalid)
    }
}

#[derive(Default)]
pub struct Told {
    pub lines: Mutex<Vec<String>>,
    pub problems: Mutex<Vec<String>>,
}

impl Log for Told {
    fn access(&self, access: &Access) {
        self.lines.lock().unwrap().push(access.to_string());
    }

    fn problem(&self, path: &[u8], error: &Error) {
        self.problems.lock().unwrap().push(format!("{}: {error}", String::from_utf8_lossy(path)));
    }
}

/// Stops the server when dropped.
pub struct Running {
    pub address: SocketAddr,
    pub metrics: Option<SocketAddr>,
    pub told: Arc<Told>,
    pub handle: Handle,
    thread: Option<JoinHandle<usize>>,
}

impl Running {
    pub fn new(fs: MemFs) -> Self {
        Self::with(fs, |_| {})
    }

    /// `change` edits the options.
    pub fn with(fs: MemFs, change: impl FnOnce(&mut Options)) -> Self {
        let mut options = Options::new("disk.img");
        change(&mut options);
        let told = Arc::new(Told::default());
        let server = Server::bind(Arc::new(Vfs::new(fs).unwrap()), options, told.clone()).unwrap();
        let (address, metrics, handle) = (server.address(), server.metrics_address(), server.handle());
        Running { address, metrics, told, handle, thread: Some(thread::spawn(|| server.serve())) }
    }

    pub fn client(&self) -> Client {
        Client::new(self.address)
    }

    /// A request on a new connection: request line without version, more headers.
    pub fn ask(&self, request: &str, headers: &str) -> Reply {
        let mut client = self.client();
        client.request(request, headers);
        client.reply(request.starts_with("HEAD"))
    }

    pub fn get(&self, path: &str) -> Reply {
        self.ask(&format!("GET {path}"), "")
    }

    /// Returns the number of connections cut off.
    pub fn stop(&mut self) -> usize {
        self.handle.stop();
        self.thread.take().map_or(0, |thread| thread.join().unwrap())
    }

    /// Waits for this many log lines.
    pub fn lines(&self, count: usize) -> Vec<String> {
        wait_until("told", || self.told.lines.lock().unwrap().len() >= count);
        self.told.lines.lock().unwrap().clone()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

pub struct Client(pub BufReader<TcpStream>);

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
    /// The connection ended in the body.
    pub short: bool,
}

impl Client {
    pub fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        // A failing test is better than a hanging one.
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Client(BufReader::new(stream))
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).unwrap();
    }

    pub fn request(&mut self, request: &str, headers: &str) {
        self.send(format!("{request} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n").as_bytes());
    }

    /// `head`: a response without body.
    pub fn reply(&mut self, head: bool) -> Reply {
        self.try_reply(head).expect("a response")
    }

    /// `None`: the connection has ended.
    pub fn try_reply(&mut self, head: bool) -> Option<Reply> {
        let status = self.line()?;
        let status = status.split(' ').nth(1).unwrap().parse().unwrap();
        let mut headers = BTreeMap::new();
        while let Some((name, value)) = self.line()?.split_once(": ") {
            assert_eq!(headers.insert(name.to_lowercase(), value.to_owned()), None, "{name} comes twice");
        }
        let bodiless = head || status == 304;
        let len = headers.get("content-length").filter(|_| !bodiless).map_or(0, |len| len.parse().unwrap());
        if !bodiless && headers.get("transfer-encoding").is_some_and(|coding| coding == "chunked") {
            let (body, short) = self.chunks();
            return Some(Reply { status, headers, body, short });
        }
        let mut body = Vec::new();
        let read = (&mut self.0).take(len).read_to_end(&mut body);
        assert!(read.is_ok() || body.len() < len as usize);
        Some(Reply { status, headers, short: body.len() < len as usize, body })
    }

    /// A chunked body, and whether its end is missing.
    fn chunks(&mut self) -> (Vec<u8>, bool) {
        let mut body = Vec::new();
        while let Some(len) = self.line() {
            let len = usize::from_str_radix(&len, 16).unwrap();
            let read = (&mut self.0).take(len as u64).read_to_end(&mut body);
            if read.ok() != Some(len) || self.line().is_none() {
                break;
            }
            if len == 0 {
                return (body, false);
            }
        }
        (body, true)
    }

    /// Whether the server closes without another byte.
    pub fn ends(&mut self) -> bool {
        let mut byte = [0];
        match self.0.read(&mut byte) {
            Ok(len) => len == 0,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }

    fn line(&mut self) -> Option<String> {
        let mut line = Vec::new();
        self.0.read_until(b'\n', &mut line).ok()?;
        String::from_utf8(line).unwrap().strip_suffix("\r\n").map(str::to_owned)
    }
}

impl Reply {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }
}

pub fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}
