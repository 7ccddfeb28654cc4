"""Probes of this machine for ``streamer check --probe``: files, folders, room on disks. The caller bounds their time."""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from streamer.config.claims import paths
from streamer.config.models import Config
from streamer.config.secrets import dotted, is_secret_file
from streamer.config.tls import server_context
from streamer.config.token import read_token
from streamer.files import open_to_read
from streamer.journal.file import problem_of
from streamer.journal.lock import is_in_use
from streamer.journal.schema import JOURNAL
from streamer.transports.certificates import expiry_probe
from streamer.transports.probe import Answer, Probe, Verdict, blocking, cannot_tell, checked, ok, problem

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def files(config: Config) -> Iterator[Probe]:
    """Yield a probe for every file that the streamer only reads."""
    for location, path in paths(config):
        name = str(location[-1])
        if name.endswith("_file"):
            yield blocking(dotted(location), partial(_readable, path, is_secret_file(name)))
    if config.metrics is not None and config.metrics.tls is not None:
        yield checked("metrics.tls", partial(server_context, config.metrics.tls), "the certificate belongs to the key")
    yield from (expiry_probe(key, file) for key, file in config.certificates())
    token_file = config.control.http_token_file
    if token_file is not None:
        yield checked("control.http_token_file", partial(read_token, token_file), "the file holds a token")


def _readable(path: Path, is_secret: bool) -> Answer:
    """Check that a file can be read, from its first bytes. A line end alone (``echo "$UNSET"``) is no secret."""
    with open_to_read(path) as file:
        first = file.read(3)
        is_empty = len(first) < 3 and not first.strip(b"\r\n")
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
    if is_empty:
        return problem(f"{path} is empty")
    if not is_secret:
        return ok(f"{path} can be read")
    shown = f"{path} has mode {mode:04o}"
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        return problem(f"{shown}: others can change it")
    if mode & stat.S_IRWXO:
        return cannot_tell(f"{shown}: fine if no other user can log in here, as in a container; else 0600 or 0640")
    return ok(f"{shown}, and can be read")


def stores(config: Config, used: frozenset[str] | None = frozenset()) -> Iterator[Probe]:
    """Yield a probe for every file and folder that the streamer writes, and for the disk space that they may need.

    ``used``: the files that the streamer of this configuration uses now; None: it cannot be queried.
    """
    if config.journal is not None:
        yield blocking("journal.path", partial(_database, config.journal.path, used))
    folders = [folder for _, section in config.feature_sections() for folder in section.folders()]
    yield from (blocking(folder.key, partial(_folder, folder.path, None)) for folder in folders)
    if config.log.audit is not None:
        yield blocking("log.audit", partial(_log, config.log.audit))
    needs = []
    if config.journal is not None:  # dead letters are in it
        needs.append(("journal.max_bytes", config.journal.path, config.journal.disk_bytes))
    needs += [(folder.bound_key, folder.path, folder.max_bytes + folder.open_bytes) for folder in folders]
    if needs:
        yield blocking(", ".join(key for key, _, _ in needs), partial(_room, needs))


def _database(path: Path, used: frozenset[str] | None) -> Answer:
    """Check a database and its folder, where SQLite creates more files. The streamer creates the last folder itself."""
    folder = _folder(path.parent, 1)
    if not path.exists() or folder.verdict is not Verdict.OK:
        return folder
    answer = _file(path)
    if answer.verdict is not Verdict.OK:
        return answer
    if is_in_use(path):
        if used is None:
            return cannot_tell(
                f"{path} is in use: fine if that is the streamer of this file; with metrics.listen the command can find out"
            )
        if str(path) in used:
            return ok(f"{path} is in use by the running streamer")
        return problem(f"{path}: a streamer uses it that does not answer at metrics.listen; each needs a file of its own")
    wrong = problem_of(path, JOURNAL)
    return problem(wrong) if wrong else answer


def _log(path: Path) -> Answer:
    """Check a log file: an existing one is appended to; the streamer creates the last folder itself."""
    return _file(path) if path.exists() else _folder(path.parent, 1)


def _file(path: Path) -> Answer:
    if not path.is_file():
        return problem(f"{path} is not a file")
    if not os.access(path, os.R_OK | os.W_OK):
        return problem(f"{path} cannot be read and written")
    return ok(f"{path} can be written")


def _folder(path: Path, makes: int | None) -> Answer:
    """Check a folder. ``makes``: how many missing folders the streamer creates itself; None: all."""
    there = _existing(path)
    missing = len(path.absolute().parts) - len(there.parts)
    if makes is not None and missing > makes:
        return problem(f"{path} does not exist")
    if not there.is_dir():
        return problem(f"{there} is not a folder")
    if not os.access(there, os.W_OK | os.X_OK):
        return problem(f"{there} cannot be written")
    return ok(f"{path} {'will be created' if missing else 'can be written'}")


def _existing(path: Path) -> Path:
    """Return the path, or its nearest parent that exists."""
    path = path.absolute()
    return next((each for each in (path, *path.parents) if each.exists()), Path(path.root))


def _room(needs: list[tuple[str, Path, int]]) -> Answer:
    """Check that the disks have room for the growth that the bounds allow."""
    wanted: dict[int, int] = {}
    free: dict[int, tuple[Path, int]] = {}
    for _, path, bound in needs:
        there = _existing(path)
        device = there.stat().st_dev
        wanted[device] = wanted.get(device, 0) + max(0, bound - _size(path))
        disk = os.statvfs(there)
        free[device] = there, disk.f_bavail * disk.f_frsize
    lacking = [device for device, size in wanted.items() if free[device][1] < size]
    texts = [
        f"{_shown(free[device][1])} free at {free[device][0]}, where up to {_shown(wanted[device])} more may be needed"
        for device in lacking or wanted
    ]
    return (problem if lacking else ok)("; ".join(texts))


def _size(path: Path) -> int:
    """Return the size of a file with its log, or of all files in a folder."""
    if path.is_dir():
        return sum(_size(each) for each in path.iterdir() if not each.is_symlink())
    found = 0
    for each in (path, path.with_name(f"{path.name}-wal")):
        with suppress(FileNotFoundError):
            found += each.stat().st_size
    return found


def _shown(size: float) -> str:
    unit = 0
    while size >= 1000 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.3g} {_UNITS[unit]}"
