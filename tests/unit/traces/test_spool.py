"""The spool: complete batches on the disk, whatever the disk does in between."""

import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from streamer.traces.compact import batches
from streamer.traces.layout import Folders
from streamer.traces.spool import SpoolWriter
from tests.unit.traces.streams import noon_buffer

RUN_US = 1_700_000_000_000_000
MIB = 1024 * 1024


class Life:
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
        return [seq for file in files for batch in batches(file) for seq in batch.column("seq").to_pylist()]

    def end(self) -> None:
        assert self.spool.stop(10)


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Callable[..., Life]]:
    lives: list[Life] = []

    def begin(**changes: object) -> Life:
        life = Life(tmp_path / "traces", **changes)  # type: ignore[arg-type]
        lives.append(life)
        return life

    yield begin
    for life in lives:
        life.spool.stop(10)


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Like a disk that is full beyond: what is written after so many bytes of a file fails in the middle."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def until(condition: Callable[[], bool]) -> None:
    """Wait for the spool's thread, at most ten seconds."""
    waiter = threading.Event()
    for _ in range(1000):
        if condition():
            return
        waiter.wait(0.01)
    raise AssertionError("not within ten seconds")


def test_what_was_written_is_read_back_in_order(live: Callable[..., Life]) -> None:
    life = live()
    for number in range(5):
        assert life.spool.take(noon_buffer(number * 10, 10))
    life.end()
    assert life.seqs() == list(range(50))
    assert (life.spool.written, life.spool.dropped) == (50, 0)
    assert [file.name for file in life.folders.closed()] == [f"{RUN_US}-1.arrows"]
    assert life.folders.left_open() == []


def test_a_batch_is_on_the_disk_before_the_file_is_closed(live: Callable[..., Life]) -> None:
    life = live()
    life.spool.take(noon_buffer(0, 10))
    until(lambda: life.spool.written == 10)
    assert [file.name for file in life.folders.left_open()] == [f"{RUN_US}-1.arrows.open"]
    assert life.seqs() == list(range(10))


def test_a_file_ends_at_its_size(live: Callable[..., Life]) -> None:
    life = live(rotate_bytes=1)
    for number in range(3):
        life.spool.take(noon_buffer(number, 1))
    for _ in range(3):
        assert life.closed.acquire(timeout=10)
    assert len(life.folders.closed()) == 3
    assert life.seqs() == [0, 1, 2]


def test_a_file_ends_at_its_age_though_nothing_more_comes(live: Callable[..., Life]) -> None:
    life = live(rotate_s=0.05)
    life.spool.take(noon_buffer(0, 1))
    assert life.closed.acquire(timeout=10)
    assert life.seqs() == [0]
    assert life.folders.left_open() == []


def test_what_an_earlier_run_has_left_is_closed_and_waits_for_compaction(live: Callable[..., Life], tmp_path: Path) -> None:
    folders = Folders(tmp_path / "traces", "gateway.veh1")
    folders.create()
    left = folders.spool / "1-1.arrows.open"
    left.write_bytes(b"torn")
    life = live()
    assert life.closed.acquire(timeout=10)
    assert folders.closed() == [left.with_name("1-1.arrows")]
    life.end()


def test_a_full_disk_costs_the_records_of_that_moment_and_no_more(live: Callable[..., Life]) -> None:
    life = live()
    life.spool.take(noon_buffer(0, 100))
    until(lambda: life.spool.written == 100)
    size = life.folders.left_open()[0].stat().st_size
    with files_of_at_most(size + 700):  # in the middle of the next batch
        life.spool.take(noon_buffer(100, 2000))
        until(lambda: life.spool.dropped > 0)
        assert life.spool.problem.startswith("File too large")
        assert life.seqs() == list(range(100))
        assert life.folders.closed()[0].stat().st_size == size
    life.spool.take(noon_buffer(2100, 10))
    life.end()
    assert (life.spool.written, life.spool.dropped, life.spool.problem) == (110, 2000, "")
    assert life.seqs() == [*range(100), *range(2100, 2110)]
    assert [file.name for file in life.folders.closed()] == [f"{RUN_US}-1.arrows", f"{RUN_US}-2.arrows"]


def test_no_room_for_a_new_file_leaves_none(live: Callable[..., Life]) -> None:
    life = live()
    with files_of_at_most(100):
        life.spool.take(noon_buffer(0, 10))
        until(lambda: life.spool.dropped == 10)
        assert [*life.folders.closed(), *life.folders.left_open()] == []
    life.spool.take(noon_buffer(10, 10))
    life.end()
    assert life.seqs() == list(range(10, 20))


def test_a_folder_that_cannot_be_made_is_tried_again(live: Callable[..., Life], tmp_path: Path) -> None:
    (tmp_path / "traces").write_text("in the way")
    life = live()
    life.spool.take(noon_buffer(0, 10))
    until(lambda: life.spool.dropped == 10)
    assert "traces" in life.spool.problem
    (tmp_path / "traces").unlink()
    life.spool.take(noon_buffer(10, 10))
    life.end()
    assert life.seqs() == list(range(10, 20))


def test_two_of_the_same_name_do_not_write_to_one_folder(live: Callable[..., Life]) -> None:
    first = live()
    first.spool.take(noon_buffer(0, 1))
    until(lambda: first.spool.written == 1)
    second = live(run_us=RUN_US + 1)
    second.spool.take(noon_buffer(0, 7))
    until(lambda: second.spool.dropped == 7)
    assert "another streamer" in second.spool.problem
    assert [file.name for file in first.folders.left_open()] == [f"{RUN_US}-1.arrows.open"]
    first.end()
    second.spool.take(noon_buffer(7, 3))
    second.end()
    assert second.spool.written == 3


def test_more_than_the_thread_can_write_is_refused_and_not_waited_for(
    live: Callable[..., Life], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    create = Folders.create
    monkeypatch.setattr(Folders, "create", lambda self: (gate.wait(10), create(self)))
    life = live()
    taken = [life.spool.take(noon_buffer(number, 1)) for number in range(40)]
    assert taken == [True] * 16 + [False] * 24
    gate.set()
    life.end()
    assert life.seqs() == list(range(16))


def test_without_compaction_the_spool_stays_within_the_bound(live: Callable[..., Life]) -> None:
    life = live(rotate_bytes=1, max_bytes=20_000)
    for number in range(10):
        life.spool.take(noon_buffer(number * 100, 100))
    life.end()
    kept = life.seqs()
    assert sum(file.stat().st_size for file in life.folders.closed()) <= 20_000
    assert kept == list(range(1000 - len(kept), 1000))
    assert 100 <= len(kept) < 1000
    assert life.spool.deleted.files == 10 - len(life.folders.closed())
    assert life.spool.deleted.bytes > 0
