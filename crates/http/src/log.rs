//! Log of requests.

use dentree_vfs::Error;
use jiff::Zoned;
use std::fmt;
use std::net::IpAddr;

/// Receives events of a server on threads that serve requests: must not block.
pub trait Log: Send + Sync + 'static {
    /// A response has ended, complete or cut off.
    fn access(&self, access: &Access);
    /// A path could not be read. Clients see only a 500.
    fn problem(&self, path: &[u8], error: &Error);
}

/// A finished request. Displays as a line of the common log format, without newline.
#[derive(Clone, Debug)]
pub struct Access {
    /// The client.
    pub peer: IpAddr,
    /// Authenticated user.
    pub user: Option<String>,
    /// Time of the request.
    pub time: Zoned,
    /// First line; empty if there was none.
    pub request: String,
    /// Status; 499 if client or server ended first.
    pub status: u16,
    /// Bytes of the body given to the connection.
    pub bytes: u64,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Access { peer, user, time, request, status, bytes } = self;
        write!(f, "{peer} - ")?;
        escaped(f, user.as_deref().unwrap_or("-"))?;
        write!(f, " [{}] \"", time.strftime("%d/%b/%Y:%H:%M:%S %z"))?;
        escaped(f, request)?;
        write!(f, "\" {status} ")?;
        if *bytes == 0 { f.write_str("-") } else { write!(f, "{bytes}") }
    }
}

fn escaped(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    text.chars().try_for_each(|c| match c {
        '"' | '\\' => write!(f, "\\{c}"),
        ' '..='~' => write!(f, "{c}"),
        _ => write!(f, "{}", c.escape_default()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn a_request_cannot_forge_a_line() {
        let access = Access {
            peer: Ipv4Addr::LOCALHOST.into(),
            user: None,
            time: jiff::Timestamp::from_second(971_211_336).unwrap().to_zoned(jiff::tz::TimeZone::UTC),
            request: "GET /\"\n\\ HTTP/1.1".into(),
            status: 200,
            bytes: 2326,
        };
        assert_eq!(
            access.to_string(),
            r#"127.0.0.1 - - [10/Oct/2000:20:55:36 +0000] "GET /\"\n\\ HTTP/1.1" 200 2326"#
        );
        let named = Access { user: Some("j\n".into()), ..access.clone() };
        assert!(named.to_string().starts_with(r"127.0.0.1 - j\n [10/"));
        let refused = Access { request: String::new(), status: 400, bytes: 0, ..access };
        assert!(refused.to_string().ends_with("] \"\" 400 -"));
    }
}
