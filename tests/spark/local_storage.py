"""The tables on this machine, read without Spark."""

from pathlib import Path
from typing import Any, cast

from spark_jobs.report import fleet, reading
from spark_jobs.storage import Storage
from tests.spark.report_rows import DAY


class LocalStorage:
    """What the report needs of `storage.Storage`."""

    def exists(self, path: str) -> bool:
        return Path(path).exists()

    def names(self, pattern: str) -> list[str]:
        folder, _, glob = pattern.rpartition("/")
        return sorted(path.name for path in Path(folder).glob(glob))

    def readable(self, path: str) -> str:
        return path


def report_of(root: Path, streamer: str | None = None) -> reading.ReportTables:
    return reading.ReportTables(cast(Storage, LocalStorage()), str(root), DAY, streamer)


def collected(root: Path, streamer: str | None = None) -> dict[str, list[dict[str, Any]]]:
    """All that the report reads of these tables."""
    report = report_of(root, streamer)
    return reading.collect(report) | fleet.collect(report)
