//! A proxy for HTTP/1.1 between a program and a server: it counts, and does what bad lines and bad
//! servers do.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// The server behind the proxy.
#[derive(Clone, Debug)]
pub enum Upstream {
    /// At a socket in a file.
    Unix(PathBuf),
    /// At a port of this machine.
    Tcp(SocketAddr),
}

/// What happens to one request, instead of what should.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The answer is this status, without asking the server.
    Status(u16),
    /// The connection is closed after so many bytes of the body.
    CutAfter(u64),
    /// A field of the answer's head is replaced.
    Header(&'static str, String),
    /// A field of the answer's head is left out.
    Drop(&'static str),
    /// The server does not see this field of the request.
    Without(&'static str),
}

/// A request that was answered.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// The request's head.
    pub request: String,
    /// The answer's status.
    pub status: u16,
    /// Bytes of the answer's body.
    pub body: u64,
}

/// A proxy that runs until the process ends.
#[derive(Clone, Debug)]
pub struct Proxy(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    address: SocketAddr,
    upstream: Upstream,
    state: Mutex<State>,
    released: Condvar,
}

#[derive(Debug, Default)]
struct State {
    exchanges: Vec<Exchange>,
    faults: VecDeque<Fault>,
    always: Vec<Fault>,
    holds: bool,
    held: usize,
    delay: Duration,
}

impl Proxy {
    /// Starts a proxy for a server.
    ///
    /// # Panics
    /// Where no port can be had.
    pub fn start(upstream: Upstream) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let (state, released) = (Mutex::default(), Condvar::new());
        let proxy = Proxy(Arc::new(Inner { address, upstream, state, released }));
        let served = proxy.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let served = served.clone();
                // A client that goes away is no matter.
                thread::spawn(move || drop(served.serve(client)));
            }
        });
        proxy
    }

    /// `http://127.0.0.1:PORT` and a path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.0.address)
    }

    /// What happens to the next requests, one each.
    pub fn next(&self, faults: impl IntoIterator<Item = Fault>) {
        self.state().faults.extend(faults);
    }

    /// What happens to all requests from now on.
    pub fn always(&self, faults: impl IntoIterator<Item = Fault>) {
        self.state().always = faults.into_iter().collect();
    }

    /// Holds all requests back, until [`release`](Proxy::release).
    pub fn hold(&self) {
        self.state().holds = true;
    }

    /// Lets requests through again.
    pub fn release(&self) {
        self.state().holds = false;
        self.0.released.notify_all();
    }

    /// Requests that are held back now.
    pub fn held(&self) -> usize {
        self.state().held
    }

    /// The time that each request takes from now on, besides the server's.
    pub fn delay(&self, delay: Duration) {
        self.state().delay = delay;
    }

    /// The exchanges since the last call.
    pub fn take(&self) -> Vec<Exchange> {
        std::mem::take(&mut self.state().exchanges)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, client: TcpStream) -> io::Result<()> {
        let mut requests = BufReader::new(client.try_clone()?);
        loop {
            let request = head(&mut requests)?;
            if request.is_empty() {
                return Ok(());
            }
            let (delay, fault, mut faults) = {
                let mut state = self.state();
                state.held += 1;
                while state.holds {
                    state = self.0.released.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                state.held -= 1;
                (state.delay, state.faults.pop_front(), state.always.clone())
            };
            thread::sleep(delay);
            faults.extend(fault);
            if !self.answer(request, &faults, &client)? {
                return Ok(());
            }
        }
    }

    /// Answers a request; `false` where the connection is to be closed.
    fn answer(&self, request: Vec<String>, faults: &[Fault], mut client: &TcpStream) -> io::Result<bool> {
        let mut exchange = Exchange { request: request.join("\n"), status: 0, body: 0 };
        let (mut answer, mut body): (_, Box<dyn Read>) = match faults.iter().find_map(status) {
            Some(status) => {
                let head = vec![format!("HTTP/1.1 {status} No"), "Content-Length: 0".to_owned()];
                (head, Box::new(io::empty()))
            }
            None => self.ask(request, faults)?,
        };
        let len = field(&answer, "Content-Length").and_then(|len| len.parse().ok()).unwrap_or(0);
        for fault in faults {
            if let Fault::Header(name, _) | Fault::Drop(name) = fault {
                answer.retain(|line| !is_field(line, name));
            }
            if let Fault::Header(name, value) = fault {
                answer.push(format!("{name}: {value}"));
            }
        }
        answer.retain(|line| !is_field(line, "Connection"));
        exchange.status = answer[0].split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        let cut = faults.iter().find_map(|fault| match fault {
            Fault::CutAfter(len) => Some(*len),
            _ => None,
        });
        let is_head = exchange.request.starts_with("HEAD");
        let limit = if is_head { 0 } else { len.min(cut.unwrap_or(len)) };
        // Known before the client has the answer: a test may end then.
        exchange.body = limit;
        self.state().exchanges.push(exchange);
        client.write_all(format!("{}\r\n\r\n", answer.join("\r\n")).as_bytes())?;
        io::copy(&mut body.by_ref().take(limit), &mut client)?;
        let is_whole = field(&answer, "Content-Length").is_some_and(|said| said == len.to_string());
        Ok(cut.is_none() && is_whole)
    }

    fn ask(&self, mut request: Vec<String>, faults: &[Fault]) -> io::Result<(Vec<String>, Box<dyn Read>)> {
        for fault in faults {
            if let Fault::Without(name) = fault {
                request.retain(|line| !is_field(line, name));
            }
        }
        request.retain(|line| !is_field(line, "Connection"));
        request.push("Connection: close".into());
        let text = format!("{}\r\n\r\n", request.join("\r\n"));
        let mut answers: BufReader<Box<dyn Read>> = BufReader::new(match &self.0.upstream {
            Upstream::Unix(path) => {
                let mut server = UnixStream::connect(path)?;
                server.write_all(text.as_bytes())?;
                Box::new(server)
            }
            Upstream::Tcp(address) => {
                let mut server = TcpStream::connect(address)?;
                server.write_all(text.as_bytes())?;
                Box::new(server)
            }
        });
        Ok((head(&mut answers)?, Box::new(answers)))
    }
}

fn status(fault: &Fault) -> Option<u16> {
    match fault {
        Fault::Status(status) => Some(*status),
        _ => None,
    }
}

/// The lines before the empty one.
fn head(stream: &mut impl BufRead) -> io::Result<Vec<String>> {
    let lines = stream.lines().take_while(|line| !matches!(line, Ok(line) if line.is_empty()));
    lines.collect()
}

fn is_field(line: &str, name: &str) -> bool {
    line.split_once(':').is_some_and(|(found, _)| found.eq_ignore_ascii_case(name))
}

fn field<'l>(lines: &'l [String], name: &str) -> Option<&'l str> {
    lines.iter().find(|line| is_field(line, name)).map(|line| line[name.len() + 1..].trim())
}
