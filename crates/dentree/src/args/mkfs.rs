//! Arguments of `dentree mkfs`, and how their values are read.

use clap::{Args, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_long_help = crate::command::mkfs::manifest::FORMAT)]
pub(crate) struct MkfsArgs {
    /// The image, or a block device; with --partition the disk whose partition it is made in
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) image: OsString,
    /// The size in bytes, or with K, M, G, T for powers of 1024
    /// (default: that of the device or partition, else enough for what it is filled from)
    #[arg(long, value_name = "N", value_parser = parse_size)]
    pub(crate) size: Option<u64>,
    /// Make it in a partition that is added behind those of a disk image; the image grows as needed
    #[arg(long)]
    pub(crate) append_partition: bool,
    /// Copy a directory into it: owners, modes, times, hard links, holes, extended attributes. Or
    /// extract a tar archive, plain or compressed by gzip or zstd; `-` is standard input. Several
    /// archives are layers of a container image, the lowest first, with whiteouts
    #[arg(short = 'd', long, value_name = "DIR|ARCHIVE", value_hint = ValueHint::AnyPath)]
    pub(crate) from: Vec<PathBuf>,
    /// Owners, modes, devices and more that the directory cannot have without root; --help has the
    /// format
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "from")]
    pub(crate) manifest: Option<PathBuf>,
    #[arg(help = "Features as for mke2fs(8): a comma-separated list, ^ removes one; ext2, ext3 and none \
                replace the defaults")]
    #[arg(short = 'O', value_name = "FEATURE,…", default_value = "", hide_default_value = true)]
    pub(crate) features: String,
    /// Block size: 1024, 2048 or 4096 (default: 4096, below 512 MiB 1024)
    #[arg(short = 'b', value_name = "BYTES")]
    pub(crate) block_size: Option<u32>,
    /// Label, at most 16 bytes
    #[arg(short = 'L', value_name = "LABEL", default_value = "", hide_default_value = true)]
    pub(crate) label: OsString,
    /// UUID, or random, or clear for zeros
    #[arg(short = 'U', long, value_parser = parse_uuid, default_value = "random")]
    pub(crate) uuid: UuidArg,
    /// Number of inodes, rounded to a multiple of 8 for each group
    #[arg(short = 'N', value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) inodes: Option<u32>,
    /// Bytes for each inode (default: 16384, below 512 MiB 4096, below 3 MiB 8192, from 4 TiB more)
    #[arg(short = 'i', value_name = "BYTES")]
    pub(crate) bytes_per_inode: Option<u32>,
    /// Inode size: a power of two from 128 to the block size
    #[arg(short = 'I', value_name = "BYTES", default_value_t = 256)]
    pub(crate) inode_size: u32,
    /// Percentage of blocks reserved for root, at most 50, with up to three decimals
    #[arg(short = 'm', value_name = "PERCENT", value_parser = parse_percent, default_value = "5")]
    pub(crate) reserved: u32,
    /// Print nothing when done
    #[arg(short)]
    pub(crate) quiet: bool,
    /// Print what would be made, and make nothing
    #[arg(short = 'n', conflicts_with = "quiet")]
    pub(crate) dry_run: bool,
    /// Make the same bytes of the same options: the time is $SOURCE_DATE_EPOCH, or else 1970, and
    /// nothing is random
    #[arg(long)]
    pub(crate) reproducible: bool,
    /// Replace a file that is not empty, or what a device or partition holds
    #[arg(long)]
    pub(crate) force: bool,
}

/// `64M`: a number of bytes.
pub(super) fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" | "k" => 10,
        "M" | "m" => 20,
        "G" | "g" => 30,
        "T" | "t" => 40,
        unit => return Err(format!("no unit {unit}: K, M, G and T are known")),
    };
    let number: u64 = digits.parse().map_err(|_| "not a number".to_owned())?;
    number
        .checked_mul(1 << shift)
        .filter(|bytes| *bytes <= i64::MAX.cast_unsigned())
        .ok_or("too large".to_owned())
}

/// A UUID to set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum UuidArg {
    Random,
    Given([u8; 16]),
}

/// `01234567-89ab-cdef-0123-456789abcdef`, `random` or `clear`.
pub(super) fn parse_uuid(text: &str) -> Result<UuidArg, String> {
    match text {
        "random" => return Ok(UuidArg::Random),
        "clear" => return Ok(UuidArg::Given([0; 16])),
        _ => {}
    }
    let lengths: Vec<usize> = text.split('-').map(str::len).collect();
    let is_hex = text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit());
    match u128::from_str_radix(&text.replace('-', ""), 16) {
        Ok(number) if is_hex && lengths == [8, 4, 4, 4, 12] => Ok(UuidArg::Given(number.to_be_bytes())),
        _ => Err("a UUID has 8, 4, 4, 4 and 12 hexadecimal digits with dashes between; random and clear \
                  are words for one"
            .to_owned()),
    }
}

/// A percentage, in thousandths of a percent.
pub(super) fn parse_percent(text: &str) -> Result<u32, String> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let is_number = !whole.is_empty() && text.bytes().all(|byte| byte == b'.' || byte.is_ascii_digit());
    match format!("{whole}{decimals:0<3}").parse() {
        Ok(thousandths) if is_number && decimals.len() <= 3 && thousandths <= 50_000 => Ok(thousandths),
        _ => Err("a percentage is a number from 0 to 50, with up to three decimals".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024_and_nothing_else() {
        assert_eq!(parse_size("20G"), Ok(20 << 30));
        assert_eq!((parse_size("64m"), parse_size("512")), (Ok(64 << 20), Ok(512)));
        for wrong in ["", "G", "1.5G", "-1", "1KiB", "8388608T"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_uuid_is_read_only_with_its_dashes() {
        assert_eq!(
            parse_uuid("00000000-0000-0000-0000-0000000000ff"),
            Ok(UuidArg::Given(255_u128.to_be_bytes()))
        );
        for wrong in ["", "000000000000000000000000000000ff", "+0000000-0000-0000-0000-0000000000ff"] {
            assert!(parse_uuid(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_percentage_has_three_decimals_at_most_and_is_no_more_than_fifty() {
        assert_eq!(["0", "5", "0.5", "1.025", "50"].map(parse_percent), [0, 5000, 500, 1025, 50_000].map(Ok));
        for wrong in ["", "-1", "+1", "50.001", "0.0001", "x", "1.x", "."] {
            assert!(parse_percent(wrong).is_err(), "{wrong}");
        }
    }
}
