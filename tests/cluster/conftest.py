import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import places
from tests.iceberg import nights


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the traces of a chain on two days and of a fleet on a third, and their tables in ``local``."""
    root = tmp_path_factory.mktemp("places")
    day = ["--output", str(root / "traces"), "--from"]
    for more in (
        [nights.DAY, "--records", "3000", "--history-days", "1"],
        ["2026-11-24", "--streamers", "30", "--records", "1500"],
    ):
        subprocess.run(
            [sys.executable, "-m", "spark_jobs.generate", *day, *more], check=True, timeout=300, capture_output=True
        )
    night(root / "traces", root / "local", places.submitted({"spark.master": "local[2]"}))
    return root


@pytest.fixture(scope="session")
def expected(root: Path) -> dict[str, list[object]]:
    return nights.parquet_rows(root / "local")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[places.Store]:
    with places.store(tmp_path) as started:
        yield started


def night(traces: Path | str, tables: Path | str, environment: dict[str, str]) -> str:
    """Run a night to its end. Returns what it printed."""
    command = ["spark_jobs.nightly", "--input", str(traces), "--output", str(tables), "--lookback-days", "36500"]
    done = subprocess.run(
        [sys.executable, "-m", *command], env=environment, capture_output=True, text=True, timeout=800, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
