"""The nightly report: one self-contained HTML file, and the same figures as JSON.

`reading` and `fleet` query the tables, and `figures` makes one dict of the results. The JSON, the `sentences`, the `charts`,
the `page` and the `verdict` are made from that dict alone.
"""

import datetime
import hashlib
import json
from collections.abc import Sequence
from urllib.parse import quote

from pyspark.sql import SparkSession

from spark_jobs.parquet_tables import ParquetTables
from spark_jobs.report import figures, fleet, reading
from spark_jobs.report.sections import Figures
from spark_jobs.slo_file import NONE, Rules
from spark_jobs.storage import Storage
from spark_jobs.table_store import TableStore


def write(
    spark: SparkSession,
    output: str,
    date: datetime.date,
    to: str,
    tables: TableStore | None = None,
    streamer: str | None = None,
    rules: Rules = NONE,
) -> tuple[str, str]:
    """Write ``report-DATE.html`` and ``.json`` of these tables, or those below ``output``, to ``to``. Returns both paths.

    With ``streamer``, only what the tables say of that one, to ``report-DATE-STREAMER.html`` and ``.json``, percent-encoded.
    ``to`` is a folder as Spark understands it, without a scheme on Spark's default file system; it is created if necessary.
    If a table was not written for the date, its section says so. Each file appears complete or not at all. Raises OSError if
    ``to`` cannot be written.
    """
    return put(spark, collected(tables or ParquetTables(spark, output), date, streamer=streamer, rules=rules), to)


def collected(
    tables: TableStore,
    date: datetime.date,
    jobs_failed: Sequence[str] | None = None,
    streamer: str | None = None,
    rules: Rules = NONE,
) -> Figures:
    """The figures of the date, or of one streamer on it. ``jobs_failed``: jobs whose tables of the date are not up to date;
    None: not known."""
    with reading.ReportTables(tables, date, streamer, rules.retired) as report:
        rows = reading.collect(report) | fleet.collect(report)
    found = figures.figures(rows, date, datetime.datetime.now(datetime.UTC), streamer)
    return found | {"limits": rules.limits, "jobs_failed": None if jobs_failed is None else list(jobs_failed)}


def put(spark: SparkSession, found: Figures, to: str) -> tuple[str, str]:
    """What `write` writes, of figures."""
    from spark_jobs.report import page  # noqa: PLC0415  # the verdict needs no drawing libraries

    html, data = page.render(found), json.dumps(found, ensure_ascii=False, allow_nan=False, indent=1)
    name = "" if found["streamer"] is None else f"-{_in_a_path(found['streamer'])}"
    base = f"{to.rstrip('/')}/report-{found['date']}{name}"
    return put_text(spark, f"{base}.html", html), put_text(spark, f"{base}.json", f"{data}\n")


def _in_a_path(streamer: str) -> str:
    """A name as part of a file's name, at most `_NAME_BYTES` long, with a digest if it is longer."""
    text = quote(streamer, safe="")
    if len(text) <= _NAME_BYTES:
        return text
    return f"{text[: _NAME_BYTES - 17]}-{hashlib.sha256(streamer.encode()).hexdigest()[:16]}"


_NAME_BYTES = 200
"""File systems take 255, of which the date, the ending and a temporary name need some."""


def put_text(spark: SparkSession, path: str, text: str) -> str:
    """Write a file that appears complete or not at all, and return its path. Raises StorageError."""
    Storage(spark).write_text(path, text, 0o644)  # a web server shall be able to read it
    return path
