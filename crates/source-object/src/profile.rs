//! AWS profiles: keys in `~/.aws/credentials`, settings in `~/.aws/config`.
//!
//! Only literal keys, no indirect ones.

use std::path::PathBuf;
use std::{env, fs};

#[derive(Debug, Default)]
pub(crate) struct Profile {
    pub(crate) name: String,
    pub(crate) key: Option<String>,
    pub(crate) secret: Option<String>,
    pub(crate) token: Option<String>,
    pub(crate) region: Option<String>,
}

impl Profile {
    /// Profile `$AWS_PROFILE` or `default`; empty if missing.
    pub(crate) fn read() -> Self {
        let name = env::var("AWS_PROFILE").unwrap_or_else(|_| "default".into());
        let credentials = file("AWS_SHARED_CREDENTIALS_FILE", "credentials");
        let config = file("AWS_CONFIG_FILE", "config");
        let key = |key| value(&credentials, &name, key).or_else(|| value(&config, &section(&name), key));
        Profile {
            key: key("aws_access_key_id"),
            secret: key("aws_secret_access_key"),
            token: key("aws_session_token"),
            region: key("region"),
            name,
        }
    }

    pub(crate) fn has_keys(&self) -> bool {
        self.key.is_some() && self.secret.is_some()
    }
}

/// Section name in `config`.
fn section(name: &str) -> String {
    if name == "default" { name.into() } else { format!("profile {name}") }
}

/// Contents of the file in `variable`, else of `usual`.
fn file(variable: &str, usual: &str) -> String {
    let path = env::var_os(variable).map(PathBuf::from);
    let path = path.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".aws").join(usual)));
    path.and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default()
}

/// `key = value` in `[section]`.
fn value(text: &str, section: &str, key: &str) -> Option<String> {
    let head =
        |line: &&str| line.trim().strip_prefix('[')?.split(']').next().map(str::trim).map(str::to_owned);
    let mut below = text.lines().skip_while(|line| head(line).as_deref() != Some(section)).skip(1);
    let mut within = below.by_ref().take_while(|line| head(line).is_none());
    let found = within.find_map(|line| {
        let (found, value) = line.split_once('=')?;
        (found.trim() == key).then(|| value.trim().to_owned())
    });
    found.filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_that_of_its_section() {
        let text = "[default]\nregion=a\n# x = y\n[profile other]\nregion = b \nempty =\n";
        assert_eq!(value(text, "default", "region").as_deref(), Some("a"));
        assert_eq!(value(text, &section("other"), "region").as_deref(), Some("b"));
        for (name, key) in [("default", "empty"), ("profile other", "empty"), ("none", "region")] {
            assert_eq!(value(text, name, key), None, "{name} {key}");
        }
    }
}
