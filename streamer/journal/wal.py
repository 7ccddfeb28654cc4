"""The write-ahead log beside a SQLite file: checks whether the log is complete, and copies the rest of a damaged one.

SQLite reads a log up to the first frame with a wrong checksum, and ignores the rest without an error. That is right after a
kill or a loss of power, after which the rest is a last transaction that was not acknowledged. It is wrong after damage.
The law of this file, by SQLite's file format (sqlite.org/fileformat2.html, "The Write-Ahead Log", and walformat.html):

- A log has frames, each with a page, a checksum over it and all earlier frames, and the salts of its log. Frames with
  other salts are from before the last restart of the log.
- A transaction ends with a commit frame, and is on the disk before the next one begins. So if SQLite stops before a commit
  frame and there is any frame of this log behind that one, or the index knows of it, something was damaged. If there is
  none, it may be a transaction that failed, or that a loss of power has cut short: the log is left unchanged.
- The index (``-shm``) is written after the log, and survives a kill. What it knows of was committed, as long as it is about
  this log. Without a log, the index counts only if the system has not been restarted since.

This module changes neither file nor log. But SQLite's first connection changes the index: call `look` before that.
"""

import logging
import os
import sqlite3
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple

from streamer.files import open_to_read
from streamer.journal.lock import is_in_use
from streamer.journal.sqlite import connect

logger = logging.getLogger("ustreamer.files")

_DATABASE = b"SQLite format 3\0"
_MAGIC = (0x377F0682, 0x377F0683)  # with checksums of little-endian words, of big-endian ones
_VERSION = 3007000
_HEADER = struct.Struct(">IIIIIIII")
_FRAME = struct.Struct(">IIIIII")  # page, size of the file in pages if this ends a transaction, salts, checksums
_INDEX = struct.Struct("=IIIBBHIIIIIIII")
_BACKFILLED = struct.Struct("=I")
_SALTS_AT = _HEADER.size + 8
_SUMS = struct.Struct(">II")
_WORD = 0xFFFF_FFFF

Salts = tuple[int, int]


class _Index(NamedTuple):
    """The index's numbers of frames that were committed, and of those that are in the file already."""

    salts: Salts
    frames: int
    backfilled: int
    is_recent: bool


@dataclass(slots=True)
class WriteAheadLog:
    """A log on the disk. ``problem`` describes the damage; empty: none.

    ``frames`` has the valid ones: number, page, and the size of the file in pages if the frame ends a transaction.
    """

    path: Path
    bytes: int = 0
    page_bytes: int = 4096
    is_little: bool = sys.byteorder == "little"
    salts: Salts = (0, 0)
    frames: list[tuple[int, int, int]] = field(default_factory=list)
    problem: str = ""


def look(path: Path) -> WriteAheadLog:
    """Check an unused file and its log before SQLite opens them. Raises sqlite3.Error and OSError."""
    index = _index(Path(f"{path}-shm"))
    log = scan(path)
    if log.problem:
        return log
    if log.bytes and (start := _start(path)) != _DATABASE:
        is_there = "does not begin as a database" if start else "is empty" if path.exists() else "is missing"
        log.problem = f"the file {is_there}, but its log is not empty"
        return log
    if index is not None and (index.salts != log.salts if log.frames else not index.is_recent):
        index = None
    last = max((number + 1 for number, _, size in log.frames if size), default=0)
    committed = 0 if index is None or (index.frames <= index.backfilled and not log.bytes) else index.frames
    if not last and not committed:
        return log
    taken = _taken(path) if last else 0
    if taken is None or taken >= max(last, committed):
        return log
    if committed <= taken and log.frames[-1][0] == min(number for number, _, size in log.frames if size and number >= taken):
        logger.warning("wal_cut_short file=%s-wal consequence=%s", path, "its last transaction, if it was one, is left out")
        return log
    left = sum(number < last for number, _, _ in log.frames)
    log.problem = f"its log is damaged: SQLite reads {taken} of {max(last, committed)} frames, {left} are left"
    if index is not None and last <= index.backfilled:  # the remaining frames are older than the file
        log.frames = []
    return log


def damage_of_unused(path: Path) -> str:
    """Return the damage that `look` finds, before a program opens the file; empty if a daemon uses it, or may use it."""
    try:
        if is_in_use(path):
            return ""
    except OSError:
        return ""
    return look(path).problem


def scan(path: Path) -> WriteAheadLog:
    """Find all frames of a file's log, whether SQLite would read them or not. Raises OSError."""
    log = WriteAheadLog(Path(f"{path}-wal"))
    try:
        source = open_to_read(log.path)
    except FileNotFoundError:
        return log
    with source:
        log.bytes = os.fstat(source.fileno()).st_size
        header = source.read(_HEADER.size)
        if len(header) < _HEADER.size:
            return log
        magic, version, page_bytes, _, *salts, first, second = _HEADER.unpack(header)
        little = magic == _MAGIC[0]
        is_whole = magic in _MAGIC and version == _VERSION and _checksum(header[:24], (0, 0), little) == (first, second)
        if is_whole:
            log.page_bytes, log.is_little = page_bytes, little
            log.salts = salts[0], salts[1]
        else:  # every frame has the salts as well
            log.page_bytes = _page_bytes(path)
            source.seek(_SALTS_AT)
            found = source.read(8)
            log.salts = struct.unpack(">II", found) if len(found) == 8 else (0, 0)
        log.frames = list(_frames(source, log.page_bytes, log.salts))
        if not is_whole and not log.frames and log.bytes > _HEADER.size + _FRAME.size:
            log.problem = "its log is damaged: nothing in it can be read"
    return log


def copy(log: WriteAheadLog, path: Path, *, with_changed: bool) -> None:
    """Write the frames of a log as the log of the file at ``path``, which has none.

    ``with_changed``: include frames whose checksum is wrong. Raises OSError.
    """
    last, pages = max(((number, size) for number, _, size in log.frames if size), default=(-1, 0))
    if last < 0:
        return
    with open_to_read(log.path) as source, Path(f"{path}-wal").open("xb") as target:
        head = _HEADER.pack(_MAGIC[0], _VERSION, log.page_bytes, 0, *log.salts, 0, 0)[: _HEADER.size - _SUMS.size]
        sums = _checksum(head, (0, 0), is_little=True)
        target.write(head + _SUMS.pack(*sums))
        for number, page, size in log.frames:
            at = _HEADER.size + number * (_FRAME.size + log.page_bytes)
            source.seek(at - (_SUMS.size if number == 0 else _SUMS.size + log.page_bytes))
            before = _SUMS.unpack(source.read(_SUMS.size))
            source.seek(at)
            head, content = source.read(_FRAME.size), source.read(log.page_bytes)
            is_changed = _frame_checksum(head, content, before, log.is_little) != _SUMS.unpack(head[-_SUMS.size :])
            if number > last or not 0 < page <= pages or (is_changed and not with_changed):
                continue
            head = _FRAME.pack(page, size, *log.salts, 0, 0)
            sums = _frame_checksum(head, content, sums, is_little=True)
            target.write(head[: -_SUMS.size] + _SUMS.pack(*sums) + content)


def _frame_checksum(head: bytes, content: bytes, before: tuple[int, int], is_little: bool) -> tuple[int, int]:
    return _checksum(content, _checksum(head[:8], before, is_little), is_little)


def _frames(source: BinaryIO, page_bytes: int, salts: Salts) -> Iterator[tuple[int, int, int]]:
    if salts == (0, 0):
        return
    size = _FRAME.size + page_bytes
    for number in range((os.fstat(source.fileno()).st_size - _HEADER.size) // size):
        source.seek(_HEADER.size + number * size)
        page, pages, *found = _FRAME.unpack(source.read(_FRAME.size))
        if (found[0], found[1]) == salts:
            yield number, page, pages


def _taken(path: Path) -> int | None:
    """Return how many frames SQLite reads; None if it reports damage itself. Raises sqlite3.Error and OSError."""
    with closing(connect(path, read_only=True)) as connection:  # read-only: closing must not checkpoint the log
        try:
            connection.execute("PRAGMA schema_version").fetchone()
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:
            return None
        found = _index(Path(f"{path}-shm"))
    return None if found is None else found.frames


def _index(path: Path) -> _Index | None:
    """Return the content of the index; None if there is none, or if it is incomplete."""
    try:
        with open_to_read(path) as source:
            written, raw = os.fstat(source.fileno()).st_mtime, source.read(2 * _INDEX.size + _BACKFILLED.size)
    except FileNotFoundError:
        return None
    first, second, rest = raw[: _INDEX.size], raw[_INDEX.size : 2 * _INDEX.size], raw[2 * _INDEX.size :]
    if len(rest) < _BACKFILLED.size or first != second:
        return None
    _, _, _, is_ready, _, _, frames, _, _, _, salt, other_salt, *_ = _INDEX.unpack(first)
    if not is_ready:
        return None
    (backfilled,) = _BACKFILLED.unpack(rest)
    started = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return _Index(_as_in_log(salt, other_salt), frames, backfilled, written > started)


def _as_in_log(*salts: int) -> Salts:
    """Return the salts of the index, which are in native byte order, as the log has them."""
    first, second = struct.unpack(">II", struct.pack("=II", *salts))
    return first, second


def _page_bytes(path: Path) -> int:
    """Return the page size of a database; the default if it cannot be read."""
    size = int.from_bytes(_start(path, 18)[16:], "big")
    size = 65536 if size == 1 else size
    return size if size >= 512 and not size & (size - 1) else 4096


def _start(path: Path, size: int = 16) -> bytes:
    """Return the first bytes of a file; empty if there is none."""
    with suppress(FileNotFoundError), open_to_read(path) as source:
        return source.read(size)
    return b""


def _checksum(data: bytes, sums: tuple[int, int], is_little: bool) -> tuple[int, int]:
    first, second = sums
    words = struct.unpack(f"{'<' if is_little else '>'}{len(data) // 4}I", data)
    for one, other in zip(words[::2], words[1::2], strict=True):
        first = (first + one + second) & _WORD
        second = (second + other + first) & _WORD
    return first, second
