"""Metrics of the last nightly run, as a file for the textfile collector of Prometheus's node_exporter.

The file appears complete or not at all. deploy/prometheus/ustreamer-nightly-rules.yaml has alerts on them.
"""

import datetime as dt
from dataclasses import dataclass
from pathlib import Path

from spark_jobs.report.sections import Figures
from spark_jobs.report.sentences import KINDS
from spark_jobs.storage import write_here

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
    from prometheus_client import CollectorRegistry, Gauge, generate_latest  # noqa: PLC0415  # a cluster's driver has none

    registry = CollectorRegistry()

    def tell(name: str, meaning: str, value: float) -> None:
        Gauge(f"ustreamer_nightly_{name}", meaning, registry=registry).set(value)

    tell("last_run_timestamp_seconds", "When the last run ended.", run.began_s + run.duration_s)
    tell("last_run_duration_seconds", "How long it took.", run.duration_s)
    tell("last_run_exit_code", "Its exit code.", run.exit_code)
    tell("last_run_dates", "Dates that got new tables in it.", run.dates)
    tell("last_run_jobs_failed", "Jobs and reports that failed in it, each once for each date.", run.jobs_failed)
    tell("last_run_files_left_out", "Trace files that it could not use.", run.files_left_out)
    tell("last_run_webhook_failed", "Whether nobody took what it posted.", run.webhook_failed)
    if (verdict := run.verdict) is not None:
        midnight = dt.datetime.combine(dt.date.fromisoformat(verdict["date"]), dt.time(), dt.UTC)
        tell("verdict_date_timestamp_seconds", "Midnight of the newest date with a verdict.", midnight.timestamp())
        level = Gauge("ustreamer_nightly_verdict_level", "Which level that verdict has.", ["level"], registry=registry)
        for each in LEVELS:
            level.labels(each).set(verdict["level"] == each)
        reasons = Gauge("ustreamer_nightly_verdict_reason", "Whether it is a reason for it.", ["kind"], registry=registry)
        for kind in KINDS:
            reasons.labels(kind).set(any(each["kind"] == kind for each in verdict["reasons"]))
        for name, figure, meaning in (
            ("verdict_messages_lost", "lost", "Messages of that date that were lost."),
            ("verdict_records_missing", "records_missing", "Trace records of that date that are missing."),
            ("verdict_files_left_out", "files_left_out", "Trace files that are not in the tables of that date."),
        ):
            if (value := verdict["figures"].get(figure)) is not None:
                tell(name, meaning, value)
    return generate_latest(registry).decode()


def write(run: Run, path: str) -> None:
    """Write the file, for node_exporter, which is another user. Raises OSError, also if there is no such folder."""
    write_here(Path(path).parent.resolve(strict=True) / Path(path).name, text(run), 0o644)
