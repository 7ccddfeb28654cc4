"""What a night has made, to be compared with that of another one."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from tests.cluster.places import Ended, Place
from tests.iceberg import nights

DAY = nights.DAY
Rows = dict[str, list[Any]]


class Made(NamedTuple):
    """A night, and what it has made."""

    night: Ended
    rows: Rows
    """Every row of every table, in one order."""
    reports: dict[str, Any]
    """The reports and verdicts for machines, by the names of their files, without the time at which they were made."""


def made_by(place: Place, tables: Path, folder: Path) -> Made:
    """Run a night whose tables are on this machine."""
    return found(place.night(folder), tables)


def found(night: Ended, tables: Path) -> Made:
    """What there is after a night."""
    assert night.exit_code in (0, 1), night.said
    return Made(night, nights.parquet_rows(tables), _reports(tables / "report"))


def check_same(made: Made, expected: Made) -> None:
    """Raise AssertionError if something was made that differs, or was said of what was left out."""
    assert nights.differing(expected.rows, made.rows) == [], made.night.said
    assert len(expected.reports) >= len(("report", "verdict")) * 3
    assert made.reports == expected.reports
    assert made.night.left_out() == expected.night.left_out()
    assert made.night.exit_code == expected.night.exit_code, made.night.said


def _reports(folder: Path) -> dict[str, Any]:
    found = {path.name: json.loads(path.read_text()) for path in folder.rglob("*.json")}
    for each in found.values():
        del each["created"]
    return found


def broken_inside(path: Path) -> None:
    """Break a Parquet file behind its footer, which stays good."""
    content = bytearray(path.read_bytes())
    footer_at = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    content[4:footer_at] = bytes(footer_at - 4)
    path.write_bytes(content)
