"""Describes a journal file without changing it: its header, its size, how many entries it has. Reads no message."""

import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from streamer.journal.letter_json import code_name
from streamer.journal.schema import TABLES, journal_faults
from streamer.journal.sqlite import connect_to_look
from streamer.journal.versions import written_by

_PRAGMAS = ("application_id", "user_version", "page_size", "page_count", "freelist_count", "journal_mode")
_GROUPS = """SELECT ifnull(route, ''), ifnull(outcome, ''), ifnull(code, 0), count(*), min(last_ms), max(last_ms)
    FROM letters GROUP BY 1, 2, 3 ORDER BY 4 DESC LIMIT 1000"""


def summary(path: Path) -> dict[str, Any]:
    """Return what there is to say of a journal, in JSON's types; works while a daemon uses it. Raises `JournalError`.

    A damaged file raises `CorruptFileError`.
    """
    files = {}
    for each in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
        with suppress(OSError):
            files[each.name] = each.stat().st_size
    with journal_faults(path), closing(connect_to_look(path)) as connection:
        letters = [
            {
                "route": route,
                "outcome": outcome,
                "reason": code_name(code),
                "number": number,
                "first_ms": first_ms,
                "last_ms": last_ms,
            }
            for route, outcome, code, number, first_ms, last_ms in connection.execute(_GROUPS)
        ]
        return {
            "path": str(path),
            "bytes": files,
            "written_by": written_by(connection),
            "header": {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in _PRAGMAS},
            "entries": {name: _count(connection, name) for name in TABLES},
            "dead_letters": letters,
        }


def _count(connection: sqlite3.Connection, table: str) -> int:
    return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
