//! Modes in the syntax of chmod(1): `755`, `u+rwX,go-w`.

const SET_UID: u16 = 0o4000;
const SET_GID: u16 = 0o2000;
const STICKY: u16 = 0o1000;
/// The execute bits of owner, group and others.
const EXECUTE: u16 = 0o111;

/// What a mode makes of permission bits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModeChange(Change);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Change {
    /// Set these; without `all` a directory keeps its set-user-ID and set-group-ID bits.
    Octal { bits: u16, all: bool },
    /// Apply these in order.
    Symbolic(Vec<Clause>),
}

/// `u+rwX`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Clause {
    /// The bits of the classes before the operator.
    mask: u16,
    operator: u8,
    what: What,
    /// Umask bits, which an operator without a class leaves alone.
    spare: u16,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    /// These bits, and with `x_if` (`X`) also `x` for directories and for files with an execute
    /// bit.
    Bits { bits: u16, x_if: bool },
    /// The bits of the class at this shift.
    Copy(u16),
}

impl ModeChange {
    /// Reads `0755`, or `u+rwX,go-w` with letters of `rwxXst`, or one of `u`, `g` and `o`.
    pub fn parse(text: &str, umask: u16) -> Option<ModeChange> {
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            let bits = u16::from_str_radix(text, 8).ok().filter(|bits| *bits <= 0o7777)?;
            return Some(ModeChange(Change::Octal { bits, all: text.len() > 4 }));
        }
        let mut clauses = Vec::new();
        for part in text.split(',') {
            parse_clauses(part.as_bytes(), umask, &mut clauses)?;
        }
        Some(ModeChange(Change::Symbolic(clauses)))
    }

    /// The bits that it makes of `before`.
    pub fn of(&self, before: u16, is_dir: bool) -> u16 {
        match &self.0 {
            Change::Octal { bits, all } if is_dir && !all => bits | before & (SET_UID | SET_GID),
            Change::Octal { bits, .. } => *bits,
            Change::Symbolic(clauses) => clauses.iter().fold(before, |bits, clause| clause.of(bits, is_dir)),
        }
    }
}

/// Parses classes and their operators: `u=rw+x`.
fn parse_clauses(part: &[u8], umask: u16, clauses: &mut Vec<Clause>) -> Option<()> {
    let classes = part.iter().take_while(|byte| b"ugoa".contains(byte)).count();
    let mask = part[..classes].iter().fold(0, |mask, class| {
        mask | match class {
            b'u' => SET_UID | 0o700,
            b'g' => SET_GID | 0o070,
            b'o' => STICKY | 0o007,
            _ => 0o7777,
        }
    });
    let (mask, spare) = if classes == 0 { (0o7777, umask) } else { (mask, 0) };
    let mut rest = &part[classes..];
    if rest.is_empty() {
        return None;
    }
    while let Some((&operator, behind)) = rest.split_first() {
        if !b"+-=".contains(&operator) {
            return None;
        }
        let len = behind.iter().take_while(|byte| !b"+-=".contains(byte)).count();
        let what = parse_what(&behind[..len])?;
        clauses.push(Clause { mask, operator, what, spare });
        rest = &behind[len..];
    }
    Some(())
}

fn parse_what(letters: &[u8]) -> Option<What> {
    match letters {
        b"u" => return Some(What::Copy(6)),
        b"g" => return Some(What::Copy(3)),
        b"o" => return Some(What::Copy(0)),
        _ => {}
    }
    let (mut bits, mut x_if) = (0, false);
    for letter in letters {
        match letter {
            b'r' => bits |= 0o444,
            b'w' => bits |= 0o222,
            b'x' => bits |= EXECUTE,
            b'X' => x_if = true,
            b's' => bits |= SET_UID | SET_GID,
            b't' => bits |= STICKY,
            _ => return None,
        }
    }
    Some(What::Bits { bits, x_if })
}

impl Clause {
    fn of(&self, before: u16, is_dir: bool) -> u16 {
        let bits = match self.what {
            What::Bits { bits, x_if: true } if is_dir || before & EXECUTE != 0 => bits | EXECUTE,
            What::Bits { bits, .. } => bits,
            What::Copy(shift) => (before >> shift & 0o7) * EXECUTE,
        };
        let named = bits & self.mask & !self.spare;
        match self.operator {
            b'+' => before | named,
            b'-' => before & !named,
            _ => {
                let kept = if is_dir { (SET_UID | SET_GID) & !bits } else { 0 };
                before & (!self.mask | kept) | named
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    #[test]
    fn permissions_become_what_chmod_makes_of_them() {
        let dir = tempfile::tempdir().unwrap();
        let (file, sub) = (dir.path().join("file"), dir.path().join("sub"));
        fs::write(&file, "").unwrap();
        fs::create_dir(&sub).unwrap();
        let modes = [
            "0",
            "755",
            "4711",
            "07777",
            "00755",
            "u+x",
            "go-rwx",
            "a=r",
            "u=rwx,go=rX",
            "+x",
            "-w",
            "=rw",
            "g=u",
            "o+g",
            "u-o",
            "+t",
            "o+t",
            "u+s",
            "g+s",
            "a-st",
            "ug=rw+X",
            "u=",
            "=",
            "a+X",
            "g=",
            "u=rwxs,g=s",
            "-x+X",
            "u+t",
        ];
        for mode in modes {
            for before in [0o000_u16, 0o644, 0o755, 0o4710, 0o2070, 0o1777, 0o7777, 0o002] {
                for (path, is_dir) in [(&file, false), (&sub, true)] {
                    fs::set_permissions(path, Permissions::from_mode(before.into())).unwrap();
                    // chmod fails where the umask suppressed a bit, after changing the others.
                    let script = "umask 027; chmod -- \"$1\" \"$2\" 2>/dev/null";
                    Command::new("sh").args(["-c", script, "sh", mode]).arg(path).status().unwrap();
                    let theirs = fs::metadata(path).unwrap().permissions().mode() & 0o7777;
                    let ours = ModeChange::parse(mode, 0o027).unwrap().of(before, is_dir);
                    assert_eq!(
                        format!("{ours:o}"),
                        format!("{theirs:o}"),
                        "{mode} of {before:o}, directory: {is_dir}"
                    );
                }
            }
        }
    }

    #[test]
    fn invalid_modes_are_refused() {
        for wrong in ["", "8", "10000", "u", "rwx", "u+q", "u+x,", "z+x", "755u"] {
            assert!(ModeChange::parse(wrong, 0).is_none(), "{wrong}");
        }
    }
}
