//! Removes everything that a run created, however it ends.
//!
//! All temporary directories of a process are in one. A shell waits for the end of a pipe that this
//! process holds open: it comes when the process is gone, also after Ctrl-C or SIGKILL, which drop
//! no guard. The shell then unmounts everything in the directory, which ends the servers, and
//! removes it.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use dentree_sync::Mutex;
use tempfile::TempDir;

use crate::unavailable::Unavailable;

const SWEEP: &str = r#"read -r _
for it in "$1"/*; do umount -l "$it"; done
rm -rf --one-file-system "$1""#;

/// The directory of this process, and the shell that removes it.
struct Root {
    path: PathBuf,
    _shell: Child,
}

static ROOT: Mutex<Option<Root>> = Mutex::new(None);

/// A new directory, for files or as a mount point.
pub(crate) fn folder() -> Result<TempDir, Unavailable> {
    let mut root = ROOT.lock();
    let root = match &mut *root {
        Some(root) => root,
        none => none.insert(Root::new()?),
    };
    // The prefix matches the shell's `*`.
    tempfile::Builder::new().prefix("it").tempdir_in(&root.path).map_err(failed)
}

fn failed(why: std::io::Error) -> Unavailable {
    Unavailable::because("cannot make a temporary folder", why)
}

impl Root {
    fn new() -> Result<Root, Unavailable> {
        // Removed here only if there is no shell.
        let folder = tempfile::Builder::new().prefix("dentree-lab").tempdir().map_err(failed)?;
        let shell = Command::new("sh")
            .args(["-c", SWEEP, "sh"])
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C signals a terminal's whole group.
            .process_group(0)
            .spawn()
            .map_err(|why| Unavailable::because("sh", why))?;
        Ok(Root { path: folder.keep(), _shell: shell })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mounts::{Image, OpenMount};
    use std::io::{BufRead, BufReader};
    use std::path::Path;

    const CHILD: &str = "DENTREE_LAB_MOUNTS_AND_WAITS";

    /// Not a test: the next one starts and kills it. Mounts an image, prints where, and waits.
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
        let parent = Path::new(root).parent().unwrap();
        dentree_testing::wait_until("gone", || {
            !parent.exists() && !dentree_testing::is_mount_point(Path::new(root))
        });
    }
}
