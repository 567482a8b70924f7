//! Names of owners and groups, from the image's own `/etc/passwd` and `/etc/group`.

use dentree_vfs::{FileSystem, Identity, Vfs, WalkOptions};
use std::collections::HashMap;

/// What is read of either file.
const LIMIT: usize = 4 << 20;

/// Both ways between numbers and names. The first line with a number or name counts.
#[derive(Debug, Default)]
pub struct Owners {
    users: Names,
    groups: Names,
    /// The group of each user's login.
    login_groups: HashMap<String, u32>,
}

#[derive(Debug, Default)]
struct Names {
    by_id: HashMap<u32, String>,
    by_name: HashMap<String, u32>,
}

impl Owners {
    /// Reads both files; one that is missing or damaged has no names.
    pub fn of<F: FileSystem>(vfs: &Vfs<F>) -> Owners {
        let mut owners = Owners::default();
        for [name, _, id, rest] in lines(&read(vfs, b"/etc/passwd")) {
            if let Some(id) = owners.users.add(name, id) {
                let group = rest.split(':').next().and_then(|group| group.parse().ok());
                owners.login_groups.entry(name.to_owned()).or_insert(group.unwrap_or(id));
            }
        }
        for [name, _, id, _] in lines(&read(vfs, b"/etc/group")) {
            owners.groups.add(name, id);
        }
        owners
    }

    /// The name of a user.
    pub fn user(&self, uid: u32) -> Option<&str> {
        self.users.by_id.get(&uid).map(String::as_str)
    }

    /// The name of a group.
    pub fn group(&self, gid: u32) -> Option<&str> {
        self.groups.by_id.get(&gid).map(String::as_str)
    }

    /// The number of a user's name, or a number.
    pub fn uid(&self, text: &str) -> Option<u32> {
        id(&self.users, text)
    }

    /// The number of a group's name, or a number.
    pub fn gid(&self, text: &str) -> Option<u32> {
        id(&self.groups, text)
    }

    /// Reads `USER`, `USER:GROUP`, `:GROUP` or `USER:` (with the group of that user's login), of
    /// names or numbers.
    pub fn parse(&self, text: &str) -> Result<(Option<u32>, Option<u32>), String> {
        let (user, group) = text.split_once(':').map_or((text, None), |(user, group)| (user, Some(group)));
        let uid = match user {
            "" if group.is_some_and(|group| !group.is_empty()) => None,
            user => Some(self.uid(user).ok_or_else(|| unknown("user", user, "passwd"))?),
        };
        let gid = match group {
            None => None,
            Some("") => {
                let login = self.login_groups.get(user);
                Some(*login.ok_or_else(|| format!("{user:?} is a number, and has no login group"))?)
            }
            Some(group) => Some(self.gid(group).ok_or_else(|| unknown("group", group, "group"))?),
        };
        Ok((uid, gid))
    }
}

impl Names {
    /// Adds a line; returns its number.
    fn add(&mut self, name: &str, id: &str) -> Option<u32> {
        let id = id.parse().ok()?;
        self.by_id.entry(id).or_insert_with(|| name.to_owned());
        self.by_name.entry(name.to_owned()).or_insert(id);
        Some(id)
    }
}

fn unknown(kind: &str, name: &str, file: &str) -> String {
    format!("no {kind} {name:?} in the image's /etc/{file}; a number needs none")
}

/// The number of a name, or a number. The highest one means "unchanged" in system calls.
fn id(names: &Names, text: &str) -> Option<u32> {
    let number = || text.parse().ok().filter(|id| *id != u32::MAX && !text.starts_with('+'));
    names.by_name.get(text).copied().or_else(number)
}

fn read<F: FileSystem>(vfs: &Vfs<F>, path: &[u8]) -> Vec<u8> {
    let Ok(node) = vfs.walk(&Identity::Superuser, vfs.root(), path, WalkOptions::FOLLOW) else {
        return Vec::new();
    };
    let size = usize::try_from(node.attr().size).unwrap_or(LIMIT).min(LIMIT);
    let mut text = vec![0; if node.is_dir() { 0 } else { size }];
    let mut end = 0;
    while end < text.len() {
        match vfs.read(&node, end as u64, &mut text[end..]) {
            Ok(0) | Err(_) => break,
            Ok(len) => end += len,
        }
    }
    text.truncate(end);
    text
}

/// Name, password, number and the rest of each line. A name that would not stay one word in a
/// listing is left out.
fn lines(text: &[u8]) -> impl Iterator<Item = [&str; 4]> {
    text.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut fields = std::str::from_utf8(line).ok()?.splitn(4, ':');
        let fields = [fields.next()?, fields.next()?, fields.next()?, fields.next().unwrap_or("")];
        let is_word = |c: char| !c.is_whitespace() && !c.is_control();
        Some(fields).filter(|[name, ..]| !name.is_empty() && name.chars().all(is_word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owners() -> Owners {
        let mut owners = Owners::default();
        for [name, _, id, rest] in
            lines(b"root:x:0:0:root:/root\nbad name:x:7:7\nann:x:1000:100:::\nxx:x:0:1\n")
        {
            owners.users.add(name, id);
            owners.login_groups.insert(name.into(), rest.split(':').next().unwrap().parse().unwrap());
        }
        owners.groups.add("users", "100");
        owners
    }

    #[test]
    fn the_first_line_of_a_number_names_it() {
        let owners = owners();
        assert_eq!([owners.user(0), owners.user(1000), owners.user(7)], [Some("root"), Some("ann"), None]);
        assert_eq!(owners.group(100), Some("users"));
    }

    #[test]
    fn owners_are_names_or_numbers_or_left_out() {
        let owners = owners();
        let both = |text: &str| owners.parse(text);
        assert_eq!(both("ann"), Ok((Some(1000), None)));
        assert_eq!(both("ann:"), Ok((Some(1000), Some(100))));
        assert_eq!(both("5:users"), Ok((Some(5), Some(100))));
        assert_eq!(both(":7"), Ok((None, Some(7))));
        for wrong in ["", ":", "5:", "nobody", "0:wheel", "-1", "+1", "4294967295", "1:2:3", "1.2"] {
            assert!(both(wrong).is_err(), "{wrong}");
        }
    }
}
