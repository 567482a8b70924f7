//! `dentree serve`: an image over HTTP.

use crate::args::ServeArgs;
use crate::command::tar::create;
use crate::host::{self, OsStrExt, SIGNALS, Signals};
use crate::image::{Image, Session};
use crate::output::escape;
use crate::pressure;
use crate::report::{self, Problem, Status, Stop};
use dentree_http::{Access, Figure, Handle, Log, Options, Passwords, Server, Tls, TlsError};
use dentree_vfs::Error;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Capacity of the access log's queue. Further lines are dropped and counted, so that a blocked log
/// does not block the server.
const LOG_QUEUE: usize = 16_384;
/// The longest delay of a log line.
const LOG_DELAY: Duration = Duration::from_millis(20);
/// File descriptors that are not for connections.
const RESERVED_DESCRIPTORS: u64 = 64;

/// Serves until a signal. The first lets requests under way finish, the second does not.
pub(super) fn run(session: &Session, args: &ServeArgs) -> Result<(), Stop> {
    let image = session.open(&args.image)?;
    let signals = Signals::new(SIGNALS).map_err(|error| local(&image, &error))?;
    let (lines, writer) = access_log(args)?;
    let dropped = Arc::new(AtomicU64::new(0));
    let log = Arc::new(ServerLog { image: image.clone(), lines, dropped: dropped.clone() });

    let mut options = Options::new(title(args));
    options.listen = args.listen;
    options.metrics = args.metrics;
    options.figures = figures(image.clone(), dropped);
    let archived = image.clone();
    options.archive = Some(Box::new(move |path, to| create::write(&archived, path, to)));
    options.passwords = args.password_file.as_deref().map(passwords).transpose()?;
    options.tls = tls(args)?;
    let scheme = if options.tls.is_some() { "https" } else { "http" };
    options.limits.connections = options.limits.connections.min(connections());
    let server = Server::bind(image.vfs.clone(), options, log)
        .map_err(|error| Problem::new(addresses(args), Status::Failed, cannot_listen(&error)))?;
    report::print(format_args!(
        "dentree: {} is served at {scheme}://{}/; Ctrl-C ends it",
        title(args),
        server.address()
    ));
    if args.password_file.is_some() && args.tls_cert.is_none() && !args.listen.ip().is_loopback() {
        report::print(format_args!(
            "dentree: passwords cross the network in the clear; --tls-cert and --tls-key encrypt them"
        ));
    }
    if let Some(address) = server.metrics_address() {
        report::print(format_args!("dentree: figures are at http://{address}/metrics"));
    }
    let listening = signals.handle();
    let handle = server.handle();
    thread::spawn(move || stop_on(signals, &handle));
    let pressure = pressure::Watch::start(image.vfs.clone(), image.shrinks.clone());
    let cut = server.serve();
    drop(pressure);
    listening.close();
    if cut > 0 {
        let message = format!("{cut} connections were cut off");
        session.report.problem(&Problem::new(image.at(b""), Status::Failed, message));
    }
    // The server has dropped its sender: the writer ends after the last line.
    match writer.join() {
        Ok(written) => Ok(written?),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

fn local(image: &Image, error: &io::Error) -> Problem {
    Problem::new(image.at(b""), Status::Failed, error.to_string())
}

/// The file name of the image.
fn title(args: &ServeArgs) -> String {
    let path = Path::new(&args.image);
    escape::terminal(path.file_name().unwrap_or(&args.image).as_bytes()).into_owned()
}

fn passwords(file: &Path) -> Result<Passwords, Problem> {
    let text = String::from_utf8(read(file)?).map_err(|_| wrong(file, "is not UTF-8"))?;
    Passwords::parse(&text).map_err(|problem| wrong(file, problem))
}

fn tls(args: &ServeArgs) -> Result<Option<Tls>, Problem> {
    let (Some(chain), Some(key)) = (&args.tls_cert, &args.tls_key) else { return Ok(None) };
    let tls = Tls::parse(&read(chain)?, &read(key)?).map_err(|error| match error {
        TlsError::Chain(problem) => wrong(chain, problem),
        TlsError::Key(problem) => wrong(key, problem),
    });
    tls.map(Some)
}

fn read(file: &Path) -> Result<Vec<u8>, Problem> {
    fs::read(file).map_err(|error| Problem::local(file.as_os_str().as_bytes(), &error))
}

fn wrong(file: &Path, problem: impl Into<String>) -> Problem {
    Problem::new(escape::terminal(file.as_os_str().as_bytes()), Status::Failed, problem)
}

fn addresses(args: &ServeArgs) -> String {
    args.metrics.map_or(args.listen.to_string(), |metrics| format!("{}, {metrics}", args.listen))
}

fn cannot_listen(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "the address is in use; choose another with --listen (port 0 takes a free one)".into()
        }
        io::ErrorKind::AddrNotAvailable => "this machine has no such address".into(),
        io::ErrorKind::PermissionDenied => "ports below 1024 need root; choose another with --listen".into(),
        _ => format!("cannot listen: {error}"),
    }
}

/// The limit of connections: the limit of open files, raised as far as possible without root.
fn connections() -> usize {
    match host::raise_file_limit() {
        None => usize::MAX,
        Some(files) => {
            usize::try_from(files.saturating_sub(RESERVED_DESCRIPTORS)).unwrap_or(usize::MAX).max(1)
        }
    }
}

/// Figures of device, block cache, memory pressure and log.
fn figures(image: Arc<Image>, dropped: Arc<AtomicU64>) -> Box<dyn Fn() -> Vec<Figure> + Send + Sync> {
    Box::new(move || {
        let device = image.device.counts();
        let blocks = image.vfs.fs().buffer_stats();
        let shrinks = image.shrinks.get();
        let [shrunk, dropped_names, dropped_blocks] =
            shrinks.map_or([0; 3], |shrinks| [shrinks.count, shrinks.names, shrinks.blocks]);
        vec![
            Figure::counter("dentree_device_reads_total", "Reads of the device.", device.total_reads()),
            Figure::counter(
                "dentree_device_read_bytes_total",
                "Bytes read from the device.",
                device.read_bytes,
            ),
            Figure::counter("dentree_blocks_hits_total", "Metadata blocks found in memory.", blocks.hits),
            Figure::counter(
                "dentree_blocks_misses_total",
                "Metadata blocks that had to be read.",
                blocks.misses,
            ),
            Figure::gauge(
                "dentree_blocks_memory_bytes",
                "Bytes of cached metadata blocks.",
                blocks.resident_bytes,
            ),
            Figure::counter(
                "dentree_pressure_shrinks_total",
                "Times that memory pressure shrank the caches.",
                shrunk,
            ),
            Figure::counter(
                "dentree_pressure_names_total",
                "Names that memory pressure dropped.",
                dropped_names,
            ),
            Figure::counter(
                "dentree_pressure_blocks_total",
                "Metadata blocks that memory pressure dropped.",
                dropped_blocks,
            ),
            Figure::counter(
                "dentree_log_dropped_total",
                "Lines that the access log lost.",
                dropped.load(Relaxed),
            ),
        ]
    })
}

/// Stops the server at the first signal, the program at the second.
fn stop_on(mut signals: Signals, handle: &Handle) {
    let mut asked = false;
    for signal in signals.forever() {
        if asked {
            process::exit(128 + signal);
        }
        report::print("dentree: ending; interrupt again to cut off open requests");
        handle.stop();
        asked = true;
    }
}

/// The server's log: requests to the access log, problems to standard error.
struct ServerLog {
    image: Arc<Image>,
    lines: SyncSender<Access>,
    dropped: Arc<AtomicU64>,
}

impl Log for ServerLog {
    fn access(&self, access: &Access) {
        if self.lines.try_send(access.clone()).is_err() {
            self.dropped.fetch_add(1, Relaxed);
        }
    }

    fn problem(&self, path: &[u8], error: &Error) {
        report::print(format_args!("dentree: {}: {error}", self.image.at(path)));
    }
}

/// The queue of the access log, and the thread that writes it until the last sender is dropped.
fn access_log(args: &ServeArgs) -> Result<(SyncSender<Access>, JoinHandle<io::Result<()>>), Problem> {
    let to: Box<dyn Write + Send> = match &args.access_log {
        None => Box::new(io::stdout()),
        Some(path) => {
            let file = File::options().append(true).create(true).open(path);
            Box::new(file.map_err(|error| Problem::local(path.as_os_str().as_bytes(), &error))?)
        }
    };
    let (lines, waiting) = sync_channel(LOG_QUEUE);
    Ok((lines, thread::spawn(move || write_lines(&waiting, BufWriter::new(to)))))
}

/// Writes all waiting lines, then lets some gather: not each request wakes this thread. Ends early
/// where the reader of a pipe is gone: the server goes on without a log.
fn write_lines(waiting: &Receiver<Access>, mut to: impl Write) -> io::Result<()> {
    while let Ok(access) = waiting.recv() {
        writeln!(to, "{access}")?;
        for access in waiting.try_iter() {
            writeln!(to, "{access}")?;
        }
        to.flush()?;
        thread::sleep(LOG_DELAY);
    }
    Ok(())
}
