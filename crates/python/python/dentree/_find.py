"""The tests of ``dentree find`` as keywords of ``Image.find``."""

from __future__ import annotations

import fnmatch
import os
import re
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, TypedDict, Union

if TYPE_CHECKING:
    from ._path import Image, ImagePath

#: ``5`` and ``"5"`` are exactly 5, ``"+5"`` is more, ``"-5"`` is less.
Number = Union[int, str]
#: A moment: seconds since 1970, a time, or a path whose modification time is meant.
Moment = Union[float, datetime, "ImagePath"]


class Where(TypedDict, total=False):
    """What a name has to be. All that are given must hold."""

    #: The last name matches a pattern of ``fnmatch``; ``i``: in upper or lower case.
    name: str
    iname: str
    #: The whole path does, where ``*`` matches ``/``, too.
    path: str
    ipath: str
    #: A regular expression of ``re`` that the whole path matches.
    regex: str
    #: One of these letters of ``find -type``: ``"f"``, ``"fl"``.
    type: str | Iterable[str]
    inum: Number
    links: Number
    uid: Number
    gid: Number
    #: Bytes; with one of the letters ``cwbkMG`` units, of which a started one counts: ``"+10k"``.
    size: Number
    #: Permission bits: exactly these, ``"-4000"`` all of these, ``"/022"`` any of these.
    perm: Number
    #: A regular file without content, or a directory without names.
    empty: bool
    #: Ages in whole days.
    atime: Number
    ctime: Number
    mtime: Number
    #: Modified, read or changed after a moment.
    newer: Moment
    anewer: Moment
    cnewer: Moment


#: Path, inode number and letter of the type.
NameTest = Callable[[str, int, str], bool]
StatTest = Callable[[os.stat_result], bool]

_UNITS = {"c": 1, "w": 2, "b": 512, "k": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_DAY = 86400


class Tests:
    """Tests in the order of their cost: by name, and by inode."""

    def __init__(self, where: Where) -> None:
        unknown = where.keys() - Where.__annotations__.keys()
        if unknown:
            raise TypeError(f"find() has no test {', '.join(sorted(unknown))}")
        self.empty = where.get("empty")
        self.names = _name_tests(where)
        self.stats = _stat_tests(where)

    @property
    def need_stat(self) -> bool:
        return bool(self.stats) or self.empty is not None

    def hold(self, image: Image, path: str, ino: int, kind: str, stat: os.stat_result | None) -> bool:
        if not all(test(path, ino, kind) for test in self.names):
            return False
        if stat is None:
            return not self.need_stat
        if not all(test(stat) for test in self.stats):
            return False
        return self.empty is None or _is_empty(image, path, kind, stat) == self.empty


def _last(path: str) -> str:
    return path.rpartition("/")[2] or "/"


def _name_tests(where: Where) -> list[NameTest]:
    tests: list[NameTest] = []

    def matching(pattern: str, flags: int, of: Callable[[str], str]) -> None:
        matches = re.compile(pattern, flags).fullmatch
        tests.append(lambda path, ino, kind: matches(of(path)) is not None)

    if "type" in where:
        kinds = frozenset("".join(where["type"]).replace(",", ""))
        if not kinds <= frozenset("fdlbcps"):
            raise ValueError(f"type {where['type']!r} is none of f, d, l, b, c, p and s")
        tests.append(lambda path, ino, kind: kind in kinds)
    if "name" in where:
        matching(fnmatch.translate(where["name"]), 0, _last)
    if "iname" in where:
        matching(fnmatch.translate(where["iname"]), re.IGNORECASE, _last)
    if "path" in where:
        matching(fnmatch.translate(where["path"]), 0, str)
    if "ipath" in where:
        matching(fnmatch.translate(where["ipath"]), re.IGNORECASE, str)
    if "regex" in where:
        matching(where["regex"], 0, str)
    if "inum" in where:
        holds = _number(where["inum"])
        tests.append(lambda path, ino, kind: holds(ino))
    return tests


def _stat_tests(where: Where) -> list[StatTest]:
    tests: list[StatTest] = []

    def numeric(number: Number | None, of: Callable[[os.stat_result], int]) -> None:
        if number is not None:
            holds = _number(number)
            tests.append(lambda stat: holds(of(stat)))

    def after(moment: Moment | None, of: Callable[[os.stat_result], int]) -> None:
        if moment is not None:
            limit = _nanos(moment)
            tests.append(lambda stat: of(stat) > limit)

    now = time.time_ns()

    def days(nanos: int) -> int:
        return (now - nanos) // (_DAY * 10**9)

    numeric(where.get("links"), lambda stat: stat.st_nlink)
    numeric(where.get("uid"), lambda stat: stat.st_uid)
    numeric(where.get("gid"), lambda stat: stat.st_gid)
    numeric(where.get("atime"), lambda stat: days(stat.st_atime_ns))
    numeric(where.get("ctime"), lambda stat: days(stat.st_ctime_ns))
    numeric(where.get("mtime"), lambda stat: days(stat.st_mtime_ns))
    after(where.get("newer"), lambda stat: stat.st_mtime_ns)
    after(where.get("anewer"), lambda stat: stat.st_atime_ns)
    after(where.get("cnewer"), lambda stat: stat.st_ctime_ns)
    if "size" in where:
        tests.append(_size(where["size"]))
    if "perm" in where:
        tests.append(_permissions(where["perm"]))
    return tests


def _number(number: Number) -> Callable[[int], bool]:
    text = str(number)
    sign, digits = (text[0], text[1:]) if text[:1] in ("+", "-") else ("", text)
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError(f"{number!r} is no number, with + for more and - for less")
    limit = int(digits)
    if sign == "+":
        return lambda value: value > limit
    if sign == "-":
        return lambda value: value < limit
    return lambda value: value == limit


def _size(size: Number) -> StatTest:
    text = str(size)
    unit = _UNITS.get(text[-1:])
    holds = _number(text[:-1] if unit else text)
    unit = unit or 1
    return lambda stat: holds(-(-stat.st_size // unit))


def _permissions(perm: Number) -> StatTest:
    if isinstance(perm, int):
        return lambda stat: stat.st_mode & 0o7777 == perm
    sign, digits = (perm[0], perm[1:]) if perm[:1] in ("/", "-") else ("", perm)
    bits = int(digits, 8)
    if sign == "-":
        return lambda stat: stat.st_mode & bits == bits
    if sign == "/":
        return lambda stat: bits == 0 or stat.st_mode & bits != 0
    return lambda stat: stat.st_mode & 0o7777 == bits


def _nanos(moment: Moment) -> int:
    if isinstance(moment, datetime):
        moment = moment.timestamp()
    if isinstance(moment, (int, float)):
        return int(moment * 10**9)
    return moment.stat().st_mtime_ns


def _is_empty(image: Image, path: str, kind: str, stat: os.stat_result) -> bool:
    if kind == "d":
        return not image.listdir(path)
    return kind == "f" and stat.st_size == 0
