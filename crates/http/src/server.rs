//! Listening, connections and shutdown.
//!
//! A connection gets parser and buffers with its first byte.

use crate::Log;
use crate::archive::Archives;
use crate::body::Body;
use crate::contents::Contents;
use crate::exchange::{Exchange, Ledger};
use crate::metrics::Counters;
use crate::options::{Limits, Options};
use crate::service::{self, Ends, Figures, Files, Service, Silent};
use crate::site::Site;
use crate::stall::Stall;
use crate::tls::Tls;
use dentree_vfs::{FileSystem, Vfs};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use jiff::tz::TimeZone;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};

/// Connections waiting for accept.
const BACKLOG: u32 = 4096;
/// Pause when there is no file descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Parser buffer: the largest head that [`Limits`] allow.
const BUFFER: usize = 32 << 10;
/// Concurrent metrics requests.
const FIGURES_CONNECTIONS: usize = 64;

/// A listening server. Dropping it closes its sockets.
pub struct Server<F: FileSystem> {
    runtime: Runtime,
    files: Door<Files<F>>,
    figures: Option<Door<Figures<F>>>,
    stop: watch::Sender<bool>,
    grace: Duration,
}

/// Stops a server from any thread.
#[derive(Clone)]
pub struct Handle {
    stop: watch::Sender<bool>,
}

impl Handle {
    /// Accepts no more connections and requests; current ones have [`Limits::grace`] to finish.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }
}

impl<F: FileSystem> Server<F> {
    /// Starts to listen. Connections wait for [`serve`](Server::serve).
    ///
    /// # Errors
    /// An address is unavailable, or a thread cannot start.
    pub fn bind(vfs: Arc<Vfs<F>>, options: Options, log: Arc<dyn Log>) -> io::Result<Self> {
        let Options { title, listen, metrics, figures, archive, passwords, tls, limits } = options;
        let runtime = Builder::new_multi_thread()
            .max_blocking_threads(limits.readers.max(1))
            .thread_name("http")
            .enable_all()
            .build()?;
        let (stop, stopped) = watch::channel(false);
        let limits = Arc::new(limits);
        let counters = Arc::new(Counters::new());
        let guard = runtime.enter();
        let site = Arc::new(Site {
            fsid: vfs.statfs().map_or(0, |stat| stat.fsid),
            vfs: vfs.clone(),
            title,
            zone: TimeZone::system(),
            log: log.clone(),
            budget: service::budget(&limits),
            contents: Contents::new(limits.contents),
            archives: archive.map(|write| Archives::new(write, limits.archives)),
        });
        let files = Files {
            site,
            passwords: passwords.map(Arc::new),
            ledger: Ledger { counters: counters.clone(), log },
            limits: limits.clone(),
        };
        let files = Door::open(listen, files, limits.connections, &limits, &stopped)?;
        let files = Door { tls, ..files };
        let silent = Ledger { counters: Arc::new(Counters::new()), log: Arc::new(Silent) };
        let figures = Figures { vfs, counters, more: figures.into(), ledger: silent };
        let figures = metrics
            .map(|address| Door::open(address, figures, FIGURES_CONNECTIONS, &limits, &stopped))
            .transpose()?;
        drop(guard);
        Ok(Server { runtime, files, figures, stop, grace: limits.grace })
    }

    /// Address for requests.
    pub fn address(&self) -> SocketAddr {
        self.files.address
    }

    /// Address for metrics.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.figures.as_ref().map(|door| door.address)
    }

    /// Stops the server from elsewhere.
    pub fn handle(&self) -> Handle {
        Handle { stop: self.stop.clone() }
    }

    /// Serves until stopped. Returns the number of connections cut off.
    pub fn serve(self) -> usize {
        let Server { runtime, files, figures, stop: _until_the_end, grace } = self;
        let cut = runtime.block_on(async move {
            if let Some(figures) = figures {
                tokio::spawn(figures.serve());
            }
            files.serve().await
        });
        // Only readers waiting for the device are left.
        runtime.shutdown_timeout(grace);
        cut
    }
}

/// A listening socket and its service.
struct Door<S> {
    listener: TcpListener,
    address: SocketAddr,
    service: S,
    tls: Option<Tls>,
    connections: usize,
    limits: Arc<Limits>,
    stopped: watch::Receiver<bool>,
}

impl<S: Service> Door<S> {
    fn open(
        address: SocketAddr,
        service: S,
        connections: usize,
        limits: &Arc<Limits>,
        stopped: &watch::Receiver<bool>,
    ) -> io::Result<Self> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // The address is free at once after an earlier server.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let listener = socket.listen(BACKLOG)?;
        let address = listener.local_addr()?;
        let connections = connections.clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize));
        let (limits, stopped) = (limits.clone(), stopped.clone());
        Ok(Door { listener, address, service, tls: None, connections, limits, stopped })
    }

    /// Returns the number of connections left.
    async fn serve(self) -> usize {
        let Door { listener, service, tls, connections, limits, mut stopped, .. } = self;
        let room = Arc::new(Semaphore::new(connections));
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(limits.head_time)
            .max_header_size(limits.head_bytes.min(BUFFER))
            .max_buf_size(BUFFER)
            // A client may close its side after the request.
            .half_close(true);
        loop {
            let accepted = tokio::select! {
                accepted = async {
                    let place = room.clone().acquire_owned().await;
                    (listener.accept().await, place)
                } => accepted,
                () = end(&mut stopped) => break,
            };
            match accepted {
                (Ok((stream, peer)), place) => {
                    let talk = Talk {
                        http: http.clone(),
                        service: service.clone(),
                        tls: tls.clone(),
                        limits: limits.clone(),
                        stopped: stopped.clone(),
                    };
                    tokio::spawn(async move {
                        talk.connection(stream, peer.ip()).await;
                        drop(place);
                    });
                }
                // The client is gone, or descriptors ran out.
                (Err(_), _) => sleep(ACCEPT_PAUSE).await,
            }
        }
        drop(listener);
        // `open` made them fit.
        let all = u32::try_from(connections).unwrap_or(u32::MAX);
        let _ = timeout(limits.grace, room.acquire_many(all)).await;
        connections - room.available_permits()
    }
}

async fn end(stopped: &mut watch::Receiver<bool>) {
    // An error: no thread is left that could stop it.
    let _ = stopped.wait_for(|stop| *stop).await;
}

struct Talk<S> {
    http: http1::Builder,
    service: S,
    tls: Option<Tls>,
    limits: Arc<Limits>,
    stopped: watch::Receiver<bool>,
}

impl<S: Service> Talk<S> {
    async fn connection(mut self, stream: TcpStream, peer: IpAddr) {
        let counters = self.service.ledger().counters.clone();
        counters.accepted.fetch_add(1, Relaxed);
        counters.connections.fetch_add(1, Relaxed);
        let begun = tokio::select! {
            begun = timeout(self.limits.head_time, stream.readable()) => begun.is_ok(),
            () = end(&mut self.stopped) => false,
        };
        if begun {
            // Boxed, so that an idle connection does not carry the size of a busy one.
            Box::pin(self.speak(stream, peer)).await;
        }
        counters.connections.fetch_sub(1, Relaxed);
    }

    async fn speak(mut self, stream: TcpStream, peer: IpAddr) {
        let _ = stream.set_nodelay(true);
        let local = stream.local_addr().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |address| address.ip());
        let ends = Ends { peer, local: local.to_canonical() };
        let stream = Stall::new(stream, self.limits.write_time);
        let Some(tls) = &self.tls else { return self.exchange(stream, ends).await };
        let accepted = tokio::select! {
            accepted = timeout(self.limits.head_time, tls.accept(stream)) => accepted,
            () = end(&mut self.stopped) => return,
        };
        match accepted {
            Ok(Ok(stream)) => self.exchange(stream, ends).await,
            // The client has sent no request: it lacks TLS or distrusts the certificate.
            Ok(Err(_)) => {}
            Err(_) => {
                self.service.ledger().counters.late.fetch_add(1, Relaxed);
            }
        }
    }

    async fn exchange(mut self, stream: impl AsyncRead + AsyncWrite + Unpin + Send, ends: Ends) {
        let peer = ends.peer;
        let service = &self.service;
        let answer = service_fn(move |request| {
            let service = service.clone();
            async move { Ok::<Response<Body>, Infallible>(service.answer(ends, request).await) }
        });
        let mut connection = pin!(self.http.serve_connection(TokioIo::new(stream), answer));
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = end(&mut self.stopped) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        match ended {
            // The parser has responded.
            Err(error) if error.is_parse_too_large() => {
                Exchange::refused(service.ledger(), peer, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
            }
            Err(error) if error.is_parse() => {
                Exchange::refused(service.ledger(), peer, StatusCode::BAD_REQUEST);
            }
            Err(error) if error.is_timeout() => {
                service.ledger().counters.late.fetch_add(1, Relaxed);
            }
            _ => {}
        }
    }
}
