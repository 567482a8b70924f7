//! Real programs on a writable mount: they read back what they wrote, `e2fsck` finds nothing wrong,
//! and the kernel's mount shows the same tree.

mod mounts;
mod writing;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use writing::{Image, KINDS, end, folder, has, shell, tree};

/// Some files, links, empty directories, devices and a hole.
const SOME_FILES: &str = "
    mkdir -p tree/deep/er tree/empty
    for n in 1 2 3 4 5 6 7 8 9; do
        head -c $((n * 7000)) /dev/urandom > tree/deep/f$n
        ln tree/deep/f$n tree/deep/er/hard$n
        ln -s ../f$n tree/deep/er/soft$n
    done
    for n in $(seq 300); do echo $n > tree/deep/er/one-of-many-$n; done
    chmod 6711 tree/deep/f1
    chown 1000:100 tree/deep/f4
    touch -d '2001-02-03 04:05:06.789' tree/deep/f2
    truncate -s 30M tree/deep/sparse
    echo end >> tree/deep/sparse";

#[test]
fn tar_and_rsync_bring_a_tree_in_and_out() {
    if !has("tar") || !has("rsync") {
        return;
    }
    for kind in KINDS {
        let Some(image) = Image::new(kind, "96M") else { return };
        let mounted = image.mount();
        let outside = folder();
        let into = mounted.path().display();
        shell(
            outside.path(),
            &format!(
                "{SOME_FILES}
                 mkfifo tree/pipe; mknod tree/device c 5 300
                 tar -cSf - tree | tar -xpSf - -C {into}
                 rsync -aHS tree/ {into}/synced
                 rsync -aHS {into}/tree/ back
                 rsync -aH --inplace --checksum {into}/tree/ {into}/synced
                 for copy in {into}/tree {into}/synced back; do
                     test -z \"$(rsync -aHni --checksum --delete tree/ $copy/ | grep -v '^.d..t')\"
                     rm -f $copy/pipe $copy/device
                 done
                 rm tree/pipe tree/device
                 for file in tree/deep/sparse {into}/tree/deep/sparse; do
                     cp $file {into}/sparse; test $(stat -c %b {into}/sparse) -lt 1000; cmp $file {into}/sparse
                 done
                 for copy in {into}/tree {into}/synced back; do diff -r --no-dereference tree $copy; done
                 rm -r {into}/synced/deep"
            ),
        );
        image.finish(mounted, tree);
    }
}

#[test]
fn tar_and_rsync_bring_attributes_and_access_lists_along() {
    if !has("tar") || !has("rsync") || !has("setfattr") || !has("setfacl") {
        return;
    }
    for kind in KINDS {
        let Some(image) = Image::new(kind, "96M") else { return };
        let mounted = image.mount();
        let outside = folder();
        let into = mounted.path().display();
        shell(
            outside.path(),
            &format!(
                "{SOME_FILES}
                 for n in 1 2 3 4; do setfattr -n user.colour -v green-$n tree/deep/f$n; done
                 for n in $(seq 40); do setfattr -n user.shared -v $(head -c 600 /dev/zero | tr '\\0' v) tree/deep/er/one-of-many-$n; done
                 setfattr -n trusted.seal -v 0x0001ff tree/deep
                 setfacl -m u:65534:r,g:100:rwx tree/deep/f5; setfacl -d -m g:100:rwx tree/empty
                 tar --xattrs --xattrs-include='*' --acls -cf - tree | tar --xattrs --xattrs-include='*' --acls -xpf - -C {into}
                 rsync -aHAX tree/ {into}/synced
                 rsync -aHAX {into}/tree/ back
                 for copy in {into}/tree {into}/synced back; do
                     test -z \"$(rsync -aHAXni --checksum --delete tree/ $copy/ | grep -v '^.d..t')\"
                 done
                 setfattr -x user.colour {into}/synced/deep/f1; setfacl -b {into}/synced/deep/f5
                 rm -r {into}/tree/deep/er"
            ),
        );
        image.finish(mounted, tree);
    }
}

#[test]
fn git_commits_clones_and_finds_everything_sound() {
    if !has("git") {
        return;
    }
    let Some(image) = Image::new("-t ext4", "128M") else { return };
    let mounted = image.mount();
    shell(
        mounted.path(),
        &format!(
            "git init -q work && cd work
             {SOME_FILES}
             rm tree/deep/sparse
             for round in 1 2 3; do
                 echo $round > round; git add -A; git commit -qm $round
             done
             git mv tree moved; git commit -qm moved
             git gc -q
             cd ..; git clone -q --no-local work clone; git clone -q work linked
             for copy in clone linked; do
                 cd $copy; git fsck --full --strict; test -z \"$(git status --porcelain)\"; cd ..
                 diff -r --no-dereference --exclude .git --exclude empty $copy work
             done"
        ),
    );
    image.finish(mounted, tree);
    // Again, read from the device.
    let mounted = image.mount();
    shell(
        mounted.path(),
        "cd clone; git fsck --full --strict; git checkout -q HEAD~2; git status --porcelain",
    );
    image.finish(mounted, tree);
}

#[test]
fn sqlite_keeps_its_integrity() {
    if !has("sqlite3") {
        return;
    }
    let Some(image) = Image::new("-t ext4", "128M") else { return };
    let mounted = image.mount();
    for mode in ["delete", "truncate", "persist", "wal"] {
        // A duplicate insertion is rolled back; two connections share the memory of `wal`.
        shell(
            mounted.path(),
            &format!(
                "exec 2>&1
                 sqlite3 {mode}.db 'pragma journal_mode={mode}; create table t (k integer primary key, v blob)' >&2
                 for round in 1 2 3 4; do
                     sqlite3 {mode}.db \"
                         begin; with recursive c(x) as (select 1 union all select x + 1 from c where x < 800)
                         insert or replace into t select abs(random()) % 3000, randomblob(abs(random()) % 900) from c; commit;
                         begin; delete from t where k % 3 = $((round % 3)); rollback;
                         begin; delete from t where k % 7 = $round; commit\"
                 done
                 sqlite3 {mode}.db \"select count(*), sum(length(v)) from t\" > before
                 sqlite3 {mode}.db vacuum
                 sqlite3 {mode}.db \"select count(*), sum(length(v)) from t\" | cmp - before
                 test \"$(sqlite3 {mode}.db 'pragma integrity_check')\" = ok"
            ),
        );
    }
    image.finish(mounted, tree);
    let mounted = image.mount();
    shell(
        mounted.path(),
        "for db in *.db; do test \"$(sqlite3 $db 'pragma integrity_check')\" = ok; done; test -f delete.db",
    );
    end(mounted);
    image.check();
}

/// The source of Lua, from the crate `lua-src`.
fn lua_source() -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let metadata = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--offline", "--manifest-path"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .output()
        .unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&metadata.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let package = packages.iter().find(|package| package["name"] == "lua-src").unwrap();
    let manifest = PathBuf::from(package["manifest_path"].as_str().unwrap());
    manifest.parent().unwrap().join("lua-5.4.9")
}

/// Objects depend on the headers that the compiler lists; the crate lacks the main program.
const MAKEFILE: &str = "\
objects := $(patsubst %.c,%.o,$(wildcard *.c))
lua: $(objects)
\tcc -o $@ $^ -lm
%.o: %.c
\tcc -O0 -MMD -DLUA_USE_POSIX -c -o $@ $<
-include $(wildcard *.d)
";
const MAIN: &str = "\
#include \"lua.h\"
#include \"lauxlib.h\"
#include \"lualib.h\"
int main(int count, char **words) {
    lua_State *state = luaL_newstate();
    luaL_openlibs(state);
    if (count != 2 || luaL_dofile(state, words[1])) { puts(lua_tostring(state, -1)); return 1; }
    return 0;
}
";
const PROGRAM: &str = "\
local file = assert(io.open('primes', 'w'))
for n = 2, 2000 do
    local prime = true
    for d = 2, math.floor(n ^ 0.5) do if n % d == 0 then prime = false break end end
    if prime then file:write(n, '\\n') end
end
file:close()
local count = 0
for _ in io.lines('primes') do count = count + 1 end
assert(count == 303)
";

#[test]
fn make_builds_lua_with_two_jobs_and_then_nothing_is_left_to_do() {
    if !has("make") || !has("cc") {
        return;
    }
    let Some(image) = Image::new("-t ext4", "128M") else { return };
    let mounted = image.mount();
    let source = mounted.path().join("lua");
    shell(mounted.path(), &format!("cp -r {} lua", lua_source().display()));
    for (name, content) in [("Makefile", MAKEFILE), ("main.c", MAIN), ("primes.lua", PROGRAM)] {
        fs::write(source.join(name), content).unwrap();
    }
    shell(
        &source,
        "make -s -j2; ./lua primes.lua
         make -q
         touch lopcodes.h; ! make -q; make -s -j2; ./lua primes.lua; make -q",
    );
    image.finish(mounted, tree);
    // A program is mapped from the image, and times are still in order.
    let mounted = image.mount();
    shell(
        &mounted.path().join("lua"),
        "make -q; rm primes; ./lua primes.lua; rm *.o; make -s -j2; ./lua primes.lua",
    );
    image.finish(mounted, tree);
}

#[test]
fn fio_verifies_what_it_wrote() {
    if !has("fio") {
        return;
    }
    let Some(image) = Image::new("-t ext4", "256M") else { return };
    let mounted = image.mount();
    let fio = |name: &str, options: &str| {
        let common = "--size=12M --verify=crc32c --verify_fatal=1 --verify_dump=0 --randseed=7 \
                      --group_reporting --minimal --thread";
        shell(mounted.path(), &format!("fio --name={name} {common} {options}"));
    };
    fio("random", "--rw=randwrite --bsrange=512-96k --ioengine=psync --numjobs=3");
    fio("mixed", "--rw=randrw --bsrange=512-96k --rwmixread=40 --ioengine=libaio --iodepth=16 --numjobs=2");
    fio("mapped", "--rw=randwrite --bs=4k --ioengine=mmap --numjobs=2 --fsync=200");
    fio("direct", "--rw=randwrite --bsrange=4k-64k --direct=1 --ioengine=libaio --iodepth=8 --numjobs=2");
    fio(
        "synced",
        "--rw=write --bsrange=512-96k --ioengine=psync --fdatasync=30 --numjobs=2 --fallocate=native",
    );
    image.finish(mounted, tree);
    // Written there, verified here, by way of the device.
    let mounted = image.mount();
    shell(
        mounted.path(),
        "fio --name=random --size=12M --bsrange=512-96k --verify=crc32c --verify_fatal=1 --randseed=7 --rw=randwrite \
             --ioengine=psync --numjobs=3 --thread --verify_only --minimal",
    );
    end(mounted);
    image.check();
}

#[test]
fn dbench_runs_and_cleans_up() {
    const LOADFILE: &str = "/usr/share/dbench/client.txt";
    if !has("dbench") || !fs::exists(LOADFILE).unwrap() {
        return;
    }
    let Some(image) = Image::new("-t ext4", "512M") else { return };
    let mounted = image.mount();
    let said = shell(mounted.path(), &format!("dbench -c {LOADFILE} -t 2 -D . 4"));
    assert!(said.contains("Throughput "), "{said}");
    image.finish(mounted, tree);
}
