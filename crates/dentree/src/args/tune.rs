//! Options of `dentree tune`: those of tune2fs(8) that change the superblock alone.

use super::mkfs::{UuidArg, parse_percent, parse_uuid};
use crate::host::OsStrExt;
use clap::{ArgGroup, Args, ValueHint};
use dentree_ext4::Tune;
use std::ffi::OsString;

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("change").required(true).multiple(true))]
pub(crate) struct TuneArgs {
    /// The image
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) image: OsString,
    /// Check after so many mounts; 0 or -1 for never
    #[arg(short = 'c', value_name = "COUNT", group = "change", allow_negative_numbers = true)]
    #[arg(value_parser = clap::value_parser!(i16).range(-1..))]
    max_mount_count: Option<i16>,
    /// Mounts since the last check
    #[arg(short = 'C', value_name = "COUNT", group = "change")]
    mount_count: Option<u16>,
    /// What the kernel does on errors
    #[arg(short = 'e', value_name = "BEHAVIOUR", group = "change", value_parser = ["continue", "remount-ro", "panic"])]
    errors: Option<String>,
    /// stride=, stripe_width= (blocks), hash_alg=legacy|half_md4|tea, mount_opts=
    #[arg(short = 'E', value_name = "OPTION,…", group = "change", value_parser = parse_extended, value_delimiter = ',')]
    extended: Vec<Tune>,
    /// The group that may take reserved blocks, as a number
    #[arg(short = 'g', value_name = "GID", group = "change")]
    gid: Option<u16>,
    /// Check after so many days, or with w weeks, with m months of 30 days; 0 for never
    #[arg(short = 'i', value_name = "N[dwm]", group = "change", value_parser = parse_interval)]
    interval: Option<u32>,
    /// Label, at most 16 bytes
    #[arg(short = 'L', value_name = "LABEL", group = "change")]
    pub(crate) label: Option<OsString>,
    /// Percentage of blocks reserved for root, at most 50, with up to three decimals
    #[arg(short = 'm', value_name = "PERCENT", group = "change", value_parser = parse_percent)]
    reserved_percent: Option<u32>,
    /// The directory that it was last mounted on
    #[arg(short = 'M', value_name = "DIRECTORY", group = "change")]
    last_mounted: Option<OsString>,
    /// Default mount options to set, or with ^ to clear
    #[arg(short = 'o', value_name = "[^]OPTION,…", group = "change", value_parser = parse_mount_option, value_delimiter = ',')]
    mount_options: Vec<Tune>,
    /// Number of blocks reserved for root, at most half of all
    #[arg(short = 'r', value_name = "COUNT", group = "change", conflicts_with = "reserved_percent")]
    reserved_blocks: Option<u64>,
    /// The user that may take reserved blocks, as a number
    #[arg(short = 'u', value_name = "UID", group = "change")]
    uid: Option<u16>,
    /// UUID, or random, or clear for zeros
    #[arg(short = 'U', value_name = "UUID", group = "change", value_parser = parse_uuid)]
    pub(crate) uuid: Option<UuidArg>,
}

impl TuneArgs {
    /// All changes but those of label and UUID.
    pub(crate) fn changes(&self) -> Vec<Tune> {
        // -1 is written for 0, as tune2fs does.
        let count = |count: i16| if count == 0 { -1 } else { count };
        let behaviour = |word: &str| {
            ["continue", "remount-ro", "panic"]
                .iter()
                .zip(1..)
                .find(|(known, _)| **known == word)
                .map(|(_, number)| Tune::Errors(number))
        };
        let bytes = |text: &OsString| text.as_bytes().to_vec();
        let single = [
            self.max_mount_count.map(count).map(Tune::MaxMountCount),
            self.mount_count.map(Tune::MountCount),
            self.errors.as_deref().and_then(behaviour),
            self.gid.map(Tune::ReservedGid),
            self.interval.map(Tune::CheckInterval),
            self.reserved_percent.map(Tune::ReservedPercent),
            self.last_mounted.as_ref().map(bytes).map(Tune::LastMounted),
            self.reserved_blocks.map(Tune::ReservedBlocks),
            self.uid.map(Tune::ReservedUid),
        ];
        single.into_iter().flatten().chain(self.extended.iter().chain(&self.mount_options).cloned()).collect()
    }
}

/// `2w`: an interval in seconds.
fn parse_interval(text: &str) -> Result<u32, String> {
    const DAY: u32 = 86_400;
    let (digits, unit) = match text.strip_suffix(|letter: char| letter.is_ascii_alphabetic()) {
        None => (text, DAY),
        Some(digits) if text.ends_with('d') => (digits, DAY),
        Some(digits) if text.ends_with('w') => (digits, 7 * DAY),
        Some(digits) if text.ends_with('m') => (digits, 30 * DAY),
        Some(_) => return Err("the units are d, w and m".to_owned()),
    };
    let number: u32 = digits.parse().map_err(|_| "not a number".to_owned())?;
    number.checked_mul(unit).ok_or("too long".to_owned())
}

/// An option of `-E`.
fn parse_extended(text: &str) -> Result<Tune, String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("{text} has no value"))?;
    let wrong = |error: std::num::ParseIntError| format!("{name}: {error}");
    match name {
        "stride" => value.parse().map(Tune::RaidStride).map_err(wrong),
        "stripe_width" | "stripe-width" => value.parse().map(Tune::RaidStripeWidth).map_err(wrong),
        "mount_opts" => Ok(Tune::MountOptions(value.as_bytes().to_vec())),
        "hash_alg" => {
            let hashes = ["legacy", "half_md4", "tea"].iter().zip(0..);
            let known = hashes.clone().find(|(known, _)| **known == value);
            known.map(|(_, number)| Tune::HashVersion(number)).ok_or_else(|| format!("no hash {value}"))
        }
        _ => Err(format!("{name} is not supported")),
    }
}

/// A default mount option, with `^` to clear it. The modes of journaling share two bits.
fn parse_mount_option(text: &str) -> Result<Tune, String> {
    const JOURNALING: u32 = 0x60;
    const OPTIONS: [(&str, u32); 12] = [
        ("debug", 0x1),
        ("bsdgroups", 0x2),
        ("user_xattr", 0x4),
        ("acl", 0x8),
        ("uid16", 0x10),
        ("journal_data", 0x20),
        ("journal_data_ordered", 0x40),
        ("journal_data_writeback", 0x60),
        ("nobarrier", 0x100),
        ("block_validity", 0x200),
        ("discard", 0x400),
        ("nodelalloc", 0x800),
    ];
    let (name, clears) = text.strip_prefix('^').map_or((text, false), |name| (name, true));
    let known = OPTIONS.iter().find(|(known, _)| *known == name);
    let &(_, bits) = known.ok_or_else(|| format!("no mount option {name}"))?;
    let clear = if bits & JOURNALING != 0 { JOURNALING } else { bits };
    Ok(Tune::DefaultMountOptions { clear, set: if clears { 0 } else { bits } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_days_weeks_or_months() {
        assert_eq!(
            ["0", "3", "3d", "2w", "1m"].map(parse_interval),
            [0, 259_200, 259_200, 1_209_600, 2_592_000].map(Ok)
        );
        for wrong in ["", "d", "-1", "1y", "99999999"] {
            assert!(parse_interval(wrong).is_err(), "{wrong}");
        }
    }
}
