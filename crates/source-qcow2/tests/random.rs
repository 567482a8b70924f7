//! Random operations against a model; qemu-img checks the file.

use dentree_blockdev::{Access, BlockDevice, FileDevice, MemoryDevice};
use dentree_source_qcow2::{Base, Qcow2Device};
use proptest::prelude::*;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::channel;

const SIZE: u64 = 3 << 20;

#[derive(Clone, Debug)]
enum Step {
    Write { at: u64, len: usize, byte: u8 },
    Read { at: u64, len: usize },
    Discard { at: u64, len: usize },
    Flush,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let range = || (0..SIZE, 0..200_000usize).prop_map(|(at, len)| (at, len.min((SIZE - at) as usize)));
    prop_oneof![
        6 => (range(), any::<u8>()).prop_map(|((at, len), byte)| Step::Write { at, len, byte }),
        4 => range().prop_map(|(at, len)| Step::Read { at, len }),
        1 => range().prop_map(|(at, len)| Step::Discard { at, len }),
        1 => Just(Step::Flush),
        1 => Just(Step::Reopen),
    ]
}

/// With a file of the same content for qemu-img.
fn base(dir: &Path, content: &[u8]) -> Base {
    let name = dir.join("base");
    fs::write(&name, content).unwrap();
    let device = Arc::new(MemoryDevice::from(content.to_vec()));
    Base { device, name: name.to_str().unwrap().to_owned(), format: "raw" }
}

fn submitted(disk: &Arc<dyn BlockDevice>, at: u64, len: usize) -> Vec<u8> {
    let (sender, receiver) = channel();
    disk.clone().submit(at, vec![0; len], Box::new(move |read| drop(sender.send(read))));
    receiver.recv().unwrap().unwrap()
}

/// By `qemu-img check`; prints if it is not installed.
fn is_sound(file: &Path) -> bool {
    match Command::new("qemu-img").args(["check", "-f", "qcow2"]).arg(file).output() {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            println!(
                "{}{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
            false
        }
        Err(_) => {
            println!("skipped: qemu-img is not installed");
            true
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_overlay_is_its_base_with_the_writes(steps in prop::collection::vec(step(), 1..40), seed in any::<u8>()) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("overlay");
        let content: Vec<u8> = (0..SIZE).map(|at| (at / 999) as u8 ^ seed).collect();
        let model = MemoryDevice::from(content.clone());
        let open = || Qcow2Device::overlay(&file, base(dir.path(), &content), Access::ReadWrite).unwrap();
        let mut disk = open();
        for step in steps {
            match step {
                Step::Write { at, len, byte } => {
                    disk.write_at(at, &vec![byte; len]).unwrap();
                    model.write_at(at, &vec![byte; len]).unwrap();
                }
                Step::Read { at, len } => {
                    let mut expected = vec![0; len];
                    model.read_at(at, &mut expected).unwrap();
                    let mut found = vec![0; len];
                    disk.read_at(at, &mut found).unwrap();
                    prop_assert!(found == expected, "{len} bytes at {at}");
                    prop_assert!(submitted(&disk, at, len) == expected, "submitted: {len} bytes at {at}");
                }
                Step::Discard { at, len } => {
                    // Discarded content is unspecified.
                    disk.discard(at, len as u64).unwrap();
                    disk.write_at(at, &vec![1; len]).unwrap();
                    model.write_at(at, &vec![1; len]).unwrap();
                }
                Step::Flush => disk.flush().unwrap(),
                Step::Reopen => {
                    disk.flush().unwrap();
                    drop(disk);
                    disk = open();
                }
            }
        }
        disk.flush().unwrap();
        drop(disk);
        let mut expected = vec![0; SIZE as usize];
        model.read_at(0, &mut expected).unwrap();
        let reader = Qcow2Device::overlay(&file, base(dir.path(), &content), Access::ReadOnly).unwrap();
        prop_assert!(submitted(&reader, 0, SIZE as usize) == expected);
        prop_assert!(fs::metadata(&file).unwrap().len() < 2 * SIZE + (1 << 20));
        prop_assert!(is_sound(&file));
    }
}

#[test]
fn threads_that_write_different_parts_do_not_disturb_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("overlay");
    let content = vec![7; SIZE as usize];
    let disk = Qcow2Device::overlay(&file, base(dir.path(), &content), Access::ReadWrite).unwrap();
    let part = SIZE as usize / 8;
    std::thread::scope(|scope| {
        for number in 0..8u8 {
            let disk = &disk;
            scope.spawn(move || {
                // Neighbors share clusters and tables.
                for at in (usize::from(number) * 4096..SIZE as usize).step_by(8 * 4096) {
                    disk.write_at(at as u64, &[number; 4096]).unwrap();
                    let mut found = [0; 4096];
                    disk.read_at(at as u64, &mut found).unwrap();
                    assert_eq!(found, [number; 4096]);
                    if at % part < 4096 {
                        disk.flush().unwrap();
                    }
                }
            });
        }
    });
    disk.flush().unwrap();
    drop(disk);
    let disk = Qcow2Device::overlay(&file, base(dir.path(), &content), Access::ReadOnly).unwrap();
    for at in (0..SIZE as usize).step_by(4096) {
        let mut found = [0; 4096];
        disk.read_at(at as u64, &mut found).unwrap();
        assert_eq!(found, [(at / 4096 % 8) as u8; 4096], "at {at}");
    }
    assert!(is_sound(&file));
}

#[test]
fn a_file_of_a_process_that_writes_it_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("overlay");
    let content = vec![0; SIZE as usize];
    let first = Qcow2Device::overlay(&file, base(dir.path(), &content), Access::ReadWrite).unwrap();
    assert!(Qcow2Device::overlay(&file, base(dir.path(), &content), Access::ReadWrite).is_err());
    drop(first);
    let locked = FileDevice::open(&file, Access::ReadWrite).unwrap();
    assert!(Qcow2Device::overlay(&file, base(dir.path(), &content), Access::ReadWrite).is_err());
    drop(locked);
}

#[test]
fn an_overlay_of_a_base_that_has_changed_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let [name, file] = ["base", "overlay"].map(|name| dir.path().join(name));
    fs::write(&name, vec![3; SIZE as usize]).unwrap();
    let open = |access| {
        let device = Arc::new(FileDevice::open(&name, Access::ReadOnly).unwrap());
        let name = name.to_str().unwrap().to_owned();
        Qcow2Device::overlay(&file, Base { device, name, format: "raw" }, access)
    };
    let disk = open(Access::ReadWrite).unwrap();
    disk.write_at(4096, b"change").unwrap();
    disk.flush().unwrap();
    drop(disk);
    assert!(is_sound(&file));
    if let Ok(info) = Command::new("qemu-img").args(["info", "-f", "qcow2"]).arg(&file).output() {
        let info = String::from_utf8_lossy(&info.stdout).into_owned();
        assert!(info.contains(&format!("backing file: {}", name.display())), "{info}");
    }
    let mut read = [0; 6];
    open(Access::ReadWrite).unwrap().read_at(4096, &mut read).unwrap();
    assert_eq!(&read, b"change");
    let base = fs::File::options().write(true).open(&name).unwrap();
    base.set_modified(std::time::SystemTime::now() + std::time::Duration::from_secs(1)).unwrap();
    let refused = open(Access::ReadOnly).err().unwrap().to_string();
    assert!(refused.contains("has changed since"), "{refused}");
}
