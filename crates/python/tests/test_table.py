"""Tables of an image by Arrow's PyCapsule interface."""

import hashlib
import os

import duckdb
import pyarrow
import pytest
from conftest import make_image


def test_a_table_has_a_row_for_each_name(image, tree):
    table = pyarrow.table(image.table())
    assert table.schema.metadata[b"dentree.schema"] == b"2"
    rows = {row["path"]: row for row in table.to_pylist()}
    names = [os.path.join(top, name) for top, dirs, files in os.walk(os.fsencode(tree)) for name in dirs + files]
    assert len(rows) == len(names) + 1  # lost+found
    for name in names:
        path = b"/" + os.path.relpath(name, os.fsencode(tree))
        row, stat = rows[path.decode(errors="replace")], os.lstat(name)
        assert (row["mode"], row["uid"], row["nlink"]) == (stat.st_mode, stat.st_uid, stat.st_nlink)
        if row["type"] != "d":
            assert row["size"] == stat.st_size
        assert row["target"] == (os.readlink(name).decode() if row["type"] == "l" else None)
        assert row["path_bytes"] == (path if b"\xe9" in path else None)
    assert rows["/etc/hosts"]["mtime"].year == 2004 and rows["/etc/hosts"]["image"] == image.name


def test_columns_are_chosen_and_digests_are_those_of_the_contents(image, tree):
    table = pyarrow.table(image.table("/etc", columns=["sha256", "path"]))
    assert table.column_names == ["sha256", "path"]
    digests = dict(zip(table["path"].to_pylist(), table["sha256"].to_pylist()))
    assert digests["/etc/hosts"] == hashlib.sha256((tree / "etc/hosts").read_bytes()).hexdigest()
    assert digests["/etc/conf.d"] is None and digests["/etc/again"] == digests["/etc/hosts"]
    with pytest.raises(ValueError, match="no column \"nothing\""):
        image.table(columns=["nothing"])
    with pytest.raises(NotADirectoryError):
        pyarrow.table(image.table("/etc/hosts"))


def test_attributes_are_a_map(writable):
    writable.set_xattr("/etc/hosts", "user.a", b"1")
    writable.set_xattr("/etc/hosts", "user.b", b"\xff")
    table = pyarrow.table(writable.table("/etc", columns=["name", "xattrs"])).to_pylist()
    found = {row["name"]: row["xattrs"] for row in table}
    assert found["hosts"] == [("user.a", b"1"), ("user.b", b"\xff")] and found["conf.d"] == []


def test_batches_are_small_in_rows_and_in_bytes(tmp_path):
    import dentree

    (tmp_path / "none").mkdir()
    disk = make_image(tmp_path / "none", tmp_path / "disk.img", "96M", "-N", "30000", "-O", "ea_inode")
    with dentree.Image(disk, writable=True) as image:
        for name in ("wide", "big"):
            image.mkdir(f"/{name}")
        for number in range(20_000):
            image.open(f"/wide/{number}", create=True)
        for number in range(600):
            image.open(f"/big/{number}", create=True)
            image.set_xattr(f"/big/{number}", "user.large", os.urandom(60_000))
        rows = pyarrow.RecordBatchReader.from_stream(image.table(columns=["path"]))
        sizes = [batch.num_rows for batch in rows]
        assert sum(sizes) == 20_603 and max(sizes) == 16 << 10
        large = pyarrow.RecordBatchReader.from_stream(image.table("/big", columns=["xattrs"]))
        bytes_of = [batch.nbytes for batch in large]
        assert sum(bytes_of) >= 600 * 60_000 and max(bytes_of) < 18 << 20


def test_extents_say_where_in_the_image_the_content_is(tree, tmp_path):
    import dentree

    sparse = tmp_path / "sparse"
    sparse.mkdir()
    with open(sparse / "holes", "wb") as file:
        for place in (0, 1 << 20, 3 << 20):
            file.seek(place)
            file.write(os.urandom(5000))
    (sparse / "whole").write_bytes(os.urandom(300_001))
    (sparse / "short").write_bytes(b"in the inode")
    os.symlink("short", sparse / "link")
    for options in (["-O", "inline_data"], ["-O", "^extents,^64bit", "-b", "1024"]):
        disk = make_image(sparse, tmp_path / "disk.img", "16M", *options)
        content = disk.read_bytes()
        with dentree.Image(disk) as image:
            rows = pyarrow.table(image.table(columns=["name", "type", "size", "extents"])).to_pylist()
            assert {"holes", "whole", "short", "link", "lost+found"} == {row["name"] for row in rows}
            for row in rows:
                if row["type"] != "f":
                    continue
                expected = image.read_bytes("/" + row["name"])
                found = bytearray(len(expected))
                for run in row["extents"]:
                    place = run["logical"]
                    found[place : place + run["length"]] = content[run["physical"] :][: run["length"]]
                assert found[: row["size"]] == expected
                assert [bool(run["flags"] & 1) for run in row["extents"]] == [False] * (len(row["extents"]) - 1) + [True]
            [link] = [row for row in rows if row["name"] == "link"]
            assert link["extents"] == []
        disk.unlink()


def test_other_engines_read_it_as_a_stream(image):
    found = pyarrow.RecordBatchReader.from_stream(image.table())
    assert duckdb.sql("select count(*) from found where type = 'f' and size > 1000").fetchall() == [(2,)]


def test_damage_is_told_and_the_rest_is_there(disk, tmp_path):
    import dentree

    debugfs = "/sbin/debugfs"
    damaged = tmp_path / "damaged.img"
    damaged.write_bytes(disk.read_bytes())
    if not os.path.exists(debugfs):
        pytest.skip("needs debugfs")
    os.system(f"{debugfs} -w -R 'set_inode_field /var/log mode 0' {damaged} 2>/dev/null >/dev/null")
    with dentree.Image(damaged) as image:
        table = image.table()
        paths = pyarrow.table(table)["path"].to_pylist()
    assert "/etc/hosts" in paths and "/var/log/x.csv" not in paths
    assert any(path.startswith("/var/log") for path, _ in table.problems)
