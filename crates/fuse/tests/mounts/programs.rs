//! Real programs on a read-write mount of a file system in memory: what they write they find again.

use crate::common::{Mounted, can_mount, mount_vfs, offered, ring};
use dentree_fuse::Options;
use dentree_testing::device_for_all;
use dentree_vfs::{Identity, MemoryFs, Vfs};
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

fn mounted() -> Option<(Mounted, Arc<Vfs<MemoryFs>>)> {
    let vfs = Arc::new(Vfs::new(MemoryFs::default()).unwrap());
    mount_vfs(&vfs, &Options::default()).map(|mounted| (mounted, vfs))
}

/// Whether a program is here; prints where not.
fn has(program: &str) -> bool {
    let found =
        Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !found {
        println!("skipped: {program} is not installed");
    }
    found
}

fn run(dir: &Path, script: &str) -> Output {
    let output = Command::new("sh")
        .args(["-euc", script])
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_AUTHOR_NAME", "a")
        .env("GIT_AUTHOR_EMAIL", "a@example.org")
        .env("GIT_COMMITTER_NAME", "a")
        .env("GIT_COMMITTER_EMAIL", "a@example.org")
        .output()
        .unwrap();
    assert!(output.status.success(), "{script}: {output:?}");
    output
}

/// Some files, links and empty directories.
const SOME_FILES: &str = "
    mkdir -p tree/deep/er tree/empty
    for n in 1 2 3 4 5 6 7 8 9; do
        head -c $((n * 7000)) /dev/urandom > tree/deep/f$n
        ln tree/deep/f$n tree/deep/er/hard$n
        ln -s ../f$n tree/deep/er/soft$n
    done
    chmod 6711 tree/deep/f1
    touch -d '2001-02-03 04:05:06.789' tree/deep/f2
    mkfifo tree/pipe
    setfattr -n user.colour -v green tree/deep/f3 2>/dev/null || true";

#[test]
fn tar_and_rsync_bring_a_tree_in_and_out() {
    if !has("tar") || !has("rsync") {
        return;
    }
    let Some((mounted, _vfs)) = mounted() else { return };
    let outside = tempfile::tempdir().unwrap();
    run(outside.path(), SOME_FILES);
    let (out, into) = (outside.path().display(), mounted.path.display());
    run(
        outside.path(),
        &format!(
            "tar -cf - tree | tar -xpf - -C {into}
             rsync -aH tree/ {into}/synced
             rsync -aH {into}/tree/ back
             for copy in {into}/tree {into}/synced {out}/back; do
                 test -z \"$(rsync -aHni --checksum --delete tree/ $copy/ | grep -v '^.d..t')\"
                 diff -r --no-dereference --exclude pipe tree $copy
             done
             rm -r {into}/tree {into}/synced"
        ),
    );
    assert_eq!(fs::read_dir(&mounted.path).unwrap().count(), 0);
}

#[test]
fn git_commits_clones_and_finds_everything_sound() {
    if !has("git") {
        return;
    }
    let Some((mounted, _vfs)) = mounted() else { return };
    run(
        &mounted.path,
        &format!(
            "git init -q work && cd work
             {SOME_FILES}
             rm tree/pipe
             for round in 1 2 3; do
                 echo $round > round; git add -A; git commit -qm $round
             done
             git mv tree moved; git commit -qm moved
             git gc -q
             cd ..; git clone -q --no-local work clone
             cd clone; git fsck --full --strict; test -z \"$(git status --porcelain)\"
             diff -r --no-dereference --exclude .git --exclude empty . ../work"
        ),
    );
}

#[test]
fn sqlite_keeps_its_integrity() {
    if !has("python3") {
        return;
    }
    let Some((mounted, _vfs)) = mounted() else { return };
    let script = r#"
import sqlite3, random
for mode in ("delete", "truncate", "persist"):
    db = sqlite3.connect(mode + ".db")
    assert db.execute("pragma journal_mode=" + mode).fetchone()[0] == mode
    db.execute("create table t (k integer primary key, v blob)")
    for round in range(15):
        with db:
            db.executemany("insert or replace into t values (?, ?)",
                           ((random.randrange(2000), bytes(random.randrange(900))) for _ in range(200)))
        try:
            with db:
                db.execute("delete from t where k % 3 = 0")
                if round % 2: raise KeyError
        except KeyError: pass
    db.execute("vacuum")
    assert db.execute("pragma integrity_check").fetchone()[0] == "ok"
    db.close()
"#;
    fs::write(mounted.path.join("run.py"), script).unwrap();
    run(&mounted.path, "python3 run.py && for f in *.db; do cat $f > copy && cmp $f copy; done");
}

#[test]
fn random_reads_writes_truncations_and_mappings_agree_with_the_kernels_own() {
    if !has("python3") {
        return;
    }
    let Some((mounted, _vfs)) = mounted() else { return };
    let other = tempfile::tempdir().unwrap();
    // The same operations, drawn with the same seed, on both files; compared as they go.
    let script = r#"
import mmap, os, random, sys
random.seed(int(sys.argv[3]))
files = [os.open(path, os.O_RDWR | os.O_CREAT) for path in sys.argv[1:3]]
def both(what):
    a, b = (what(fd) for fd in files)
    assert a == b, "differs"
def through_memory(fd, at, data):
    with mmap.mmap(fd, 0) as m:
        m[at:at + len(data)] = data
        if data[0] & 1: m.flush()
for step in range(1500):
    size = os.fstat(files[0]).st_size
    at, data = random.randrange(300000), random.randbytes(random.randrange(1, 40000))
    op = random.randrange(8)
    if op < 2: both(lambda fd: os.pwrite(fd, data, at))
    elif op < 4: both(lambda fd: os.pread(fd, len(data), at))
    elif op == 4: both(lambda fd: os.ftruncate(fd, at))
    elif op == 5 and size > 50000: both(lambda fd: through_memory(fd, at % (size - 40000), data))
    elif op == 6: both(lambda fd: os.posix_fallocate(fd, at, len(data)))
    elif op == 7: both(lambda fd: os.fsync(fd))
    both(lambda fd: os.fstat(fd).st_size)
both(lambda fd: os.pread(fd, 1 << 20, 0))
"#;
    fs::write(other.path().join("run.py"), script).unwrap();
    let mine = mounted.path.join("file");
    for seed in 0..4 {
        let command = format!("python3 run.py {} kernel-{seed} {seed}", mine.display());
        run(other.path(), &command);
        // A fresh look, by way of the file system.
        assert_eq!(fs::read(&mine).unwrap(), fs::read(other.path().join(format!("kernel-{seed}"))).unwrap());
        fs::remove_file(&mine).unwrap();
    }
}

#[test]
fn an_ordinary_user_mounts_and_writes() {
    if !can_mount() || !has("fusermount3") {
        return;
    }
    let Some(_ring) = ring() else { return };
    let _device = device_for_all();
    let vfs = Arc::new(Vfs::new(MemoryFs::default()).unwrap());
    let who = Identity::Superuser;
    let owned = dentree_vfs::SetAttr { uid: Some(65534), gid: Some(65534), ..Default::default() };
    vfs.set_attr(&who, vfs.root(), &owned).unwrap();
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(dir.path(), Some(65534), Some(65534)).unwrap();
    let path = dir.path().to_owned();
    // A thread of its own becomes the user, mounts and serves; then programs run as that user.
    let (send, receive) = std::sync::mpsc::channel();
    let serving = {
        let (vfs, path) = (vfs.clone(), path.clone());
        std::thread::spawn(move || {
            let id = 65534;
            rustix::thread::set_thread_groups(&[]).unwrap();
            let (uid, gid) = (rustix::fs::Uid::from_raw(id), rustix::fs::Gid::from_raw(id));
            rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            let session = dentree_fuse::mount(vfs, &path, &offered()).unwrap();
            send.send(session.handle()).unwrap();
            session.serve().unwrap();
        })
    };
    let handle = receive.recv().unwrap();
    let done = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--", "sh", "-euc"])
        .arg("cd \"$0\"; mkdir d; echo hello > d/f; mv d/f g; touch -d 2001-01-01 g; cat g; sync g; ls -l")
        .arg(&path)
        .output();
    // Not the flusher's own change of times may be refused: it comes as root.
    let unmounted = Command::new("fusermount3").arg("-u").arg(&path).status();
    drop(handle);
    serving.join().unwrap();
    assert!(unmounted.unwrap().success());
    let done = done.unwrap();
    assert!(done.status.success() && done.stdout.starts_with(b"hello\n"), "{done:?}");
    let file = vfs.walk(&who, vfs.root(), b"g", Default::default()).unwrap().attr();
    assert_eq!((file.uid, file.mtime.seconds / 86_400), (65534, 978_307_200 / 86_400));
}
