#!/bin/sh
# Makes demo.img.zst, the image that `dentree demo` unpacks: a tree such as a small system has, with made-up content.
# Needs root (it fills the image through the kernel's own ext4), mke2fs, python3 and zstd.
set -eu

here="$(cd "$(dirname "$0")" && pwd)"
work="$(mktemp -d)"
trap 'umount "$work/mnt" 2>/dev/null || true; rm -rf "$work"' EXIT

truncate -s 24M "$work/demo.img"
mke2fs -q -t ext4 -b 1024 -I 256 -N 6000 -J size=1 -L dentree-demo -U 3f6f2d6a-5c1e-4c59-9a0e-1d2f3a4b5c6d \
    -E hash_seed=0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9,lazy_itable_init=0,lazy_journal_init=0 "$work/demo.img"
mkdir "$work/mnt"
mount -o loop,noatime "$work/demo.img" "$work/mnt"
python3 - "$work/mnt" <<'PYTHON'
import os, random, sys

root = sys.argv[1]
pick = random.Random(2002)
words = "core net disk index cache queue frame token table graph signal buffer socket parser timer shell".split()
clock = 1_700_000_000

def settle(path):
    """Times that do not depend on when this runs."""
    global clock
    clock += 1
    os.utime(path, ns=(clock * 10**9, clock * 10**9 + 123_456_789), follow_symlinks=False)

def directory(path):
    os.makedirs(os.path.join(root, path), exist_ok=True)

def file(path, content):
    full = os.path.join(root, path)
    with open(full, "wb") as out:
        out.write(content)
    settle(full)

def text(lines):
    return "".join(" ".join(pick.choices(words, k=6)) + "\n" for _ in range(lines)).encode()

for path in ("bin", "boot", "dev", "home/ada", "home/linus", "tmp", "var/log"):
    directory(path)
file("release", b"dentree demo 1\n")
directory("etc")
file("etc/hosts", b"127.0.0.1 localhost\n")
file("etc/passwd", b"root:x:0:0::/root:/bin/sh\nada:x:1000:1000::/home/ada:/bin/sh\n")
for word in words:
    directory(f"etc/{word}.d")
    for n in range(12):
        file(f"etc/{word}.d/{n:02}-{pick.choice(words)}.conf", text(1))
for package in (f"{a}-{b}" for a in words for b in words[:6]):
    directory(f"usr/share/doc/{package}")
    file(f"usr/share/doc/{package}/copyright", b"MIT OR Apache-2.0\n")
    file(f"usr/share/doc/{package}/changelog", text(1))
for word in words:
    for part in words[:9]:
        directory(f"usr/lib/{word}/{part}/src")
        for n in range(10):
            file(f"usr/lib/{word}/{part}/src/{pick.choice(words)}_{n}.rs", text(1))
directory("var/lib/spool")
for n in range(1500):
    file(f"var/lib/spool/message-{n:05}", b"")
for n in range(8):
    os.symlink(f"../usr/lib/{words[n]}", os.path.join(root, f"bin/{words[n]}"))
os.link(os.path.join(root, "etc/hosts"), os.path.join(root, "home/ada/hosts"))
os.setxattr(os.path.join(root, "etc/hosts"), "user.comment", b"every image has one")
with open(os.path.join(root, "var/lib/disk.raw"), "wb") as sparse:
    sparse.truncate(1 << 40)
    sparse.seek(1 << 39)
    sparse.write(b"half way\n")
settle(os.path.join(root, "var/lib/disk.raw"))
for path, _, _ in os.walk(root, topdown=False):
    settle(path)
PYTHON
umount "$work/mnt"
e2fsck -fn "$work/demo.img" >/dev/null
zstd -q --ultra -22 -f "$work/demo.img" -o "$here/demo.img.zst"
ls -l "$here/demo.img.zst"
