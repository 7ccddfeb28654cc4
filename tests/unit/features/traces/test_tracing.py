"""Tracing as the daemon uses it: start, compaction, stop; and a stop without a start."""

import os
import queue
import signal
import subprocess
import threading
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamer import __version__
from streamer.features.traces import tracing as tracing_module
from streamer.features.traces.config import TraceConfig
from streamer.features.traces.tracing import Tracing
from streamer.uprotocol.form import IS_COMPILED
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
    one.begin({})
    up = route_queue()
    one.recorder.delivered([push(up, message()) for _ in range(20)], 101.0, NOW_MS)
    one.stop()
    assert (one.written, one.dropped, one.compacted.records, one.compacted.files, one.problem) == (20, 0, 20, 2, "")
    file, events = one.folders.parquet_files()
    assert pq.ParquetFile(file).read(["seq"]).column("seq").to_pylist() == list(range(20))
    assert one.compacted.bytes == file.stat().st_size + events.stat().st_size


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
    one.begin({})
    one.recorder.delivered([push(route_queue(), message())], 101.0, NOW_MS)
    monkeypatch.setattr(subprocess, "Popen", start_and_end)
    one.stop()
    assert "the compaction process failed: it was ended by SIGKILL" in caplog.text
    assert groups
    assert os.getpgrp() not in groups
    assert (one.written, one.compacted.records, len(list(one.folders.closed()))) == (1, 0, 2)


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


def test_events_stand_beside_the_records_in_files_of_their_own(tmp_path: Path) -> None:
    one = Tracing(TraceConfig(path=tmp_path), "gateway.veh1", {"vehicle": "zenoh", "cloud": "mqtt5"}, "first")
    one.link_changed("vehicle", True, "")  # before the start nothing is told: the start tells how the links are
    one.start()
    one.begin({"vehicle": True, "cloud": False})
    one.link_changed("cloud", True, "")
    up = route_queue()
    one.recorder.delivered([push(up, message())], 101.0, NOW_MS)
    one.configured("second")
    one.recorder.delivered([push(up, message())], 101.0, NOW_MS)
    one.link_changed("cloud", False, "gone " * 100)
    one.stop()
    records, events = one.folders.parquet_files()
    assert pq.ParquetFile(records).read(["config"]).column("config").to_pylist() == ["first", "second"]
    assert events.relative_to(tmp_path).parts[0] == "_events"
    assert events.parent.name == "streamer=gateway.veh1"
    found = pq.ParquetFile(events).read().to_pylist()
    told = [(each["event"], each["endpoint"], each["transport"], each["reason"], each["config"]) for each in found]
    assert told == [
        ("started", None, None, None, "first"),
        ("up", "vehicle", "zenoh", None, "first"),
        ("down", "cloud", "mqtt5", "started", "first"),
        ("up", "cloud", "mqtt5", None, "first"),
        ("configured", None, None, None, "second"),
        ("down", "cloud", "mqtt5", ("gone " * 100)[:200], "second"),
        ("stopped", None, None, None, "second"),
    ]
    assert [each["seq"] for each in found] == list(range(7))
    run = {each["run_ts"] for each in pq.ParquetFile(records).read(["run_ts"]).to_pylist()}
    assert {each["run_ts"] for each in found} == run
    assert {(each["version"], each["compiled"]) for each in found} == {(__version__, IS_COMPILED)}
    assert {f"date={each['ts'].date()}" for each in found} == {events.parent.parent.name}


def test_traces_of_a_clock_that_was_years_ahead_do_not_cost_those_of_today(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = Tracing(TraceConfig(path=tmp_path, max_bytes=50_000), "gateway.veh1", {})
    ahead = one.folders.partition(date(2099, 1, 1), 7) / "part-ahead.parquet"
    ahead.parent.mkdir(parents=True)
    ahead.write_bytes(bytes(60_000))
    later = ahead.with_name("part-later.parquet")
    later.write_bytes(bytes(1000))
    one.start()
    one.recorder.delivered([push(route_queue(), message())], 101.0, NOW_MS)
    one.stop()
    assert (one.compacted.records, one.deleted.files, one.compacted.ahead) == (1, 1, 1)
    assert (ahead.exists(), later.exists()) == (False, True)
    (said,) = [record.getMessage() for record in caplog.records if "trace_files_ahead" in record.getMessage()]
    assert said.startswith("trace_files_ahead files=1 consequence=they are deleted before all others")
