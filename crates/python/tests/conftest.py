"""Images that mke2fs makes of a tree; without mke2fs the tests skip."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import dentree


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--images", type=int, default=20, help="how many images the fleet on an S3 server has")


def make_image(tree: Path, file: Path, size: str = "32M", *options: str) -> Path:
    mke2fs = shutil.which("mke2fs") or "/sbin/mke2fs"
    if not os.path.exists(mke2fs):
        pytest.skip("needs mke2fs")
    subprocess.run([mke2fs, "-q", "-F", "-t", "ext4", *options, "-d", tree, file, size], check=True)
    return file


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = tmp_path_factory.mktemp("tree")
    (tree / "etc/conf.d").mkdir(parents=True)
    (tree / "etc/hosts").write_text("127.0.0.1 localhost\n")
    (tree / "etc/conf.d/a.conf").write_text("a = 1\n")
    (tree / "etc/conf.d/b.conf").write_text("b = 2\n")
    (tree / "etc/conf.d/.hidden").write_text("")
    (tree / "var/log").mkdir(parents=True)
    (tree / "var/log/x.csv").write_text("n,square\n" + "".join(f"{n},{n * n}\n" for n in range(2000)))
    (tree / "large.bin").write_bytes(bytes(range(256)) * 16384)
    os.symlink("etc/hosts", tree / "link")
    os.symlink("/etc", tree / "absolute")
    os.symlink("nothing", tree / "dangling")
    os.link(tree / "etc/hosts", tree / "etc/again")
    os.makedirs(os.fsencode(tree) + b"/odd")
    with open(os.fsencode(tree) + b"/odd/caf\xe9", "wb") as file:
        file.write(b"latin")
    os.chmod(tree / "etc/hosts", 0o640)
    os.utime(tree / "etc/hosts", ns=(1_000_000_000_123_456_789, 1_100_000_000_987_654_321))
    return tree


@pytest.fixture(scope="session")
def disk(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_image(tree, tmp_path_factory.mktemp("disk") / "disk.img")


@pytest.fixture
def image(disk: Path):
    with dentree.Image(disk) as image:
        yield image


@pytest.fixture
def writable(disk: Path, tmp_path: Path):
    copy = tmp_path / "copy.img"
    shutil.copy(disk, copy)
    with dentree.Image(copy, writable=True) as image:
        yield image
    subprocess.run(["/sbin/e2fsck", "-fn", copy], check=True, stdout=subprocess.DEVNULL)
