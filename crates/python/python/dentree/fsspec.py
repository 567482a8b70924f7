"""``ext4://`` for fsspec, and so for pandas, pyarrow, Dask and DuckDB.

>>> import fsspec
>>> fsspec.open("ext4://etc/os-release::s3://bucket/disk.img")   # doctest: +SKIP
"""

from __future__ import annotations

import errno
import os
import stat as mode_of
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import Any

import fsspec
from fsspec.spec import AbstractFileSystem

from ._path import Image, ImagePath

# What dentree fetches by itself, under its own name for it.
_OWN = {
    "http": "http",
    "https": "https",
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    "gcs": "gs",
    "az": "az",
    "abfs": "az",
    "nbd": "nbd",
}


class Ext4FileSystem(AbstractFileSystem):
    """The files of an ext2, ext3 or ext4 image.

    ``fo`` is the image: a path, an address, or what the rest of a chained URL names. With
    ``target_options`` it is read through the file system of fsspec that they are for, else by
    dentree itself. With ``auto_mkdir`` directories are made where a new file needs them. The other
    options are those of ``dentree.Image``.
    """

    protocol = "ext4"
    root_marker = "/"
    # The image may be changed by this file system alone: nothing to remember.
    use_listings_cache = False

    def __init__(
        self,
        fo: str,
        target_protocol: str | None = None,
        target_options: Mapping[str, Any] | None = None,
        writable: bool = False,
        partition: int | None = None,
        offset: int | None = None,
        auto_mkdir: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.auto_mkdir = auto_mkdir
        options = {key: kwargs[key] for key in ("overlay", "endpoint", "cache_dir") if key in kwargs}
        source = _source(os.fspath(fo), target_protocol, target_options or {})
        self.image = Image(source, writable=writable, partition=partition, offset=offset, **options)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = os.fspath(path)
        path = path.removeprefix("ext4://").split("::")[0]
        return "/" + path.strip("/")

    def _at(self, path: str) -> ImagePath:
        return self.image.path(self._strip_protocol(path))

    def _new(self, path: str) -> ImagePath:
        """Where a file is made or changed."""
        at = self._at(path)
        if self.auto_mkdir:
            at.parent.mkdir(parents=True, exist_ok=True)
        return at

    # Questions.

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        at = self._at(path)
        found = self._info(str(at), at.lstat())
        if found["type"] != "link":
            return found
        # As of a local file system: a link is what it leads to, where that is something.
        found["destination"] = self.image.readlink(at)
        try:
            target = at.stat()
        except OSError:
            return found
        kind = self._info(str(at), target)["type"]
        return {**found, "size": target.st_size, "type": kind, "islink": True}

    def _info(self, path: str, stat: os.stat_result) -> dict[str, Any]:
        kind = _kind(stat.st_mode)
        return {
            "name": path,
            "size": 0 if kind == "directory" else stat.st_size,
            "type": kind,
            "ino": stat.st_ino,
            "mode": stat.st_mode,
            "nlink": stat.st_nlink,
            "uid": stat.st_uid,
            "gid": stat.st_gid,
            "mtime": stat.st_mtime,
            "islink": kind == "link",
        }

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        at = self._at(path)
        try:
            paths = [str(at / name) for name, _, _ in self.image.listdir(at)]
        except NotADirectoryError:
            paths = [str(at)]
        if not detail:
            return sorted(paths)
        stats = self.image.stat_many(paths, follow_symlinks=False)
        known = [(path, stat) for path, stat in zip(paths, stats) if not isinstance(stat, OSError)]
        infos = [self._info(path, stat) for path, stat in known]
        return [self.info(info["name"]) if info["islink"] else info for info in infos]

    def find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False, **kwargs: Any
    ) -> Any:
        at = self._at(path)
        if maxdepth is not None or not at.is_dir():
            return super().find(path, maxdepth=maxdepth, withdirs=withdirs, detail=detail, **kwargs)
        found: dict[str, dict[str, Any] | None] = {}
        if withdirs and str(at) != "/":
            found[str(at)] = self._info(str(at), at.stat())
        for batch in self.image.tree(at, stat=detail):
            for below, _, kind, stat in batch:
                if kind != "d" or withdirs:
                    found[below] = self._info(below, stat) if stat is not None else None
        names = sorted(found)
        return {name: found[name] for name in names} if detail else names

    def created(self, path: str) -> datetime:
        raise NotImplementedError("the time of creation is not told")

    def modified(self, path: str) -> datetime:
        return datetime.fromtimestamp(self._at(path).stat().st_mtime, timezone.utc)

    # Contents.

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: Any = None,
        **kwargs: Any,
    ) -> Any:
        at = self._at(path) if mode.startswith("r") else self._new(path)
        return at.open(mode if "b" in mode else mode + "b")

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        if start is None and end is None:
            return self._at(path).read_bytes()
        file = self.image.open(self._at(path))
        first, last, _ = slice(start, end).indices(file.size)
        return file.pread(max(0, last - first), first)

    def cat(self, path: Any, recursive: bool = False, on_error: str = "raise", **kwargs: Any) -> Any:
        paths = self.expand_path(path, recursive=recursive)
        if not (len(paths) > 1 or isinstance(path, list) or paths[0] != self._strip_protocol(path)):
            return self.cat_file(paths[0], **kwargs)
        contents: dict[str, Any] = {}
        for one, content in zip(paths, self.image.read_many(paths)):
            if isinstance(content, IsADirectoryError) and recursive:
                continue
            if isinstance(content, OSError):
                if on_error == "raise":
                    raise content
                if on_error == "omit":
                    continue
            contents[one] = content
        return contents

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        with self._new(path).open("xb" if mode == "create" else "wb") as file:
            file.write(value)

    # Changes.

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        self._at(path).mkdir(parents=create_parents)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self._at(path).mkdir(parents=True, exist_ok=exist_ok)

    def rmdir(self, path: str) -> None:
        self._at(path).rmdir()

    def rm_file(self, path: str) -> None:
        self._at(path).unlink()

    def _rm(self, path: str) -> None:
        self.rm_file(path)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        paths = [path] if isinstance(path, (str, os.PathLike)) else path
        for one in map(self._at, paths):
            if not one.is_dir(follow_symlinks=False):
                one.unlink()
            elif not recursive:
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(one))
            else:
                for top, dirs, files in one.walk(top_down=False):
                    _remove(top, files)
                    for name in dirs:
                        (top / name).rmdir()
                one.rmdir()

    def mv_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        self._at(path1).rename(self._new(path2))

    def mv(self, path1: str, path2: str, recursive: bool = False, maxdepth: int | None = None, **kwargs: Any) -> None:
        target = self._at(path2)
        if target.is_dir() or path2.endswith("/"):
            target.mkdir(parents=True, exist_ok=True)
            target = target / self._at(path1).name
        self._at(path1).rename(target)

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        source, target = self._at(path1), self._at(path2)
        if source.is_dir():
            target.mkdir(parents=True, exist_ok=True)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        with source.open("rb") as reading, target.open("wb") as writing:
            while piece := reading.read(4 << 20):
                writing.write(piece)

    def touch(self, path: str, truncate: bool = True, **kwargs: Any) -> None:
        if truncate:
            self.pipe_file(path, b"")
        else:
            self._new(path).touch()


def _kind(mode: int) -> str:
    if mode_of.S_ISDIR(mode):
        return "directory"
    if mode_of.S_ISLNK(mode):
        return "link"
    return "file" if mode_of.S_ISREG(mode) else "other"


def _remove(top: ImagePath, names: Iterable[str]) -> None:
    for name in names:
        (top / name).unlink()


def _source(fo: str, protocol: str | None, options: Mapping[str, Any]) -> Any:
    """What ``dentree.Image`` opens: a path, an address, or a file object of fsspec."""
    found, _, rest = fo.rpartition("://")
    protocol = protocol or found or "file"
    if protocol in ("file", "local"):
        return rest
    if protocol in _OWN and not options:
        return f"{_OWN[protocol]}://{rest}"
    return fsspec.open(fo, "rb", protocol=protocol, **options).open()
