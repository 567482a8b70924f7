//! The benchmark of images at a distance: an image behind a server whose every answer takes some
//! milliseconds, against what people do with such an image today.
//!
//! - `http`: nginx, behind a proxy that counts requests and delays each. Rivals: the download of
//!   the whole image by curl; fuse2fs and the kernel's loop mount on the file that nbdfuse makes of
//!   nbdkit's curl plugin.
//! - `nbd`: nbdkit with its delay filter. Rivals: the two mounts on nbdfuse.
//!
//! The line itself is as fast as this machine's memory, which favours the download.

use std::fs::create_dir_all;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use dentree_testing::{Nginx, Proxy, Upstream, wait_until};
use tempfile::TempDir;

use crate::leftovers::folder;
use crate::mounts::command;
use crate::outcome::{OURS, Outcome};
use crate::rows::Heading;
use crate::shell_race::{KERNEL, Race, Shell, Task};
use crate::tools_bench::small_files;
use crate::unavailable::Unavailable;

/// Of a rival's time, ours is to be at most this.
const TARGET: f64 = 0.2;
/// The latency at which the rivals run, too; they take minutes at longer ones.
const RIVALS_AT: u64 = 20;
const LATENCIES: [u64; 4] = [0, 5, RIVALS_AT, 100];

/// Functions that the lines use. `raw` makes a file of the source.
const PRELUDE: &str = r#"
set -e
with_raw() {
    case $SOURCE in
    http*) nbdfuse "$RAW" [ nbdkit --exit-with-parent curl "$SOURCE" ] & ;;
    *) nbdfuse "$RAW" "$SOURCE" & ;;
    esac
    until mountpoint -q "$RAW"; do kill -0 $!; sleep 0.005; done
}
without_raw() { fusermount3 -u "$RAW"; wait; }
with_fuse2fs() {
    with_raw
    fuse2fs -f -o ro "$RAW/nbd" "$MNT" >/dev/null 2>&1 &
    until mountpoint -q "$MNT"; do kill -0 $!; sleep 0.005; done
}
without_fuse2fs() { fusermount3 -u "$MNT"; wait $!; without_raw; }
with_kernel() { with_raw; mount -o loop,ro "$RAW/nbd" "$MNT"; }
without_kernel() { umount "$MNT"; without_raw; }
with_download() { curl -s -o "$OUT/disk" "$SOURCE"; }
dentree() { "$DENTREE" --cache-dir "$CACHE" "$@"; }
"#;

/// Nothing of the source is on this machine.
const COLD: &str = r#"rm -rf "$CACHE""#;

macro_rules! task {
    ($name:literal, $ours:literal, $mounted:literal, $check:literal) => {
        Task {
            name: $name,
            prepare: COLD,
            lines: &[
                (OURS, concat!(r#"AT="$SOURCE"; "#, $ours)),
                ("download", concat!(r#"with_download; AT="$OUT/disk"; "#, $ours)),
                ("fuse2fs", concat!("with_fuse2fs; ", $mounted, "; without_fuse2fs")),
                (KERNEL, concat!("with_kernel; ", $mounted, "; without_kernel")),
            ],
            check: $check,
        }
    };
}

const TASKS: [Task<'_>; 5] = [
    task!(
        "list",
        r#"dentree ls -l "$AT:/etc/d0" > "$OUT/list""#,
        r#"ls -l "$MNT/etc/d0" > "$OUT/list""#,
        r#"grep -c '^-' "$OUT/list""#
    ),
    task!(
        "read-one",
        r#"dentree cat "$AT:/etc/d1/33" > "$OUT/file""#,
        r#"cat "$MNT/etc/d1/33" > "$OUT/file""#,
        r#"cksum < "$OUT/file""#
    ),
    task!(
        "copy-etc",
        r#"dentree cp -r "$AT:/etc" "$OUT/etc""#,
        r#"cp -r "$MNT/etc" "$OUT/etc""#,
        r#"cat "$OUT/etc"/*/* | cksum"#
    ),
    task!(
        "find-name",
        r#"dentree find "$AT:/" -name '*77*' > "$OUT/list""#,
        r#"find "$MNT" -name '*77*' > "$OUT/list""#,
        r#"wc -l < "$OUT/list""#
    ),
    task!(
        "mount-du",
        r#"dentree mount --background -o ro "$AT" "$MNT"; du -s --apparent-size "$MNT/etc/d0" > "$OUT/du"; dentree umount "$MNT""#,
        r#"du -s --apparent-size "$MNT/etc/d0" > "$OUT/du""#,
        r#"cut -f1 "$OUT/du""#
    ),
];

/// The size of the work.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Directories of a hundred small files.
    pub directories: usize,
    /// Runs of each variant.
    pub rounds: usize,
}

/// 120,000 files.
pub const FULL: Size = Size { directories: 1200, rounds: 3 };
/// For tests.
pub const TINY: Size = Size { directories: 3, rounds: 1 };

/// Runs the benchmark with the given `dentree` program.
///
/// # Errors
/// Needs root, FUSE, nginx, nbdkit and nbdfuse. A missing rival is reported and left out.
///
/// # Panics
/// If a variant does something else than the others.
pub fn run(dentree: &Path, size: Size, progress: &dyn Fn(&str)) -> Result<Outcome, Unavailable> {
    progress("making the image");
    let bench = Bench::new(dentree, size)?;
    let mut outcome = Outcome::default();
    let proxy = bench.nginx.as_ref().map(|nginx| Proxy::start(Upstream::Unix(nginx.socket().into())));
    for latency in LATENCIES {
        let latency = Duration::from_millis(latency);
        if let Some(proxy) = &proxy {
            proxy.delay(latency);
            let http = bench.shell(dentree, proxy.url("/disk"));
            bench.race("http", &http, latency, size, progress, &mut outcome)?;
            bench.count(&http, proxy, latency, &mut outcome)?;
        }
        let server = bench.nbdkit(latency)?;
        let nbd = bench.shell(dentree, format!("nbd+unix:///?socket={}", server.socket.display()));
        bench.race("nbd", &nbd, latency, size, progress, &mut outcome)?;
    }
    Ok(outcome)
}

struct Bench {
    folder: TempDir,
    nginx: Option<Nginx>,
}

/// nbdkit, ended when this is dropped.
struct Nbdkit {
    process: Child,
    socket: PathBuf,
}

impl Drop for Nbdkit {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Bench {
    fn new(dentree: &Path, size: Size) -> Result<Self, Unavailable> {
        let folder = folder()?;
        let at = |name: &str| folder.path().join(name);
        let made = ["www", "out", "mount", "raw"].into_iter().try_for_each(|name| create_dir_all(at(name)));
        let filled =
            small_files(&at("tree/etc"), 2).and_then(|()| small_files(&at("tree/all"), size.directories));
        made.and(filled).map_err(|why| Unavailable::because("cannot make the tree", why))?;
        let mut mkfs = Command::new(dentree);
        mkfs.args(["mkfs", "-q", "--size", "2G", "-N", "262144", "--from"])
            .arg(at("tree"))
            .arg(at("www/disk"));
        command(&mut mkfs)?;
        let nginx = Nginx::start(&at("www"), folder.path());
        Ok(Bench { folder, nginx })
    }

    fn shell(&self, dentree: &Path, source: String) -> Shell {
        let at = |name: &str| self.folder.path().join(name).into_os_string();
        let places = [("OUT", at("out")), ("MNT", at("mount")), ("RAW", at("raw")), ("CACHE", at("cache"))];
        let mut variables = vec![("DENTREE", dentree.into()), ("SOURCE", source.into())];
        variables.extend(places);
        Shell { prelude: PRELUDE, variables }
    }

    fn nbdkit(&self, latency: Duration) -> Result<Nbdkit, Unavailable> {
        let socket = self.folder.path().join(format!("nbd{}", latency.as_millis()));
        let mut nbdkit = Command::new("nbdkit");
        nbdkit.args(["-f", "-r", "-U"]).arg(&socket).args(["--filter=delay", "file"]);
        nbdkit.arg(self.folder.path().join("www/disk")).arg(format!("rdelay={}ms", latency.as_millis()));
        let process = nbdkit.spawn().map_err(|why| Unavailable::because("nbdkit", why))?;
        let server = Nbdkit { process, socket };
        wait_until("listening", || server.socket.exists());
        Ok(server)
    }

    /// Ours at each latency, the rivals where that is short enough.
    fn race(
        &self,
        source: &str,
        shell: &Shell,
        latency: Duration,
        size: Size,
        progress: &dyn Fn(&str),
        outcome: &mut Outcome,
    ) -> Result<(), Unavailable> {
        let millis = latency.as_millis() as u64;
        for task in &TASKS {
            let all = if millis == RIVALS_AT { task.lines } else { &task.lines[..1] };
            // There is no download of a block server.
            let lines: Vec<_> =
                all.iter().copied().filter(|(tool, _)| source == "http" || *tool != "download").collect();
            let case = format!("{}, {source}, {millis} ms", task.name);
            // Minutes with the rivals.
            let rounds = if task.name == "find-name" && lines.len() > 1 { 1 } else { size.rounds };
            let race = Race { case: &case, rounds, target: TARGET, progress };
            shell.race(&Task { lines: &lines, ..*task }, &race, outcome)?;
        }
        Ok(())
    }

    /// Requests and bytes of ours: of the first run, and of one that has its cache.
    fn count(
        &self,
        shell: &Shell,
        proxy: &Proxy,
        latency: Duration,
        outcome: &mut Outcome,
    ) -> Result<(), Unavailable> {
        for task in &TASKS {
            let case = format!("{}, http, {} ms", task.name, latency.as_millis());
            let (_, line) = task.lines[0];
            proxy.take();
            shell.time(task, line)?;
            let first = proxy.take();
            shell.time(&Task { prepare: "", ..*task }, line)?;
            let again = proxy.take();
            for (variant, exchanges) in [(OURS, first), ("again", again)] {
                let bytes: u64 = exchanges.iter().map(|exchange| exchange.body).sum();
                for (metric, count) in [("requests", exchanges.len() as f64), ("bytes", bytes as f64)] {
                    let heading = Heading { case: &case, variant, threads: 1, metric, unit: metric };
                    outcome.count(heading, count);
                }
            }
        }
        Ok(())
    }
}
