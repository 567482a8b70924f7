//! An object behind nginx and a proxy.

#![allow(dead_code)] // each test binary uses a part

use dentree_source_object::{CacheOptions, ObjectDevice, Options, open};
use dentree_testing::{Nginx, Proxy, Upstream};
use std::fs;
use tempfile::TempDir;

pub const BLOCK: u64 = 64 << 10;

pub struct Site {
    pub proxy: Proxy,
    pub dir: TempDir,
    _nginx: Nginx,
}

/// Different everywhere, by `seed`.
pub fn bytes(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64)
        .map(|at| (at.wrapping_mul(0x9E37_79B9) >> 7) as u8 ^ (at >> 13) as u8 ^ seed as u8)
        .collect()
}

impl Site {
    /// `None`: no nginx.
    pub fn with(content: &[u8]) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let www = dir.path().join("www");
        fs::create_dir(&www).unwrap();
        fs::write(www.join("object"), content).unwrap();
        let nginx = Nginx::start(&www, dir.path())?;
        let proxy = Proxy::start(Upstream::Unix(nginx.socket().to_owned()));
        Some(Site { proxy, dir, _nginx: nginx })
    }

    pub fn url(&self) -> String {
        self.proxy.url("/object")
    }

    pub fn open(&self) -> ObjectDevice {
        open(&self.url(), &Options::default()).unwrap()
    }

    /// With the disk cache.
    pub fn open_cached(&self) -> ObjectDevice {
        open(&self.url(), &self.cached(1 << 30)).unwrap()
    }

    pub fn cached(&self, size: u64) -> Options {
        let cache = Some(CacheOptions { dir: self.dir.path().join("cache"), size });
        Options { cache, ..Options::default() }
    }

    /// By rename.
    pub fn replace(&self, content: &[u8]) {
        let new = self.dir.path().join("new");
        fs::write(&new, content).unwrap();
        fs::rename(new, self.dir.path().join("www/object")).unwrap();
    }
}
