"""Paths of an image do what pathlib does on the tree that the image was made of."""

import contextlib
import errno
import io
import os
import threading
import warnings

import pytest

import dentree


def below(path):
    return str(path).lstrip("/")


@pytest.mark.parametrize("pattern", ["*", "etc/*", "etc/*.d/*.conf", "**/*.conf", "**/hosts", "etc/**", "*/*/a.conf", "**/[ab].*", "no*"])
def test_patterns_find_what_pathlib_finds(image, tree, pattern):
    # Outside of an image `absolute` leads to /etc of this machine.
    expected = {str(path.relative_to(tree)) for path in tree.glob(pattern)} - {"."}
    expected = {path for path in expected if not path.startswith("absolute/")}
    found = {below(path) for path in image.path().glob(pattern)} - {"", "lost+found"}
    assert {path for path in found if not path.startswith("absolute/")} == expected


def test_a_walk_is_that_of_os_walk(image, tree):
    expected = {os.path.relpath(top, tree): (sorted(dirs), sorted(files)) for top, dirs, files in os.walk(tree)}
    # A link to a directory is a name of `files`, as in pathlib; os.walk lists it with the others.
    expected["."][0].remove("absolute")
    expected["."] = (expected["."][0], sorted([*expected["."][1], "absolute"]))
    found = {below(top) or ".": (sorted(set(dirs) - {"lost+found"}), sorted(files)) for top, dirs, files in image.path().walk()}
    found.pop("lost+found")
    assert found == expected


def test_stat_is_that_of_the_tree(image, tree):
    for name in ["etc", "etc/hosts", "large.bin"]:
        expected, found = (tree / name).stat(), image.path(name).stat()
        for field in ["st_mode", "st_uid", "st_gid", "st_size", "st_nlink"]:
            if (name, field) != ("etc", "st_size"):
                assert getattr(found, field) == getattr(expected, field), (name, field)
    found = image.path("etc/hosts").stat()
    assert found.st_mtime_ns // 10**9 == 1_100_000_000
    assert found.st_blocks > 0 and found.st_blksize > 0
    assert image.path("link").lstat().st_size == len("etc/hosts")
    assert image.path("etc/again").samefile(image.path("etc/hosts"))


def test_links_are_followed_and_read(image):
    assert image.path("link").read_text() == "127.0.0.1 localhost\n"
    assert image.path("absolute/hosts").read_text() == "127.0.0.1 localhost\n"
    assert str(image.path("link").readlink()) == "etc/hosts"
    assert image.path("absolute").readlink() == image.path("etc")
    dangling = image.path("dangling")
    assert dangling.is_symlink() and not dangling.exists() and dangling.exists(follow_symlinks=False)


def test_names_that_are_no_utf8_come_back_as_from_os(image):
    [path] = image.path("odd").iterdir()
    assert os.fsencode(path.name) == b"caf\xe9" and path.read_bytes() == b"latin"
    assert image.stat(os.fsdecode(b"/odd/caf\xe9")).st_size == 5


def test_errors_are_those_of_the_system(image):
    with pytest.raises(FileNotFoundError) as caught:
        image.path("nothing").read_bytes()
    assert (caught.value.errno, caught.value.filename) == (errno.ENOENT, "/nothing")
    with pytest.raises(NotADirectoryError):
        list(image.path("etc/hosts").iterdir())
    with pytest.raises(IsADirectoryError):
        image.path("etc").open()
    for change in [lambda: image.path("new").write_text(""), lambda: image.mkdir("/new"), lambda: image.path("link").unlink()]:
        with pytest.raises(OSError) as caught:
            change()
        assert caught.value.errno == errno.EROFS
    with pytest.raises(FileNotFoundError):
        dentree.Image("/nothing/there.img")


def test_files_are_those_of_io(image, tree):
    expected = (tree / "large.bin").read_bytes()
    with image.path("large.bin").open("rb") as file:
        assert isinstance(file, io.BufferedReader) and file.name == "/large.bin"
        assert file.read() == expected
        assert file.seek(-10, io.SEEK_END) == len(expected) - 10
        assert file.read() == expected[-10:] and file.read() == b""
        buffer = bytearray(1000)
        file.seek(5)
        assert file.readinto(buffer) == 1000 and buffer == expected[5:1005]
    with pytest.raises(ValueError):
        file.read()
    with image.path("var/log/x.csv").open() as file:
        assert sum(1 for _ in file) == 2001
    with pytest.raises(io.UnsupportedOperation):
        image.path("large.bin").open("rb").write(b"")


def test_many_paths_are_one_walk(image):
    found = image.stat_many(["/etc/hosts", "/nothing", "/etc"])
    assert found[0].st_size == 20 and isinstance(found[1], FileNotFoundError) and found[2].st_ino > 2
    assert image.read_many(["/link", "/etc/conf.d/a.conf"]) == [b"127.0.0.1 localhost\n", b"a = 1\n"]
    assert isinstance(image.read_many(["/etc"])[0], IsADirectoryError)


def test_changes_are_made_and_e2fsck_finds_nothing_wrong(writable):
    root = writable.path()
    (root / "a/b/c").mkdir(parents=True)
    with pytest.raises(FileExistsError):
        (root / "a").mkdir()
    file = root / "a/b/file"
    assert file.write_text("one\n") == 4
    with file.open("a") as more:
        more.write("two\n")
    with file.open("r+b") as change:
        change.seek(1)
        change.write(b"N")
    assert file.read_text() == "oNe\ntwo\n"
    with pytest.raises(FileExistsError):
        file.open("x")
    moved = file.rename("/a/moved")
    assert moved.read_text() == "oNe\ntwo\n" and not file.exists()
    (root / "a/hard").hardlink_to(moved)
    (root / "a/soft").symlink_to("moved")
    assert (root / "a/soft").samefile(root / "a/hard") and moved.stat().st_nlink == 2
    moved.chmod(0o600)
    writable.chown("/a/moved", 7, 8)
    writable.utime("/a/moved", 1, -2_000_000_001)
    writable.set_xattr("/a/moved", "user.note", b"value")
    stat = moved.stat()
    assert (stat.st_mode & 0o777, stat.st_uid, stat.st_gid, stat.st_mtime_ns) == (0o600, 7, 8, -2_000_000_001)
    assert moved.xattrs() == {"user.note": b"value"}
    writable.set_xattr("/a/moved", "user.note", None)
    assert moved.xattrs() == {}
    with pytest.raises(OSError) as caught:
        (root / "a").rmdir()
    assert caught.value.errno == errno.ENOTEMPTY
    (root / "a/b/c").rmdir()
    moved.unlink()
    moved.unlink(missing_ok=True)
    writable.sync()


def test_a_closed_image_is_an_error(disk):
    image = dentree.Image(disk)
    file = image.path("etc/hosts").open("rb")
    image.close()
    image.close()
    with pytest.raises(ValueError):
        image.path("etc").stat()
    assert file.read() == b"127.0.0.1 localhost\n"


def test_any_object_that_reads_is_an_image(disk, tree):
    with open(disk, "rb") as file, dentree.Image(file) as image:
        assert image.path("large.bin").read_bytes() == (tree / "large.bin").read_bytes()
    with dentree.Image(io.BytesIO(disk.read_bytes())) as image:
        assert len(list(image.path("etc").iterdir())) == 3

    class Broken(io.BytesIO):
        def read(self, size=-1):
            raise RuntimeError("gone")

    with pytest.raises(OSError, match="gone"):
        dentree.Image(Broken(b"x" * 65536))


def test_threads_read_one_image(image, tree):
    expected, found = (tree / "large.bin").read_bytes(), []
    threads = [threading.Thread(target=lambda: found.append(image.path("large.bin").read_bytes())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 8


def test_damage_is_an_exception(disk, tmp_path):
    whole, damaged = disk.read_bytes(), tmp_path / "damaged.img"
    for step in range(40):
        content = bytearray(whole)
        for at in range(1024 + step * 97, len(whole), 65_521):
            content[at] ^= 0xFF
        damaged.write_bytes(content)
        with warnings.catch_warnings(), contextlib.suppress(OSError):
            warnings.simplefilter("ignore")
            with dentree.Image(damaged) as image:
                for batch in image.tree("/", stat=True):
                    image.read_many([path for path, _, kind, _ in batch if kind == "f"])


def test_touch_makes_a_file_or_sets_its_times(writable):
    path = writable.path("/etc/hosts")
    before = path.stat()
    path.touch()
    after = path.stat()
    assert after.st_mtime_ns > before.st_mtime_ns and after.st_size == before.st_size
    with pytest.raises(FileExistsError):
        path.touch(exist_ok=False)
    writable.path("/etc/touched").touch()
    assert writable.path("/etc/touched").stat().st_size == 0
