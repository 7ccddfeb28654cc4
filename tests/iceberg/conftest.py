import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from spark_jobs.session import session
from tests.iceberg import nights

_LOCAL = ("spark.master=local[2]", "spark.driver.bindAddress=127.0.0.1", "spark.driver.host=127.0.0.1")


@pytest.fixture(scope="session")
def root(started: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the traces of two small days, and the tables that Spark 4.1 makes of them in ``parquet``."""
    root = tmp_path_factory.mktemp("fleet")
    generate = ["--output", str(root / "traces"), "--from", nights.DAY, "--records", "800", "--history-days", "1"]
    subprocess.run([sys.executable, "-m", "spark_jobs.generate", *generate], check=True, timeout=300, capture_output=True)
    nights.night(root, "parquet")
    return root


@pytest.fixture(scope="session")
def expected(root: Path) -> dict[str, list[object]]:
    return nights.parquet_rows(root / "parquet")


@pytest.fixture
def spark(started: SparkSession) -> SparkSession:
    """A session that knows no catalogue yet."""
    return started.newSession()


@pytest.fixture(scope="session")
def started() -> Iterator[SparkSession]:
    """The one Spark of this process, for tables and whole nights alike."""
    local = " ".join(f"--conf {setting}" for setting in _LOCAL)
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--jars {nights.archives()} {local} pyspark-shell"
    started = session("tests", small=True)
    yield started
    started.stop()
