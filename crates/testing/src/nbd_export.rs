//! An NBD server in the test's own process, over any device. It can lose power.

use dentree_blockdev::BlockDevice;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use tempfile::TempDir;

/// Asked before each request. `Some` is a power cut: connections end, and the next one finds this
/// device.
pub type Cut = Box<dyn FnMut() -> Option<Arc<dyn BlockDevice>> + Send>;

/// A server on a socket in a temporary directory; it ends on drop.
#[derive(Debug)]
pub struct NbdExport {
    dir: TempDir,
    state: Arc<Mutex<State>>,
    listener: Option<JoinHandle<()>>,
}

struct State {
    device: Arc<dyn BlockDevice>,
    cut: Cut,
    /// Those that are served by `device`.
    connections: Vec<UnixStream>,
    /// Of power cuts.
    count: u64,
    is_closed: bool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("count", &self.count).finish_non_exhaustive()
    }
}

impl State {
    fn end_connections(&mut self) {
        for connection in self.connections.drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

impl NbdExport {
    /// Serves `device`.
    ///
    /// # Panics
    /// Without sockets.
    pub fn new(device: Arc<dyn BlockDevice>, cut: Cut) -> NbdExport {
        let dir = tempfile::tempdir().expect("a directory");
        let listener = UnixListener::bind(dir.path().join("socket")).expect("a socket");
        let state = State { device, cut, connections: Vec::new(), count: 0, is_closed: false };
        let state = Arc::new(Mutex::new(state));
        let served = state.clone();
        let listener = Some(thread::spawn(move || listen(&listener, &served)));
        NbdExport { dir, state, listener }
    }

    /// The address of the export.
    pub fn address(&self) -> String {
        format!("nbd+unix:///?socket={}", self.dir.path().join("socket").display())
    }
}

impl Drop for NbdExport {
    fn drop(&mut self) {
        lock(&self.state).is_closed = true;
        let _ = UnixStream::connect(self.dir.path().join("socket"));
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn listen(listener: &UnixListener, state: &Arc<Mutex<State>>) {
    let mut serving = Vec::new();
    for connection in listener.incoming() {
        let mut locked = lock(state);
        let Ok(connection) = connection.and_then(|stream| Ok((stream.try_clone()?, stream))) else {
            continue;
        };
        if locked.is_closed {
            locked.end_connections();
            break;
        }
        locked.connections.push(connection.0);
        let (state, count) = (state.clone(), locked.count);
        // The connection ends by an error, or with the client.
        serving.push(thread::spawn(move || drop(serve(connection.1, &state, count))));
    }
    serving.into_iter().for_each(|thread| drop(thread.join()));
}

fn array<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Greets a client, and answers its requests until the power is cut for the next time.
fn serve(mut stream: UnixStream, state: &Mutex<State>, count: u64) -> io::Result<()> {
    let device = lock(state).device.clone();
    nbd_greet(&mut stream, device.size())?;
    loop {
        let header: [u8; 28] = array(&mut stream)?;
        let number = |range: std::ops::Range<usize>| {
            header[range].iter().fold(0u64, |number, &byte| number << 8 | u64::from(byte))
        };
        let (command, offset, len) = (number(6..8), number(16..24), number(24..28));
        let mut data = vec![0; if command < 2 { len as usize } else { 0 }];
        if command == 1 {
            stream.read_exact(&mut data)?;
        }
        let mut locked = lock(state);
        if locked.count != count {
            return Ok(());
        }
        if let Some(device) = (locked.cut)() {
            locked.device = device;
            locked.count += 1;
            locked.end_connections();
            return Ok(());
        }
        let done = match command {
            0 => device.read_at(offset, &mut data),
            1 => device.write_at(offset, &data),
            2 => return Ok(()),
            3 => device.flush(),
            _ => device.discard(offset, len),
        };
        drop(locked);
        let cookie = &header[8..16];
        stream.write_all(&reply(cookie, offset, done, if command == 0 { &data } else { &[] }))?;
    }
}

/// A server's greeting: structured replies, an export of `size` bytes that can be flushed and
/// trimmed.
///
/// # Errors
/// Those of the socket.
pub fn nbd_greet(stream: &mut UnixStream, size: u64) -> io::Result<()> {
    stream.write_all(b"NBDMAGICIHAVEOPT\0\x03")?;
    let _client_flags: [u8; 4] = array(stream)?;
    loop {
        let header: [u8; 16] = array(stream)?;
        let [.., a, b, c, d] = header;
        let mut data = vec![0; u32::from_be_bytes([a, b, c, d]) as usize];
        stream.read_exact(&mut data)?;
        let option = &header[8..12];
        let mut reply = |kind: u32, data: &[u8]| {
            let magic = 0x0003_e889_0455_65a9u64.to_be_bytes();
            let len = (data.len() as u32).to_be_bytes();
            stream.write_all(&[&magic, option, &kind.to_be_bytes(), &len, data].concat())
        };
        match option[3] {
            7 => {
                // Flush and trim.
                let flags = 1u16 | 1 << 2 | 1 << 5;
                reply(3, &[&[0, 0], &size.to_be_bytes()[..], &flags.to_be_bytes()].concat())?;
                return reply(1, &[]);
            }
            8 => reply(1, &[])?,
            _ => reply(1 << 31 | 1, &[])?,
        }
    }
}

/// A structured reply; what was read comes in two chunks, the second half first.
fn reply(cookie: &[u8], offset: u64, done: io::Result<()>, data: &[u8]) -> Vec<u8> {
    let chunk = |flags: u16, kind: u16, payload: &[&[u8]]| {
        let payload = payload.concat();
        let magic = 0x668e_33efu32.to_be_bytes();
        let len = (payload.len() as u32).to_be_bytes();
        [&magic[..], &flags.to_be_bytes(), &kind.to_be_bytes(), cookie, &len, &payload].concat()
    };
    let data_at = |at: usize, part: &[u8]| chunk(0, 1, &[&(offset + at as u64).to_be_bytes(), part]);
    match done {
        Err(_) => chunk(1, 1 << 15 | 1, &[&5u32.to_be_bytes(), &[0, 0]]),
        Ok(()) if data.len() > 1 => {
            let (first, second) = data.split_at(data.len() / 2);
            [data_at(first.len(), second), data_at(0, first), chunk(1, 0, &[])].concat()
        }
        Ok(()) if data.len() == 1 => [data_at(0, data), chunk(1, 0, &[])].concat(),
        Ok(()) => chunk(1, 0, &[]),
    }
}
