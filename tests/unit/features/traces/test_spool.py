"""The spool: complete batches on the disk, whatever the disk does in between."""

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamer.features.traces import spool
from streamer.features.traces.compact import TornError, batches
from streamer.features.traces.event import EVENT_SCHEMA
from streamer.features.traces.layout import Folders
from streamer.features.traces.reader import SpoolReader
from streamer.features.traces.record import SCHEMA
from streamer.features.traces.spool import SpoolWriter
from tests.file_size import no_file_beyond
from tests.unit.features.traces.streams import event, noon_buffer

RUN_US = 1_700_000_000_000_000
MIB = 1024 * 1024


def seqs_of(file: Path, schema: pa.Schema) -> list[int]:
    """The numbers in the completed batches of a spool file; it may end in the middle of one."""
    found: list[int] = []
    with suppress(TornError):
        for batch in batches(file, schema):
            found += batch.column("seq").to_pylist()
    return found


class SpoolHarness:
    """A spool, and how often it has closed a file."""

    def __init__(
        self, path: Path, run_us: int = RUN_US, rotate_s: float = 3600, rotate_bytes: int = MIB, max_bytes: int = MIB
    ) -> None:
        self.folders = Folders(path, "gateway.veh1")
        self.closed = threading.Semaphore(0)
        self.spool = SpoolWriter(self.folders, run_us, rotate_s, rotate_bytes, max_bytes, self.closed.release)
        self.spool.start()

    def seqs(self) -> list[int]:
        files = [*self.folders.closed(), *self.folders.left_open()]
        return [seq for file in files for seq in seqs_of(file, SCHEMA)]

    def events(self) -> list[int]:
        files = [*self.folders.closed(), *self.folders.left_open()]
        return [seq for file in files if self.folders.has_events(file) for seq in seqs_of(file, EVENT_SCHEMA)]

    def end(self) -> None:
        assert self.spool.stop(10)


@pytest.fixture
def make_spool(tmp_path: Path) -> Iterator[Callable[..., SpoolHarness]]:
    harnesses: list[SpoolHarness] = []

    def begin(**changes: Any) -> SpoolHarness:
        harness = SpoolHarness(tmp_path / "traces", **changes)
        harnesses.append(harness)
        return harness

    yield begin
    for harness in harnesses:
        harness.spool.stop(10)


def until(condition: Callable[[], bool]) -> None:
    """Wait for the spool's thread, at most a minute."""
    waiter = threading.Event()
    for _ in range(6000):
        if condition():
            return
        waiter.wait(0.01)
    raise AssertionError("not within a minute")


def test_what_was_written_is_read_back_in_order(make_spool: Callable[..., SpoolHarness]) -> None:
    harness = make_spool()
    for number in range(5):
        assert harness.spool.take(noon_buffer(number * 10, 10))
    harness.end()
    assert harness.seqs() == list(range(50))
    assert (harness.spool.written, harness.spool.dropped) == (50, 0)
    assert [file.name for file in harness.folders.closed()] == [f"{RUN_US}-1.arrows"]
    assert harness.folders.left_open() == []


def test_a_batch_is_on_the_disk_before_the_file_is_closed(make_spool: Callable[..., SpoolHarness]) -> None:
    harness = make_spool()
    harness.spool.take(noon_buffer(0, 10))
    until(lambda: harness.spool.written == 10)
    assert [file.name for file in harness.folders.left_open()] == [f"{RUN_US}-1.arrows.open"]
    assert harness.seqs() == list(range(10))


def test_what_a_batch_took_is_free_for_the_process(make_spool: Callable[..., SpoolHarness]) -> None:
    harness = make_spool()
    harness.spool.take(noon_buffer(0, 10))
    harness.end()
    pool = pa.default_memory_pool()
    assert (pool.backend_name, pool.bytes_allocated()) == ("system", 0)


def test_a_file_ends_at_its_size(make_spool: Callable[..., SpoolHarness]) -> None:
    harness = make_spool(rotate_bytes=1)
    for number in range(3):
        harness.spool.take(noon_buffer(number, 1))
    for _ in range(3):
        assert harness.closed.acquire(timeout=10)
    assert len(harness.folders.closed()) == 3
    assert harness.seqs() == [0, 1, 2]


def test_a_file_ends_at_its_age_though_nothing_more_comes(make_spool: Callable[..., SpoolHarness]) -> None:
    harness = make_spool(rotate_s=0.05)
    harness.spool.take(noon_buffer(0, 1))
    assert harness.closed.acquire(timeout=10)
    assert harness.seqs() == [0]
    assert harness.folders.left_open() == []


def test_what_an_earlier_run_has_left_is_closed_and_waits_for_compaction(
    make_spool: Callable[..., SpoolHarness], tmp_path: Path
) -> None:
    folders = Folders(tmp_path / "traces", "gateway.veh1")
    folders.create()
    left = folders.spool / "1-1.arrows.open"
    left.write_bytes(b"torn")
    harness = make_spool()
    assert harness.closed.acquire(timeout=10)
    assert folders.closed() == [left.with_name("1-1.arrows")]
    harness.end()


def test_a_full_disk_costs_the_records_of_that_moment_and_no_more(
    make_spool: Callable[..., SpoolHarness], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    harness = make_spool()
    harness.spool.take(noon_buffer(0, 100))
    until(lambda: harness.spool.written == 100)
    size = harness.folders.left_open()[0].stat().st_size
    with no_file_beyond(size + 700):  # in the middle of the next batch
        harness.spool.take(noon_buffer(100, 2000))
        until(lambda: harness.spool.dropped > 0)
        assert harness.spool.problem.startswith("File too large")
        assert harness.seqs() == list(range(100))
        assert harness.folders.closed()[0].stat().st_size == size
    assert "trace_recovered" not in caplog.text
    for number in range(2100, 2110, 5):
        harness.spool.take(noon_buffer(number, 5))
    harness.end()
    assert (harness.spool.written, harness.spool.dropped, harness.spool.problem) == (110, 2000, "")
    assert (caplog.text.count("trace_not_written"), caplog.text.count("trace_recovered")) == (1, 1)
    assert harness.seqs() == [*range(100), *range(2100, 2110)]
    assert [file.name for file in harness.folders.closed()] == [f"{RUN_US}-1.arrows", f"{RUN_US}-2.arrows"]


def test_no_room_for_a_new_file_leaves_none(make_spool: Callable[..., SpoolHarness]) -> None:
    harness = make_spool()
    with no_file_beyond(100):
        harness.spool.take(noon_buffer(0, 10))
        until(lambda: harness.spool.dropped == 10)
        assert [*harness.folders.closed(), *harness.folders.left_open()] == []
    harness.spool.take(noon_buffer(10, 10))
    harness.end()
    assert harness.seqs() == list(range(10, 20))


def test_a_folder_that_cannot_be_made_is_tried_again(make_spool: Callable[..., SpoolHarness], tmp_path: Path) -> None:
    (tmp_path / "traces").write_text("in the way")
    harness = make_spool()
    harness.spool.take(noon_buffer(0, 10))
    until(lambda: harness.spool.dropped == 10)
    assert "traces" in harness.spool.problem
    (tmp_path / "traces").unlink()
    harness.spool.take(noon_buffer(10, 10))
    harness.end()
    assert harness.seqs() == list(range(10, 20))


def replace_by_a_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.touch()


def move_away(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))


@pytest.mark.parametrize("is_writing", [True, False], ids=["with a file", "between two files"])
@pytest.mark.parametrize("remove", [shutil.rmtree, move_away, replace_by_a_file])
def test_a_folder_that_is_removed_while_in_use_is_made_again(
    make_spool: Callable[..., SpoolHarness],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    remove: Callable[[Path], None],
    is_writing: bool,
) -> None:
    harness = make_spool(rotate_bytes=MIB if is_writing else 1)
    harness.spool.take(noon_buffer(0, 10))
    until(lambda: harness.spool.written == 10)
    if not is_writing:
        assert harness.closed.acquire(timeout=10)
    remove(tmp_path / "traces")
    if remove is replace_by_a_file:
        harness.spool.take(noon_buffer(10, 10))
        until(lambda: harness.spool.dropped == 10)
        (tmp_path / "traces").unlink()
    harness.spool.take(noon_buffer(20, 10))
    until(lambda: harness.spool.written == 20)
    second = make_spool(run_us=RUN_US + 1)
    until(lambda: "another streamer" in second.spool.problem)
    harness.end()
    assert harness.seqs() == list(range(20, 30))
    assert "trace_not_written reason=the folder was removed while in use" in caplog.text


def test_two_of_the_same_name_do_not_write_to_one_folder(make_spool: Callable[..., SpoolHarness]) -> None:
    first = make_spool()
    first.spool.take(noon_buffer(0, 1))
    until(lambda: first.spool.written == 1)
    second = make_spool(run_us=RUN_US + 1)
    second.spool.take(noon_buffer(0, 7))
    until(lambda: second.spool.dropped == 7)
    assert "another streamer" in second.spool.problem
    assert [file.name for file in first.folders.left_open()] == [f"{RUN_US}-1.arrows.open"]
    first.end()
    second.spool.take(noon_buffer(7, 3))
    second.end()
    assert second.spool.written == 3


def test_a_problem_ends_with_the_full_disk_though_no_message_comes(
    make_spool: Callable[..., SpoolHarness], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "_RETRY_S", 0.01)
    tried = threading.Semaphore(0)
    probe = SpoolWriter._probe

    def count(self: SpoolWriter) -> None:
        probe(self)
        tried.release()

    monkeypatch.setattr(SpoolWriter, "_probe", count)
    harness = make_spool()
    with no_file_beyond(100):
        harness.spool.take(noon_buffer(0, 10))
        for _ in range(3):
            assert tried.acquire(timeout=10)
            assert harness.spool.problem.startswith("File too large")
    until(lambda: not harness.spool.problem)
    assert sorted(file.name for file in harness.folders.spool.iterdir()) == ["events", "lock", "sealing"]
    assert (harness.spool.written, harness.spool.dropped) == (0, 10)


def test_a_problem_ends_with_the_other_streamer_though_no_message_comes(
    make_spool: Callable[..., SpoolHarness], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "_RETRY_S", 0.01)
    first = make_spool()
    until(lambda: (first.folders.spool / "lock").exists())
    second = make_spool(run_us=RUN_US + 1)
    until(lambda: "another streamer" in second.spool.problem)
    first.end()
    until(lambda: not second.spool.problem)


def test_more_than_the_thread_can_write_is_refused_and_not_waited_for(
    make_spool: Callable[..., SpoolHarness], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    create = Folders.create
    monkeypatch.setattr(Folders, "create", lambda self: (gate.wait(10), create(self)))
    harness = make_spool()
    taken = [harness.spool.take(noon_buffer(number, 1)) for number in range(40)]
    assert taken == [True] * 16 + [False] * 24
    gate.set()
    harness.end()
    assert harness.seqs() == list(range(16))


def test_without_compaction_the_spool_stays_within_the_bound(make_spool: Callable[..., SpoolHarness]) -> None:
    harness = make_spool(rotate_bytes=1, max_bytes=20_000)
    for number in range(10):
        harness.spool.take(noon_buffer(number * 100, 100))
    harness.end()
    kept = harness.seqs()
    assert sum(file.stat().st_size for file in harness.folders.closed()) <= 20_000
    assert kept == list(range(1000 - len(kept), 1000))
    assert 100 <= len(kept) < 1000
    assert harness.spool.deleted.files == 10 - len(harness.folders.closed())
    assert harness.spool.deleted.bytes > 0


def test_an_event_is_on_the_disk_at_once_and_no_reader_of_records_sees_it(
    make_spool: Callable[..., SpoolHarness], tmp_path: Path
) -> None:
    harness = make_spool()
    harness.spool.tell(event(0))
    until(lambda: harness.events() == [0])
    assert [file.parent.name for file in harness.folders.left_open()] == ["events"]
    reader = SpoolReader(tmp_path / "traces", lambda text: pytest.fail(text))
    assert list(reader.batches()) == []
    reader.close()
    harness.spool.tell(event(1))
    harness.end()
    assert (harness.events(), len(harness.folders.closed()), harness.spool.written) == ([0, 1], 1, 0)


def test_events_are_kept_while_the_disk_is_full(
    make_spool: Callable[..., SpoolHarness], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "_RETRY_S", 0.01)
    harness = make_spool()
    with no_file_beyond(100):
        for seq in range(3):
            harness.spool.tell(event(seq))
        until(lambda: bool(harness.spool.problem))
    until(lambda: not harness.spool.problem)
    harness.end()
    assert harness.events() == [0, 1, 2]


def test_what_flaps_faster_than_the_disk_takes_no_more_memory_and_no_room_of_records(
    make_spool: Callable[..., SpoolHarness], monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    create = Folders.create
    monkeypatch.setattr(Folders, "create", lambda self: (gate.wait(10), create(self)))
    harness = make_spool()
    for seq in range(3000):
        harness.spool.tell(event(seq))
    taken = [harness.spool.take(noon_buffer(number, 1)) for number in range(40)]
    assert taken == [True] * 15 + [False] * 25  # all of the events take the room of one buffer
    gate.set()
    harness.end()
    assert harness.events() == list(range(1000))


def test_events_that_a_killed_streamer_left_open_are_closed_by_the_next_run(
    make_spool: Callable[..., SpoolHarness], tmp_path: Path
) -> None:
    first = make_spool()
    first.spool.tell(event(0))
    until(lambda: first.events() == [0])
    (left,) = first.folders.left_open()
    again = Folders(tmp_path / "again", "gateway.veh1")
    again.create()
    shutil.copy(left, again.events / left.name)
    second = SpoolHarness(tmp_path / "again", run_us=RUN_US + 1)
    assert second.closed.acquire(timeout=10)
    assert (second.folders.left_open(), second.events()) == ([], [0])
    second.end()


def test_events_and_records_are_closed_together(make_spool: Callable[..., SpoolHarness]) -> None:
    harness = make_spool(rotate_bytes=1)
    harness.spool.tell(event(0))
    assert harness.closed.acquire(timeout=10)
    harness.spool.take(noon_buffer(0, 1))
    assert harness.closed.acquire(timeout=10)
    assert [file.parent.name for file in harness.folders.closed()] == ["events", "gateway.veh1"]
