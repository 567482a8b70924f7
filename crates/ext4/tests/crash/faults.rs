//! The device fails, once or for good, at any request. That is reported, nothing acknowledged is
//! lost, and the image is clean after replay.

use crate::common::fsck;
use crate::common::ops::{OpMix, reference};
use crate::common::story::Story;
use crate::common::writing::{Dice, SMALL, new_image};
use dentree_blockdev::{Failure, Fault, FaultDevice, MemoryDevice, Operation};
use dentree_ext4::{Clock, Ext4, InodeTime, Options};
use dentree_vfs::{Error, FileSystem, Identity, NewKind, Vfs};
use std::fs;
use std::path::Path;
use std::sync::Arc;

const KINDS: [(&str, &str); 4] = [
    ("-t ext4 -b 1024 -O metadata_csum_seed,orphan_file -J size=1", "8M"),
    ("-t ext3 -b 1024 -J size=1", "8M"),
    ("-t ext4 -b 1024 -O inline_data -I 256 -J size=1", "8M"),
    ("-t ext4 -J size=4", "16M"),
];

/// Once, or from then on.
const FAULTS: [(Operation, Failure, u64); 8] = [
    (Operation::Read, Failure::Io, 1),
    (Operation::Write, Failure::Io, 1),
    (Operation::Write, Failure::Short, 1),
    (Operation::Write, Failure::NoSpace, 1),
    (Operation::Write, Failure::Io, u64::MAX),
    (Operation::Flush, Failure::Io, 1),
    (Operation::Flush, Failure::Io, u64::MAX),
    (Operation::Flush, Failure::Ignored, u64::MAX),
];

const WORK: usize = 200;

fn options() -> Options {
    Options { writable: true, clock: Clock::Fixed(InodeTime::default()), ..Options::default() }
}

/// Returns whether the fault struck.
fn work(image: &[u8], mix: &OpMix, fault: Fault, scratch: &Path) -> Result<bool, String> {
    let memory = MemoryDevice::from(image.to_vec());
    let device = Arc::new(FaultDevice::new(Arc::new(memory.clone())));
    device.inject(fault);
    let mut story = Story::new("", reference());
    let (mut errors, mut is_recorded) = (Vec::new(), false);
    let opened = Ext4::open(device.clone(), options()).map_err(Error::from);
    match opened.and_then(|fs| Vfs::with_budgets(fs, SMALL)) {
        Err(error) => errors.push(error),
        Ok(vfs) => {
            errors = story.go_on(&vfs, mix, &mut Dice(0x5851_F42D), WORK, &|| 0);
            is_settled(&vfs, &errors)?;
            is_recorded = vfs.fs().is_read_only();
            let fs = vfs.into_fs().ok_or("an inode is in use")?;
            let closed = fs.close();
            is_recorded |= matches!(closed, Err(dentree_ext4::Error::Journal(_)));
            errors.extend(closed.err().map(Error::from));
        }
    }
    let struck = device.injected() > 0;
    let is_reported =
        !errors.is_empty() || fault.failure == Failure::Ignored || fault.operation == Operation::Read;
    if struck && !is_reported {
        return Err("it was not reported".to_owned());
    }
    if !struck && !errors.is_empty() {
        return Err(format!("errors without a cause: {errors:?}"));
    }
    let left = scratch.join("left");
    fs::write(&left, memory.to_vec()).unwrap();
    let state = fsck::header(&left, "Filesystem state").unwrap();
    if is_recorded && fault.times == 1 && !state.contains("with errors") {
        return Err(format!("recorded is {state:?}"));
    }
    fsck::recover(&left, &["contains a file system with errors"])
        .map_err(|text| format!("e2fsck repairs: {text}"))?;
    fsck::is_clean(&left).map_err(|text| format!("after e2fsck's replay: {text}"))?;
    let fs = Ext4::open(Arc::new(MemoryDevice::from(fs::read(&left).unwrap())), options());
    let vfs = Vfs::with_budgets(fs.map_err(|error| error.to_string())?, SMALL);
    let vfs = vfs.map_err(|error| error.to_string())?;
    story.compare(&vfs, 0).map_err(|problem| format!("{problem}; {errors:?}"))?;
    Ok(struck)
}

/// An aborted journal refuses every change, and its cause was reported.
fn is_settled(vfs: &Vfs<Ext4>, errors: &[Error]) -> Result<(), String> {
    if !vfs.fs().is_read_only() {
        return Ok(());
    }
    let make = vfs.create(&Identity::Superuser, vfs.root(), b"one more", NewKind::Fifo, 0o600);
    match make {
        Err(Error::ReadOnly) if errors.iter().any(|error| !matches!(error, Error::ReadOnly)) => Ok(()),
        made => Err(format!("a new name after {errors:?}: {:?}", made.err())),
    }
}

fn strike_everywhere(stride: u64) {
    let (mut struck, mut problems) = (0, Vec::new());
    for (options, size) in KINDS {
        let image = fs::read(new_image(options, size).path()).unwrap();
        let mix = OpMix { top: String::new(), allocates: options.contains("ext4"), durable_one_of: 8 };
        std::thread::scope(|scope| {
            let work = FAULTS.map(|(operation, failure, times)| {
                let (image, mix) = (&image, &mix);
                scope.spawn(move || {
                    let scratch = fsck::scratch();
                    let mut problems = Vec::new();
                    let mut struck = 0;
                    for after in (0..).step_by(usize::try_from(stride).unwrap()) {
                        let fault = Fault { operation, after, times, failure };
                        match work(image, mix, fault, scratch.path()) {
                            Ok(true) => struck += 1,
                            Ok(false) => break,
                            Err(problem) => problems.push(format!("{options}, {fault:?}: {problem}")),
                        }
                        if problems.len() == 2 {
                            break;
                        }
                    }
                    (struck, problems)
                })
            });
            for work in work {
                let (some, found) = work.join().unwrap();
                struck += some;
                problems.extend(found);
            }
        });
    }
    println!("{struck} faults");
    assert!(problems.is_empty(), "{}", problems.join("\n\n"));
}

#[test]
fn a_failed_request_is_reported_and_nothing_acknowledged_is_lost() {
    strike_everywhere(11);
}

#[test]
#[ignore = "long: make crash"]
fn each_failed_request_is_reported_and_nothing_acknowledged_is_lost() {
    strike_everywhere(1);
}
