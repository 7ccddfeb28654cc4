"""Tracing as the daemon uses it: start, compaction, stop; and a stop without a start."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from streamer.config.stores import TraceConfig
from streamer.traces import tracing as tracing_module
from streamer.traces.tracing import Tracing
from tests.unit.delivery.messages import message, push, route_queue


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the process that compacts takes long to start."""
    monkeypatch.setattr(tracing_module, "_STOP_S", 100.0)


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


def test_the_process_that_compacts_says_by_what_it_was_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And Ctrl-C in a terminal, which every process of the terminal's group gets, does not end it."""
    groups: list[int] = []
    start = subprocess.Popen

    def start_and_end(*args: Any, **kwargs: Any) -> "subprocess.Popen[bytes]":
        process = start(*args, **kwargs)
        groups.append(os.getpgid(process.pid))
        process.kill()
        return process

    one = tracing(tmp_path)
    one.start()
    one.recorder.delivered([push(route_queue(), message())], 101.0)
    monkeypatch.setattr(subprocess, "Popen", start_and_end)
    one.stop()
    assert "the compaction process failed: it was ended by SIGKILL" in caplog.text
    assert groups
    assert os.getpgrp() not in groups
    assert (one.written, one.compacted.records, len(list(one.folders.closed()))) == (1, 0, 1)


def test_a_stop_without_a_start_does_nothing(tmp_path: Path) -> None:
    one = tracing(tmp_path / "traces")
    one.stop()
    assert not (tmp_path / "traces").exists()
