"""The fleet example on an S3 server that goes down, with an object that is replaced: ``--images 200``.

Images are versions of real trees: Python's own library in parts. Some are damaged, one is no image.
"""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import duckdb
import fleet
import pyarrow
import pytest
from conftest import make_image

import dentree

VERSIONS = 20
PARTS = ["asyncio", "concurrent", "email", "http", "importlib", "json", "logging", "multiprocessing", "unittest", "xml"]


class Server:
    """An S3 server of the directories of ``root``, in a process of its own."""

    def __init__(self, root):
        self.root = root
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.start()

    def start(self):
        settings = {"S3_ROOT": str(self.root), "S3_PORT": str(self.port)}
        words = [os.environ["S3_SERVER"], "--ignored", "--exact", "serves_s3"]
        self.process = subprocess.Popen(words, env={**os.environ, **settings}, stdout=subprocess.DEVNULL)
        while True:
            assert self.process.poll() is None, "the server ended"
            try:
                return socket.create_connection(("127.0.0.1", self.port)).close()
            except ConnectionRefusedError:
                time.sleep(0.01)

    def stop(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@pytest.fixture(scope="module")
def bucket(request, tmp_path_factory):
    """The directory of the bucket, and the keys of its images."""
    if not os.path.exists(os.environ.get("S3_SERVER", "")):
        pytest.skip("needs the S3 server that cargo test builds")
    root = tmp_path_factory.mktemp("s3")
    (root / "fleet").mkdir()
    count, library = request.config.getoption("images"), Path(json.__file__).parent.parent
    chance, current = random.Random(8), root / "current.img"
    for number in range(count):
        version = number % VERSIONS
        if version == 0:
            tree = tmp_path_factory.mktemp("tree")
            for part in chance.sample(PARTS, 4):
                shutil.copytree(library / part, tree / "usr/lib" / part, ignore=shutil.ignore_patterns("__pycache__"))
            (tree / "etc").mkdir()
            (tree / "etc/shadow").write_text("root:*:1::::::\n")
            current.unlink(missing_ok=True)
            make_image(tree, current, "24M")
        else:
            with dentree.Image(current, writable=True) as opened:
                opened.path(f"/etc/version-{version}").write_text(f"{number}\n")
                if version % 5 == 0:
                    opened.path("/etc/shadow").write_text(f"root:{number}:1::::::\n")
        image = root / f"fleet/{number:03}.img"
        subprocess.run(["cp", "--sparse=always", current, image], check=True)
        if version in (7, 13):
            with open(image, "r+b") as damaged:
                damaged.seek(chance.randrange(300, 2000) * 1024)
                damaged.write(os.urandom(2048))
    (root / "fleet/none.img").write_bytes(b"no image" * 1000)
    return root


@pytest.fixture(scope="module")
def server(bucket):
    server = Server(bucket)
    settings = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.port}", "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        yield server
    server.stop()


def single_runs(images):
    """What each image has, read from its file, and the images that have problems."""
    rows, problems = {}, set()
    for url, file in images.items():
        try:
            with dentree.Image(file) as image:
                table = image.table(columns=["path", "inode", "size", "sha256"])
                rows[url] = sorted(tuple(row.values()) for row in pyarrow.table(table).to_pylist())
                if table.problems:
                    problems.add(url)
        except OSError:
            problems.add(url)
    return rows, problems


def data_set(out):
    found = duckdb.sql(f"select image, path, inode, size, sha256 from '{out}/rows/*.parquet' order by all").fetchall()
    rows = {}
    for image, *row in found:
        rows.setdefault(image, []).append(tuple(row))
    problems = {image for (image,) in duckdb.sql(f"select distinct image from '{out}/errors/*.parquet'").fetchall()}
    return {image: sorted(of) for image, of in rows.items()}, problems


def test_a_fleet_on_a_server_that_goes_down_is_complete(bucket, server, tmp_path, capsys):
    from distributed import Client, LocalCluster

    images = {f"s3://fleet/{file.name}": file for file in sorted((bucket / "fleet").glob("*.img"))}
    # The last one that is an image.
    replaced = list(images)[-2]
    times = {}
    for workers in (1, 2):
        out = tmp_path / f"out-{workers}"
        with LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
            client.run(os.getpid)
            begun = time.monotonic()
            results = fleet.by_dask(list(images), str(out), client)
            done = [next(results)]
            if workers == 2:
                server.stop()
                new = bucket / "new"
                shutil.copy(images[replaced], new)
                with dentree.Image(new, writable=True) as image:
                    image.path("/etc/replaced").write_text("new\n")
                os.replace(new, images[replaced])
                server.start()
            done += results
            times[workers] = time.monotonic() - begun
        assert sorted(image for image, _, _ in done) == sorted(images), "each image once"
        rows, problems = data_set(out)
        expected_rows, expected_problems = single_runs(images)
        assert rows == expected_rows and problems == expected_problems
        assert "s3://fleet/none.img" in problems and not list(out.glob("*/*.part"))
    assert any(path == "/etc/replaced" for path, *_ in rows[replaced])
    with capsys.disabled():
        count = sum(map(len, rows.values()))
        print(f"\n{len(images)} images, {count} rows: one worker {times[1]:.1f} s, two {times[2]:.1f} s with a restart")


def test_an_object_that_is_replaced_while_it_is_read_is_read_again(bucket, server, tmp_path, monkeypatch):
    url, file, new, out = "s3://fleet/000.img", bucket / "fleet/000.img", bucket / "new", str(tmp_path / "out")
    shutil.copy(file, new)
    with dentree.Image(new, writable=True) as image:
        image.path("/etc/newer").write_text("newer\n")

    def open_and_replace(url):
        image = Image(url)
        os.replace(new, file)
        return image

    Image = dentree.Image
    with monkeypatch.context() as patch:
        patch.setattr(fleet.dentree, "Image", open_and_replace)
        with pytest.raises(RuntimeError, match="changed while it was read"):
            fleet.scan(url, out)
    assert not list(Path(out).glob("rows/*"))
    fleet.scan(url, out)
    rows, _ = data_set(out)
    assert any(path == "/etc/newer" for path, *_ in rows[url])
