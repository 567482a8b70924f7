"""One Parquet data set of many images, by the engine that is there: Dask or Ray.

    python fleet.py OUT IMAGE...             # paths or addresses; Dask on this machine
    python fleet.py --ray OUT IMAGE...

``OUT/rows`` gets one file an image, with a row a name; ``OUT/errors`` what could not be read. A file
is there whole or not at all, and is named after its image: what is run again replaces it. Engines
retry what fails; there is no scheduler here.
"""

import argparse
import hashlib
import sys

import fsspec
import pyarrow
import pyarrow.parquet

import dentree

COLUMNS = ["image", "path", "name", "type", "inode", "mode", "uid", "gid", "size", "nlink", "mtime", "ctime", "target"]
ERRORS = pyarrow.schema([("image", "string"), ("path", "string"), ("reason", "string")])

REPLACED = "changed while it was read"


def scan(image, out, digests=True):
    """Writes the files of one image, and returns its name, rows and problems."""
    name = hashlib.sha256(image.encode()).hexdigest()[:16] + ".parquet"
    rows, problems = 0, []
    try:
        with dentree.Image(image) as opened:
            table = opened.table(columns=COLUMNS + ["sha256"] * digests)
            reader = pyarrow.RecordBatchReader.from_stream(table)
            with Whole(f"{out}/rows/{name}") as file, pyarrow.parquet.ParquetWriter(file, reader.schema) as writer:
                for batch in reader:
                    writer.write_batch(batch)
                    rows += batch.num_rows
                # Rows of the old image and of the new one are no data set: the engine repeats this.
                if any(REPLACED in reason for _, reason in table.problems):
                    raise RuntimeError(f"{image}: {REPLACED}")
            problems = [(image, path, reason) for path, reason in table.problems]
    except OSError as error:
        if REPLACED in str(error):
            raise RuntimeError(f"{image}: {REPLACED}") from error
        problems.append((image, None, str(error)))
    table = pyarrow.Table.from_pylist([dict(zip(ERRORS.names, problem)) for problem in problems], ERRORS)
    with Whole(f"{out}/errors/{name}") as file:
        pyarrow.parquet.write_table(table, file)
    return image, rows, len(problems)


class Whole:
    """A file of any of fsspec's file systems that gets its name when it is complete."""

    def __init__(self, url):
        self.fs, self.path = fsspec.url_to_fs(url)
        self.fs.makedirs(self.path.rpartition("/")[0], exist_ok=True)

    def __enter__(self):
        self.file = self.fs.open(f"{self.path}.part", "wb")
        return self.file

    def __exit__(self, kind, *_):
        self.file.close()
        if kind is None:
            self.fs.mv(f"{self.path}.part", self.path)
        else:
            self.fs.rm(f"{self.path}.part")


def by_dask(images, out, client=None):
    """Results as they come, from a client of Dask's or one for this machine."""
    from distributed import Client, as_completed

    client = client or Client()
    for done in as_completed(client.map(scan, images, out=out, retries=3, pure=False)):
        yield done.result()


def by_ray(images, out):
    """Results as they come, from the cluster that Ray finds, or one for this machine."""
    import ray

    left = [ray.remote(max_retries=3)(scan).remote(image, out) for image in images]
    while left:
        [done], left = ray.wait(left)
        yield ray.get(done)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ray", action="store_true", help="run on Ray, not on Dask")
    parser.add_argument("out")
    parser.add_argument("images", nargs="+")
    args = parser.parse_args()
    run = by_ray if args.ray else by_dask
    failed = 0
    for number, (image, rows, problems) in enumerate(run(args.images, args.out), 1):
        failed += problems > 0
        print(f"{number} of {len(args.images)}: {image}: {rows} rows, {problems} problems", file=sys.stderr)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
