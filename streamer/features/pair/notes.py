"""The notes of a streamer of a pair, beside its journal: the epoch, the name of its disk, and brokers that refused it.

A small file of its own, because an epoch has to be on disk before a take-over has any effect, whatever the journal does.
"""

import json
import logging
import os
import secrets
import threading
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from streamer.files import read_file
from streamer.journal.sqlite import FileError

_LONGEST = 65_536
_SAVES_WITHIN_S = 0.4  # a process that does not run for longer takes itself for one that was stopped
logger = logging.getLogger("ustreamer.pair")

_NONE: Mapping[str, int] = MappingProxyType({})


class NotesError(FileError):
    """The file cannot be read or written; the text says why."""

    key = "pair"


class Notes(NamedTuple):
    """``journal`` is the name of the disk (`streamer.features.pair.disk`) whose journal this version has written last.

    Earlier versions leave it out: facts in a journal that they may have written to do not count. ``refused`` is that of
    `streamer.features.pair.reach.Reach`.
    """

    epoch: int
    journal: str = ""
    refused: Mapping[str, int] = _NONE


class NotesFile:
    """The notes of this streamer, and their file. A failure to write is logged: no service is worse than an unknown epoch.

    A disk that hangs holds up nothing but the thread that writes.
    """

    def __init__(self, path: Path) -> None:
        """Read the notes, and show that they can be written. Raises `NotesError`."""
        self.notes = read(path)
        self._path = path
        self._writing = threading.Lock()  # threads write, in any order
        self.save()

    def note(self, **changes: Any) -> None:
        """Change notes, by their names; `save` persists them."""
        self.notes = self.notes._replace(**changes)

    def save(self, **changes: Any) -> None:
        """Change notes, and persist them. Blocks for a moment at most."""
        self.note(**changes)
        saving = threading.Thread(target=self._write, name="notes of the pair", daemon=True)
        saving.start()
        saving.join(_SAVES_WITHIN_S)
        if saving.is_alive():
            self._is_unwritten(f"{self._path}: no answer of the disk within {_SAVES_WITHIN_S:g} s")

    def _write(self) -> None:
        try:
            with self._writing:
                write(self._path, self.notes)
        except NotesError as exc:
            self._is_unwritten(str(exc))

    def _is_unwritten(self, why: str) -> None:
        consequence = "after another failure it may be unknown which of the two has worked last"
        state = {"state": ("notes of the pair", why)}
        logger.error("pair_notes_unwritten reason=%s consequence=%s", why, consequence, extra=state)


def read(path: Path) -> Notes:
    """Read the notes; new ones if there is no such file. Raises `NotesError`."""
    try:
        found = json.loads(read_file(path, _LONGEST))
        read = Notes(**{key: value for key, value in found.items() if key in Notes._fields})  # a newer version has more
    except FileNotFoundError:
        return Notes(0)
    except OSError as exc:
        raise NotesError(f"{path}: {exc.strerror or type(exc).__name__}") from exc
    except (ValueError, TypeError, AttributeError) as exc:
        raise NotesError(f"{path}: expected the notes of a pair, as JSON with an epoch; delete it if in doubt") from exc
    counts = (read.epoch, *(read.refused.values() if isinstance(read.refused, dict | MappingProxyType) else (None,)))
    if not (all(map(_is_count, counts)) and isinstance(read.journal, str)):
        raise NotesError(f"{path}: expected a whole number as epoch, the name of a disk, and numbers by endpoint as refused")
    return read


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def write(path: Path, notes: Notes) -> None:
    """Replace the notes; they are on disk when this returns. Raises `NotesError`."""
    new = path.with_name(f"{path.name}.new")
    try:
        with new.open("w", encoding="ascii") as file:
            json.dump(
                notes._asdict() | {"refused": dict(notes.refused), "disk": secrets.token_hex(8)}, file
            )  # earlier versions need one: never the same
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as exc:
        raise NotesError(f"{path}: {exc.strerror or type(exc).__name__}") from exc
