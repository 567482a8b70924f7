//! `dentree serve` of an image made by mke2fs.

use dentree_testing::{PATIENCE, wait_until};
use rustix::process::{Pid, Resource, Signal, getrlimit, kill_process, setrlimit};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
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
            let address = line.split("://").nth(1).and_then(|rest| rest.split('/').next());
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

/// What curl fetches of an address, with more arguments before it. `None`, with the reason printed,
/// where there is no curl.
fn curl(args: &[&str], url: &str) -> Option<std::process::Output> {
    let fetched =
        Command::new("curl").args(["-sS", "--http1.1", "--max-time", "60"]).args(args).arg(url).output();
    if fetched.is_err() {
        println!("skipped: curl is not installed");
    }
    fetched.ok()
}

#[test]
fn a_download_as_tar_is_what_the_command_writes_and_gnu_tar_extracts_the_tree() {
    let dir = image_with(|tree| {
        let deep = tree.join("etc/a deep/one");
        fs::create_dir_all(&deep).unwrap();
        fs::hard_link(tree.join("etc/hosts"), deep.join("again")).unwrap();
        fs::set_permissions(tree.join("etc/hosts"), fs::Permissions::from_mode(0o4751)).unwrap();
        File::create(deep.join("holes")).unwrap().set_len(3 << 20).unwrap();
        symlink("../hosts", tree.join("etc/link")).unwrap();
        symlink("etc", tree.join("way")).unwrap();
    });
    let image = dir.path().join("disk.img");
    let serving = Serving::new(&image);
    let command = |path: &str| {
        let place = format!("{}:{path}", image.display());
        Command::new(env!("CARGO_BIN_EXE_dentree")).args(["tar", "c", &place]).output().unwrap().stdout
    };
    for path in ["/", "/etc", "/etc/a deep"] {
        let url = format!(
            "http://{}{}/?archive=tar",
            serving.files,
            path.trim_end_matches('/').replace(' ', "%20")
        );
        let Some(fetched) = curl(&[], &url) else { return };
        assert!(fetched.status.success() && fetched.stdout == command(path), "{path}");
    }
    let extracted = dir.path().join("extracted");
    fs::create_dir(&extracted).unwrap();
    let archive = dir.path().join("way.tar");
    let args = ["-o", archive.to_str().unwrap()];
    curl(&args, &format!("http://{}/way/?archive=tar", serving.files));
    let tar = Command::new("tar").args(["-xpf"]).arg(&archive).arg("-C").arg(&extracted).status();
    assert!(tar.unwrap().success(), "a link to a directory leads to an archive of it");
    let sums = |of: &str| {
        Command::new(env!("CARGO_BIN_EXE_dentree")).args(["checksum", of]).output().unwrap().stdout
    };
    let sum = sums(extracted.join("way").to_str().unwrap());
    assert!(!sum.is_empty() && sum == sums(&format!("{}:/etc", image.display())));
}

#[test]
fn a_download_as_tar_of_a_damaged_tree_is_cut_short() {
    let dir = image();
    let image = dir.path().join("disk.img");
    let serving = Serving::new(&image);
    serving.get("/etc/hosts");
    // Past its middle the image is gone: `large.bin` cannot be read to its end.
    File::options().write(true).open(&image).unwrap().set_len(12 << 20).unwrap();
    let Some(fetched) = curl(&[], &format!("http://{}/?archive=tar", serving.files)) else { return };
    assert!(!fetched.status.success(), "curl has to know that a part is missing");
}

/// Makes `NAME.pem`, a certificate of this machine that lasts two days, and `NAME.key` in `dir`.
/// False, with the reason printed, where there is no openssl.
fn certificate(dir: &Path, name: &str) -> bool {
    let made = openssl(
        dir,
        &format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 2 -subj /CN=localhost \
             -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout {name}.key -out {name}.pem"
        ),
    );
    assert!(made.as_ref().is_none_or(|made| made.status.success()), "{made:?}");
    made.is_some()
}

fn openssl(dir: &Path, args: &str) -> Option<std::process::Output> {
    let ran = Command::new("openssl").args(args.split_whitespace()).current_dir(dir).output();
    if ran.is_err() {
        println!("skipped: openssl is not installed");
    }
    ran.ok()
}

/// A server with the certificate `a` in the directory of its image.
fn serving_tls(dir: &TempDir, change: impl FnOnce(&mut Command)) -> Serving {
    Serving::with(&dir.path().join("disk.img"), |command| {
        command.arg("--tls-cert").arg(dir.path().join("a.pem"));
        command.arg("--tls-key").arg(dir.path().join("a.key"));
        change(command);
    })
}

#[test]
fn over_tls_the_image_arrives_at_clients_that_trust_the_certificate() {
    let dir = image();
    if !certificate(dir.path(), "a") {
        return;
    }
    let serving = serving_tls(&dir, |_| ());
    let trusted = dir.path().join("a.pem");
    let trust = ["--cacert", trusted.to_str().unwrap()];
    let url = |path: &str| format!("https://{}/{path}", serving.files);
    let content = fs::read(dir.path().join("tree/large.bin")).unwrap();
    for (least, version) in [("--tlsv1.2", "1.2"), ("--tlsv1.3", "1.3")] {
        let args = [&trust[..], &[least, "--tls-max", version]].concat();
        let Some(fetched) = curl(&args, &url("large.bin")) else { return };
        assert!(fetched.status.success() && fetched.stdout == content, "TLS {version}");
    }
    // Without trust, without TLS, and with a version that is known to be weak.
    let refused = |args: &[&str], url: &str| curl(args, url).is_some_and(|got| !got.status.success());
    assert!(refused(&[], &url("large.bin")));
    assert!(refused(&[], &url("large.bin").replace("https", "http")));
    let old =
        openssl(dir.path(), &format!("s_client -tls1_1 -cipher ALL@SECLEVEL=0 -connect {}", serving.files))
            .unwrap();
    assert!(!old.status.success());
    let shown = openssl(
        dir.path(),
        &format!("s_client -alpn h2,http/1.1 -verify_return_error -CAfile a.pem -connect {}", serving.files),
    );
    let shown = String::from_utf8(shown.unwrap().stdout).unwrap();
    assert!(shown.contains("Verify return code: 0 (ok)"), "{shown}");
    assert!(shown.contains("ALPN protocol: http/1.1"), "{shown}");
    // An archive, as GNU tar takes it from a pipe.
    let command = "curl -sS --cacert \"$1\" \"$2\" | tar -xC \"$3\"";
    let extracted = dir.path().join("extracted");
    fs::create_dir(&extracted).unwrap();
    let piped = Command::new("sh")
        .args(["-ec", command, "sh"])
        .args([&trusted, Path::new(&url("?archive=tar")), &extracted])
        .status();
    assert!(piped.unwrap().success());
    let same = Command::new("diff").arg("-r").arg(dir.path().join("tree")).arg(&extracted).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&same.stdout).lines().count(), 1, "lost+found alone: {same:?}");
    assert!(serving.figure("dentree_http_requests_total{status=\"200\"}") >= 3, "figures are without TLS");
}

#[test]
fn only_users_of_the_password_file_are_served() {
    let dir = image();
    if !certificate(dir.path(), "a") {
        return;
    }
    let mut serving = serving_tls(&dir, |command| {
        command.arg("--password-file").arg(passwords(&dir));
    });
    let trusted = dir.path().join("a.pem");
    let url = format!("https://{}/etc/hosts", serving.files);
    let status = |args: &[&str]| {
        let args = [&["--cacert", trusted.to_str().unwrap(), "-i"], args].concat();
        curl(&args, &url).map(|fetched| String::from_utf8(fetched.stdout).unwrap())
    };
    let Some(without) = status(&[]) else { return };
    assert!(without.starts_with("HTTP/1.1 401 ") && !without.contains("127.0.0.1 localhost"), "{without}");
    assert!(without.contains("www-authenticate: Basic realm=\"disk.img\""), "{without}");
    for user in ["ann:wrong", "bob:secret"] {
        assert!(status(&["-u", user]).unwrap().starts_with("HTTP/1.1 401 "), "{user}");
    }
    let admitted = status(&["-u", "ann:secret"]).unwrap();
    assert!(admitted.starts_with("HTTP/1.1 200 ") && admitted.ends_with("127.0.0.1 localhost\n"));
    serving.signal(Signal::TERM);
    assert!(serving.wait().success());
    let log = fs::read_to_string(&serving.log).unwrap();
    assert_eq!(log.matches("127.0.0.1 - ann [").count(), 1, "{log}");
    assert!(!log.contains("secret"), "{log}");
}

/// A file with the user `ann`, whose password is `secret`, as `htpasswd -B -C 4` writes it.
fn passwords(dir: &TempDir) -> PathBuf {
    let file = dir.path().join("users");
    fs::write(&file, "ann:$2y$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW\n").unwrap();
    file
}

#[test]
fn passwords_that_cross_a_network_in_the_clear_are_told() {
    let dir = image();
    let mut serving = Command::new(env!("CARGO_BIN_EXE_dentree"))
        .args(["serve", "--listen", "0.0.0.0:0", "--password-file"])
        .args([passwords(&dir), dir.path().join("disk.img")])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let told: Vec<String> =
        BufReader::new(serving.stderr.take().unwrap()).lines().take(2).map_while(Result::ok).collect();
    serving.kill().unwrap();
    serving.wait().unwrap();
    assert!(told.get(1).is_some_and(|told| told.contains("in the clear; --tls-cert")), "{told:?}");
}

#[test]
fn files_of_passwords_and_certificates_that_are_wrong_are_named_with_what_to_do() {
    let dir = image();
    let path = |name: &str| dir.path().join(name);
    let problem = |args: &[(&str, &str)]| {
        let args = args.iter().flat_map(|(option, file)| [PathBuf::from(option), path(file)]);
        let output = Command::new(env!("CARGO_BIN_EXE_dentree"))
            .args(["serve", "--listen", "127.0.0.1:0"])
            .arg(path("disk.img"))
            .args(args)
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    fs::write(path("plain"), "# users\nann:secret\n").unwrap();
    for (file, expected) in
        [("none", "No such file"), ("plain", "line 2 has no bcrypt hash; make one with htpasswd -B")]
    {
        let (code, told) = problem(&[("--password-file", file)]);
        assert_eq!(code, Some(1));
        assert!(told.contains(path(file).to_str().unwrap()) && told.contains(expected), "{told}");
    }
    assert_eq!(problem(&[("--tls-cert", "a.pem")]).0, Some(2), "a certificate needs its key");
    if !certificate(dir.path(), "a") || !certificate(dir.path(), "b") {
        return;
    }
    openssl(dir.path(), "x509 -in a.pem -outform DER -out a.der").unwrap();
    openssl(dir.path(), "pkey -in a.key -aes256 -passout pass:word -out locked.key").unwrap();
    let pem = fs::read_to_string(path("a.pem")).unwrap();
    let half = pem.lines().take(4).chain(["-----END CERTIFICATE-----"]).collect::<Vec<_>>().join("\n");
    fs::write(path("half.pem"), half).unwrap();
    for (cert, key, wrong, expected) in [
        ("none", "a.key", "none", "No such file"),
        ("a.pem", "none", "none", "No such file"),
        ("a.der", "a.key", "a.der", "holds no certificate in PEM; convert it with openssl x509"),
        ("half.pem", "a.key", "half.pem", "the first certificate is damaged"),
        ("a.pem", "a.pem", "a.pem", "holds no private key in PEM, or one with a passphrase"),
        ("a.pem", "locked.key", "locked.key", "or one with a passphrase; convert it with openssl pkey"),
        ("a.pem", "b.key", "b.key", "is not the key of the first certificate"),
    ] {
        let (code, told) = problem(&[("--tls-cert", cert), ("--tls-key", key)]);
        assert_eq!(code, Some(1), "{told}");
        assert!(told.contains(&format!("{}: ", path(wrong).display())) && told.contains(expected), "{told}");
    }
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
    assert!(serving.figure("dentree_pressure_blocks_total") > 0);
    events.write_all(b"xyz").unwrap();
    wait_until("shrunk again", || serving.figure("dentree_pressure_shrinks_total") == 2);
    assert_eq!(serving.get("/etc/hosts").len(), 20);
    let dropped = serving.figure("dentree_pressure_names_total");
    let expected = format!("shrunk 2 times, by {}; {dropped} names, ", fifo.display());
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
