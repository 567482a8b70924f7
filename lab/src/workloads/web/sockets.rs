//! The web load over real sockets: `dentree serve IMAGE` next to nginx on the kernel's mount of the
//! same image.
//!
//! The image holds SPECweb99's file set. wrk keeps a number of connections busy; httperf starts
//! requests at a fixed rate, a new connection for every few, whatever comes back. Both send the
//! same requests to both servers, in turn, round after round. Both servers have as many workers as
//! CPUs, send small files from memory, and buffer their access log. Missing parts are reported:
//! without root or nginx `dentree serve` runs alone.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::{File, directories, files, requests};
use crate::mounts::HiddenMount;
use crate::rows::{Heading, Row};
use crate::stats::{Sample, paired_ratio};
use crate::unavailable::Unavailable;

/// Ours.
pub const DENTREE: &str = "dentree-serve";
/// The rival.
pub const NGINX: &str = "nginx";

/// Requests per session of httperf, which is one connection.
const REQUESTS_PER_SESSION: usize = 10;
/// Requests that the generators choose from.
const DRAWN: usize = 10_000;
/// An image's overhead, in bytes.
const OVERHEAD: u64 = 32 << 20;
/// Timeout for a server's start and exit.
const SERVER_TIMEOUT: Duration = Duration::from_secs(60);

/// How servers are compared.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The `dentree` program.
    pub dentree: PathBuf,
    /// Connections that wrk keeps busy; they determine the number of directories.
    pub connections: usize,
    /// Requests per second that httperf starts.
    pub rate: u32,
    /// Runs of each generator against each server.
    pub rounds: usize,
    /// Seconds per run.
    pub seconds: u32,
}

/// The results, and what could not be measured.
#[derive(Clone, Debug, Default)]
pub struct Compared {
    /// Requests per second and milliseconds, by generator and server; ratios of ours to the
    /// rival's.
    pub rows: Vec<Row>,
    /// What was not measured, and why.
    pub skipped: Vec<String>,
}

/// Compares the servers. `progress` is called before each step.
///
/// # Errors
/// If the image cannot be made or `dentree serve` cannot be started. A missing rival or generator
/// is only reported.
pub fn compare(plan: &Plan, progress: &dyn Fn(&str)) -> Result<Compared, Unavailable> {
    let folder = tempfile::tempdir().map_err(|why| Unavailable::because("a temporary folder", why))?;
    progress("making the image");
    let directories = directories(plan.connections);
    let image = make_image(folder.path(), directories)?;
    let drawn = requests(directories, DRAWN);
    let io = |why: std::io::Error| Unavailable::because("the generators' files", why);
    let script = folder.path().join("requests.lua");
    fs::write(&script, wrk_script(&drawn)).map_err(io)?;
    let sessions = folder.path().join("sessions");
    fs::write(&sessions, httperf_sessions(&drawn)).map_err(io)?;

    let mut compared = Compared::default();
    let mut servers = vec![(DENTREE, serve(&plan.dentree, &image, folder.path())?)];
    match nginx(&image, folder.path()) {
        Ok(server) => servers.push((NGINX, server)),
        Err(why) => compared.skipped.push(format!("{NGINX}: {why}")),
    }
    let generators: [(&str, Drive<'_>); 2] = [
        ("wrk", &|address| wrk(plan, &script, address)),
        ("httperf", &|address| httperf(plan, &sessions, address)),
    ];
    for (generator, drive) in generators {
        let mut driven: Vec<Vec<Driven>> = servers.iter().map(|_| Vec::new()).collect();
        let outcome = (0..plan.rounds).try_for_each(|round| {
            (0..servers.len()).try_for_each(|turn| {
                let at = (round + turn) % servers.len();
                progress(&format!("{generator}: {}", servers[at].0));
                driven[at].push(drive(servers[at].1.address)?);
                Ok::<(), Unavailable>(())
            })
        });
        match outcome {
            Ok(()) => compared.rows.extend(rows(plan, generator, &servers, &driven)),
            Err(why) => compared.skipped.push(why.to_string()),
        }
    }
    Ok(compared)
}

/// Runs a generator once against the server at an address.
type Drive<'a> = &'a dyn Fn(SocketAddr) -> Result<Driven, Unavailable>;

/// The result of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Driven {
    /// Responses per second.
    rate: f64,
    /// Response time in milliseconds: wrk's 99th percentile, httperf's mean.
    time: f64,
}

fn rows(
    plan: &Plan,
    generator: &str,
    servers: &[(&'static str, Server)],
    driven: &[Vec<Driven>],
) -> Vec<Row> {
    let case = match generator {
        "wrk" => format!("web-sockets-{}-connections", plan.connections),
        _ => format!("web-sockets-{}-requests/s", plan.rate),
    };
    let time = if generator == "wrk" { "response-p99" } else { "response-mean" };
    let heading =
        |variant, metric, unit| Heading { case: &case, variant, threads: plan.connections, metric, unit };
    let rates = |at: usize| driven[at].iter().map(|run| run.rate).collect::<Vec<_>>();
    let times = |at: usize| driven[at].iter().map(|run| run.time).collect::<Vec<_>>();
    let mut rows = Vec::new();
    for (at, (server, _)) in servers.iter().enumerate() {
        rows.extend(
            Sample::new(rates(at)).map(|sample| heading(server, "throughput", "requests/s").sampled(&sample)),
        );
        rows.extend(Sample::new(times(at)).map(|sample| heading(server, time, "ms").sampled(&sample)));
    }
    if servers.len() == 2 {
        let variant = format!("{DENTREE}/{NGINX}");
        let ratio = paired_ratio(&rates(0), &rates(1));
        rows.extend(ratio.map(|ratio| heading(&variant, "ratio", "1").ratio(&ratio)));
    }
    rows
}

/// An image with the file set at its root.
fn make_image(folder: &Path, directories: usize) -> Result<PathBuf, Unavailable> {
    let (tree, image) = (folder.join("files"), folder.join("image"));
    let io = |why: std::io::Error| Unavailable::because("the file set", why);
    fs::create_dir(&tree).map_err(io)?;
    let mut bytes = OVERHEAD;
    for file in files(directories) {
        let path = tree.join(file.path());
        if let Some(directory) = path.parent().filter(|_| file.class == 0 && file.number == 1) {
            fs::create_dir(directory).map_err(io)?;
        }
        let content: Vec<u8> = (b' '..=b'~').cycle().take(file.bytes()).collect();
        fs::write(path, content).map_err(io)?;
        bytes += (file.bytes() as u64).next_multiple_of(4096) * 21 / 20;
    }
    let made = fs::File::create(&image).and_then(|file| file.set_len(bytes));
    made.map_err(io)?;
    let mut command = system("mke2fs");
    run(command.args(["-q", "-F", "-t", "ext4", "-d"]).args([&tree, &image]))?;
    fs::remove_dir_all(&tree).map_err(io)?;
    Ok(image)
}

/// wrk's script: the requests in the order drawn, each thread from an offset of its own; at the end
/// the line that [`read_wrk`] parses.
fn wrk_script(requests: &[File]) -> String {
    let mut script = String::from("local paths = {\n");
    for file in requests {
        // Infallible for a string.
        let _ = writeln!(script, "\"/{}\",", file.path());
    }
    script
        + r#"}
local threads = 0
function setup(thread)
    thread:set("number", threads)
    threads = threads + 1
end
function init()
    made = {}
    for at, path in ipairs(paths) do made[at] = wrk.format("GET", path) end
    at = number * 997 % #made
end
function request()
    at = at % #made + 1
    return made[at]
end
function done(summary, latency)
    local e = summary.errors
    local errors = e.connect + e.read + e.write + e.status + e.timeout
    print(string.format("\nsummary %d %d %d %d", summary.requests, summary.duration, latency:percentile(99), errors))
end
"#
}

/// httperf's session file: blocks of requests, separated by empty lines.
fn httperf_sessions(requests: &[File]) -> String {
    let session = |files: &[File]| files.iter().map(|file| format!("/{}\n", file.path())).collect::<String>();
    requests.chunks(REQUESTS_PER_SESSION).map(session).collect::<Vec<_>>().join("\n")
}

fn wrk(plan: &Plan, script: &Path, address: SocketAddr) -> Result<Driven, Unavailable> {
    let threads = if plan.connections >= 2 { "2" } else { "1" };
    let mut command = system("wrk");
    command.args(["-t", threads, "-c", &plan.connections.max(1).to_string()]);
    command
        .args(["-d", &plan.seconds.max(1).to_string()])
        .arg("-s")
        .arg(script)
        .arg(format!("http://{address}/"));
    let text = run(&mut command)?;
    read_wrk(&text).map_err(|why| Unavailable::because("wrk", why))
}

fn read_wrk(text: &str) -> Result<Driven, String> {
    let line = text.lines().find_map(|line| line.strip_prefix("summary "));
    let figures: Vec<f64> =
        line.unwrap_or_default().split(' ').filter_map(|figure| figure.parse().ok()).collect();
    let [requests, microseconds, p99, errors] = figures[..] else {
        return Err(format!("no summary in {text:?}"));
    };
    if errors > 0.0 || requests == 0.0 {
        return Err(format!("{errors} errors with {requests} requests"));
    }
    Ok(Driven { rate: requests / microseconds * 1e6, time: p99 / 1e3 })
}

fn httperf(plan: &Plan, sessions: &Path, address: SocketAddr) -> Result<Driven, Unavailable> {
    let count = plan.rate as usize * plan.seconds.max(1) as usize / REQUESTS_PER_SESSION;
    let rate = f64::from(plan.rate) / REQUESTS_PER_SESSION as f64;
    let mut command = system("httperf");
    command.args(["--hog", "--server", &address.ip().to_string(), "--port", &address.port().to_string()]);
    command.args(["--rate", &rate.to_string(), "--timeout", "10"]);
    command.arg(format!("--wsesslog={},0,{}", count.max(1), sessions.display()));
    let text = run(&mut command)?;
    read_httperf(&text).map_err(|why| Unavailable::because("httperf", why))
}

fn read_httperf(text: &str) -> Result<Driven, String> {
    let behind =
        |marker: &str| -> Option<f64> { text.split_once(marker)?.1.split_whitespace().next()?.parse().ok() };
    let markers = [" replies ", "test-duration ", "Reply time [ms]: response ", "Errors: total ", " 2xx="];
    let [Some(replies), Some(seconds), Some(time), Some(errors), Some(good)] = markers.map(behind) else {
        return Err(format!("its report is not understood: {text:?}"));
    };
    if errors > 0.0 || replies == 0.0 || good < replies {
        return Err(format!("{errors} errors, {good} of {replies} replies with a file"));
    }
    Ok(Driven { rate: replies / seconds, time })
}

/// A running server, which ends when this is dropped.
struct Server {
    child: Child,
    address: SocketAddr,
    /// The mount that it serves, if any.
    _mount: Option<HiddenMount>,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Not `kill`: nginx's workers would outlive their master.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let end = Instant::now() + SERVER_TIMEOUT;
        while Instant::now() < end && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn serve(dentree: &Path, image: &Path, folder: &Path) -> Result<Server, Unavailable> {
    let because = |why: &dyn std::fmt::Display| Unavailable::because("dentree serve", why);
    let mut command = Command::new(dentree);
    command
        .args(["serve", "--listen", "127.0.0.1:0", "--access-log"])
        .args([&folder.join("dentree.log"), image]);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|why| because(&why))?;
    let stderr = child.stderr.take();
    let unknown = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut server = Server { child, address: unknown, _mount: None };
    let mut line = String::new();
    if let Some(stderr) = stderr {
        let mut stderr = BufReader::new(stderr);
        stderr.read_line(&mut line).map_err(|why| because(&why))?;
        // Drains further output, so that the server does not block.
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
    }
    let address = line.split_once("http://").and_then(|(_, rest)| rest.split('/').next()?.parse().ok());
    server.address = address.ok_or_else(|| because(&line.trim()))?;
    Ok(server)
}

fn nginx(image: &Path, folder: &Path) -> Result<Server, Unavailable> {
    let because = |why: std::io::Error| Unavailable::because("nginx", why);
    let mount = HiddenMount::image(image, "ro")?;
    let address =
        TcpListener::bind((own_loopback(), 0)).and_then(|free| free.local_addr()).map_err(because)?;
    let (config, folder) = (folder.join("nginx.conf"), folder.join("nginx"));
    fs::create_dir(&folder).map_err(because)?;
    fs::write(&config, nginx_config(&folder, address)).map_err(because)?;
    let mut command = system("nginx");
    // The prefix is the working directory: the mount has no other name.
    command.args(["-p", "./", "-c"]).arg(&config).arg("-e").arg(folder.join("error.log"));
    command.current_dir(mount.working_folder());
    let child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().map_err(because)?;
    let mut server = Server { child, address, _mount: Some(mount) };
    let end = Instant::now() + SERVER_TIMEOUT;
    while TcpStream::connect(address).is_err() {
        let ended = server.child.try_wait().map_err(because)?;
        if ended.is_some() || Instant::now() > end {
            let log = fs::read_to_string(folder.join("error.log")).unwrap_or_default();
            return Err(Unavailable::because("nginx", log.lines().last().unwrap_or("does not start")));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(server)
}

/// A loopback address that no other process uses, so that a port stays free until a server takes
/// it: 127/8 has an address for every process id.
fn own_loopback() -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::LOCALHOST.to_bits() & 0xff00_0000 | std::process::id() & 0x00ff_ffff)
}

fn nginx_config(folder: &Path, address: SocketAddr) -> String {
    let folder = folder.display();
    let paths: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|what| format!("    {what}_temp_path {folder}/{what};\n"))
        .concat();
    format!(
        "user root;\nworker_processes auto;\ndaemon off;\npid {folder}/pid;\n\
         events {{ worker_connections 16384; }}\n\
         http {{\n{paths}    sendfile on;\n    tcp_nopush on;\n    keepalive_requests 1000000000;\n    \
         access_log {folder}/access.log combined buffer=64k flush=1s;\n    \
         server {{ listen {address} backlog=4096; root ./; }}\n}}\n"
    )
}

/// A system program; looks in the sbin directories, too, which an ordinary user's path may lack.
fn system(program: &str) -> Command {
    let mut command = Command::new(program);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    command.env("PATH", std::env::join_paths(places).unwrap_or(path));
    command
}

/// A program's output, or its error message.
fn run(command: &mut Command) -> Result<String, Unavailable> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(|why| Unavailable::because(&name, why))?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        return Err(Unavailable::because(&name, format!("{} ({})", error.trim(), output.status)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_the_generators_are_read_and_errors_are_no_figures() {
        let wrk = |errors| format!("  2 threads and 8 connections\n\nsummary 5000 2000000 750 {errors}\n");
        assert_eq!(read_wrk(&wrk(0)), Ok(Driven { rate: 2500.0, time: 0.75 }));
        assert!(read_wrk(&wrk(3)).is_err() && read_wrk("unable to connect").is_err());
        let httperf = |good| {
            format!(
                "Total: connections 40 requests 400 replies 400 test-duration 2.000 s\n\n\
                 Reply rate [replies/s]: min 0.0 avg 0.0 max 0.0 stddev 0.0 (0 samples)\n\
                 Reply time [ms]: response 0.5 transfer 0.0\nReply status: 1xx=0 2xx={good} 3xx=0 4xx=0 5xx=0\n\n\
                 Errors: total 0 client-timo 0 socket-timo 0 connrefused 0 connreset 0\n"
            )
        };
        assert_eq!(read_httperf(&httperf(400)), Ok(Driven { rate: 200.0, time: 0.5 }));
        assert!(read_httperf(&httperf(399)).is_err() && read_httperf("").is_err());
    }

    #[test]
    fn generators_are_given_the_requests_that_were_drawn() {
        let drawn = requests(3, 25);
        let sessions = httperf_sessions(&drawn);
        assert_eq!(sessions.split("\n\n").count(), 3);
        let again: Vec<_> = sessions.lines().filter(|line| !line.is_empty()).collect();
        assert!(drawn.iter().map(|file| format!("/{}", file.path())).eq(again));
        assert!(wrk_script(&drawn).contains(&format!("\"/{}\",\n", drawn[24].path())));
    }
}
