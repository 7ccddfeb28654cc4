"""Where traces are stored, and how much of them is kept.

    <path>/date=2026-11-21/hour=7/streamer=gateway.veh1/part-<uuid>.parquet   complete, never changed
    <path>/.spool/gateway.veh1/<run>-<number>.arrows.open                     being written by the daemon
    <path>/.spool/gateway.veh1/<run>-<number>.arrows                          closed, waits for compaction
    <path>/.spool/gateway.veh1/<run>-<number>.arrows.bad                      cannot be compacted, kept for inspection
    <path>/.spool/gateway.veh1/sealing/                                       Parquet files that are not complete yet
    <path>/_events/date=2026-11-21/streamer=gateway.veh1/events-<uuid>.parquet   what happened to the streamer and its links
    <path>/.spool/gateway.veh1/events/                                        the same, in files as those of the records

From version 2 of the record on, names end with it: ``.v2.parquet``. Spark and other readers ignore hidden folders, and
those whose names begin with ``_``; versions without events overlook their spool, because it is a folder of its own. A
streamer touches only its own files. Whatever the umask, owner and group can read them and nobody else: they tell who
talks to whom.
"""

import fcntl
import os
import stat
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

VERSION: int = 1
"""The version of the trace record. It goes up if earlier programs would misread it, not for a column at the end."""

OPEN = ".arrows.open"
CLOSED = ".arrows"
BAD = ".arrows.bad"
EVENTS = "_events"

_AFTER_ALL_HOURS = 24
_DAY_S = 86_400
_FILE_MODE = 0o640
_FOLDER_MODE = 0o750
_NAMES = uuid.UUID("0f2b1f0a-6a51-4c0b-9c6c-6d2f6f1b7a55")


class Deleted(NamedTuple):
    """The files deleted to keep to the bound."""

    files: int = 0
    bytes: int = 0


@dataclass
class Compaction:
    """The result of a compaction. ``torn``: spool files that ended in the middle of a batch; ``bad``: files set aside.

    ``bytes``: the size of all files afterwards. ``reasons``: for each bad file, what is wrong with it. ``ahead``: files that
    are more than a day ahead of the clock, afterwards.
    """

    files: int = 0
    records: int = 0
    torn: int = 0
    bad: int = 0
    deleted_files: int = 0
    deleted_bytes: int = 0
    bytes: int = 0
    ahead: int = 0
    problems: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    def followed_by(self, later: "Compaction") -> "Compaction":
        """The sum of both, without texts. ``bytes`` is the size after the later one, if that one got so far."""
        return Compaction(
            self.files + later.files,
            self.records + later.records,
            self.torn + later.torn,
            self.bad + later.bad,
            self.deleted_files + later.deleted_files,
            self.deleted_bytes + later.deleted_bytes,
            later.bytes or self.bytes,
            later.ahead,
        )


class Folders:
    """The files of one streamer below ``path``."""

    def __init__(self, path: Path, streamer: str) -> None:
        self.path = path
        self.name = quote(streamer, safe="")
        self.spool = path / ".spool" / self.name
        self.unfinished = self.spool / "sealing"
        self.events = self.spool / "events"

    def create(self) -> None:
        """Create the folders. Raises OSError."""
        make_folder(self.unfinished)
        make_folder(self.events)

    def has_events(self, spool_file: Path) -> bool:
        """Whether a spool file has events; the others have records."""
        return spool_file.parent == self.events

    def lock(self, name: str, wait: bool) -> int:
        """Take a lock that ends with the process; returns its descriptor. Raises OSError, BlockingIOError if it is taken."""
        descriptor = os.open(self.spool / name, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def has_lock(self, name: str, descriptor: int) -> bool:
        """Whether a lock that was taken is still the one that others would find. Raises OSError."""
        try:
            return os.path.samestat(os.fstat(descriptor), os.stat(self.spool / name))
        except (FileNotFoundError, NotADirectoryError):
            return False

    def closed(self) -> list[Path]:
        """Spool files that wait for compaction, oldest first."""
        return self._spool_files(CLOSED)

    def bad(self) -> list[Path]:
        """Spool files that were set aside, oldest first."""
        return self._spool_files(BAD)

    def left_open(self) -> list[Path]:
        """Spool files that are being written, or were when the daemon was killed."""
        return self._spool_files(OPEN)

    def _spool_files(self, ending: str) -> list[Path]:
        return sorted((*self.spool.glob(f"*{ending}"), *self.events.glob(f"*{ending}")), key=_number)

    def partition(self, day: date, hour: int) -> Path:
        """The folder of an hour."""
        return self.path / f"date={day.isoformat()}" / f"hour={hour}" / f"streamer={self.name}"

    def part(self, spool_file: Path, day: date, hour: int) -> Path:
        """The Parquet file for an hour of a spool file, or for a day of events.

        It always has the same name, so that compaction can be repeated.
        """
        name = uuid.uuid5(_NAMES, f"{self.name}/{spool_file.name}/{day.isoformat()}/{hour}")
        # The nightly jobs look at names: opening every file would take them longer.
        version = "" if VERSION == 1 else f".v{VERSION}"
        if self.has_events(spool_file):
            folder = self.path / EVENTS / f"date={day.isoformat()}" / f"streamer={self.name}"
            return folder / f"events-{name}{version}.parquet"
        return self.partition(day, hour) / f"part-{name}{version}.parquet"

    def parquet_files(self) -> list[Path]:
        """Complete Parquet files, oldest hour first; the events of a date come after its records."""
        records = self.path.glob(f"date=*/hour=*/streamer={self.name}/part-*.parquet")
        events = self.path.glob(f"{EVENTS}/date=*/streamer={self.name}/events-*.parquet")
        return sorted((*records, *events), key=_age)

    def total_bytes(self) -> int:
        """The size of all files."""
        return sum(map(_size, (*self.bad(), *self.parquet_files(), *self.closed(), *self.left_open())))

    def ahead(self, now_s: float) -> list[Path]:
        """Complete files that are more than a day ahead of the clock, which was wrong when they were written or is now."""
        last = datetime.fromtimestamp(now_s + _DAY_S, UTC).date().isoformat()
        parquet = [file for file in self.parquet_files() if last < _date(file)]
        return [*parquet, *(file for file in self.closed() if _written_ns(file) > (now_s + _DAY_S) * 1e9)]

    def keep_to(self, max_bytes: int, now_s: float) -> Deleted:
        """Delete the oldest files until the rest fits: bad ones first, then Parquet files, then closed spool files.

        Before these go the files that are `ahead`: nobody can tell how old they are, and they would stay for ever.
        """
        ahead = self.ahead(now_s)
        known = set(ahead)
        spool = sorted(self.closed(), key=lambda file: (_written_ns(file), _number(file)))
        files = [*self.bad(), *ahead, *(file for file in (*self.parquet_files(), *spool) if file not in known)]
        sizes = [_size(file) for file in files]
        total = sum(sizes) + sum(map(_size, self.left_open()))
        deleted = freed = 0
        for file, size in zip(files, sizes, strict=True):
            if total - freed <= max_bytes:
                break
            file.unlink(missing_ok=True)
            deleted += 1
            freed += size
            if self.spool not in file.parents:
                _remove_empty(file.parent, self.path)
        return Deleted(deleted, freed)


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it; what exists stays as it is. Raises OSError."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    try:
        folder.mkdir(mode=_FOLDER_MODE)
    except FileExistsError:
        if not folder.is_dir():  # otherwise another streamer has just made it
            raise
        return
    with suppress(PermissionError):  # a file system without modes
        folder.chmod(_FOLDER_MODE | folder.stat().st_mode & stat.S_ISGID)


def make_file(path: Path) -> int:
    """Make a file, and return its descriptor, for writing. Raises OSError, FileExistsError if there is one."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE_MODE)
    with suppress(PermissionError):
        os.fchmod(descriptor, _FILE_MODE)
    return descriptor


def sync(folder: Path) -> None:
    """Write a folder's entries to the disk. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_empty(folder: Path, up_to: Path) -> None:
    for each in _upwards(folder, up_to):
        try:
            each.rmdir()
        except OSError:  # it holds files of another streamer
            return


def _upwards(folder: Path, up_to: Path) -> Iterator[Path]:
    while folder != up_to:
        yield folder
        folder = folder.parent


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


def _number(file: Path) -> tuple[int, int]:
    run, _, number = file.name.partition(".")[0].partition("-")
    return int(run) if run.isdecimal() else 0, int(number) if number.isdecimal() else 0


def _age(file: Path) -> tuple[str, int, int, str]:
    hour = file.parent.parent.name.partition("hour=")[2]
    return _date(file), int(hour) if hour.isdecimal() else _AFTER_ALL_HOURS, _written_ns(file), file.name


def _date(file: Path) -> str:
    return next((part.removeprefix("date=") for part in reversed(file.parts) if part.startswith("date=")), "")


def _written_ns(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
