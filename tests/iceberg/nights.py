"""Runs nights, in this process or in one of their own, and reads what they made."""

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from spark_jobs import nightly
from spark_jobs.tables import TABLES

DAY = "2026-11-20"
TO_ICEBERG = ("--format", "iceberg")
_WAIT_S = 800
_CLEAN = dict(os.environ)
"""As it was before this process had a Spark."""


def archives() -> str:
    """Iceberg's archives, as Spark takes them."""
    return ",".join(str(path) for path in sorted(Path(os.environ["ICEBERG"]).glob("*.jar")))


def arguments(root: Path, output: str, *more: str) -> list[str]:
    """Those of one nightly run of the traces below `root`, with the tables in `output` below it."""
    return ["--input", str(root / "traces"), "--output", str(root / output), "--lookback-days", "36500", *more]


def night(root: Path, output: str, *more: str) -> str:
    """Run one to its end in this process, whose Spark is warm. Returns what it printed."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exit_code = nightly.main(arguments(root, output, *more))
    assert exit_code == 0, said.getvalue()
    return said.getvalue()


def begun(root: Path, output: str, *more: str, python: str = sys.executable, **environment: str) -> subprocess.Popen[str]:
    """Begin one in a process of its own. Its output has errors too."""
    return subprocess.Popen(
        [python, "-m", "spark_jobs.nightly", *arguments(root, output, *more)],
        env=_CLEAN | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def begun_with_iceberg(root: Path, output: str, *more: str) -> subprocess.Popen[str]:
    """The same, of tables of Iceberg, until the tables of the first job that is through are in place."""
    submit = f"--jars {archives()} pyspark-shell"
    running = begun(root, output, *TO_ICEBERG, *more, PYSPARK_SUBMIT_ARGS=submit)
    assert running.stdout is not None
    said = []
    for line in running.stdout:
        said.append(line)
        if line.startswith("["):
            return running
    raise AssertionError("".join(said))


def ended(running: subprocess.Popen[str]) -> str:
    """Wait for the end of one. Returns what it printed."""
    try:
        said, _ = running.communicate(timeout=_WAIT_S)
    finally:
        running.kill()
    assert running.returncode == 0, said
    return said


def parquet_rows(output: Path) -> dict[str, list[Any]]:
    """Every row of every table in Parquet files, in one order."""
    below = ds.partitioning(pa.schema([("date", pa.date32())]), flavor="hive")
    return {
        name: rows_of(ds.dataset(output / name, partitioning=below).to_table().select([*table.columns]))
        for name, table in TABLES.items()
    }


def iceberg_rows(output: Path) -> dict[str, list[Any]]:
    """The same of tables in the catalogue of SQLite's below `output`: as a reader of others sees them."""
    catalog = open_catalog(output)
    return {
        name: rows_of(catalog.load_table(("ustreamer", name)).scan().to_arrow().select([*table.columns]))
        for name, table in TABLES.items()
    }


def open_catalog(output: Path) -> Any:
    from pyiceberg.catalog.sql import SqlCatalog  # noqa: PLC0415  # only `make test-iceberg` has it

    return SqlCatalog("nightly", uri=f"sqlite:///{output}/catalog.sqlite", warehouse=str(output))


def rows_of(table: pa.Table) -> list[Any]:
    """The rows in one order. A sketch of a few values keeps them as they came: its values are put in order too."""
    rows = (
        {name: _ordered(value) if name.endswith("_sketch") else value for name, value in row.items()}
        for row in table.to_pylist()
    )
    return sorted((tuple(row.values()) for row in rows), key=repr)


def _ordered(sketch: bytes) -> list[bytes]:
    return sorted(sketch[at : at + 8] for at in range(0, len(sketch), 8))


def differing(one: dict[str, list[Any]], other: dict[str, list[Any]]) -> Sequence[str]:
    """The tables with other rows. Most of them have rows for a day that has everything."""
    assert sum(map(bool, one.values())) > len(one) // 2
    return [name for name in TABLES if one[name] != other[name]]


def report(output: Path) -> Any:
    found = json.loads((output / "report" / f"report-{DAY}.json").read_text())
    found.pop("created")
    return found
