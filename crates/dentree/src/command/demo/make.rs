//! The image of the demo: the tree of a small system with random but reproducible content.

use crate::image::{Node, SUPERUSER};
use dentree_blockdev::{Access, FileDevice};
use dentree_ext4::mkfs::{MkfsOptions, mkfs};
use dentree_ext4::{Clock, Ext4, InodeTime, Options};
use dentree_vfs::{Error, NewKind, Result, Vfs, WalkOptions};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Size of the image in MiB.
pub(super) const MIB: u64 = 24;

const UUID: [u8; 16] = *b"\x3f\x6f\x2d\x6a\x5c\x1e\x4c\x59\x9a\x0e\x1d\x2f\x3a\x4b\x5c\x6d";
const HASH_SEED: [u32; 4] = [0x3d2c_1b0a, 0x7160_5f4e, 0xb5a4_9382, 0xf9e8_d7c6];
/// The time of all files, in seconds since 1970.
const NOW: i64 = 1_700_000_000;

const WORDS: [&str; 16] = [
    "core", "net", "disk", "index", "cache", "queue", "frame", "token", "table", "graph", "signal", "buffer",
    "socket", "parser", "timer", "shell",
];

/// Makes the image in `file`; returns the number of files in it.
pub(super) fn make(file: &Path) -> io::Result<usize> {
    File::create(file)?.set_len(MIB << 20)?;
    let device = FileDevice::open(file, Access::ReadWrite).map_err(io::Error::other)?;
    let now = InodeTime { seconds: NOW, nanos: 0 };
    let options = MkfsOptions { label: b"dentree-demo".to_vec(), ..MkfsOptions::new(UUID, HASH_SEED, now) };
    mkfs(&device, &options).map_err(io::Error::other)?;
    let options =
        Options { writable: true, journaled: false, clock: Clock::Fixed(now), ..Options::default() };
    let fs = Ext4::open(Arc::new(device), options).map_err(io::Error::other)?;
    // lost+found exists already.
    let mut tree = Builder { vfs: Vfs::new(fs).map_err(io::Error::other)?, things: 1, random: 2002 };
    tree.system().map_err(io::Error::other)?;
    tree.vfs.fs().close().map_err(io::Error::other)?;
    Ok(tree.things)
}

struct Builder {
    vfs: Vfs<Ext4>,
    things: usize,
    random: u64,
}

impl Builder {
    fn system(&mut self) -> Result<()> {
        for path in ["bin", "boot", "dev", "home/ada", "home/linus", "tmp", "var/log"] {
            self.directory(path)?;
        }
        self.file("release", "dentree demo 2\n")?;
        self.file("etc/hosts", "127.0.0.1 localhost\n")?;
        self.file("etc/passwd", "root:x:0:0::/root:/bin/sh\nada:x:1000:1000::/home/ada:/bin/sh\n")?;
        for word in WORDS {
            for n in 0..12 {
                let (path, text) = (format!("etc/{word}.d/{n:02}-{}.conf", self.word()), self.line());
                self.file(&path, &text)?;
            }
        }
        for (a, b) in WORDS.iter().flat_map(|a| WORDS[..6].iter().map(move |b| (a, b))) {
            let text = self.line();
            self.file(&format!("usr/share/doc/{a}-{b}/copyright"), "MIT OR Apache-2.0\n")?;
            self.file(&format!("usr/share/doc/{a}-{b}/changelog"), &text)?;
        }
        for (word, part) in WORDS.iter().flat_map(|word| WORDS[..9].iter().map(move |part| (word, part))) {
            for n in 0..10 {
                let (path, text) = (format!("usr/lib/{word}/{part}/src/{}_{n}.rs", self.word()), self.line());
                self.file(&path, &text)?;
            }
        }
        for n in 0..1500 {
            self.file(&format!("var/lib/spool/message-{n:05}"), "")?;
        }
        self.special()
    }

    /// Links, and a sparse file with nine bytes of data.
    fn special(&mut self) -> Result<()> {
        for word in &WORDS[..8] {
            let target = format!("../usr/lib/{word}");
            self.make("bin", word, NewKind::Symlink(target.as_bytes()))?;
        }
        let (hosts, ada) = (self.walk("etc/hosts")?, self.walk("home/ada")?);
        self.vfs.link(SUPERUSER, &hosts, &ada, b"hosts")?;
        self.things += 1;
        self.file("var/lib/disk.raw", "")?;
        let raw = self.walk("var/lib/disk.raw")?;
        self.vfs.write(SUPERUSER, &raw, 1 << 33, b"half way\n").map(drop)
    }

    fn walk(&self, path: &str) -> Result<Node> {
        self.vfs.walk(SUPERUSER, self.vfs.root(), path.as_bytes(), WalkOptions::KEEP_LINK)
    }

    /// The directory at `path`, made with its parents where missing.
    fn directory(&mut self, path: &str) -> Result<Node> {
        if path.is_empty() {
            return Ok(self.vfs.root().clone());
        }
        match self.walk(path) {
            Err(Error::NotFound) => {
                let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
                self.make(parent, name, NewKind::Directory)
            }
            found => found,
        }
    }

    fn file(&mut self, path: &str, content: &str) -> Result<()> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let file = self.make(parent, name, NewKind::Regular)?;
        if content.is_empty() {
            Ok(())
        } else {
            self.vfs.write(SUPERUSER, &file, 0, content.as_bytes()).map(drop)
        }
    }

    fn make(&mut self, parent: &str, name: &str, kind: NewKind<'_>) -> Result<Node> {
        let dir = self.directory(parent)?;
        self.things += 1;
        let permissions = if matches!(kind, NewKind::Regular) { 0o644 } else { 0o755 };
        self.vfs.create(SUPERUSER, &dir, name.as_bytes(), kind, permissions)
    }

    /// A word chosen by Knuth's MMIX generator.
    fn word(&mut self) -> &'static str {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // The high bits are more random.
        WORDS[(self.random >> 60) as usize]
    }

    /// Six words.
    fn line(&mut self) -> String {
        let words: Vec<&str> = (0..6).map(|_| self.word()).collect();
        words.join(" ") + "\n"
    }
}
