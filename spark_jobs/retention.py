"""Deletes what the jobs made of dates that are older than asked for: tables, reports, manifests.

A deleted date is not a stale one: it must not be computed again from traces that are still there, or from a late file. So
the day from which on dates are kept is written first, to ``_runs/kept-from.txt``; no run without dates goes behind it. Then
go the tables and reports of each date, and its manifest last. Whatever a kill leaves is found and deleted by the next run.
"""

import datetime as dt
import re
from collections.abc import Iterable

from spark_jobs.manifests import Manifests
from spark_jobs.storage import Storage
from spark_jobs.table_store import TableStore
from spark_jobs.tables import Table

_REPORT = re.compile(r"[a-z]+-(\d{4}-\d\d-\d\d)(?:[.-].*)?$")


def kept_from(storage: Storage, output: str) -> dt.date:
    """The day before which all dates were deleted; the first of all days if none were."""
    text = storage.read_text(_path(output))
    return dt.date.min if text is None else dt.date.fromisoformat(text.strip())


def delete_before(
    storage: Storage, store: TableStore, output: str, first: dt.date, tables: Iterable[Table], manifests: Manifests
) -> list[dt.date]:
    """Delete everything of the dates before `first`. Returns these dates, ascending. Raises StorageError."""
    if kept_from(storage, output) < first:
        storage.write_text(_path(output), f"{first}\n")
    old = [(table, [date for date in store.dates(table) if date < first]) for table in tables]
    reports = {name: date for name in storage.names(f"{output}/report/*") if (date := _date(name)) and date < first}
    known = [date for date in manifests.dates() if date < first]
    for table, dates in old:
        if dates:
            store.withdraw(table, dates)
    storage.delete(f"{output}/_counts")  # of an earlier version
    for name in reports:
        storage.delete(f"{output}/report/{name}")
    for date in known:
        manifests.delete(date)
    return sorted({*known, *reports.values(), *(date for _, dates in old for date in dates)})


def _path(output: str) -> str:
    return f"{output}/_runs/kept-from.txt"


def _date(name: str) -> dt.date | None:
    match = _REPORT.match(name)
    try:
        return None if match is None else dt.date.fromisoformat(match[1])
    except ValueError:
        return None
