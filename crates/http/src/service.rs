//! Services: checks a request, reads the file system, logs.

use crate::body::{Body, Budget, Reserved};
use crate::exchange::{Exchange, Ledger};
use crate::files::{Ask, Form, Found};
use crate::listing::PAGE_BYTES;
use crate::log::{Access, Log};
use crate::metrics::{self, Counters, Figure};
use crate::options::Limits;
use crate::passwords::Passwords;
use crate::reply;
use crate::site::Site;
use crate::target::Target;
use dentree_vfs::{FileSystem, Inode, Vfs};
use hyper::body::Incoming;
use hyper::header::HOST;
use hyper::{Method, Request, Response, StatusCode, Version};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

const ONLY_READING: &str = "This server only answers GET and HEAD.";

#[derive(Clone, Copy)]
pub(crate) struct Ends {
    pub(crate) peer: IpAddr,
    pub(crate) local: IpAddr,
}

/// Handles requests.
pub(crate) trait Service: Clone + Send + Sync + 'static {
    /// An error is a response, too.
    fn answer(&self, ends: Ends, request: Request<Incoming>) -> impl Future<Output = Response<Body>> + Send;
    /// Counts connections.
    fn ledger(&self) -> &Ledger;
}

pub(crate) struct Files<F: FileSystem> {
    pub(crate) site: Arc<Site<F>>,
    pub(crate) passwords: Option<Arc<Passwords>>,
    pub(crate) ledger: Ledger,
    pub(crate) limits: Arc<Limits>,
}

impl<F: FileSystem> Clone for Files<F> {
    fn clone(&self) -> Self {
        Files {
            site: self.site.clone(),
            passwords: self.passwords.clone(),
            ledger: self.ledger.clone(),
            limits: self.limits.clone(),
        }
    }
}

impl<F: FileSystem> Service for Files<F> {
    async fn answer(&self, ends: Ends, request: Request<Incoming>) -> Response<Body> {
        let line = format!("{} {} {:?}", request.method(), request.uri(), request.version());
        let mut exchange = Exchange::begin(&self.ledger, ends.peer, line);
        let response = match ask(ends, request) {
            Ok(ask) if self.admits(&ask, &mut exchange.access).await => self.find(ask).await,
            Ok(_) => reply::unauthorized(&self.site.title),
            Err((status, sentence)) => reply::say(status, sentence),
        };
        exchange.access.status = response.status().as_u16();
        response.map(|body| body.ends(exchange))
    }

    fn ledger(&self) -> &Ledger {
        &self.ledger
    }
}

impl<F: FileSystem> Files<F> {
    /// Checks the password, and records the user for the log.
    async fn admits(&self, ask: &Ask, access: &mut Access) -> bool {
        let Some(passwords) = &self.passwords else { return true };
        access.user = Box::pin(passwords.user(&ask.headers)).await;
        access.user.is_some()
    }

    async fn find(&self, ask: Ask) -> Response<Body> {
        match self.site.at_hand(&ask) {
            Some(response) => response,
            // Boxed: keeps other futures small.
            None => Box::pin(self.read(ask)).await,
        }
    }

    /// One trip to a reader thread; a directory needs a second one, with memory for its page.
    async fn read(&self, ask: Ask) -> Response<Body> {
        let Some(room) = self.room(Limits::CHUNK).await else { return busy() };
        let site = self.site.clone();
        let found = spawn_blocking(move || {
            let found = site.find(&ask, room);
            (ask, found)
        });
        match found.await {
            Ok((_, Found::Reply(response))) => *response,
            Ok((ask, Found::Directory(dir))) => self.directory(ask, dir).await,
            Err(_) => failed(),
        }
    }

    async fn directory(&self, ask: Ask, dir: Arc<Inode<F>>) -> Response<Body> {
        let form = Form::of(&self.site, &ask);
        let room = if form == Form::Page { PAGE_BYTES } else { Limits::CHUNK };
        let Some(room) = self.room(room).await else { return busy() };
        let site = self.site.clone();
        let answer = spawn_blocking(move || match form {
            Form::Page => site.list(&ask, &dir, room),
            Form::Json => site.json(&ask, dir, room),
            Form::Archive => site.archive(&ask, room).unwrap_or_else(busy),
        });
        answer.await.unwrap_or_else(|_| failed())
    }

    async fn room(&self, bytes: usize) -> Option<Reserved> {
        timeout(self.limits.buffer_wait, self.site.budget.reserve(bytes)).await.ok().flatten()
    }
}

fn busy() -> Response<Body> {
    reply::say(StatusCode::SERVICE_UNAVAILABLE, "All memory for such responses is in use; try again.")
}

fn failed() -> Response<Body> {
    reply::say(StatusCode::INTERNAL_SERVER_ERROR, "The server failed; this is a bug in it.")
}

fn ask(ends: Ends, request: Request<Incoming>) -> Result<Ask, (StatusCode, &'static str)> {
    let mut hosts = request.headers().get_all(HOST).iter();
    let host = hosts.next().map(|host| host.to_str().unwrap_or_default());
    if hosts.next().is_some() || (host.is_none() && request.version() == Version::HTTP_11) {
        return Err((StatusCode::BAD_REQUEST, "A request has one Host."));
    }
    let host = request.uri().authority().map(|authority| authority.as_str()).or(host);
    if ends.local.is_loopback() && !host.is_none_or(is_local) {
        let sentence = "This server is for its own machine: ask for localhost, or for its address.";
        return Err((StatusCode::MISDIRECTED_REQUEST, sentence));
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return Err((StatusCode::METHOD_NOT_ALLOWED, ONLY_READING));
    }
    let target =
        Target::parse(request.uri().path()).map_err(|sentence| (StatusCode::BAD_REQUEST, sentence))?;
    let (parts, _) = request.into_parts();
    let query = parts.uri.query().unwrap_or_default().to_owned();
    Ok(Ask { head: parts.method == Method::HEAD, target, query, headers: parts.headers })
}

/// Whether `Host` cannot be a web site's name: a site could resolve its own name to this machine.
fn is_local(host: &str) -> bool {
    if let Some(address) = host.strip_prefix('[') {
        return address.contains(']');
    }
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name).to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost") || name.parse::<Ipv4Addr>().is_ok()
}

/// Metrics on a port of their own.
pub(crate) struct Figures<F: FileSystem> {
    pub(crate) vfs: Arc<Vfs<F>>,
    /// Of the files' server.
    pub(crate) counters: Arc<Counters>,
    pub(crate) more: Arc<dyn Fn() -> Vec<Figure> + Send + Sync>,
    /// Connections of this port are not reported.
    pub(crate) ledger: Ledger,
}

impl<F: FileSystem> Clone for Figures<F> {
    fn clone(&self) -> Self {
        Figures {
            vfs: self.vfs.clone(),
            counters: self.counters.clone(),
            more: self.more.clone(),
            ledger: self.ledger.clone(),
        }
    }
}

impl<F: FileSystem> Service for Figures<F> {
    async fn answer(&self, _: Ends, request: Request<Incoming>) -> Response<Body> {
        if request.uri().path() != "/metrics" {
            return reply::say(StatusCode::NOT_FOUND, "The figures are under /metrics.");
        }
        match *request.method() {
            Method::GET => {
                let text = metrics::text(&self.counters, &self.vfs.stats(), &(self.more)());
                reply::plain(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", Body::bytes(text))
            }
            _ => reply::say(StatusCode::METHOD_NOT_ALLOWED, ONLY_READING),
        }
    }

    fn ledger(&self) -> &Ledger {
        &self.ledger
    }
}

/// Logs nothing.
pub(crate) struct Silent;

impl Log for Silent {
    fn access(&self, _: &Access) {}
    fn problem(&self, _: &[u8], _: &dentree_vfs::Error) {}
}

/// At least a page and a chunk.
pub(crate) fn budget(limits: &Limits) -> Budget {
    Budget::new(limits.buffers.max(PAGE_BYTES + Limits::CHUNK))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_localhost_are_local() {
        for host in
            ["localhost", "LOCALHOST:80", "127.0.0.1:8000", "192.0.2.1", "[::1]:8000", "a.localhost:1"]
        {
            assert!(is_local(host), "{host}");
        }
        for host in
            ["evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example", ""]
        {
            assert!(!is_local(host), "{host}");
        }
    }
}
