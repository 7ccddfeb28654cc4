"""Metrics of the last nightly run, as a file for the textfile collector of Prometheus's node_exporter.

The file appears complete or not at all. deploy/prometheus/ustreamer-nightly-rules.yaml has alerts on them.
"""

import datetime as dt
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from spark_jobs.report.sections import Figures

LEVELS = ("good", "attention", "unknown")


@dataclass
class Run:
    """What one run has done so far."""

    began_s: float
    """In seconds since 1970."""
    duration_s: float = 0.0
    exit_code: int = 1
    dates: int = 0
    """With new tables."""
    jobs_failed: int = 0
    """Each job once for each date, and each report."""
    files_left_out: int = 0
    webhook_failed: bool = False
    verdict: Figures | None = None
    """That of the newest date, whether or not this run has made it."""


def text(run: Run) -> str:
    """The metrics in Prometheus's text format."""
    return "".join(
        f"# HELP ustreamer_nightly_{name} {meaning}\n# TYPE ustreamer_nightly_{name} gauge\n"
        + "".join(f"ustreamer_nightly_{name}{labels} {value:.15g}\n" for labels, value in samples)
        for name, meaning, samples in _families(run)
    )


def _families(run: Run) -> Iterator[tuple[str, str, list[tuple[str, float]]]]:
    def one(value: float) -> list[tuple[str, float]]:
        return [("", value)]

    yield "last_run_timestamp_seconds", "When the last run ended.", one(run.began_s + run.duration_s)
    yield "last_run_duration_seconds", "How long it took.", one(run.duration_s)
    yield "last_run_exit_code", "Its exit code.", one(run.exit_code)
    yield "last_run_dates", "Dates that got new tables in it.", one(run.dates)
    yield "last_run_jobs_failed", "Jobs and reports that failed in it, each once for each date.", one(run.jobs_failed)
    yield "last_run_files_left_out", "Trace files that it could not use.", one(run.files_left_out)
    yield "last_run_webhook_failed", "Whether nobody took what it posted.", one(run.webhook_failed)
    if (verdict := run.verdict) is None:
        return
    midnight = dt.datetime.combine(dt.date.fromisoformat(verdict["date"]), dt.time(), dt.UTC)
    yield "verdict_date_timestamp_seconds", "Midnight of the newest date with a verdict.", one(midnight.timestamp())
    levels = [(f'{{level="{level}"}}', float(verdict["level"] == level)) for level in LEVELS]
    yield "verdict_level", "Which level that verdict has.", levels
    for name, figure, meaning in (
        ("verdict_messages_lost", "lost", "Messages of that date that were lost."),
        ("verdict_records_missing", "records_missing", "Trace records of that date that are missing."),
        ("verdict_files_left_out", "files_left_out", "Trace files that are not in the tables of that date."),
    ):
        if (value := verdict["figures"].get(figure)) is not None:
            yield name, meaning, one(value)


def write(run: Run, path: str) -> None:
    """Write the file. Raises OSError."""
    folder, name = os.path.split(path)
    handle, fresh = tempfile.mkstemp(prefix=f".{name}-", dir=folder or ".")
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text(run))
        Path(fresh).chmod(0o644)  # node_exporter is another user
        Path(fresh).replace(path)
    except BaseException:
        Path(fresh).unlink(missing_ok=True)
        raise
