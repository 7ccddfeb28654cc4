"""Whole nights: on the oldest and the latest Spark, and with Iceberg; killed, and two at once."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.iceberg import nights

pytestmark = pytest.mark.iceberg
TO_ICEBERG = ("--format", "iceberg")
Rows = dict[str, list[Any]]


def test_the_latest_spark_makes_the_same_tables_as_the_oldest(root: Path, expected: Rows) -> None:
    nights.night(root, "latest", python=nights.latest())
    assert nights.differing(expected, nights.parquet_rows(root / "latest")) == []
    assert nights.report(root / "latest") == nights.report(root / "parquet")


def test_a_night_to_iceberg_makes_the_same_tables_and_report_and_the_next_has_nothing_to_do(
    root: Path, expected: Rows
) -> None:
    nights.night(root, "iceberg", *TO_ICEBERG)
    assert nights.differing(expected, nights.iceberg_rows(root / "iceberg")) == []
    assert nights.report(root / "iceberg") == nights.report(root / "parquet")
    assert "nothing to do" in nights.night(root, "iceberg", *TO_ICEBERG)
    assert not (root / "iceberg" / "_staging").exists()


def test_a_session_of_spark_connect_makes_the_same_tables(root: Path, expected: Rows) -> None:
    places = ["--input", str(root / "traces"), "--output", str(root / "connect"), "--lookback-days", "36500"]
    program = (
        "from pyspark.sql import SparkSession\n"
        "SparkSession.builder.config('spark.sql.shuffle.partitions', '1').getOrCreate()\n"
        f"from spark_jobs import nightly\nraise SystemExit(nightly.main({places}))"
    )
    environment = {**os.environ, "SPARK_REMOTE": "local[2]"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert nights.differing(expected, nights.parquet_rows(root / "connect")) == []


def test_a_killed_night_is_made_up_for_by_the_next(root: Path, expected: Rows) -> None:
    running = subprocess.Popen(
        nights.command(root, "killed", *TO_ICEBERG), env=nights.environment(), stdout=subprocess.PIPE, text=True
    )
    assert running.stdout is not None
    for line in running.stdout:
        if re.match(r"\[ *\d+/\d+\].* route_hourly", line):
            break
    running.send_signal(signal.SIGKILL)
    running.stdout.close()
    assert running.wait(60) == -signal.SIGKILL
    nights.night(root, "killed", *TO_ICEBERG)
    assert nights.differing(expected, nights.iceberg_rows(root / "killed")) == []


def test_two_nights_at_once_spoil_nothing(root: Path, expected: Rows) -> None:
    both = [
        subprocess.Popen(
            nights.command(root, "both", *TO_ICEBERG, "--from", nights.BEFORE, "--to", nights.DAY),
            env=nights.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(2)
    ]
    said = [each.communicate(timeout=500)[0] for each in both]
    assert [each.returncode for each in both] == [0, 0], said
    assert nights.differing(expected, nights.iceberg_rows(root / "both")) == []
