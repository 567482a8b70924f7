"""The tests of ``dentree find`` as keywords, or in its own words."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from datetime import datetime, timezone
from typing import TypedDict, Union

#: ``5`` and ``"5"`` are exactly 5, ``"+5"`` is more, ``"-5"`` is less.
Number = Union[int, str]
#: A moment: seconds since 1970, a time, or a path whose modification time is meant.
Moment = Union[float, datetime, str, "os.PathLike[str]"]


class Where(TypedDict, total=False):
    """What a name has to be. All that are given must hold."""

    #: Levels below the top.
    mindepth: int
    maxdepth: int
    #: The last name matches a pattern of the shell; ``i``: in upper or lower case.
    name: str
    iname: str
    #: The whole path does, where ``*`` matches ``/``, too.
    path: str
    ipath: str
    #: The target of a link does.
    lname: str
    ilname: str
    #: A regular expression that the whole path matches, in a syntax of ``find -regextype``.
    regex: str
    iregex: str
    regextype: str
    #: One of these letters of ``find -type``: ``"f"``, ``"fl"``; ``x``: behind a link.
    type: str | Iterable[str]
    xtype: str | Iterable[str]
    inum: Number
    #: The same inode as that of a path.
    samefile: str | os.PathLike[str]
    links: Number
    uid: Number
    gid: Number
    #: A name of the image's own ``/etc/passwd`` or ``/etc/group``, or a number.
    user: Number
    group: Number
    nouser: bool
    nogroup: bool
    #: Bytes; with one of the letters ``cwbkMG`` units, of which a started one counts: ``"+10k"``.
    size: Number
    #: Permission bits: exactly these, ``"-4000"`` all of these, ``"/022"`` any of these.
    perm: Number
    #: A regular file without content, or a directory without names.
    empty: bool
    executable: bool
    #: A pattern of the SELinux context.
    context: str
    #: Ages in whole days, and in minutes.
    atime: Number
    ctime: Number
    mtime: Number
    amin: Number
    cmin: Number
    mmin: Number
    #: Modified, read or changed after a moment.
    newer: Moment
    anewer: Moment
    cnewer: Moment


_OPTIONS = ("mindepth", "maxdepth", "regextype")
_FLAGS = ("nouser", "nogroup", "empty", "executable")
_TIMES = {"newer": "-newermt", "anewer": "-newerat", "cnewer": "-newerct"}


def words(where: Where | str | None) -> list[str]:
    """The words of an expression: ``"-name '*.conf' -size +1k"``, or keywords."""
    if where is None:
        return []
    if isinstance(where, str):
        return shlex.split(where)
    unknown = where.keys() - Where.__annotations__.keys()
    if unknown:
        raise TypeError(f"there is no test {', '.join(sorted(unknown))}")
    # Options mean what comes behind them.
    keys = sorted(where, key=lambda key: key not in _OPTIONS)
    return [word for key in keys for word in _word(key, where[key])]  # type: ignore[literal-required]


def _word(key: str, value: object) -> list[str]:
    if key in _FLAGS:
        return [f"-{key}"] if value else ["!", f"-{key}"]
    if key in ("type", "xtype"):
        return [f"-{key}", ",".join("".join(value).replace(",", ""))]  # type: ignore[arg-type]
    if key == "size":
        return ["-size", f"{value}c" if str(value)[-1:].isdigit() else str(value)]
    if key == "perm":
        return ["-perm", f"{value:o}" if isinstance(value, int) else str(value)]
    if key in _TIMES and isinstance(value, (int, float, datetime)):
        moment = value if isinstance(value, datetime) else datetime.fromtimestamp(value, timezone.utc)
        return [_TIMES[key], moment.astimezone(timezone.utc).isoformat()]
    return [f"-{key}", os.fspath(value) if isinstance(value, os.PathLike) else str(value)]
