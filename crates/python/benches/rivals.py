"""dentree beside dissect.extfs and pytsk3, in one run: ``python rivals.py [ROUNDS]``.

Makes an image of 121,000 names with mke2fs, and does the same work with each. Each task runs in a
process of its own, tools by turns. Prints a row a task: milliseconds of each tool's median run, its
lowest and highest, its peak memory, and how many times dentree's time the others take.
"""

import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TOOLS = ["dentree", "dissect", "pytsk3"]
TASKS = ["names", "inodes", "hash", "known", "one"]


def known(count=10_000):
    chosen = random.Random(7)
    return [f"/d{chosen.randrange(400)}/f{chosen.randrange(300)}" for _ in range(count)]


def dentree_does(task, file):
    import hashlib

    import dentree

    image = dentree.Image(file)
    if task == "names":
        return sum(len(batch) for batch in image.tree("/"))
    if task == "inodes":
        return sum(row[3].st_size for batch in image.tree("/", stat=True) for row in batch if row[2] == "f")
    if task == "hash":
        paths = [row[0] for batch in image.tree("/") for row in batch if row[2] == "f"]
        total = hashlib.sha256()
        for content in image.read_many(sorted(paths)):
            total.update(hashlib.sha256(content).digest())
        return total.hexdigest()
    if task == "known":
        return sum(stat.st_size for stat in image.stat_many(known()))
    return image.stat("/wide/n19999").st_size


def dissect_does(task, file):
    import hashlib

    from dissect.extfs import ExtFS

    fs = ExtFS(open(file, "rb"))

    def below(inode, path):
        for name, child in inode.listdir().items():
            if name not in (".", ".."):
                yield f"{path}/{name}", child
                if child.filetype == 0x4000:
                    yield from below(child, f"{path}/{name}")

    def is_file(inode):
        return inode.filetype == 0x8000

    if task == "names":
        return sum(1 for _ in below(fs.root, ""))
    if task == "inodes":
        return sum(inode.size for _, inode in below(fs.root, "") if inode.inode and is_file(inode))
    if task == "hash":
        found = sorted((path, inode) for path, inode in below(fs.root, "") if is_file(inode))
        total = hashlib.sha256()
        for _, inode in found:
            total.update(hashlib.sha256(inode.open().read()).digest())
        return total.hexdigest()
    if task == "known":
        return sum(fs.get(path).size for path in known())
    return fs.get("/wide/n19999").size


def pytsk3_does(task, file):
    import hashlib

    import pytsk3

    fs = pytsk3.FS_Info(pytsk3.Img_Info(file))

    def below(directory, path):
        for entry in directory:
            name = entry.info.name.name
            if name in (b".", b"..") or entry.info.meta is None or path == b"" and name == b"$OrphanFiles":
                continue
            yield path + b"/" + name, entry
            if entry.info.meta.type == pytsk3.TSK_FS_META_TYPE_DIR:
                yield from below(entry.as_directory(), path + b"/" + name)

    def is_file(entry):
        return entry.info.meta.type == pytsk3.TSK_FS_META_TYPE_REG

    if task == "names":
        return sum(1 for _ in below(fs.open_dir("/"), b""))
    if task == "inodes":
        return sum(entry.info.meta.size for _, entry in below(fs.open_dir("/"), b"") if is_file(entry))
    if task == "hash":
        found = [(path, entry.info.meta.addr) for path, entry in below(fs.open_dir("/"), b"") if is_file(entry)]
        total = hashlib.sha256()
        for _, address in sorted(found):
            entry = fs.open_meta(address)
            total.update(hashlib.sha256(entry.read_random(0, entry.info.meta.size)).digest())
        return total.hexdigest()
    if task == "known":
        return sum(fs.open(path).info.meta.size for path in known())
    return fs.open("/wide/n19999").info.meta.size


def child(tool, task, file):
    does = {"dentree": dentree_does, "dissect": dissect_does, "pytsk3": pytsk3_does}[tool]
    begun = time.perf_counter()
    result = does(task, file)
    took = time.perf_counter() - begun
    print(json.dumps([result, took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]))


def make(place):
    tree = place / "tree"
    for directory in range(400):
        (tree / f"d{directory}").mkdir(parents=True)
        for name in range(300):
            (tree / f"d{directory}/f{name}").write_bytes(b"%d" % (directory * name) * (name % 50))
    (tree / "wide").mkdir()
    for name in range(20_000):
        (tree / f"wide/n{name}").touch()
    image = place / "disk.img"
    mke2fs = shutil.which("mke2fs") or "/sbin/mke2fs"
    subprocess.run([mke2fs, "-q", "-F", "-t", "ext4", "-N", "200000", "-d", tree, image, "2G"], check=True)
    subprocess.run(["/sbin/e2fsck", "-fyD", image], stdout=subprocess.DEVNULL)
    return image


def main(rounds):
    with tempfile.TemporaryDirectory() as place:
        image = make(Path(place))
        for task in TASKS:
            runs = {tool: [] for tool in TOOLS}
            for number in range(rounds):
                for tool in TOOLS[number % 3 :] + TOOLS[: number % 3]:
                    said = subprocess.run([sys.executable, __file__, tool, task, image], capture_output=True, text=True)
                    if said.returncode == 0:
                        runs[tool].append(json.loads(said.stdout))
                    elif number == 0:
                        print(f"{tool} cannot do {task}: {said.stderr.strip().splitlines()[-1]}")
            ours = statistics.median(took for _, took, _ in runs["dentree"])
            row = [f"{task:7}"]
            for tool in filter(runs.get, TOOLS):
                times = sorted(took * 1000 for _, took, _ in runs[tool])
                memory = max(peak for _, _, peak in runs[tool]) / 1024
                same = "" if runs[tool][0][0] == runs["dentree"][0][0] else " (result differs)"
                middle = statistics.median(times)
                row.append(f"{tool} {middle:.1f} [{times[0]:.1f}..{times[-1]:.1f}] ms {memory:.0f} MiB x{middle / ours / 1000:.1f}{same}")
            print("  ".join(row), flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        child(*sys.argv[1:])
    else:
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        main(int(sys.argv[1]) if len(sys.argv) == 2 else 5)
