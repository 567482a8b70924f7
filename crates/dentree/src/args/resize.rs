//! Arguments of `dentree resize`.

use super::mkfs::parse_size;
use clap::{Args, ValueHint};
use dentree_ext4::Size;
use std::ffi::OsString;

#[derive(Debug, Args)]
pub(crate) struct ResizeArgs {
    /// The image
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) image: OsString,
    /// The new size in blocks, with s in sectors of 512 bytes, with K, M, G, T in powers of 1024
    /// (default: that of the image or partition)
    #[arg(value_parser = parse_new_size)]
    pub(crate) size: Option<Size>,
    /// Make it as small as its files allow
    #[arg(short = 'M', long, conflicts_with = "size")]
    pub(crate) minimum: bool,
    /// Print the smallest size, and change nothing
    #[arg(short = 'P', long, conflicts_with_all = ["size", "minimum"])]
    pub(crate) print_minimum: bool,
}

/// `20G`, `4096s`, `1000`: a size as resize2fs takes it.
fn parse_new_size(text: &str) -> Result<Size, String> {
    match text.strip_suffix('s') {
        Some(sectors) => {
            let sectors: u64 = sectors.parse().map_err(|_| "not a number".to_owned())?;
            sectors.checked_mul(512).map(Size::Bytes).ok_or("too large".to_owned())
        }
        None if text.ends_with(|last: char| last.is_ascii_digit()) => parse_size(text).map(Size::Blocks),
        None => parse_size(text).map(Size::Bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_resize2fs() {
        assert_eq!(
            ["7", "7s", "7K", "7g"].map(parse_new_size),
            [Size::Blocks(7), Size::Bytes(3584), Size::Bytes(7168), Size::Bytes(7 << 30)].map(Ok)
        );
        for wrong in ["", "s", "-1", "1x", "99999999999999999999", "18446744073709551615s"] {
            assert!(parse_new_size(wrong).is_err(), "{wrong}");
        }
    }
}
