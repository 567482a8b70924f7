//! Sizes in the units of coreutils: rounded up, with the letter of the unit where one was asked
//! for.

/// How a number of bytes is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scale {
    /// `1.2K`, `34M`: at most four characters, powers of 1024 or 1000.
    Human { base: u16 },
    /// A number of units, with a suffix.
    Unit { bytes: u64, suffix: &'static str },
}

impl Scale {
    pub(crate) const HUMAN: Scale = Scale::Human { base: 1024 };
    pub(crate) const SI: Scale = Scale::Human { base: 1000 };

    pub(crate) const fn unit(bytes: u64) -> Scale {
        Scale::Unit { bytes, suffix: "" }
    }

    /// `512`, `4K`, `M`, `MB`, `KiB`, `human-readable`, `si`: the argument of `--block-size`.
    pub(crate) fn parse(text: &str) -> Result<Scale, String> {
        const SUFFIXES: [[&str; 3]; 6] = [
            ["K", "kB", "KiB"],
            ["M", "MB", "MiB"],
            ["G", "GB", "GiB"],
            ["T", "TB", "TiB"],
            ["P", "PB", "PiB"],
            ["E", "EB", "EiB"],
        ];
        let wrong = || "not a size: a number, a unit as in K, MB or MiB, or both".to_owned();
        match text {
            "human-readable" => return Ok(Scale::HUMAN),
            "si" => return Ok(Scale::SI),
            _ => {}
        }
        let letters = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(letters);
        let count: u64 = if number.is_empty() { 1 } else { number.parse().map_err(|_| wrong())? };
        let same = |suffix: &str| suffix.eq_ignore_ascii_case(unit);
        let found = SUFFIXES.iter().enumerate().find_map(|(power, names)| {
            names.iter().position(|name| same(name)).map(|form| (power, form, names[form]))
        });
        let (factor, suffix) = match found {
            Some((power, form, name)) => {
                let base = if form == 1 { 1000_u64 } else { 1024 };
                (base.pow(power as u32 + 1), if number.is_empty() { name } else { "" })
            }
            None if unit.is_empty() && !number.is_empty() => (1, ""),
            None => return Err(wrong()),
        };
        let bytes = count.checked_mul(factor).filter(|bytes| *bytes > 0).ok_or_else(wrong)?;
        Ok(Scale::Unit { bytes, suffix })
    }

    pub(crate) fn show(self, bytes: u64) -> String {
        match self {
            Scale::Unit { bytes: unit, suffix } => format!("{}{suffix}", bytes.div_ceil(unit)),
            Scale::Human { base } => human(bytes, base),
        }
    }
}

fn human(bytes: u64, base: u16) -> String {
    const UNITS: [&str; 6] = ["K", "M", "G", "T", "P", "E"];
    let (bytes, base) = (u128::from(bytes), u128::from(base));
    if bytes < base {
        return bytes.to_string();
    }
    let mut unit = base;
    let mut letter = 0;
    while letter + 1 < UNITS.len() && bytes.div_ceil(unit) >= base {
        unit *= base;
        letter += 1;
    }
    let name = if letter == 0 && base == 1000 { "k" } else { UNITS[letter] };
    let tenths = (10 * bytes).div_ceil(unit);
    if tenths < 100 {
        format!("{}.{}{name}", tenths / 10, tenths % 10)
    } else {
        format!("{}{name}", bytes.div_ceil(unit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short_rounded_up_and_never_overflow() {
        let shown = |scale: Scale, sizes: &[u64]| -> Vec<String> {
            sizes.iter().map(|size| scale.show(*size)).collect()
        };
        let sizes = [0, 1023, 1024, 1025, 10 << 10, (10 << 10) + 1, (1 << 20) - 1, 1 << 30, u64::MAX];
        assert_eq!(
            shown(Scale::HUMAN, &sizes),
            ["0", "1023", "1.0K", "1.1K", "10K", "11K", "1.0M", "1.0G", "16E"]
        );
        assert_eq!(shown(Scale::SI, &[999, 1000, 999_001]), ["999", "1.0k", "1.0M"]);
        assert_eq!(shown(Scale::unit(1024), &[0, 1, 1025, u64::MAX]), ["0", "1", "2", "18014398509481984"]);
    }

    #[test]
    fn a_unit_alone_is_shown_with_the_number() {
        let of = |text: &str| Scale::parse(text).unwrap().show(3 << 20);
        assert_eq!(
            [of("M"), of("1M"), of("KiB"), of("kB"), of("512")],
            ["3M", "3", "3072KiB", "3146kB", "6144"]
        );
        for wrong in ["", "0", "X", "1.5M", "99999999E", "-1"] {
            assert!(Scale::parse(wrong).is_err(), "{wrong}");
        }
    }
}
