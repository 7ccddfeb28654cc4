"""Tracing as the daemon uses it: start, compaction, stop; and a stop without a start."""

from pathlib import Path

import pyarrow.parquet as pq

from streamer.config.stores import TraceConfig
from streamer.traces.tracing import Tracing
from tests.unit.delivery.messages import message, push, route_queue


def tracing(path: Path) -> Tracing:
    return Tracing(TraceConfig(path=path), "gateway.veh1", {"vehicle": "zenoh", "cloud": "mqtt5"})


def test_records_are_compacted_when_it_stops(tmp_path: Path) -> None:
    one = tracing(tmp_path)
    one.start()
    queue = route_queue()
    one.recorder.delivered([push(queue, message()) for _ in range(20)], 101.0)
    one.stop()
    assert (one.written, one.dropped, one.compacted.records, one.compacted.files, one.problem) == (20, 0, 20, 1, "")
    (file,) = one.folders.parquet_files()
    assert pq.ParquetFile(file).read(["seq"]).column("seq").to_pylist() == list(range(20))
    assert one.compacted.bytes == file.stat().st_size


def test_a_stop_without_a_start_does_nothing(tmp_path: Path) -> None:
    one = tracing(tmp_path / "traces")
    one.stop()
    assert not (tmp_path / "traces").exists()
