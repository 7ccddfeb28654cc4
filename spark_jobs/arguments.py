"""The command line of the nightly run, and of `compact`."""

import argparse
import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields

from spark_jobs.tables import TREND_DAYS

_DAYS_MAX = 36_500


@dataclass(frozen=True)
class JobArguments:
    dates: tuple[dt.date, ...]
    """Ascending. Empty: those of the last days that are not up to date."""
    input: str
    output: str
    slo: str | None
    lookback_days: int
    """Without dates: how many days before today are considered."""
    keep_days: int | None
    """Without dates: tables and reports of dates older than that are deleted. None: never."""
    format: str
    """Of the tables: parquet or iceberg."""
    catalog: str | None
    """Of Iceberg: as `iceberg_tables.catalog_of` takes it."""
    fail_on_attention: bool
    """Whether a verdict that needs attention has an exit code of its own."""
    webhook_url_file: str | None
    metrics_file: str | None


def parse(program: str, argv: Sequence[str] | None = None) -> JobArguments:
    """Parse `argv` (the process's own if None). Exits with code 2 and one line about what is wrong."""
    parser = argparse.ArgumentParser(f"python -m {program}")
    add, days_help = parser.add_argument, "without dates: run those of the last N days that are not up to date (default: 16)"
    add("--date", type=_date, metavar="D", help="the UTC date to compute, such as 2026-11-21")
    add("--from", type=_date, metavar="D", dest="first", help="the first of several dates")
    add("--to", type=_date, metavar="D", dest="last", help="the last of several dates")
    add(
        "--input",
        type=_path,
        required=True,
        help="folder of the traces, where Spark can read it (file:, s3a:, hdfs:, abfs:)",
    )
    add("--output", type=_path, required=True, help="folder for the tables, likewise")
    add_slo(parser)
    add_format(parser)
    add("--lookback-days", type=_days, default=16, metavar="N", help=days_help)
    add("--keep-days", type=_days, metavar="N", help="delete tables and reports that are older (default: keep them)")
    add("--fail-on-attention", action="store_true", help="end with 3 if the verdict is that a date needs attention")
    add("--webhook-url-file", metavar="FILE", help="post new verdicts to the URL in it (default: $USTREAMER_WEBHOOK_URL)")
    add("--metrics-file", metavar="FILE", help="write metrics of the run, for the textfile collector of node_exporter")
    given = parser.parse_args(argv)
    check_format(parser, given)
    if given.date and (given.first or given.last):
        parser.error("--date names one date, --from and --to name several: use one or the other")
    if bool(given.first) != bool(given.last):
        parser.error("--from and --to go together")
    first, last = given.date or given.first, given.date or given.last
    if first and first > last:
        parser.error(f"--from {first} is after --to {last}")
    days = range((last - first).days + 1) if first else ()
    if given.keep_days is not None:
        if first:
            parser.error("--keep-days is for runs without dates")
        if given.keep_days < (least := given.lookback_days + TREND_DAYS):
            parser.error(
                f"--keep-days {given.keep_days}: at least {least}: a date that may run again looks back {TREND_DAYS} days"
            )
    dates = tuple(first + dt.timedelta(days=day) for day in days)
    return JobArguments(dates, *(getattr(given, each.name) for each in fields(JobArguments)[1:]))


def add_slo(parser: argparse.ArgumentParser) -> None:
    """Add the option that names the file of `slo_file`."""
    parser.add_argument(
        "--slo", metavar="FILE", help="YAML file with the routes' objectives, the verdict's limits and retired streamers"
    )


def add_format(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where the tables are."""
    parser.add_argument(
        "--format",
        choices=("parquet", "iceberg"),
        default="parquet",
        help="of the tables: Parquet files below --output, or tables of Apache Iceberg (default: parquet)",
    )
    parser.add_argument(
        "--catalog",
        metavar="C",
        help="of Iceberg: https://… (REST), jdbc:…, or the name of one that Spark is configured with "
        "(default: a file of SQLite's in --output)",
    )


def check_format(parser: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    """Exit with code 2 if the options do not go together."""
    if given.catalog is not None and given.format != "iceberg":
        parser.error("--catalog is for --format iceberg")


def _date(text: str) -> dt.date:
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a date: expected one such as 2026-11-21") from None


def _days(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= _DAYS_MAX):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number of days from 1 to {_DAYS_MAX}")
    return int(text)


def _path(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("expected a folder, got an empty string")
    if found := sorted(set(text) & set("[]{}*?" if re.match(r"[\w.+-]+:/", text) else "[]{}*?:")):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a folder without {' '.join(found)}, a pattern to Spark")
    return text.rstrip("/") or "/"
