//! Media types by name or content.

/// Bytes that [`by_content`] reads.
pub(crate) const SAMPLE: usize = 512;

pub(crate) fn by_name(name: &[u8]) -> Option<String> {
    let dot = name.iter().rposition(|&byte| byte == b'.').filter(|&dot| dot > 0)?;
    let extension = std::str::from_utf8(&name[dot + 1..]).ok()?;
    let guess = mime_guess::from_ext(extension).first_raw()?;
    // Otherwise browsers guess the encoding from their language.
    Some(if guess.starts_with("text/") { format!("{guess}; charset=utf-8") } else { guess.to_owned() })
}

/// Text or binary, by the first [`SAMPLE`] bytes.
pub(crate) fn by_content(sample: &[u8]) -> &'static str {
    let text = match std::str::from_utf8(sample) {
        Ok(text) => text,
        // The sample ends inside a character.
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&sample[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return "application/octet-stream",
    };
    let printable = |c: char| !c.is_control() || matches!(c, '\t' | '\n' | '\r' | '\x0c' | '\x1b');
    if text.chars().all(printable) { "text/plain; charset=utf-8" } else { "application/octet-stream" }
}

/// Whether browsers run scripts of this type.
pub(crate) fn is_active(media: &str) -> bool {
    let essence = media.split(';').next().unwrap_or(media);
    essence == "text/html" || essence.ends_with("/xml") || essence.ends_with("+xml")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extension_tells_the_type() {
        assert_eq!(by_name(b"a.HTML").as_deref(), Some("text/html; charset=utf-8"));
        assert_eq!(by_name(b"a.tar.gz").as_deref(), Some("application/gzip"));
        for name in [&b"README"[..], b".html", b"a.", b"a.nosuchthing", b"a.\xff"] {
            assert_eq!(by_name(name), None);
        }
    }

    #[test]
    fn text_is_recognised_by_its_content() {
        let cut = "ä".repeat(SAMPLE);
        for text in [&b"root:x:0:0\n"[..], b"", &cut.as_bytes()[..SAMPLE - 1]] {
            assert_eq!(by_content(text), "text/plain; charset=utf-8");
        }
        for other in [&b"\x7fELF\x02\x01\x01\0"[..], b"caf\xe9 au lait", b"a\0b"] {
            assert_eq!(by_content(other), "application/octet-stream");
        }
    }

    #[test]
    fn documents_with_scripts_are_known() {
        assert!(
            ["text/html; charset=utf-8", "image/svg+xml", "text/xml", "application/xhtml+xml"]
                .iter()
                .all(|m| is_active(m))
        );
        assert!(!["text/plain", "application/pdf", "image/png"].iter().any(|media| is_active(media)));
    }
}
