//! The images of `tests/images`, made by its script `make`.

use flate2::read::GzDecoder;
use std::io::Read as _;

macro_rules! images {
    ($($name:literal),* $(,)?) => {
        const PACKED: &[(&str, &[u8])] =
            &[$(($name, include_bytes!(concat!("../images/", $name, ".img.gz")))),*];
    };
}
images!(
    "ext2",
    "ext4-bare",
    "ext4-sums",
    "two-levels",
    "inline",
    "meta-bg",
    "bigalloc",
    "casefold",
    "journal-bare",
    "journal-sums",
);

#[derive(Clone)]
pub struct Image {
    pub name: &'static str,
    pub bytes: Vec<u8>,
}

/// Unpacked. Fuzz inputs refer to the order.
pub fn all() -> Vec<Image> {
    let unpack = |&(name, packed): &(&'static str, &[u8])| {
        let mut bytes = Vec::new();
        GzDecoder::new(packed).read_to_end(&mut bytes).unwrap();
        Image { name, bytes }
    };
    PACKED.iter().map(unpack).collect()
}

pub fn named(name: &str) -> Image {
    all().into_iter().find(|image| image.name == name).unwrap()
}
