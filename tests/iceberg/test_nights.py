"""Whole nights: on the oldest and the latest Spark, with Spark Connect, and with Iceberg; killed, and two at once."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.iceberg import nights

pytestmark = pytest.mark.iceberg
_SERVER = (
    "spark.sql.shuffle.partitions=1",
    "spark.sql.adaptive.enabled=false",
    "spark.sql.codegen.wholeStage=false",
    "spark.sql.codegen.factoryMode=NO_CODEGEN",
    "spark.ui.enabled=false",
    "spark.driver.bindAddress=127.0.0.1",
    "spark.driver.host=127.0.0.1",
    "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1",
)
"""How the server of Spark Connect is configured: for few rows, as the jobs configure a Spark of their own."""
Rows = dict[str, list[Any]]


def test_the_latest_spark_makes_the_same_tables_as_the_oldest(root: Path, expected: Rows) -> None:
    nights.ended(nights.begun(root, "latest", python=os.environ["LATEST"]))
    assert nights.differing(expected, nights.parquet_rows(root / "latest")) == []
    assert nights.report(root / "latest") == nights.report(root / "parquet")


@pytest.fixture(scope="module")
def iceberg(root: Path) -> Path:
    """Tables of Iceberg, of which a night that was killed made some, and the next one the rest."""
    running = nights.begun_with_iceberg(root, "iceberg")
    running.send_signal(signal.SIGKILL)
    running.communicate(timeout=60)
    assert running.returncode == -signal.SIGKILL
    nights.night(root, "iceberg", *nights.TO_ICEBERG)
    return root / "iceberg"


def test_a_killed_night_to_iceberg_is_made_up_for_by_the_next(root: Path, expected: Rows, iceberg: Path) -> None:
    assert nights.differing(expected, nights.iceberg_rows(iceberg)) == []
    assert nights.report(iceberg) == nights.report(root / "parquet")
    assert not (iceberg / "_staging").exists()
    assert "nothing to do" in nights.night(root, "iceberg", *nights.TO_ICEBERG)


def test_two_nights_at_once_spoil_nothing(root: Path, expected: Rows, iceberg: Path) -> None:
    other = nights.begun_with_iceberg(root, "iceberg", "--date", nights.DAY)
    nights.night(root, "iceberg", *nights.TO_ICEBERG, "--date", nights.DAY)
    nights.ended(other)
    assert nights.differing(expected, nights.iceberg_rows(iceberg)) == []


def test_a_session_of_spark_connect_makes_the_same_tables(root: Path, expected: Rows) -> None:
    server = " ".join(f"--conf {setting}" for setting in _SERVER)
    nights.ended(nights.begun(root, "connect", SPARK_REMOTE="local[2]", PYSPARK_SUBMIT_ARGS=f"{server} pyspark-shell"))
    assert nights.differing(expected, nights.parquet_rows(root / "connect")) == []
