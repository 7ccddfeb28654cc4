"""The notes of a streamer of a pair, beside its journal: the epoch, the name of its disk, and brokers that refused it.

A small file of its own, because an epoch has to be on disk before a take-over has any effect, whatever the journal does.
"""

import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from streamer.files import read_file
from streamer.journal.sqlite import FileError

_LONGEST = 65_536
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
