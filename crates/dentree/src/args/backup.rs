//! Backups of files that are replaced, as cp(1) and mv(1) make them.

use crate::host::OsStrExt;
use clap::{Args, ValueEnum};
use std::ffi::OsString;

#[derive(Debug, Default, Args)]
pub(crate) struct BackupArgs {
    /// Keep each existing file under another name: with a number, or with ~ at its end
    #[arg(long, value_name = "CONTROL", num_args = 0..=1, require_equals = true, default_missing_value = "existing")]
    backup: Option<Control>,
    /// As --backup
    #[arg(short = 'b')]
    backs_up: bool,
    /// End the names of backups with this instead of ~
    #[arg(short = 'S', long, value_name = "SUFFIX")]
    suffix: Option<OsString>,
}

/// The names of backups.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Control {
    #[value(alias = "off")]
    None,
    #[value(alias = "t")]
    Numbered,
    /// With a number where there are such backups already.
    #[value(alias = "nil")]
    Existing,
    #[value(alias = "never")]
    Simple,
}

impl BackupArgs {
    /// The name of a backup of `name`; `None` where none is made.
    pub(crate) fn name(&self, name: &[u8], exists: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
        let is_asked = self.backs_up || self.suffix.is_some();
        let control = self.backup.or(is_asked.then_some(Control::Existing))?;
        let numbered = |number: u32| [name, format!(".~{number}~").as_bytes()].concat();
        match control {
            Control::None => None,
            Control::Existing | Control::Simple if control == Control::Simple || !exists(&numbered(1)) => {
                let suffix = self.suffix.as_ref().map_or(&b"~"[..], |suffix| suffix.as_bytes());
                Some([name, suffix].concat())
            }
            _ => (1..).map(numbered).find(|name| !exists(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_backups_are_those_of_cp() {
        let name = |backup: Option<Control>, suffix: Option<&str>, there: &[&str]| {
            let args = BackupArgs { backup, backs_up: false, suffix: suffix.map(Into::into) };
            let name = args.name(b"f", |name| there.iter().any(|other| other.as_bytes() == name));
            name.map(|name| String::from_utf8(name).unwrap())
        };
        assert_eq!(name(None, None, &[]), None);
        assert_eq!(name(Some(Control::None), Some(".bak"), &[]), None);
        assert_eq!(name(Some(Control::Existing), None, &[]).unwrap(), "f~");
        assert_eq!(name(Some(Control::Existing), None, &["f.~1~", "f.~2~"]).unwrap(), "f.~3~");
        assert_eq!(name(Some(Control::Numbered), None, &[]).unwrap(), "f.~1~");
        assert_eq!(name(None, Some(".bak"), &[]).unwrap(), "f.bak");
    }
}
