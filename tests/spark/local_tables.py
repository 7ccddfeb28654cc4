"""The tables on this machine, read without Spark."""

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from spark_jobs.records import date_of
from spark_jobs.report import fleet, reading
from spark_jobs.table_store import TableStore
from spark_jobs.tables import Table
from tests.spark.report_rows import DAY


class LocalTables:
    """What the report needs of a `TableStore`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def dates(self, table: Table) -> list[datetime.date]:
        return sorted(date for path in (self._root / table.name).glob("date=*") if (date := date_of(path.name)))

    def files(self, table: Table, date: datetime.date, _: Path) -> list[str]:
        return sorted(str(path) for path in (self._root / table.name / f"date={date}").glob("*.parquet"))


def report_of(root: Path, streamer: str | None = None, retired: Sequence[str] = ()) -> reading.ReportTables:
    return reading.ReportTables(cast(TableStore, LocalTables(root)), DAY, streamer, retired)


def collected(root: Path, streamer: str | None = None, retired: Sequence[str] = ()) -> dict[str, list[dict[str, Any]]]:
    """All that the report reads of these tables."""
    with report_of(root, streamer, retired) as report:
        return reading.collect(report) | fleet.collect(report)
