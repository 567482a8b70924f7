//! Nothing of a run stays behind, however it ends.
//!
//! All temporary folders of a process lie in one. Beside it a shell waits for the end of a pipe that this process holds: that comes when the
//! process is gone, also by Ctrl-C or SIGKILL, where no guard is dropped. The shell then unmounts what is mounted in the
//! folder, after which servers end by themselves, and removes it.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use dentree_sync::Mutex;
use tempfile::TempDir;

use crate::unavailable::Unavailable;

const SWEEP: &str = r#"read -r _
for it in "$1"/*; do umount -l "$it"; done
rm -rf --one-file-system "$1""#;

/// The folder of this process, and the shell that removes it.
struct Room {
    path: PathBuf,
    _shell: Child,
}

static ROOM: Mutex<Option<Room>> = Mutex::new(None);

/// A new folder, to hold files or to be mounted at.
pub(crate) fn folder() -> Result<TempDir, Unavailable> {
    let mut room = ROOM.lock();
    let room = match &mut *room {
        Some(room) => room,
        none => none.insert(Room::new()?),
    };
    // A name that a shell's `*` stands for.
    tempfile::Builder::new().prefix("it").tempdir_in(&room.path).map_err(failed)
}

fn failed(why: std::io::Error) -> Unavailable {
    Unavailable::because("cannot make a temporary folder", why)
}

impl Room {
    fn new() -> Result<Room, Unavailable> {
        // Removed here only where there is no shell to do it.
        let folder = tempfile::Builder::new().prefix("dentree-lab").tempdir().map_err(failed)?;
        let shell = Command::new("sh")
            .args(["-c", SWEEP, "sh"])
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C is for a terminal's whole group.
            .process_group(0)
            .spawn()
            .map_err(|why| Unavailable::because("sh", why))?;
        Ok(Room { path: folder.keep(), _shell: shell })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mounts::{Image, OpenMount};
    use std::io::{BufRead, BufReader};
    use std::path::Path;

    const CHILD: &str = "DENTREE_LAB_MOUNTS_AND_WAITS";

    /// Not a test, but what the next one starts and kills: mounts an image, says where, and waits.
    #[test]
    fn a_child_of_these_tests() {
        if std::env::var_os(CHILD).is_none() {
            return;
        }
        let image = Image::ext4(100).unwrap();
        match OpenMount::kernel(image.path()) {
            Ok(mount) => println!("mounted {}", mount.root().display()),
            Err(why) => println!("skipped {why}"),
        }
        loop {
            std::thread::park();
        }
    }

    #[test]
    fn a_mount_and_its_image_go_with_a_process_that_is_killed() {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "leftovers::tests::a_child_of_these_tests", "--nocapture"])
            .env(CHILD, "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let said = lines
            .map(|line| line.unwrap())
            .find(|line| line.contains("mounted ") || line.contains("skipped "));
        child.kill().unwrap();
        child.wait().unwrap();
        let said = said.unwrap();
        let Some((_, root)) = said.split_once("mounted ") else {
            return eprintln!("skipped: no mount: {said}");
        };
        let room = Path::new(root).parent().unwrap();
        dentree_testing::wait_until("gone", || {
            !room.exists() && !dentree_testing::is_mount_point(Path::new(root))
        });
    }
}
