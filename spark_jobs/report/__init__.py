"""The nightly report: one self-contained HTML file, and the same figures as JSON.

`reading` and `fleet` query the tables, and `figures` makes one dict of the results. The JSON, the `sentences`, the `charts`,
the `page` and the `verdict` are made from that dict alone.
"""

import datetime
import hashlib
import json
from collections.abc import Sequence
from urllib.parse import quote

from spark_jobs.report import figures, fleet, reading
from spark_jobs.report.sections import Figures
from spark_jobs.slo_file import NONE, Rules
from spark_jobs.storage import Storage
from spark_jobs.table_store import TableStore


def collected(
    tables: TableStore,
    date: datetime.date,
    jobs_failed: Sequence[str] | None = None,
    streamer: str | None = None,
    rules: Rules = NONE,
) -> Figures:
    """The figures of the date, or of one streamer on it, as far as tables were written for it.

    ``jobs_failed``: jobs whose tables of the date are not up to date; None: not known.
    """
    with reading.ReportTables(tables, date, streamer, rules.retired) as report:
        rows = reading.collect(report) | fleet.collect(report)
    found = figures.figures(rows, date, datetime.datetime.now(datetime.UTC), streamer)
    return found | {"limits": rules.limits, "jobs_failed": None if jobs_failed is None else list(jobs_failed)}


def put(storage: Storage, found: Figures, to: str) -> tuple[str, str]:
    """Write ``report-DATE.html`` and ``.json`` to a folder, those of one streamer with its name, percent-encoded.

    Returns both paths. The folder is created if necessary; each file appears complete or not at all. Raises StorageError.
    """
    from spark_jobs.report import page  # noqa: PLC0415  # the verdict needs no drawing libraries

    texts = {"html": page.render(found), "json": json.dumps(found, ensure_ascii=False, allow_nan=False, indent=1) + "\n"}
    name = "" if found["streamer"] is None else f"-{_in_a_path(found['streamer'])}"
    base = f"{to.rstrip('/')}/report-{found['date']}{name}"
    for ending, text in texts.items():
        storage.write_text(f"{base}.{ending}", text, MODE)
    return f"{base}.html", f"{base}.json"


def _in_a_path(streamer: str) -> str:
    """A name as part of a file's name, at most `_NAME_BYTES` long, with a digest if it is longer."""
    text = quote(streamer, safe="")
    if len(text) <= _NAME_BYTES:
        return text
    return f"{text[: _NAME_BYTES - 17]}-{hashlib.sha256(streamer.encode()).hexdigest()[:16]}"


MODE = 0o644  # a web server shall be able to read the files
_NAME_BYTES = 200
"""File systems take 255, of which the date, the ending and a temporary name need some."""
