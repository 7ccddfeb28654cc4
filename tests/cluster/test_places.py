"""The same tables on one machine, on a cluster, and from and to an object store; and what that is asked for."""

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import places
from tests.cluster.conftest import night
from tests.iceberg import nights
from tests.spark.traces import record, write

pytestmark = pytest.mark.cluster
Rows = dict[str, list[Any]]


def test_a_cluster_makes_the_same_tables(root: Path, expected: Rows, tmp_path: Path) -> None:
    with places.cluster(tmp_path) as settings:
        night(root / "traces", tmp_path / "tables", places.submitted(settings))
    assert nights.differing(expected, nights.parquet_rows(tmp_path / "tables")) == []
    assert nights.report(tmp_path / "tables") == nights.report(root / "local")


def test_an_object_store_gets_the_same_tables(root: Path, expected: Rows, store: places.Store, tmp_path: Path) -> None:
    store.put(root / "traces", "traces")
    environment = places.submitted(store.settings, f"--jars {places.archives()}")
    night(f"s3a://{places.BUCKET}/traces", f"s3a://{places.BUCKET}/tables", environment)
    store.get("tables", tmp_path / "tables")
    assert nights.differing(expected, nights.parquet_rows(tmp_path / "tables")) == []
    assert nights.report(tmp_path / "tables") == nights.report(root / "local")


def test_a_small_file_in_an_object_store_is_asked_for_once(store: places.Store, tmp_path: Path) -> None:
    """So many that they are put together. A listing is a request for a thousand of them."""
    start = dt.datetime.fromisoformat(f"{nights.DAY}T08:00:00Z")
    count = 2000
    for number in range(count):
        name = f"gateway.v{number:04}"
        write(tmp_path / "traces", [record(start, streamer=name, src_authority=name, sink_authority="cloud")])
    store.put(tmp_path / "traces", "traces")
    store.requests()
    environment = places.submitted(store.settings, f"--jars {places.archives()}")
    said = night(f"s3a://{places.BUCKET}/traces", f"s3a://{places.BUCKET}/tables", environment)
    assert f"small files put together: {count}" in said
    asked = store.requests()
    of_files = [(method, path) for method, path in asked if path.endswith(".parquet") and "/traces/date=" in path]
    assert places.kinds(of_files) == {"GET": count}, places.kinds(asked)
