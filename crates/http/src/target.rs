//! Request targets and paths.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};

/// All but the unreserved characters of RFC 3986: a name is never a scheme, query or parent.
const NAME: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Target {
    /// Empty for the root. No name is empty, `.` or `..`, or holds a `/` or NUL.
    pub(crate) names: Vec<Vec<u8>>,
    /// Ends with a slash: must be a directory.
    pub(crate) directory: bool,
}

impl Target {
    /// Decodes a request's path.
    pub(crate) fn parse(path: &str) -> Result<Target, &'static str> {
        let below = path.strip_prefix('/').ok_or("The path must begin with a slash.")?;
        let mut names = Vec::new();
        for component in below.split('/').filter(|component| !component.is_empty()) {
            let name =
                decode(component).ok_or("A percent sign must be followed by two hexadecimal digits.")?;
            if name.contains(&b'/') || name.contains(&0) {
                return Err("No name holds a slash or NUL.");
            }
            if name == b"." || name == b".." {
                return Err("Send the path without . and .. in it.");
            }
            names.push(name);
        }
        Ok(Target { directory: names.is_empty() || below.ends_with('/'), names })
    }

    /// Path from the root; a trailing slash asks for a directory.
    pub(crate) fn path(&self) -> Vec<u8> {
        let mut path = b"/".to_vec();
        path.extend(self.names.join(&b'/'));
        if self.directory && !self.names.is_empty() {
            path.push(b'/');
        }
        path
    }

    /// URL path of the first `depth` names. It starts with a single slash, so it never names
    /// another host.
    pub(crate) fn directory_url(&self, depth: usize) -> String {
        let mut url = String::from("/");
        for name in &self.names[..depth] {
            url.push_str(&encode(name));
            url.push('/');
        }
        url
    }
}

pub(crate) fn encode(name: &[u8]) -> String {
    percent_encode(name, NAME).to_string()
}

fn decode(component: &str) -> Option<Vec<u8>> {
    let hex = |digit: u8| char::from(digit).to_digit(16);
    let mut name = Vec::with_capacity(component.len());
    let mut rest = component.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        rest = if first == b'%' {
            let (high, low) = (hex(*behind.first()?)?, hex(*behind.get(1)?)?);
            name.push(u8::try_from(high << 4 | low).ok()?);
            &behind[2..]
        } else {
            name.push(first);
            behind
        };
    }
    Some(name)
}

pub(crate) fn form_field(query: &str, field: &str) -> Option<Vec<u8>> {
    let value = query.split('&').find_map(|pair| pair.strip_prefix(field)?.strip_prefix('='))?;
    Some(percent_decode_str(&value.replace('+', " ")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(raw: &str) -> Option<String> {
        Target::parse(raw).ok().map(|target| String::from_utf8_lossy(&target.path()).into_owned())
    }

    #[test]
    fn a_path_is_decoded_once() {
        assert_eq!(path("/a%20b/%2563").as_deref(), Some("/a b/%63"));
        assert_eq!(Target::parse("/%ff").unwrap().names, [vec![0xff]]);
    }

    #[test]
    fn doubled_slashes_are_one() {
        assert_eq!(path("//etc///x").as_deref(), Some("/etc/x"));
        assert_eq!(path("/etc//").as_deref(), Some("/etc/"));
        assert_eq!(path("//").as_deref(), Some("/"));
        assert_eq!(Target::parse("//evil.example//x").unwrap().directory_url(2), "/evil.example/x/");
    }

    #[test]
    fn what_is_no_path_is_refused() {
        let refused = [
            "",
            "a",
            "/..",
            "/a/../b",
            "/.",
            "/%2e%2e/a",
            "/.%2E",
            "/..%2fa",
            "/a%2Fb",
            "/a%00",
            "/%",
            "/%4",
            "/%zz",
        ];
        for raw in refused {
            assert_eq!(path(raw), None, "{raw}");
        }
        assert_eq!(path("/...").as_deref(), Some("/..."));
    }

    #[test]
    fn any_name_survives_the_way_there_and_back() {
        for name in [&b"a b&c=d?e#f:g"[..], b"\xff\xfe", "日本".as_bytes(), b"%2e", b"javascript:x"] {
            let url = format!("/{}", encode(name));
            assert_eq!(Target::parse(&url).unwrap().names, [name]);
            assert_eq!(form_field(&format!("x=1&after={}", encode(name)), "after").as_deref(), Some(name));
        }
        assert_eq!(form_field("filter=a+b%2Bc", "filter").as_deref(), Some(&b"a b+c"[..]));
        assert_eq!(form_field("filters=a", "filter"), None);
    }
}
