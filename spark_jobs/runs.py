"""The manifests ``_runs/date=D.json``: from which files a date's tables were made, so which dates have to be run again.

A date is stale when it has no manifest, or when one of the dates that it reads has a file now that was not there then. Files
that have gone since make nothing stale, and keep a table from being made again: the daemon deletes its oldest to keep to its
disk, and what is left of them would make less than what stands. So a manifest never forgets the files of tables that stand.
Before a date's first table is touched, its manifest is written with ``"done": false``; with true when the tables of records
stand. ``"trends"`` is true when those that look back do too, of this date and of those that look back on it.
"""

import datetime as dt
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from spark_jobs.records import File
from spark_jobs.storage import Storage

_FORMAT = 2

Files = Mapping[dt.date, Mapping[str, File]]
"""Of each date: its files, by their path below the date's folder."""


@dataclass(frozen=True)
class Run:
    """What the manifest of a date says."""

    files: Files
    """All that any of its tables was made from, also in a run that did not come to its end."""
    done: bool
    """Whether the tables of records are those of the files. False while they are made, and after a kill or a failure."""
    trends: bool
    """Whether the tables with a memory are done too, here and on the dates that look back on this one."""


class Runs:
    """The manifests below an output folder."""

    def __init__(self, storage: Storage, output: str) -> None:
        self._storage = storage
        self._root = f"{output}/_runs"

    def get(self, date: dt.date) -> Run | None:
        """None without a manifest, or with one that this version cannot read: the date is run again, which does no harm."""
        if (text := self._storage.read_text(self._path(date))) is None:
            return None
        try:
            content = json.loads(text)
            if content["format"] != _FORMAT:
                return None
            files = {
                dt.date.fromisoformat(day): {path: File(*seen) for path, seen in found.items()}
                for day, found in content["files"].items()
            }
            return Run(files, bool(content["done"]), bool(content["trends"]))
        except (ValueError, KeyError, TypeError, AttributeError):
            return None

    def dates(self) -> list[dt.date]:
        """The dates that have a manifest, ascending."""
        names = self._storage.names(f"{self._root}/date=*.json")
        return [dt.date.fromisoformat(name.removeprefix("date=").removesuffix(".json")) for name in names]

    def put(self, date: dt.date, run: Run) -> None:
        files = {str(day): dict(found) for day, found in run.files.items()}
        content = {"format": _FORMAT, "date": str(date), "done": run.done, "trends": run.trends, "files": files}
        self._storage.write_text(self._path(date), json.dumps(content, separators=(",", ":")))

    def _path(self, date: dt.date) -> str:
        return f"{self._root}/date={date}.json"


def grown(run: Run, files: Files, reads: Iterable[dt.date]) -> bool:
    """Whether there is a file now that the run did not see, or saw with another size or time."""
    return any(run.files.get(date, {}).get(path) != file for date in reads for path, file in files.get(date, {}).items())


def gone(run: Run, files: Files, reads: Iterable[dt.date]) -> int:
    """How many files of these dates the run saw that are there no longer."""
    return sum(path not in files.get(date, {}) for date in reads for path in run.files.get(date, {}))


def united(earlier: Files, later: Files) -> dict[dt.date, dict[str, File]]:
    """The files of both, as they were seen last."""
    dates = sorted({*earlier, *later})
    return {date: {**earlier.get(date, {}), **later.get(date, {})} for date in dates}
