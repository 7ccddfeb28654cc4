"""Tracing as the daemon uses it: begins, seals what is closed, ends; and an end without a beginning."""

from pathlib import Path

import pyarrow.parquet as pq

from streamer.config.models import TraceConfig
from streamer.traces.tracing import Tracing
from tests.unit.delivery.messages import message, push, route_queue


def tracing(path) -> Tracing:
    return Tracing(TraceConfig(path=str(path)), "gateway.veh1", {"vehicle": "zenoh", "cloud": "mqtt5"})


def test_what_was_recorded_is_sealed_when_it_ends(tmp_path: Path) -> None:
    one = tracing(tmp_path)
    one.start()
    queue = route_queue()
    one.recorder.delivered([push(queue, message()) for _ in range(20)], 101.0)
    one.stop()
    assert (one.written, one.dropped, one.sealed.records, one.sealed.files, one.problem) == (20, 0, 20, 1, "")
    (file,) = one.folders.sealed()
    assert pq.ParquetFile(file).read(["seq"]).column("seq").to_pylist() == list(range(20))
    assert one.sealed.bytes == file.stat().st_size


def test_an_end_without_a_beginning_is_none_of_its_business(tmp_path: Path) -> None:
    one = tracing(tmp_path / "traces")
    one.stop()
    assert not (tmp_path / "traces").exists()
