//! Cost of namespace operations: `cargo bench -p dentree-ext4 --bench name_cost -- IMAGE [COUNT
//! [DIR]]`, on a writable image. With DIR, a directory of a kernel file system, system calls do the
//! same there in turn.
//!
//! The best of three rounds counts, in the calling thread's processor time: both sides write back
//! in other threads.

use dentree_blockdev::{Access, FileDevice};
use dentree_ext4::{Ext4, Options};
use dentree_vfs::{Identity, NewKind, OnExisting, ReaddirStart, Vfs};
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, mkdirat, mknodat, openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

type Outcome = Result<(), Box<dyn std::error::Error>>;

const OPERATIONS: [&str; 8] =
    ["create", "list", "stat", "stat missing", "rename", "unlink", "mkdir", "rmdir"];
const ROUNDS: usize = 3;

/// The kernel would cache as much: 50,000 directories have 200 MB.
const CACHE_BYTES: usize = 512 << 20;

type Contender<'a> = Box<dyn FnMut(&str, u32) -> Outcome + 'a>;

fn name(n: u32) -> String {
    format!("file{n:08}")
}

fn main() -> Outcome {
    let mut args = std::env::args().skip(1).filter(|word| word != "--bench");
    let Some(image) = args.next() else {
        println!("skipped: name_cost: no image was named (-- IMAGE [COUNT [DIR]])");
        return Ok(());
    };
    let count: u32 = args.next().map_or(Ok(200_000), |count| count.parse())?;
    let device = FileDevice::open(image, Access::ReadWrite)?;
    let options = Options { writable: true, cache_bytes: CACHE_BYTES, ..Options::default() };
    let vfs = Vfs::new(Ext4::open(Arc::new(device), options)?)?;
    let mut contenders: Vec<Contender<'_>> = vec![in_process(&vfs)?];
    if let Some(folder) = args.next() {
        contenders.push(by_system_calls(Path::new(&folder))?);
    }
    println!("{count} names in one directory, microseconds of processor time for each");
    println!("{:14}{:>12}{:>12}{:>8}", "", "in process", "kernel", "ratio");
    let mut best = vec![[f64::INFINITY; 2]; OPERATIONS.len()];
    for _ in 0..ROUNDS {
        for (operation, best) in OPERATIONS.iter().zip(&mut best) {
            for (contender, best) in contenders.iter_mut().zip(best) {
                let before = processor_micros();
                contender(operation, count)?;
                *best = best.min((processor_micros() - before) / f64::from(count));
            }
        }
    }
    for (operation, [ours, theirs]) in OPERATIONS.iter().zip(best) {
        println!("{operation:14}{ours:12.2}{theirs:12.2}{:8.2}", ours / theirs);
    }
    Ok(vfs.sync()?)
}

fn in_process(vfs: &Vfs<Ext4>) -> Result<Contender<'_>, Box<dyn std::error::Error>> {
    let who = &Identity::Superuser;
    let dir = vfs.create(who, vfs.root(), b"large", NewKind::Directory, 0o755)?;
    Ok(Box::new(move |operation, count| {
        if operation == "list" {
            let mut seen = 0;
            vfs.readdir(who, &dir, ReaddirStart::First, &mut |_| {
                seen += 1;
                ControlFlow::Continue(())
            })?;
            return if seen == count { Ok(()) } else { Err(format!("{seen} names of {count}").into()) };
        }
        for n in 0..count {
            let name = name(n);
            let name = name.as_bytes();
            match operation {
                "create" => drop(vfs.create(who, &dir, name, NewKind::Regular, 0o644)?),
                "stat" => drop(vfs.lookup(who, &dir, name)?.ok_or("it is gone")?.attr()),
                "stat missing" => {
                    let missing = [name, b"-"].concat();
                    vfs.lookup(who, &dir, &missing)?.map_or(Ok(()), |_| Err("it is there"))?;
                }
                "rename" => {
                    drop(vfs.rename(who, &dir, name, &dir, &[name, b"+"].concat(), OnExisting::Fail)?);
                }
                "unlink" => vfs.unlink(who, &dir, &[name, b"+"].concat())?,
                "mkdir" => drop(vfs.create(who, &dir, name, NewKind::Directory, 0o755)?),
                _ => vfs.rmdir(who, &dir, name)?,
            }
        }
        Ok(())
    }))
}

fn by_system_calls(folder: &Path) -> Result<Contender<'static>, Box<dyn std::error::Error>> {
    let path = folder.join("large");
    mkdirat(CWD, &path, Mode::from_raw_mode(0o755))?;
    let dir = openat(CWD, &path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(Box::new(move |operation, count| {
        if operation == "list" {
            let seen = Dir::read_from(&dir)?.try_fold(0, |seen, entry| entry.map(|_| seen + 1))?;
            return if seen == count + 2 { Ok(()) } else { Err(format!("{seen} names of {count}").into()) };
        }
        for n in 0..count {
            let name = name(n);
            match operation {
                "create" => mknodat(&dir, &name, FileType::RegularFile, Mode::from_raw_mode(0o644), 0)?,
                "stat" => drop(statat(&dir, &name, AtFlags::SYMLINK_NOFOLLOW)?),
                "stat missing" => match statat(&dir, name + "-", AtFlags::SYMLINK_NOFOLLOW) {
                    Err(Errno::NOENT) => {}
                    other => return Err(format!("it is there: {other:?}").into()),
                },
                "rename" => renameat(&dir, &name, &dir, format!("{name}+"))?,
                "unlink" => unlinkat(&dir, name + "+", AtFlags::empty())?,
                "mkdir" => mkdirat(&dir, &name, Mode::from_raw_mode(0o755))?,
                _ => unlinkat(&dir, &name, AtFlags::REMOVEDIR)?,
            }
        }
        Ok(())
    }))
}

fn processor_micros() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e6 + now.tv_nsec as f64 / 1e3
}
