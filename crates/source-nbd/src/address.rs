//! NBD URIs: `nbd://host[:port]/export` and `nbd+unix:///export?socket=PATH`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use percent_encoding::percent_decode_str;

use crate::Error;

/// Assigned by IANA.
const PORT: u16 = 10809;

/// In bytes, from the protocol.
const MAX_EXPORT: usize = 4096;

/// A server and an export.
///
/// ```
/// use dentree_source_nbd::Address;
///
/// let address: Address = "nbd://storage/vm%201".parse()?;
/// assert_eq!(address.export(), "vm 1");
/// assert!("nbd+unix:///vm".parse::<Address>().is_err(), "there is no ?socket=");
/// # Ok::<(), dentree_source_nbd::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    text: String,
    pub(crate) endpoint: Endpoint,
    export: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

impl Address {
    /// Name of the export; empty means the server's default.
    pub fn export(&self) -> &str {
        &self.export
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        parse(text).map_err(|problem| Error::Address { at: text.to_owned(), problem })
    }
}

fn parse(text: &str) -> Result<Address, String> {
    let (scheme, rest) = text.split_once("://").ok_or("it has no scheme, as nbd:// is one")?;
    let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
    let (authority, export) = rest.split_once('/').unwrap_or((rest, ""));
    let export = decode(export)?;
    if export.len() > MAX_EXPORT {
        return Err(format!("the name of the export is longer than {MAX_EXPORT} bytes"));
    }
    let socket = query.map(socket).transpose()?;
    let endpoint = match (scheme, socket) {
        ("nbd", None) => tcp(authority)?,
        ("nbd+unix", Some(socket)) if authority.is_empty() => Endpoint::Unix(socket),
        ("nbd", Some(_)) => return Err("a socket of this machine is named by nbd+unix:///".to_owned()),
        ("nbd+unix", None) => return Err("the socket is missing: nbd+unix:///EXPORT?socket=PATH".to_owned()),
        ("nbd+unix", _) => return Err("a socket has no host: nbd+unix:///EXPORT?socket=PATH".to_owned()),
        ("nbds" | "nbds+unix", _) => return Err("this build speaks no TLS; nbd:// is without".to_owned()),
        _ => return Err(format!("{scheme}:// is not NBD; nbd:// and nbd+unix:// are")),
    };
    Ok(Address { text: text.to_owned(), endpoint, export })
}

/// Host, perhaps an IPv6 address in brackets, and port.
fn tcp(authority: &str) -> Result<Endpoint, String> {
    let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, port)) => (host, Some(port.strip_prefix(':').ok_or("there is no colon behind ]")?)),
        None => authority.rsplit_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
    };
    if host.is_empty() {
        return Err("the host is missing: nbd://HOST[:PORT]/EXPORT".to_owned());
    }
    if host.contains('@') {
        return Err("NBD has no user names".to_owned());
    }
    let port = match port {
        None | Some("") => PORT,
        Some(port) => port.parse().map_err(|_| format!("{port:?} is no port"))?,
    };
    Ok(Endpoint::Tcp { host: decode(host)?, port })
}

/// The only known parameter.
fn socket(query: &str) -> Result<PathBuf, String> {
    match query.split_once('=') {
        // Absolute, because a daemon changes its directory.
        Some(("socket", path)) if !path.is_empty() && !path.contains('&') => {
            std::path::absolute(decode(path)?).map_err(|error| error.to_string())
        }
        _ => Err("behind ? only socket=PATH is understood".to_owned()),
    }
}

fn decode(text: &str) -> Result<String, String> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(String::from).map_err(|_| format!("{text:?} is not UTF-8 when it is decoded"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> Endpoint {
        Endpoint::Tcp { host: host.to_owned(), port }
    }

    #[test]
    fn an_address_has_a_host_or_a_socket_and_an_export() {
        for (text, endpoint, export) in [
            ("nbd://h", tcp("h", 10809), ""),
            ("nbd://h:/", tcp("h", 10809), ""),
            ("nbd://h:99/a/b", tcp("h", 99), "a/b"),
            ("nbd://h//a%3a", tcp("h", 10809), "/a:"),
            ("nbd://[::1]:7/x", tcp("::1", 7), "x"),
            ("nbd://[::1]", tcp("::1", 10809), ""),
            ("nbd+unix:///e?socket=/tmp/s", Endpoint::Unix("/tmp/s".into()), "e"),
            ("nbd+unix://?socket=/rel%20s", Endpoint::Unix("/rel s".into()), ""),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!((&address.endpoint, address.export()), (&endpoint, export), "{text}");
            assert_eq!(address.to_string(), text);
        }
    }

    #[test]
    fn a_wrong_address_says_what_is_wrong() {
        for (text, problem) in [
            ("/tmp/s", "no scheme"),
            ("http://h/x", "not NBD"),
            ("nbd://", "host is missing"),
            ("nbd://h:99999", "no port"),
            ("nbd://[::1]7", "no colon"),
            ("nbd://me@h/", "no user names"),
            ("nbd://h?socket=/s", "nbd+unix"),
            ("nbd+unix:///e", "socket is missing"),
            ("nbd+unix:///?socket=", "only socket=PATH"),
            ("nbd+unix:///?socket=/s&tls=1", "only socket=PATH"),
            ("nbd+unix://h/e?socket=/s", "no host"),
            ("nbd://h/%ff", "UTF-8"),
            (&format!("nbd://h/{}", "x".repeat(5000)), "longer than"),
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(problem), "{error}");
        }
    }
}
