"""Runs nights in processes of their own, and reads what they made."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from spark_jobs.tables import TABLES

DAY = "2026-11-20"
BEFORE = "2026-11-19"
_WAIT_S = 500


def archives() -> str:
    """Iceberg's archives, as Spark takes them."""
    return ",".join(str(path) for path in sorted(Path(os.environ["ICEBERG"]).glob("*.jar")))


def latest() -> str:
    """The Python with the latest Spark that the jobs support."""
    return os.environ["LATEST"]


def environment() -> dict[str, str]:
    """For a process with this Python, whose Spark has Iceberg."""
    return {**os.environ, "PYSPARK_SUBMIT_ARGS": f"--jars {archives()} pyspark-shell"}


def command(root: Path, output: str, *more: str, python: str = sys.executable) -> list[str]:
    """One nightly run of the traces below `root`, with the tables in `output` below it."""
    places = ["--input", str(root / "traces"), "--output", str(root / output)]
    return [python, "-m", "spark_jobs.nightly", *places, "--lookback-days", "36500", *more]


def night(root: Path, output: str, *more: str, python: str = sys.executable) -> str:
    """Run one to its end. Returns what it printed."""
    env = environment() if python == sys.executable else dict(os.environ)
    done = subprocess.run(
        command(root, output, *more, python=python), env=env, capture_output=True, text=True, timeout=_WAIT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


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
    """The tables with other rows. All of them have rows for a day that has everything."""
    assert sum(map(bool, one.values())) > len(one) // 2
    return [name for name in TABLES if one[name] != other[name]]


def report(output: Path) -> Any:
    found = json.loads((output / "report" / f"report-{DAY}.json").read_text())
    found.pop("created")
    return found
