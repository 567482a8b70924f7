"""fsspec over images: chained URLs, what readers of other projects do, and changes."""

import pickle
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import duckdb
import fsspec
import pandas
import pyarrow.dataset
import pytest

from dentree.fsspec import Ext4FileSystem


@pytest.fixture
def files(disk):
    return fsspec.filesystem("ext4", fo=str(disk))


def test_a_chained_url_opens_a_file(disk):
    with fsspec.open(f"ext4://etc/hosts::{disk}", "rt") as file:
        assert file.read() == "127.0.0.1 localhost\n"
    with fsspec.open(f"ext4://etc/hosts::simplecache::file://{disk}") as file:
        assert file.read() == b"127.0.0.1 localhost\n"
    assert len(fsspec.open_files(f"ext4://etc/conf.d/*.conf::{disk}")) == 2


def test_tables_of_other_projects_are_read(disk, files):
    frame = pandas.read_csv(f"ext4://var/log/x.csv::{disk}")
    assert frame["square"].iloc[-1] == 1999 * 1999
    dataset = pyarrow.dataset.dataset("/var/log/x.csv", format="csv", filesystem=files)
    assert dataset.count_rows() == 2000
    duckdb.register_filesystem(files)
    assert duckdb.sql("select count(*), max(square) from 'ext4:///var/log/x.csv'").fetchall() == [(2000, 1999 * 1999)]
    duckdb.unregister_filesystem("ext4")


def test_listings_and_contents(files, tree):
    assert files.ls("/etc", detail=False) == ["/etc/again", "/etc/conf.d", "/etc/hosts"]
    [info] = [info for info in files.ls("/") if info["name"] == "/link"]
    assert (info["type"], info["islink"], info["size"]) == ("file", True, 20)
    assert files.info("dangling")["type"] == "link"
    assert files.find("/etc") == ["/etc/again", "/etc/conf.d/.hidden", "/etc/conf.d/a.conf", "/etc/conf.d/b.conf", "/etc/hosts"]
    assert files.du("/etc") == 20 + 20 + 6 + 6
    assert files.glob("/etc/**/*.conf") == ["/etc/conf.d/a.conf", "/etc/conf.d/b.conf"]
    assert files.cat(["/etc/hosts", "/link"]) == {"/etc/hosts": b"127.0.0.1 localhost\n", "/link": b"127.0.0.1 localhost\n"}
    assert files.cat("/etc/conf.d/*.conf") == {"/etc/conf.d/a.conf": b"a = 1\n", "/etc/conf.d/b.conf": b"b = 2\n"}
    assert files.cat_file("/large.bin", 5, -5) == (tree / "large.bin").read_bytes()[5:-5]
    assert files.isdir("/etc") and files.isfile("/etc/hosts") and not files.exists("/nothing")
    with pytest.raises(FileNotFoundError):
        files.info("/nothing")


def test_a_file_system_goes_to_workers_by_its_image(files):
    again = pickle.loads(pickle.dumps(files))
    assert again.cat("/etc/hosts") == files.cat("/etc/hosts")


def test_an_image_of_a_server_is_read(disk):
    handler = partial(SimpleHTTPRequestHandler, directory=disk.parent)
    handler.log_message = lambda *_: None
    # It knows no ranges: a file object of fsspec has to fetch all.
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"simplecache::http://127.0.0.1:{server.server_port}/disk.img"
        try:
            assert fsspec.open(f"ext4://etc/hosts::{url}").open().read() == b"127.0.0.1 localhost\n"
        finally:
            server.shutdown()


def test_changes_go_through_fsspec(disk, tmp_path):
    copy = tmp_path / "copy.img"
    copy.write_bytes(disk.read_bytes())
    files = Ext4FileSystem(str(copy), writable=True, skip_instance_cache=True)
    files.makedirs("/new/deep")
    files.pipe("/new/deep/one", b"1")
    files.copy("/new/deep/one", "/new/deep/two")
    files.mv("/new/deep/two", "/new/three")
    files.cp("/etc", "/new/etc", recursive=True)
    (tmp_path / "local").mkdir()
    (tmp_path / "local/file").write_text("from here")
    files.put(str(tmp_path / "local"), "/new/put", recursive=True)
    files.get("/new/put/file", str(tmp_path / "back"))
    assert (tmp_path / "back").read_text() == "from here"
    with files.open("/new/three", "ab") as file:
        file.write(b"2")
    assert files.cat("/new/three") == b"12"
    assert files.cat("/new/etc/hosts") == b"127.0.0.1 localhost\n"
    files.rm("/new/etc", recursive=True)
    assert not files.exists("/new/etc")
    files.image.close()
    subprocess.run(["/sbin/e2fsck", "-fn", copy], check=True, stdout=subprocess.DEVNULL)


def test_the_name_is_registered():
    said = subprocess.run([sys.executable, "-c", "import fsspec; print(fsspec.get_filesystem_class('ext4'))"], check=True, capture_output=True, text=True)
    assert "Ext4FileSystem" in said.stdout
