"""Images, and paths within them that behave as ``pathlib.Path`` does."""

from __future__ import annotations

import errno
import fnmatch
import os
import re
import stat as mode_of
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePosixPath
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

from . import _dentree
from ._file import RawFile, wrap
from ._find import Where, words

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Image(_dentree.Image):
    """An ext2, ext3 or ext4 image: a path, an address, or an object with ``read`` and ``seek``.

    ``partition`` and ``offset`` say where the file system is, where that is not plain.
    ``overlay`` keeps changes in a file of its own; ``writable`` allows them.
    """

    __slots__ = ()

    def path(self, *parts: str | os.PathLike[str]) -> ImagePath:
        """A path within the image; ``/`` without arguments."""
        return ImagePath(self, "/", *parts)

    def find(
        self, top: str | os.PathLike[str] = "/", expression: str | None = None, /, **where: Unpack[Where]
    ) -> Iterator[ImagePath]:
        """``top`` and the paths below it for which all tests hold, as keywords or as the expression
        of ``dentree find``: ``image.find("/etc", name="*.conf", type="f", size="+1k")``,
        ``image.find("/", "-name .git -prune -o -type f")``. Links are not followed.
        """
        found = self.search(self.path(top), words(where) + words(expression and f"( {expression} )"))
        return (ImagePath(self, path) for batch in found for path in batch)

    def table(
        self,
        top: str | os.PathLike[str] = "/",
        *,
        columns: Sequence[str] | None = None,
        where: Where | str | None = None,
    ) -> _dentree.Table:
        """What is below a directory as an Arrow table, one row a name: the ``columns`` that are
        wanted, and the names for which ``where`` holds, which is what ``find`` takes.
        """
        return self.scan(top, columns, words(where))

    def __enter__(self) -> Image:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Image({self.name!r})"


class ImagePath:
    """A path within an image, absolute, and not resolved."""

    __slots__ = ("image", "_pure")

    def __init__(self, image: Image, *parts: str | os.PathLike[str]) -> None:
        self.image = image
        self._pure = PurePosixPath("/", *parts)

    # What a pure path has.

    def _of(self, pure: PurePosixPath) -> ImagePath:
        return ImagePath(self.image, pure)

    def __str__(self) -> str:
        return str(self._pure)

    def __fspath__(self) -> str:
        return str(self._pure)

    def __repr__(self) -> str:
        return f"ImagePath({self.image.name!r}, {str(self)!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ImagePath):
            return NotImplemented
        return self.image is other.image and self._pure == other._pure

    def __lt__(self, other: ImagePath) -> bool:
        if not isinstance(other, ImagePath):
            return NotImplemented
        return self._pure < other._pure

    def __hash__(self) -> int:
        return hash((id(self.image), self._pure))

    def __truediv__(self, name: str | os.PathLike[str]) -> ImagePath:
        return self._of(self._pure / name)

    def joinpath(self, *names: str | os.PathLike[str]) -> ImagePath:
        return self._of(self._pure.joinpath(*names))

    @property
    def name(self) -> str:
        return self._pure.name

    @property
    def stem(self) -> str:
        return self._pure.stem

    @property
    def suffix(self) -> str:
        return self._pure.suffix

    @property
    def suffixes(self) -> list[str]:
        return self._pure.suffixes

    @property
    def parts(self) -> tuple[str, ...]:
        return self._pure.parts

    @property
    def parent(self) -> ImagePath:
        return self._of(self._pure.parent)

    @property
    def parents(self) -> tuple[ImagePath, ...]:
        return tuple(map(self._of, self._pure.parents))

    def with_name(self, name: str) -> ImagePath:
        return self._of(self._pure.with_name(name))

    def with_suffix(self, suffix: str) -> ImagePath:
        return self._of(self._pure.with_suffix(suffix))

    def relative_to(self, other: ImagePath | str) -> PurePosixPath:
        return self._pure.relative_to(str(other))

    def is_relative_to(self, other: ImagePath | str) -> bool:
        return self._pure.is_relative_to(str(other))

    def match(self, pattern: str) -> bool:
        return self._pure.match(pattern)

    def as_posix(self) -> str:
        return str(self)

    # Questions.

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return self.image.stat(self, follow_symlinks=follow_symlinks)

    def lstat(self) -> os.stat_result:
        return self.stat(follow_symlinks=False)

    def _is(self, what: Callable[[int], bool], follow_symlinks: bool = True) -> bool:
        try:
            return what(self.stat(follow_symlinks=follow_symlinks).st_mode)
        except OSError as error:
            if error.errno in _NOT_THERE:
                return False
            raise

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        return self._is(lambda mode: True, follow_symlinks)

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return self._is(mode_of.S_ISDIR, follow_symlinks)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return self._is(mode_of.S_ISREG, follow_symlinks)

    def is_symlink(self) -> bool:
        return self._is(mode_of.S_ISLNK, False)

    def is_fifo(self) -> bool:
        return self._is(mode_of.S_ISFIFO)

    def is_socket(self) -> bool:
        return self._is(mode_of.S_ISSOCK)

    def is_block_device(self) -> bool:
        return self._is(mode_of.S_ISBLK)

    def is_char_device(self) -> bool:
        return self._is(mode_of.S_ISCHR)

    def samefile(self, other: ImagePath) -> bool:
        return self.image is other.image and self.stat().st_ino == other.stat().st_ino

    def readlink(self) -> ImagePath | PurePosixPath:
        """The target: within the image where it is absolute, else relative to ``parent``."""
        target = PurePosixPath(self.image.readlink(self))
        return self._of(target) if target.is_absolute() else target

    def xattrs(self, *, follow_symlinks: bool = True) -> dict[str, bytes]:
        """All extended attributes, by full name (``user.comment``)."""
        return self.image.xattrs(self, follow_symlinks=follow_symlinks)

    # Directories.

    def iterdir(self) -> Iterator[ImagePath]:
        for name, _, _ in self.image.listdir(self):
            yield self / name

    def walk(
        self,
        top_down: bool = True,
        on_error: Callable[[OSError], object] | None = None,
        follow_symlinks: bool = False,
    ) -> Iterator[tuple[ImagePath, list[str], list[str]]]:
        """As ``pathlib.Path.walk``: each directory with its directories and its other names."""
        try:
            listed = self.image.listdir(self)
        except OSError as error:
            if on_error is not None:
                on_error(error)
            return
        dirs: list[str] = []
        files: list[str] = []
        for name, _, kind in listed:
            is_dir = kind == "d" or (follow_symlinks and kind == "l" and (self / name).is_dir())
            (dirs if is_dir else files).append(name)
        if top_down:
            yield self, dirs, files
        for name in dirs:
            yield from (self / name).walk(top_down, on_error, follow_symlinks)
        if not top_down:
            yield self, dirs, files

    def glob(self, pattern: str) -> Iterator[ImagePath]:
        """Paths below this one that match, as ``pathlib.Path.glob``."""
        parts = PurePosixPath(pattern).parts
        if not parts or parts[0] == "/":
            raise ValueError(f"Unacceptable pattern: {pattern!r}")
        seen: set[ImagePath] = set()
        for path in _glob(self, parts):
            if path not in seen:
                seen.add(path)
                yield path

    def rglob(self, pattern: str) -> Iterator[ImagePath]:
        return self.glob(f"**/{pattern}")

    # Files.

    def open(
        self,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> IO[Any]:
        """As ``open``: text or, with ``b``, bytes; ``r``, ``w``, ``x``, ``a`` and ``+``."""
        plain = mode.replace("b", "").replace("t", "")
        if plain.replace("+", "") not in ("r", "w", "x", "a"):
            raise ValueError(f"invalid mode: {mode!r}")
        is_reading = plain == "r"
        if not is_reading and not self.image.writable:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(self))
        file = self.image.open(self, create=plain[0] != "r", exclusive=plain[0] == "x", mode=0o644)
        if plain[0] == "w":
            file.truncate(0)
        raw = RawFile(file, str(self), plain + ("b" if "b" in mode else ""))
        return wrap(raw, buffering, encoding, errors, newline)

    def read_bytes(self) -> bytes:
        return self.image.read_bytes(self)

    def read_text(self, encoding: str | None = None, errors: str | None = None) -> str:
        with self.open("r", encoding=encoding, errors=errors) as file:
            return str(file.read())

    def write_bytes(self, data: bytes) -> int:
        with self.open("wb") as file:
            return file.write(data)

    def write_text(
        self,
        data: str,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> int:
        with self.open("w", encoding=encoding, errors=errors, newline=newline) as file:
            return file.write(data)

    # Changes.

    def touch(self, mode: int = 0o644, exist_ok: bool = True) -> None:
        if exist_ok:
            now = time.time_ns()
            try:
                return self.image.utime(self, now, now)
            except FileNotFoundError:
                pass
        self.image.open(self, create=True, exclusive=not exist_ok, mode=mode)

    def mkdir(self, mode: int = 0o755, parents: bool = False, exist_ok: bool = False) -> None:
        try:
            self.image.mkdir(self, mode)
        except FileNotFoundError:
            if not parents or self.parent == self:
                raise
            self.parent.mkdir(parents=True, exist_ok=True)
            self.mkdir(mode, exist_ok=exist_ok)
        except FileExistsError:
            if not exist_ok or not self.is_dir():
                raise

    def rmdir(self) -> None:
        self.image.rmdir(self)

    def unlink(self, missing_ok: bool = False) -> None:
        try:
            self.image.unlink(self)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def rename(self, target: str | ImagePath) -> ImagePath:
        """Renames within the image, and replaces a file that is there, as on POSIX."""
        new = self._of(PurePosixPath(str(target)))
        self.image.rename(self, new)
        return new

    def replace(self, target: str | ImagePath) -> ImagePath:
        return self.rename(target)

    def symlink_to(self, target: str | os.PathLike[str], target_is_directory: bool = False) -> None:
        self.image.symlink(os.fspath(target), self)

    def hardlink_to(self, target: str | ImagePath) -> None:
        self.image.link(str(target), self)

    def chmod(self, mode: int, *, follow_symlinks: bool = True) -> None:
        self.image.chmod(self, mode, follow_symlinks=follow_symlinks)


_MAGIC = re.compile(r"[*?[]")
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def _glob(path: ImagePath, parts: tuple[str, ...]) -> Iterator[ImagePath]:
    if not parts:
        yield path
        return
    first, rest = parts[0], parts[1:]
    if first == "**":
        yield from _glob(path, rest)
        if rest:
            yield from _below(path, rest)
        else:
            for top, dirs, _ in path.walk():
                yield from (top / name for name in dirs)
    elif not _MAGIC.search(first):
        child = path / first
        if child.exists(follow_symlinks=False):
            yield from _glob(child, rest)
    else:
        matches = re.compile(fnmatch.translate(first)).match
        try:
            listed = path.image.listdir(path)
        except OSError as error:
            if error.errno in _NOT_THERE:
                return
            raise
        for name, _, _ in listed:
            if matches(name):
                yield from _glob(path / name, rest)


def _below(path: ImagePath, rest: tuple[str, ...]) -> Iterator[ImagePath]:
    """What matches ``rest`` from a directory below ``path``."""
    if len(rest) == 1:
        # Names alone decide: one pass of the whole tree.
        matches = re.compile(fnmatch.translate(rest[0])).match
        for batch in path.image.tree(path):
            for below, _, _, _ in batch:
                directory, _, name = below.rpartition("/")
                if directory != str(path).rstrip("/") and matches(name):
                    yield ImagePath(path.image, below)
        return
    for top, dirs, _ in path.walk():
        for name in dirs:
            yield from _glob(top / name, rest)
