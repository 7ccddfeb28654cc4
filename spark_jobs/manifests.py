"""The manifests ``_runs/date=D.json``: the files that a date's tables were made from, and so which dates must run again.

A date is stale if it has no manifest, or if one of the dates that it reads now has a file that the manifest does not list.
Files that are gone do not make a date stale, and they keep its tables from being replaced: the daemon deletes its oldest
files, and tables made from the rest would hold less than the present ones. A manifest therefore keeps the files of tables
that are still in place.

``"done"`` is false from before the first table of a date is replaced until all its record tables are in place. ``"trends"``
is true once the trend tables are up to date: those of this date, and those of later dates that look back on it. ``"run"``
tells runs apart that write the same date at once, where nothing keeps the second one out: neither of them can then know
whose tables are in place, so the date stays stale.
"""

import datetime as dt
import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from spark_jobs.records import File, NewerVersionError, date_of, hashes
from spark_jobs.schema import VERSION
from spark_jobs.storage import Storage

_OF_PATH = np.uint64(24)
_FORMAT = 3
"""Up to 2, each file was listed by its path; such a manifest can be read."""

Files = Mapping[dt.date, Mapping[str, File]]
"""The files of each date, by their path below the date's folder."""

Seen = Mapping[str, File] | bytes
"""The files of a date, or their hashes: see `records.hashes`."""

LeftOut = Mapping[str, tuple[File, str]]


@dataclass(frozen=True)
class Manifest:
    """The content of one manifest."""

    files: Mapping[dt.date, Seen]
    """All files that any of its tables was made from, even in a run that was interrupted: their hashes, ascending."""
    done: bool
    """Whether the record tables belong to these files. False while they are made, and after a kill or a failure."""
    trends: bool
    """Whether the trend tables are up to date too, of this date and of those that look back on it."""
    run: str = field(default="", compare=False)
    """The run that has last begun to replace the tables."""
    left_out: LeftOut = field(default_factory=dict)
    """The files of the date itself that its tables lack, with the reason. As long as they and these jobs stay the same, they
    need not be looked at again."""

    def __post_init__(self) -> None:
        files = {date: np.sort(hashes(found)).tobytes() for date, found in self.files.items()}
        object.__setattr__(self, "files", files)

    def without(self, left_out: Mapping[dt.date, Iterable[str]]) -> "Manifest":
        """The same without some files, by their paths."""
        gone = {date: dict.fromkeys(left_out.get(date, ()), File(0, 0)) for date in self.files}
        return replace(self, files={date: _without(files, gone[date]).tobytes() for date, files in self.files.items()})


class Manifests:
    """The manifests below an output folder."""

    def __init__(self, storage: Storage, output: str) -> None:
        self._storage = storage
        self._root = f"{output}/_runs"

    def get(self, date: dt.date) -> Manifest | None:
        """The manifest of a date. None if there is none, or one of an earlier version: the date runs again, which is safe.

        Raises NewerVersionError for one of a newer version, whose tables these jobs might replace by less.
        """
        if (text := self._storage.read_text(self._path(date))) is None:
            return None
        try:
            content = json.loads(text)
            found_format = int(content["format"])
            if found_format > _FORMAT:
                raise NewerVersionError(self._path(date), found_format, _FORMAT)
            if found_format < 2:
                return None
            files = {
                dt.date.fromisoformat(day): {path: File(*seen) for path, seen in found.items()}
                if found_format == 2
                else b64decode(found)
                for day, found in content["files"].items()
            }
            left_out = {path: (File(*seen), str(why)) for path, (*seen, why) in content.get("left_out", {}).items()}
            if content.get("knows") != VERSION:  # other jobs may be able to use these files
                left_out = {}
            return Manifest(files, bool(content["done"]), bool(content["trends"]), str(content.get("run", "")), left_out)
        except NewerVersionError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError):
            return None

    def dates(self) -> list[dt.date]:
        """The dates that have a manifest, ascending."""
        names = self._storage.names(f"{self._root}/date=*.json")
        return [date for name in names if (date := date_of(name)) is not None]

    def put(self, date: dt.date, manifest: Manifest) -> None:
        files = {str(day): b64encode(hashes(found).tobytes()).decode() for day, found in manifest.files.items()}
        content = {"format": _FORMAT, "date": str(date), "done": manifest.done, "trends": manifest.trends}
        content |= {"run": manifest.run, "files": files}
        if manifest.left_out:
            left_out = {path: (*file, why) for path, (file, why) in manifest.left_out.items()}
            content |= {"left_out": left_out, "knows": VERSION}
        self._storage.write_text(self._path(date), json.dumps(content, separators=(",", ":")))

    def delete(self, date: dt.date) -> None:
        self._storage.delete(self._path(date))

    def _path(self, date: dt.date) -> str:
        return f"{self._root}/date={date}.json"


def _without(files: Seen, others: Seen) -> np.ndarray:
    """The hashes of the files whose paths the others lack, whatever their sizes and times."""
    found = hashes(files)
    return found[np.isin(found >> _OF_PATH, hashes(others) >> _OF_PATH, invert=True)]


def grown(manifest: Manifest, files: Files, reads: Iterable[dt.date]) -> bool:
    """Whether there is a file that the manifest does not list, or lists with another size or time."""
    now = {date: hashes(files.get(date, {})) for date in reads}
    return any(np.isin(found, hashes(manifest.files.get(date, b"")), invert=True).any() for date, found in now.items())


def gone(manifest: Manifest, files: Files, reads: Iterable[dt.date]) -> int:
    """How many files of these dates the manifest lists that are gone."""
    return sum(len(_without(manifest.files.get(date, b""), files.get(date, {}))) for date in reads)


def united(earlier: Mapping[dt.date, Seen], later: Files) -> dict[dt.date, Seen]:
    """The files of both; where they differ, those of ``later``."""
    both = {date: (_without(files, later.get(date, {})), hashes(later.get(date, {}))) for date, files in earlier.items()}
    return {**later, **{date: np.concatenate(parts).tobytes() for date, parts in both.items()}}
