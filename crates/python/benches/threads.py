"""Four threads of one process on one image beside one thread: ``python threads.py [ROUNDS]``.

The image is that of ``rivals.py``, 121,000 names. A task has four equal parts, which one thread does
one after the other, or four threads at a time; both in turn, on the same open image. Prints a row a
task: milliseconds of each (median, lowest, highest), and how many times faster four are. Two cores
allow 2.
"""

import os
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow
from rivals import make

import dentree

THREADS = 4


def directories(part):
    return [f"/d{number}" for number in range(part, 400, THREADS)]


def rows(image, part):
    """All columns of the inodes."""
    return sum(batch.num_rows for path in directories(part) for batch in stream(image, path, None))


def digests(image, part):
    columns = ["path", "sha256"]
    return sum(batch.num_rows for path in directories(part) for batch in stream(image, path, columns))


def search(image, part):
    """Names that an expression leaves, by inode."""
    where = {"type": "f", "size": "+100c", "mtime": "-1"}
    return sum(batch.num_rows for path in directories(part) for batch in stream(image, path, ["path"], where))


def stream(image, path, columns, where=None):
    return pyarrow.RecordBatchReader.from_stream(image.table(path, columns=columns, where=where))


def contents(image, part):
    paths = [f"{path}/f{name}" for path in directories(part) for name in range(300)]
    return sum(map(len, image.read_many(paths)))


def stats(image, part):
    """One object of Python's for each file, which the interpreter's lock makes one by one."""
    paths = [f"{path}/f{name}" for path in directories(part) for name in range(300)]
    return sum(stat.st_size for stat in image.stat_many(paths))


def timed(does):
    begun = time.perf_counter()
    result = does()
    return time.perf_counter() - begun, result


def main(rounds):
    with tempfile.TemporaryDirectory() as place:
        image, parts = dentree.Image(make(Path(place))), range(THREADS)
        with ThreadPoolExecutor(THREADS) as pool:
            for task in (rows, digests, search, contents, stats):
                one, four = [], []
                for _ in range(rounds + 1):
                    took, expected = timed(lambda: [task(image, part) for part in parts])
                    one.append(took * 1000)
                    took, found = timed(lambda: list(pool.map(lambda part: task(image, part), parts)))
                    four.append(took * 1000)
                    assert found == expected
                # The first round fills caches.
                one, four = sorted(one[1:]), sorted(four[1:])
                figures = [f"{statistics.median(times):.0f} [{times[0]:.0f}..{times[-1]:.0f}] ms" for times in (one, four)]
                ratio = statistics.median(one) / statistics.median(four)
                print(f"{task.__name__:9} one {figures[0]}  four {figures[1]}  x{ratio:.2f}", flush=True)


if __name__ == "__main__":
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
