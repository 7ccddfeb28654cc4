"""Tracing as the daemon uses it: start, compaction, stop; and a stop without a start."""

import os
import queue
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamer.config.stores import TraceConfig
from streamer.traces import tracing as tracing_module
from streamer.traces.tracing import Tracing
from tests.unit.delivery.messages import NOW_MS, message, push, route_queue


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the process that compacts takes long to start."""
    monkeypatch.setattr(tracing_module, "_STOP_S", 100.0)


def tracing(path: Path) -> Tracing:
    return Tracing(TraceConfig(path=path), "gateway.veh1", {"vehicle": "zenoh", "cloud": "mqtt5"})


def test_records_are_compacted_when_it_stops(tmp_path: Path) -> None:
    one = tracing(tmp_path)
    one.start()
    up = route_queue()
    one.recorder.delivered([push(up, message()) for _ in range(20)], 101.0, NOW_MS)
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
    one.recorder.delivered([push(route_queue(), message())], 101.0, NOW_MS)
    monkeypatch.setattr(subprocess, "Popen", start_and_end)
    one.stop()
    assert "the compaction process failed: it was ended by SIGKILL" in caplog.text
    assert groups
    assert os.getpgrp() not in groups
    assert (one.written, one.compacted.records, len(list(one.folders.closed()))) == (1, 0, 1)


def test_a_bad_file_has_a_line_in_the_log_and_nothing_beside_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    one = tracing(tmp_path)
    one.folders.create()
    strange = one.folders.spool / "1-1.arrows"
    with pa.OSFile(str(strange), "wb") as file, pa.ipc.new_stream(file, pa.schema([("x", pa.int64())])) as writer:
        writer.write_table(pa.table({"x": [1, 2]}))
    one.start()
    one.stop()
    assert (one.compacted.bad, [file.name for file in one.folders.bad()]) == (1, ["1-1.arrows.bad"])
    assert "trace_files_bad files=1 reason=1-1.arrows: Arrow" in caplog.text
    assert capfd.readouterr().err == ""


def test_a_process_that_fails_has_a_line_in_the_log_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    start = subprocess.Popen

    def start_another(command: list[str], **kwargs: Any) -> "subprocess.Popen[bytes]":
        return start([command[0], "-c", "raise RuntimeError('no room')"], **kwargs)

    monkeypatch.setattr(subprocess, "Popen", start_another)
    one = tracing(tmp_path)
    one.start()
    one.stop()
    assert "the compaction process failed: it ended with code 1: RuntimeError: no room" in caplog.text
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("is_late", [False, True], ids=["before the stop", "during the stop"])
def test_a_compaction_that_hangs_ends_with_the_daemon_and_none_comes_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    monkeypatch.setattr(tracing_module, "_STOP_S", 0.1)
    begun: queue.Queue[subprocess.Popen[bytes]] = queue.Queue()
    asked, stopped = threading.Event(), threading.Event()
    start = subprocess.Popen

    def hang(argv: list[str], **kwargs: Any) -> "subprocess.Popen[bytes]":
        asked.set()
        if is_late:
            stopped.wait(30)
        process = start([argv[0], "-c", "import signal; signal.pause()"], **kwargs)
        begun.put(process)
        return process

    monkeypatch.setattr(subprocess, "Popen", hang)
    one = tracing(tmp_path)
    one.folders.create()
    (one.folders.spool / "1-1.arrows").write_bytes(b"what an earlier run has left")
    one.start()
    assert asked.wait(30)
    one.stop()
    stopped.set()
    assert begun.get(timeout=30).wait(30) == -signal.SIGKILL  # which nobody can have it ignore
    one._thread.join(30)
    assert not one._thread.is_alive()
    assert begun.empty()


def test_a_stop_without_a_start_does_nothing(tmp_path: Path) -> None:
    one = tracing(tmp_path / "traces")
    one.stop()
    assert not (tmp_path / "traces").exists()
