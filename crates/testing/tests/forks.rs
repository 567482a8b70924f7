//! Programs started by other threads briefly have copies of this thread's open files. `dentree`'s
//! test `an_ordinary_user_writes_through_fusermount3` failed because of it ("Text file busy") on a
//! busy machine.

use dentree_testing::{MountPoint, program_in, unmount};
use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

/// Ends the threads, also where the test fails.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Calls `work` while other threads start programs.
fn while_others_start_programs(work: impl FnOnce()) {
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !ended.load(Relaxed) {
                    assert!(Command::new("true").status().unwrap().success());
                }
            });
        }
        let _ended = Ended(&ended);
        work();
    });
}

#[test]
fn a_program_that_was_just_copied_runs_whatever_other_threads_start() {
    while_others_start_programs(|| {
        for _ in 0..100 {
            let dir = tempfile::tempdir().unwrap();
            let program = program_in(dir.path(), "/bin/true");
            assert!(Command::new(program).status().unwrap().success());
        }
    });
}

#[test]
fn a_file_system_whose_files_were_just_closed_is_unmounted_whatever_other_threads_start() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: mounting needs root");
    }
    let dir = tempfile::tempdir().unwrap();
    let place = MountPoint(dir.path().to_owned());
    while_others_start_programs(|| {
        for _ in 0..100 {
            let mounted = Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&place.0).status();
            if !mounted.unwrap().success() {
                return println!("skipped: nothing can be mounted here");
            }
            (0..10).for_each(|_| fs::write(place.0.join("file"), "content").unwrap());
            unmount(&place.0);
        }
    });
}
