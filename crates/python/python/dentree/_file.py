"""Files of an image as Python's own file objects."""

import io
from typing import IO, Any

from ._dentree import File


class RawFile(io.RawIOBase):
    """An unbuffered file, as ``open(..., buffering=0)`` returns one."""

    def __init__(self, file: File, name: str, mode: str) -> None:
        self._file = file
        self._position = 0
        self._reads = "r" in mode or "+" in mode
        self._writes = mode.rstrip("b") != "r"
        self._appends = "a" in mode
        self.name = name
        self.mode = mode

    def readable(self) -> bool:
        return self._reads

    def writable(self) -> bool:
        return self._writes

    def seekable(self) -> bool:
        return True

    def _check(self, allowed: bool, what: str) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")
        if not allowed:
            raise io.UnsupportedOperation(what)

    def readinto(self, buffer: Any) -> int:
        self._check(self._reads, "not readable")
        view = memoryview(buffer).cast("B")
        data = self._file.pread(len(view), self._position)
        view[: len(data)] = data
        self._position += len(data)
        return len(data)

    def readall(self) -> bytes:
        self._check(self._reads, "not readable")
        data = self._file.pread(max(0, self._file.size - self._position), self._position)
        self._position += len(data)
        return data

    def write(self, data: Any) -> int:
        self._check(self._writes, "not writable")
        data = bytes(data)
        self._position = self._file.pwrite(data, None if self._appends else self._position)
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._check(True, "")
        if whence not in (io.SEEK_SET, io.SEEK_CUR, io.SEEK_END):
            raise ValueError(f"invalid whence ({whence})")
        start = (0, self._position, self._file.size)[whence]
        if start + offset < 0:
            raise ValueError(f"negative seek position {start + offset}")
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        self._check(True, "")
        return self._position

    def truncate(self, size: int | None = None) -> int:
        self._check(self._writes, "not writable")
        size = self._position if size is None else size
        self._file.truncate(size)
        return size

    def fsync(self) -> None:
        """Returns when the file is on stable storage."""
        self._file.fsync()


def wrap(
    raw: RawFile,
    buffering: int,
    encoding: str | None,
    errors: str | None,
    newline: str | None,
) -> IO[Any]:
    """The layers that ``open`` puts over a raw file."""
    is_text = "b" not in raw.mode
    if buffering == 0:
        if is_text:
            raise ValueError("can't have unbuffered text I/O")
        return raw  # type: ignore[return-value]
    size = 128 << 10 if buffering in (-1, 1) else buffering
    buffered: Any
    if raw.readable() and raw.writable():
        buffered = io.BufferedRandom(raw, size)
    elif raw.writable():
        buffered = io.BufferedWriter(raw, size)
    else:
        buffered = io.BufferedReader(raw, size)
    if not is_text:
        return buffered  # type: ignore[no-any-return]
    text = io.TextIOWrapper(buffered, io.text_encoding(encoding), errors, newline, buffering == 1)
    text.mode = raw.mode  # type: ignore[misc]
    return text
