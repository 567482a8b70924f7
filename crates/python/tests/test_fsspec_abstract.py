"""fsspec's own suite for its file systems, on a writable image and on a read-only one.

A read-only image takes part in all tests that read it. The others change the file system; each of
their changes is refused, which the last class shows.
"""

import errno
import posixpath
import shutil
import subprocess

import pytest
from conftest import make_image
from fsspec.tests.abstract import (
    AbstractCopyTests,
    AbstractFixtures,
    AbstractGetTests,
    AbstractOpenTests,
    AbstractPipeTests,
    AbstractPutTests,
)

from dentree.fsspec import Ext4FileSystem


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    place = tmp_path_factory.mktemp("empty")
    (place / "tree").mkdir()
    return make_image(place / "tree", place / "empty.img", "8M")


class Writable(AbstractFixtures):
    @pytest.fixture
    def fs(self, empty, tmp_path):
        image = tmp_path / "fs.img"
        shutil.copy(empty, image)
        fs = Ext4FileSystem(str(image), writable=True, auto_mkdir=True, skip_instance_cache=True)
        yield fs
        fs.image.close()
        subprocess.run(["/sbin/e2fsck", "-fn", image], check=True, stdout=subprocess.DEVNULL)

    @pytest.fixture
    def fs_join(self):
        return posixpath.join

    @pytest.fixture
    def fs_path(self):
        return "/top"


class TestCopy(Writable, AbstractCopyTests):
    pass


class TestGet(Writable, AbstractGetTests):
    pass


class TestPut(Writable, AbstractPutTests):
    pass


class TestOpen(Writable, AbstractOpenTests):
    pass


class TestPipe(Writable, AbstractPipeTests):
    pass


class TestMove(Writable):
    def test_a_file_moves_to_a_name_and_into_a_directory(self, fs):
        fs.pipe("/top/one", b"1")
        fs.mv("/top/one", "/top/two")
        fs.makedirs("/top/into")
        fs.mv("/top/two", "/top/into/")
        assert fs.find("/top") == ["/top/into/two"] and fs.cat("/top/into/two") == b"1"

    def test_a_directory_moves_with_what_is_in_it(self, fs):
        fs.pipe("/top/a/b/c", b"c")
        fs.mv("/top/a", "/top/z", recursive=True)
        assert fs.find("/top") == ["/top/z/b/c"]

    def test_a_directory_that_is_missing_is_an_error(self, empty, tmp_path):
        image = tmp_path / "strict.img"
        shutil.copy(empty, image)
        fs = Ext4FileSystem(str(image), writable=True, skip_instance_cache=True)
        fs.pipe("/file", b"1")
        for change in (lambda: fs.mv("/file", "/no/file"), lambda: fs.pipe("/no/file", b""), lambda: fs.touch("/no/file")):
            with pytest.raises(FileNotFoundError):
                change()
        assert fs.find("/") == ["/file"]
        fs.image.close()


@pytest.fixture(scope="module")
def prepared(empty, tmp_path_factory):
    """An image, and where each scenario is in it: in a directory of its own."""
    image, suite = tmp_path_factory.mktemp("read-only") / "fs.img", AbstractFixtures()
    shutil.copy(empty, image)
    fs = Ext4FileSystem(str(image), writable=True, auto_mkdir=True, skip_instance_cache=True)
    make = (
        suite._bulk_operations_scenario_0,
        suite._glob_edge_cases_files,
        suite._dir_and_file_with_same_name_prefix,
        suite._10_files_with_hashed_names,
    )
    sources = [one(fs, posixpath.join, f"/{number}") for number, one in enumerate(make)]
    fs.image.close()
    return image, sources


class ReadOnly(AbstractFixtures):
    """Scenarios are made before the image is opened."""

    @pytest.fixture
    def fs(self, prepared):
        fs = Ext4FileSystem(str(prepared[0]), skip_instance_cache=True)
        yield fs
        fs.image.close()

    @pytest.fixture
    def fs_join(self):
        return posixpath.join

    @pytest.fixture
    def fs_path(self):
        return "/"

    @pytest.fixture
    def fs_bulk_operations_scenario_0(self, prepared):
        return prepared[1][0]

    @pytest.fixture
    def fs_glob_edge_cases_files(self, prepared):
        return prepared[1][1]

    @pytest.fixture
    def fs_dir_and_file_with_same_name_prefix(self, prepared):
        return prepared[1][2]

    @pytest.fixture
    def fs_10_files_with_hashed_names(self, prepared):
        return prepared[1][3]

    @pytest.fixture
    def fs_target(self):
        return "/target"


class TestGetReadOnly(ReadOnly, AbstractGetTests):
    def test_get_directory_recursive(self):
        pytest.skip("makes its own files, which a read-only file system refuses: test_get_directory_recursive")


class TestChangesReadOnly(ReadOnly):
    @pytest.mark.parametrize("suite", [AbstractCopyTests, AbstractPutTests, AbstractOpenTests, AbstractPipeTests])
    def test_what_changes_the_file_system(self, suite):
        tests = [name for name in vars(suite) if name.startswith("test_")]
        pytest.skip(f"changes the file system, which a read-only one refuses: {', '.join(tests)}")

    def test_a_change_is_refused(self, fs, tmp_path, fs_bulk_operations_scenario_0):
        source = fs_bulk_operations_scenario_0
        before = fs.find("/", withdirs=True)
        (tmp_path / "file").write_text("local")
        changes = (
            lambda: fs.pipe("/new", b"1"),
            lambda: fs.touch("/new"),
            lambda: fs.touch(f"{source}/file1", truncate=False),
            lambda: fs.open("/new", "wb"),
            lambda: fs.open(f"{source}/file1", "ab"),
            lambda: fs.open("/new", "xb"),
            lambda: fs.copy(f"{source}/file1", "/new"),
            lambda: fs.copy(source, "/new", recursive=True),
            lambda: fs.mv(f"{source}/file1", "/new"),
            lambda: fs.put(str(tmp_path / "file"), "/new"),
            lambda: fs.mkdir("/new"),
            lambda: fs.rm(f"{source}/file1"),
            lambda: fs.rm(source, recursive=True),
        )
        for change in changes:
            with pytest.raises(OSError) as refused:
                change()
            assert refused.value.errno == errno.EROFS
        assert fs.find("/", withdirs=True) == before
