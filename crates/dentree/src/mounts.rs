//! The mount table: FUSE mounts, and where cgroup v2 is.

use crate::host::{self, OsStrExt, os_string};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Mount {
    point: PathBuf,
    /// File system type; for FUSE `fuse.` and usually the program's name.
    pub(crate) kind: String,
    /// The device; for FUSE usually the image.
    pub(crate) source: PathBuf,
    pub(crate) read_only: bool,
}

/// The mount at `point`, an absolute path without links.
pub(crate) fn at(point: &Path) -> Option<Mount> {
    // The last mount covers earlier ones.
    table().into_iter().rfind(|mount| mount.point == point)
}

/// Whether the image at `path` is mounted for writing.
pub(crate) fn has(path: &Path) -> bool {
    let identity = |path: &Path| host::stat(path, true).ok().map(|found| found.identity());
    let wanted = identity(path);
    table().iter().any(|mount| !mount.read_only && wanted.is_some() && identity(&mount.source) == wanted)
}

fn table() -> Vec<Mount> {
    lines().filter_map(|(_, mount)| mount.kind.starts_with("fuse.").then_some(mount)).collect()
}

/// The mount point of cgroup v2, and its root within the hierarchy.
pub(crate) fn cgroup2() -> Option<(PathBuf, OsString)> {
    lines().find(|(_, mount)| mount.kind == "cgroup2").map(|(root, mount)| (mount.point, root))
}

fn lines() -> impl Iterator<Item = (OsString, Mount)> {
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let lines: Vec<_> = table.split(|&byte| byte == b'\n').filter_map(parse).collect();
    lines.into_iter()
}

/// The root and the mount of a line such as
/// `36 35 0:40 / /mnt rw,nosuid shared:1 - fuse.dentree /disk.img rw,user_id=0`.
fn parse(line: &[u8]) -> Option<(OsString, Mount)> {
    let mut fields = line.split(|&byte| byte == b' ');
    let root = unescape(fields.nth(3)?);
    let point = unescape(fields.next()?).into();
    let mut behind = fields.skip_while(|field| *field != b"-").skip(1);
    let kind = str::from_utf8(behind.next()?).ok()?.to_owned();
    let source = unescape(behind.next()?).into();
    let read_only = behind.next()?.split(|&byte| byte == b',').any(|option| option == b"ro");
    Some((root, Mount { point, kind, source, read_only }))
}

/// Decodes `\ooo`, which stands for blanks and backslashes.
fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, behind)) = rest.split_first() {
        let escaped = behind.first_chunk::<3>().filter(|_| first == b'\\');
        let byte = escaped.and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(byte.unwrap_or(first));
        rest = if byte.is_some() { &behind[3..] } else { behind };
    }
    os_string(bytes)
}

/// The absolute path of a mount point, also where its server is gone.
pub(crate) fn point(directory: &Path) -> std::io::Result<PathBuf> {
    fs::canonicalize(directory).or_else(|error| {
        let name = directory.file_name().filter(|name| !name.as_bytes().is_empty()).ok_or(error)?;
        let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty());
        Ok(fs::canonicalize(parent.unwrap_or(Path::new(".")))?.join(name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_mount_table_is_parsed() {
        let line =
            br"36 35 0:40 / /mnt/a\040b\134c rw,nosuid shared:1 - fuse.dentree /disk\0401.img ro,user_id=0";
        let expected = Mount {
            point: r"/mnt/a b\c".into(),
            kind: "fuse.dentree".into(),
            source: "/disk 1.img".into(),
            read_only: true,
        };
        assert_eq!(parse(line), Some(("/".into(), expected)));
        let (root, mount) = parse(b"28 1 0:26 /pod /c rw - cgroup2 cgroup2 rw").unwrap();
        assert_eq!((root.to_str(), mount.kind.as_str(), mount.read_only), (Some("/pod"), "cgroup2", false));
        assert_eq!(parse(b""), None);
    }
}
