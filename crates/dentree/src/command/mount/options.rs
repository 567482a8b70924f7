//! The options of `-o`, as of mount(8) and fuse2fs(1).

use crate::args::{Global, MountArgs};
use crate::report::Problem;
use dentree_blockdev::Access;
use dentree_ext4::DxReadAhead;
use dentree_fuse::{Options, Visibility};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Options that are the default, or make no difference: reads set no access times.
const HARMLESS: &[&str] = &[
    "acl",
    "async",
    "atime",
    "auto",
    "auto_cache",
    "big_writes",
    "bsddf",
    "default_permissions",
    "defaults",
    "diratime",
    "group",
    "iversion",
    "kernel_cache",
    "large_read",
    "lazytime",
    "_netdev",
    "noatime",
    "noauto",
    "nodiratime",
    "nofail",
    "noiversion",
    "nolazytime",
    "norelatime",
    "nostrictatime",
    "nouser",
    "owner",
    "readdir_ino",
    "relatime",
    "use_ino",
    "user",
    "user_xattr",
    "users",
];

/// Options that make no difference on a read-only mount.
const HARMLESS_READ_ONLY: &[&str] = &["dirsync", "strictatime", "sync"];

#[derive(Debug)]
pub(super) struct MountOptions {
    /// Where the file system is in the image.
    pub(super) within: Global,
    pub(super) access: Access,
    pub(super) mount: Options,
    /// The last option of [`HARMLESS_READ_ONLY`].
    wants_read_only: Option<String>,
}

/// Parses the options of `args`; `global` has `--offset` and `--partition`.
pub(super) fn parse(args: &MountArgs, global: &Global) -> Result<MountOptions, Problem> {
    let source = fs::canonicalize(&args.image).map_or_else(|_| args.image.clone(), OsString::from);
    let mount = Options { source, ..Options::default() };
    let mut options =
        MountOptions { within: global.clone(), access: Access::ReadWrite, mount, wants_read_only: None };
    for option in args.options.iter().flat_map(|list| split(list)) {
        options.take(&option).map_err(|why| Problem::usage(format!("-o {}", option.display()), why))?;
    }
    if options.within.offset.is_some() && options.within.partition.is_some() {
        return Err(Problem::usage("-o", "offset and partition exclude each other"));
    }
    if let (Access::ReadWrite, Some(option)) = (options.access, &options.wants_read_only) {
        let why = "needs -o ro; on a writable mount programs call fsync";
        return Err(Problem::usage(format!("-o {option}"), why));
    }
    Ok(options)
}

impl MountOptions {
    fn take(&mut self, option: &OsStr) -> Result<(), String> {
        let bytes = option.as_bytes();
        let (name, value) = match bytes.iter().position(|&byte| byte == b'=') {
            Some(at) => (&bytes[..at], Some(OsStr::from_bytes(&bytes[at + 1..]))),
            None => (bytes, None),
        };
        let name = str::from_utf8(name).map_err(|_| unknown())?;
        match value {
            Some(value) => self.take_value(name, value),
            None => self.take_flag(name),
        }
    }

    fn take_flag(&mut self, name: &str) -> Result<(), String> {
        let mount = &mut self.mount;
        match name {
            "rw" => self.access = Access::ReadWrite,
            "ro" => self.access = Access::ReadOnly,
            "allow_other" => return self.show_to(Visibility::Everyone),
            "allow_root" => return self.show_to(Visibility::OwnerAndRoot),
            "suid" => mount.suid = true,
            "nosuid" => mount.suid = false,
            "dev" => mount.dev = true,
            "nodev" => mount.dev = false,
            "exec" => mount.noexec = false,
            "noexec" => mount.noexec = true,
            "nonempty" => mount.nonempty = true,
            "io_uring" => mount.io_uring = Some(true),
            "no_io_uring" => mount.io_uring = Some(false),
            "fakeroot" => {
                mount.ownership.uid = Some(rustix::process::getuid().as_raw());
                mount.ownership.gid = Some(rustix::process::getgid().as_raw());
            }
            "offset" | "partition" | "dx_read_ahead" | "overlay" | "uid" | "gid" | "fsname" | "subtype" => {
                return Err("needs a value".to_owned());
            }
            _ if HARMLESS_READ_ONLY.contains(&name) => self.wants_read_only = Some(name.to_owned()),
            _ if HARMLESS.contains(&name) || name.starts_with("x-") => {}
            _ => return Err(unknown()),
        }
        Ok(())
    }

    fn take_value(&mut self, name: &str, value: &OsStr) -> Result<(), String> {
        match name {
            "offset" => once(&mut self.within.offset, number(value)?)?,
            "partition" => once(&mut self.within.partition, number(value)?)?,
            "dx_read_ahead" => {
                let name = value.to_str().unwrap_or_default();
                self.within.dx_read_ahead = Some(name.parse::<DxReadAhead>()?);
            }
            "overlay" => self.within.source.overlay = Some(value.into()),
            "uid" => self.mount.ownership.uid = Some(number(value)?),
            "gid" => self.mount.ownership.gid = Some(number(value)?),
            "fsname" => self.mount.source = value.to_owned(),
            "subtype" => {
                let text = value.to_str().filter(|text| text.bytes().all(|byte| byte.is_ascii_graphic()));
                self.mount.subtype = text.ok_or("is not a single word")?.to_owned();
            }
            "comment" => {}
            _ if name.starts_with("x-") => {}
            _ => return Err(unknown()),
        }
        Ok(())
    }

    fn show_to(&mut self, visibility: Visibility) -> Result<(), String> {
        if ![Visibility::Owner, visibility].contains(&self.mount.visibility) {
            return Err("allow_other and allow_root exclude each other".to_owned());
        }
        self.mount.visibility = visibility;
        Ok(())
    }
}

fn unknown() -> String {
    "unknown mount option".to_owned()
}

fn number<T: std::str::FromStr>(value: &OsStr) -> Result<T, String> {
    let number = value.to_str().and_then(|text| text.parse().ok());
    number.ok_or_else(|| "is not a number, or too large".to_owned())
}

fn once<T: PartialEq>(place: &mut Option<T>, value: T) -> Result<(), String> {
    if place.as_ref().is_some_and(|before| *before != value) {
        return Err("was given twice, with different values".to_owned());
    }
    *place = Some(value);
    Ok(())
}

/// Splits a comma-separated list; a backslash escapes a comma or a backslash.
fn split(list: &OsStr) -> Vec<OsString> {
    let mut options = vec![Vec::new()];
    let mut bytes = list.as_bytes().iter().copied();
    while let Some(byte) = bytes.next() {
        match (byte, options.last_mut()) {
            (b',', _) => options.push(Vec::new()),
            (b'\\', Some(option)) => option.extend(bytes.next()),
            (_, Some(option)) => option.push(byte),
            (_, None) => {}
        }
    }
    options.retain(|option| !option.is_empty());
    options.into_iter().map(OsString::from_vec).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn parsed(lists: &[&str]) -> Result<MountOptions, Problem> {
        let args = MountArgs {
            image: "no.img".into(),
            directory: PathBuf::from("mnt"),
            options: lists.iter().map(OsString::from).collect(),
            background: false,
        };
        parse(&args, &Global::default())
    }

    fn refused(list: &str) -> String {
        format!("{:?}", parsed(&[list]).unwrap_err())
    }

    #[test]
    fn without_options_nothing_runs_setuid_and_only_the_owner_sees_it() {
        let mount = parsed(&[]).unwrap().mount;
        assert!(!mount.suid && !mount.dev && !mount.noexec && !mount.nonempty);
        assert_eq!(mount.visibility, Visibility::Owner);
        assert_eq!(mount.source, "no.img");
    }

    #[test]
    fn lists_and_repeated_options_are_one_list_and_the_last_one_counts() {
        let options = parsed(&["ro,suid,uid=1000", "nosuid,dev,gid=100", "noexec,allow_other"]).unwrap();
        assert!(!options.mount.suid && options.mount.dev && options.mount.noexec);
        assert_eq!((options.mount.ownership.uid, options.mount.ownership.gid), (Some(1000), Some(100)));
        assert_eq!(options.mount.visibility, Visibility::Everyone);
    }

    #[test]
    fn offset_and_partition_may_be_mount_options() {
        assert_eq!(parsed(&["offset=1048576"]).unwrap().within.offset, Some(1 << 20));
        assert_eq!(parsed(&["partition=2"]).unwrap().within.partition, Some(2));
        assert!(refused("offset=1,partition=2").contains("exclude each other"));
        assert!(refused("offset=1,offset=2").contains("given twice"));
        assert!(refused("offset=1x").contains("not a number"));
        assert!(refused("offset").contains("needs a value"));
    }

    #[test]
    fn dx_read_ahead_may_be_a_mount_option_and_the_last_one_counts() {
        let options = parsed(&["dx_read_ahead=off", "dx_read_ahead=whole"]).unwrap();
        assert_eq!(options.within.dx_read_ahead, Some(DxReadAhead::Whole));
        assert!(refused("dx_read_ahead=all").contains("none of off, whole, window"));
        assert!(refused("dx_read_ahead").contains("needs a value"));
    }

    #[test]
    fn harmless_options_are_ignored() {
        parsed(&["defaults,noatime,kernel_cache,x-systemd.automount,comment=x,nofail,,default_permissions"])
            .unwrap();
    }

    #[test]
    fn unknown_options_are_refused_by_name() {
        for option in ["frobnicate", "frobnicate=1", "noacl", "auto_unmount"] {
            assert!(refused(&format!("ro,{option}")).contains(&format!("-o {option}")), "{option}");
        }
    }

    #[test]
    fn a_mount_is_writable_unless_ro() {
        let access = |lists: &[&str]| parsed(lists).unwrap().access;
        assert_eq!([access(&[]), access(&["rw"]), access(&["ro,rw"])], [Access::ReadWrite; 3]);
        assert_eq!([access(&["ro"]), access(&["rw", "ro"])], [Access::ReadOnly; 2]);
    }

    #[test]
    fn sync_and_strictatime_need_a_read_only_mount() {
        for option in ["sync", "dirsync", "strictatime"] {
            assert!(refused(option).contains("needs -o ro"), "{option}");
            parsed(&[option, "ro"]).unwrap();
        }
    }

    #[test]
    fn allow_root_and_allow_other_exclude_each_other() {
        assert!(refused("allow_other,allow_root").contains("exclude each other"));
        parsed(&["allow_root,allow_root"]).unwrap();
    }

    #[test]
    fn the_last_wish_about_io_uring_counts() {
        assert_eq!(parsed(&[]).unwrap().mount.io_uring, None);
        assert_eq!(parsed(&["no_io_uring,io_uring"]).unwrap().mount.io_uring, Some(true));
        assert_eq!(parsed(&["io_uring", "no_io_uring"]).unwrap().mount.io_uring, Some(false));
    }

    #[test]
    fn a_backslash_keeps_a_comma() {
        assert_eq!(parsed(&[r"fsname=a\,b\\c,ro"]).unwrap().mount.source, r"a,b\c");
    }
}
