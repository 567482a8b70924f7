//! An image with all kinds of files and names.

use crate::common::{Image, can_mount};
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs a shell script in `dir`.
fn script(dir: &Path, script: &str) {
    let status = Command::new("sh").args(["-ec", script]).current_dir(dir).stdout(Stdio::null()).status();
    assert!(status.unwrap().success(), "{script}");
}

/// An image with all kinds of files and names; its owners are those of this machine.
pub fn varied() -> Option<Image> {
    can_mount().then(|| {
        Image::filled(&["-t", "ext4"], |root| {
            script(
                root,
                "mkdir -p etc dir/sub 'dir/with space'; cp /etc/passwd /etc/group etc; cd dir
                 echo hi > f1; head -c 12345 /dev/urandom > f10; truncate -s 99999 f9
                 touch \"it's\" 'a\"b' 'new\nline' .hid b~ '#x' a=b 'x{y' f1.tar.gz f2.tar
                 chmod 755 f1; chmod 4755 f9; chmod 1777 sub; ln f1 hard
                 ln -s f1 ln; ln -s sub lnd; ln -s nowhere lnx
                 mkfifo p; mknod null c 1 3; mknod sda b 8 256; touch sub/below
                 chown 0:100 f10; chown 55555:66666 f9; chown 1:1 p
                 touch -d 2001-01-01 f10; touch -d '2 days ago' f1; touch -a -d 1999-01-01 f9",
            );
        })
    })
}
