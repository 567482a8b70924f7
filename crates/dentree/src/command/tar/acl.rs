//! Access control lists as pax headers have them: `user::rwx,group::r-x,other::---`, with numbers
//! for users and groups. Layout of the attribute: POSIX ACL xattr version 2 of Linux.

const VERSION: [u8; 4] = 2_u32.to_le_bytes();
/// Tags of the attribute, with their words; the second flag is whether an id belongs to them.
const TAGS: [(u16, &str, bool); 6] = [
    (0x01, "user", false),
    (0x02, "user", true),
    (0x04, "group", false),
    (0x08, "group", true),
    (0x10, "mask", false),
    (0x20, "other", false),
];
const NO_ID: u32 = u32::MAX;

/// The text of an attribute's value; `None` for a value that is none.
pub(super) fn to_text(value: &[u8]) -> Option<String> {
    let (entries, rest) = value.strip_prefix(&VERSION)?.as_chunks::<8>();
    let entry = |&[t0, t1, p0, p1, i0, i1, i2, i3]: &[u8; 8]| {
        let tag = u16::from_le_bytes([t0, t1]);
        let &(_, word, has_id) = TAGS.iter().find(|(known, ..)| *known == tag)?;
        let id = if has_id { u32::from_le_bytes([i0, i1, i2, i3]).to_string() } else { String::new() };
        let may = u16::from_le_bytes([p0, p1]);
        let letter = |bit: u16, letter: char| if may & bit != 0 { letter } else { '-' };
        Some(format!("{word}:{id}:{}{}{}", letter(4, 'r'), letter(2, 'w'), letter(1, 'x')))
    };
    let entries: Option<Vec<String>> = entries.iter().map(entry).collect();
    entries.filter(|_| rest.is_empty()).map(|entries| entries.join(","))
}

/// The attribute's value of a text. Names of users and groups are unknown here; GNU tar and bsdtar
/// may add the number behind a further colon.
pub(super) fn from_text(text: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(text).ok()?;
    let mut entries = Vec::new();
    for entry in text.split([',', '\n']).map(|entry| entry.split('#').next().unwrap_or_default().trim()) {
        if entry.is_empty() {
            continue;
        }
        let fields: Vec<&str> = entry.split(':').collect();
        let (word, name, letters, number) = match fields[..] {
            [word, letters] => (word, "", letters, None),
            [word, name, letters] => (word, name, letters, None),
            [word, name, letters, number] => (word, name, letters, Some(number)),
            _ => return None,
        };
        let is_word = |known: &str| word == known || word.len() == 1 && known.starts_with(word);
        let &(tag, _, has_id) =
            TAGS.iter().find(|(_, known, has_id)| is_word(known) && *has_id != name.is_empty())?;
        let id = if has_id { number.unwrap_or(name).parse().ok()? } else { NO_ID };
        let mut may = 0_u16;
        for letter in letters.chars() {
            may |= match letter {
                'r' => 4,
                'w' => 2,
                'x' => 1,
                '-' => 0,
                _ => return None,
            };
        }
        entries.push((tag, id, may));
    }
    entries.sort_unstable();
    let mut value = VERSION.to_vec();
    for (tag, id, may) in entries {
        value.extend(tag.to_le_bytes());
        value.extend(may.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_the_same_after_it_was_a_text() {
        let text = "user::rwx,user:1000:r--,group::r-x,group:7:---,mask::r-x,other::---";
        let value = from_text(text.as_bytes()).unwrap();
        assert_eq!((value.len(), to_text(&value).as_deref()), (4 + 6 * 8, Some(text)));
        let other = b"u::rwx\nuser:alice:r--:1000\ng::r-x\ngroup:7:---\nm::r-x\no::--- # all";
        assert_eq!(from_text(other), Some(value));
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for text in [&b"user:alice:rwx"[..], b"user::rwz", b"nobody::rwx", b"\xff", b"a:b:c:d:e"] {
            assert_eq!(from_text(text), None, "{}", text.escape_ascii());
        }
        assert_eq!((to_text(b"\x02\0\0\0\x01"), to_text(b"")), (None, None));
    }
}
