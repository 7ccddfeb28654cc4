import datetime as dt
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import places
from tests.cluster.nights import DAY, Made, broken_inside, made_by
from tests.spark.fleet_day import generate_fleet, of_records


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the traces of a chain with faults on two days, and of a fleet with broadcasts on a third one. ``whole``
    has all files; in ``traces``, one of the chain is broken behind its footer."""
    root = tmp_path_factory.mktemp("places")
    command = [sys.executable, "-m", "spark_jobs.generate", "--output", str(root / "whole")]
    chain = ["--from", DAY, "--records", "3000", "--history-days", "1"]
    subprocess.run([*command, *chain], check=True, timeout=300, capture_output=True)
    generate_fleet(of_records(dt.date(2026, 11, 24), 12, 600), root / "whole")
    shutil.copytree(root / "whole", root / "traces")
    broken_inside(bad_file(root / "traces"))
    return root


def bad_file(traces: Path) -> Path:
    """The file that is broken in ``traces``."""
    return min((traces / f"date={DAY}" / "hour=9" / "streamer=gateway.edge").glob("*.parquet"))


@pytest.fixture(scope="session")
def expected(root: Path) -> Made:
    """What this machine makes of the traces with the broken file."""
    return made_by(places.on_this_machine(root / "traces", root / "local"), root / "local", root / "run")


@pytest.fixture(scope="session")
def expected_of_whole(root: Path) -> Made:
    """What it makes of all files."""
    return made_by(
        places.on_this_machine(root / "whole", root / "local of whole"), root / "local of whole", root / "run of whole"
    )


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[places.Store]:
    with places.store(tmp_path_factory.mktemp("store")) as started:
        yield started
