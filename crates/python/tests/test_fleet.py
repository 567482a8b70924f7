"""The fleet example on Dask: rows equal those of single runs, whatever happens to a worker."""

import hashlib
import os
import shutil
import signal
from pathlib import Path

import duckdb
import fleet
import pyarrow
import pytest

import dentree


@pytest.fixture(scope="module")
def images(disk, tmp_path_factory):
    place = tmp_path_factory.mktemp("fleet")
    images = []
    for number in range(12):
        images.append(str(place / f"{number}.img"))
        shutil.copy(disk, images[-1])
        with dentree.Image(images[-1], writable=True) as image:
            image.path(f"/only-{number}").write_text(f"{number}")
    Path(images[3]).write_bytes(b"no image" * 1000)
    with open(images[5], "r+b") as damaged:
        # The inode tables of the first group, past its first inodes.
        damaged.seek(2 << 20)
        damaged.write(b"\xff" * 4096)
    images.append(str(place / "missing.img"))
    return images


def check(out, images):
    rows = duckdb.sql(f"select image, count(*), count(distinct path) from '{out}/rows/*.parquet' group by image").fetchall()
    found = {image: (count, paths) for image, count, paths in rows}
    for image in images:
        try:
            with dentree.Image(image) as opened:
                count = pyarrow.table(opened.table(columns=["path"])).num_rows
        except OSError:
            assert image not in found
            continue
        assert found[image] == (count, count)
    unreadable = duckdb.sql(f"select distinct image from '{out}/errors/*.parquet' where path is null").fetchall()
    assert {image for (image,) in unreadable} >= {images[3], images[-1]}
    assert not list(Path(out).glob("*/*.part"))
    digest = hashlib.sha256(b"4").hexdigest()
    holds = duckdb.sql(f"select image, path from '{out}/rows/*.parquet' where sha256 = '{digest}'").fetchall()
    assert holds == [(images[4], "/only-4")]


def test_rows_of_a_fleet_are_those_of_single_runs(images, tmp_path):
    from distributed import Client, LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        results = list(fleet.by_dask(images, str(tmp_path / "out"), client))
        assert sorted(image for image, _, _ in results) == sorted(images)
        check(tmp_path / "out", images)
        # Again, while a worker is killed: nothing is lost, nothing is twice.
        again = fleet.by_dask(images, str(tmp_path / "out"), client)
        next(again)
        os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
        assert len(list(again)) == len(images) - 1
        check(tmp_path / "out", images)


def test_ray_makes_the_same_data_set(images, tmp_path):
    ray = pytest.importorskip("ray", reason="needs ray, which is large")
    try:
        assert len(list(fleet.by_ray(images, str(tmp_path / "out")))) == len(images)
    finally:
        ray.shutdown()
    check(tmp_path / "out", images)
