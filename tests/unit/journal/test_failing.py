"""A disk that fails or hangs: no batch is given up, the reason is reported, and it recovers without a restart."""

import errno
import logging
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from streamer.journal import file
from streamer.journal.entries import Batch, JournalError
from streamer.journal.journal import JournalState
from streamer.journal.letters import LetterChange
from streamer.journal.lock import is_in_use
from streamer.journal.schema import journal_faults
from streamer.logs.lines import HumanFormatter
from streamer.logs.output import LineHandler
from tests.file_size import no_file_beyond
from tests.unit.journal.conftest import MakeHarness
from tests.unit.journal.harness import JournalHarness, execute, letter, row, wait_until

MIB = 1 << 20


def is_failing(harness: JournalHarness) -> bool:
    return harness.journal.state is JournalState.FAILING


# full disks


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting is not permitted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(disk: Path) -> Path:
    """Use up all space. Returns the file that does."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    return ballast


def test_on_a_full_disk_a_batch_waits_until_there_is_room(small_disk: Path) -> None:
    path = small_disk / "journal.db"
    harness = JournalHarness(path).open()
    harness.write(Batch(rows=[row(1), row(2)]))
    ballast = fill(small_disk)
    done = harness.hand_over(Batch(rows=[row(3, bytes(MIB // 2))], rows_done=[1]))
    wait_until(lambda: harness.journal.failures >= 3)
    assert is_failing(harness)
    assert harness.journal.problem == f"{path}: database or disk is full"
    assert (done, harness.journal.is_busy, harness.journal.commits) == ([], True, 1)
    assert harness.journal.row_body(1) == b"body"  # a transaction is all or nothing
    ballast.unlink()
    harness.loop.run_until(lambda: bool(done))
    assert (harness.journal.state, harness.journal.problem) == (JournalState.OK, "")
    harness.close()
    again = JournalHarness(path).open()
    assert [found.number for found in again.journal.rows()] == [2, 3]
    again.close()


def test_a_full_disk_at_the_start_is_waited_for(small_disk: Path) -> None:
    ballast = fill(small_disk)
    harness = JournalHarness(small_disk / "journal.db").start()
    assert is_failing(harness)
    done = harness.hand_over(Batch(rows=[row(harness.number())]))
    ballast.unlink()
    harness.loop.run_until(lambda: bool(done))
    assert harness.opened == ["opened"]
    assert harness.journal.state is JournalState.OK
    harness.close()


def left_by_a_kill(disk: Path) -> Path:
    """A journal with one message, which is only in its log; all other space is used up."""
    path = disk / "journal.db"
    harness = JournalHarness(path, idle_s=100).open()
    harness.write(Batch(rows=[row(1)]))
    content = {side: Path(f"{path}{side}").read_bytes() for side in ("", "-wal")}
    harness.close()
    for side, each in content.items():
        Path(f"{path}{side}").write_bytes(each)
    return path


@pytest.mark.parametrize("is_killed", [False, True], ids=["after a stop", "after a kill"])
def test_a_full_disk_at_the_start_is_called_a_full_disk(small_disk: Path, is_killed: bool) -> None:
    path = left_by_a_kill(small_disk)
    if not is_killed:
        JournalHarness(path).open().close()
    ballast = fill(small_disk)
    harness = JournalHarness(path).start()
    expected = "a folder that can be written, with room for the file, its log (-wal) and its index (-shm)"
    assert harness.journal.problem.startswith(f"{path}: No space left on device; expected {expected} (disk I/O error")
    ballast.unlink()
    harness.loop.run_until(lambda: bool(harness.opened))
    assert [found.number for found in harness.journal.rows()] == [1]
    assert harness.journal.files_set_aside == 0
    harness.close()


@pytest.mark.parametrize("side", ["", "-wal", "-shm"])
def test_a_file_that_this_user_may_not_write_is_named(
    harness: MakeHarness, path: Path, monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    Path(f"{path}{side}").touch()
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda name, mode: not str(name).endswith(f"db{side}") and allowed(name, mode))
    fault = sqlite3.OperationalError("attempt to write a readonly database")
    fault.sqlite_errorcode, fault.sqlite_errorname = sqlite3.SQLITE_READONLY, "SQLITE_READONLY"
    with pytest.raises(JournalError) as caught, journal_faults(path):
        raise fault
    expected = "permission denied; expected a file that this user may read and write"
    assert str(caught.value) == (
        f"{path}: {path.name}{side}: {expected} (attempt to write a readonly database, SQLITE_READONLY)"
    )


@pytest.mark.parametrize(("number", "said"), [(errno.EDQUOT, "Disk quota exceeded"), (errno.EROFS, "Read-only file system")])
def test_what_the_system_says_of_the_folder_is_passed_on(
    path: Path, monkeypatch: pytest.MonkeyPatch, number: int, said: str
) -> None:
    def refuse(dir: Path) -> None:  # noqa: A002
        raise OSError(number, os.strerror(number), str(dir))

    monkeypatch.setattr("streamer.journal.sqlite.TemporaryFile", refuse)
    fault = sqlite3.OperationalError("unable to open database file")
    fault.sqlite_errorcode, fault.sqlite_errorname = sqlite3.SQLITE_CANTOPEN, "SQLITE_CANTOPEN"
    with pytest.raises(JournalError, match=f"{path}: {said}; expected a folder that can be written"), journal_faults(path):
        raise fault


def test_a_folder_without_fault_is_not_blamed_for_a_bad_disk(path: Path) -> None:
    fault = sqlite3.OperationalError("disk I/O error")
    fault.sqlite_errorcode, fault.sqlite_errorname = sqlite3.SQLITE_IOERR_READ, "SQLITE_IOERR_READ"
    with pytest.raises(JournalError) as caught, journal_faults(path):
        raise fault
    assert str(caught.value) == f"{path}: disk I/O error, SQLITE_IOERR_READ"


def test_after_a_write_error_the_file_is_opened_again(harness: MakeHarness) -> None:
    at = harness().open()
    at.write(Batch(rows=[row(1)], letters=[letter(2)]))
    with no_file_beyond(MIB):
        done = at.hand_over(Batch(rows=[row(3, bytes(2 * MIB))], rows_done=[1]))
        wait_until(lambda: at.journal.failures >= 3)
        assert is_failing(at)
        assert at.journal.row_body(1) == b"body"
        assert done == []
    at.loop.run_until(lambda: bool(done))
    assert at.journal.row_body(3) == bytes(2 * MIB)
    held = at.journal.bytes
    at.close()
    again = harness().open()
    assert [found.number for found in again.journal.rows()] == [3]
    assert again.journal.bytes == held


def test_a_stop_reports_a_batch_that_could_not_be_written_in_time(harness: MakeHarness, path: Path) -> None:
    at = harness().open()
    with no_file_beyond(MIB):
        at.hand_over(Batch(rows=[row(1, bytes(2 * MIB))]))
        wait_until(lambda: is_failing(at))
        assert not at.journal.stop(0.1)
        wait_until(lambda: not is_in_use(path))
    assert list(harness().open().journal.rows()) == []


def test_a_batch_that_can_be_written_again_before_the_stop_is_written(harness: MakeHarness) -> None:
    at = harness().open()
    with no_file_beyond(MIB):
        at.hand_over(Batch(rows=[row(1, bytes(2 * MIB))]))
        wait_until(lambda: is_failing(at))
    assert at.journal.stop(10)
    assert [found.number for found in harness().open().journal.rows()] == [1]


def test_a_locked_file_is_waited_for(harness: MakeHarness, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamer.journal.sqlite.BUSY_S", 0.01)
    monkeypatch.setattr("streamer.journal.store.BUSY_S", 0.01)
    at = harness().open()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    done = at.hand_over(Batch(rows=[row(1)]))
    wait_until(lambda: is_failing(at))
    assert at.journal.problem == f"{path}: database is locked"
    other.execute("COMMIT")
    other.close()
    at.loop.run_until(lambda: bool(done))
    assert at.journal.state is JournalState.OK


# places that cannot be used


def test_a_missing_folder_is_waited_for(harness: MakeHarness, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "not" / "there" / "journal.db"
    at = harness(path).start()
    assert is_failing(at)
    assert at.journal.problem == f"{path}.lock: No such file or directory"
    assert f"journal_failing reason={at.journal.problem}" in caplog.text
    path.parent.parent.mkdir()
    at.loop.run_until(lambda: bool(at.opened))
    assert at.journal.state is JournalState.OK
    assert "journal_healed" in caplog.text


def test_a_directory_in_place_of_the_file_is_reported(harness: MakeHarness, path: Path) -> None:
    path.mkdir()
    at = harness().start()
    assert is_failing(at)
    assert str(path) in at.journal.problem
    path.rmdir()
    at.loop.run_until(lambda: bool(at.opened))


def test_a_read_only_file_system_is_reported_and_waited_for(small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    harness = JournalHarness(small_disk / "journal.db").start()
    assert harness.journal.problem == f"{small_disk}/journal.db.lock: Read-only file system"
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    harness.loop.run_until(lambda: bool(harness.opened))
    harness.close()


def test_a_failure_is_logged_occasionally_and_not_at_every_attempt(harness: MakeHarness, tmp_path: Path) -> None:
    at = harness(tmp_path / "not" / "there" / "journal.db")
    with _repeats() as lines:
        at.start()
        wait_until(lambda: at.journal.failures >= 5)
    assert len(lines) == 1


@contextmanager
def _repeats() -> Iterator[list[str]]:
    """The lines that the daemon's log would have."""
    lines: list[str] = []

    class Keep(LineHandler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    handler = Keep(HumanFormatter(), 10)
    logger = logging.getLogger("ustreamer.journal")
    logger.addHandler(handler)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)


# two daemons


def test_a_second_daemon_is_refused_until_the_first_has_stopped(harness: MakeHarness, path: Path) -> None:
    first = harness().open()
    first.write(Batch(rows=[row(1)]))
    assert is_in_use(path)
    second = harness().start()
    assert second.journal.problem == f"{path}: another streamer uses it: stop that one, or name another file here"
    first.close()
    second.loop.run_until(lambda: bool(second.opened))
    assert [found.number for found in second.journal.rows()] == [1]
    second.close()
    assert not is_in_use(path)


def test_a_file_can_be_locked_before_it_is_opened_and_only_another_streamer_is_an_error(path: Path) -> None:
    first, second = JournalHarness(path).journal, JournalHarness(path).journal
    first.lock()
    with pytest.raises(JournalError) as caught:
        second.lock()
    assert caught.value.is_in_use
    first.stop(1)
    second.lock()
    second.stop(1)
    assert not is_in_use(path)
    JournalHarness(path.parent / "a" / "b" / "journal.db").journal.lock()


# a kill at any moment

WRITER = """
import sys
from pathlib import Path
from tests.unit.journal.harness import JournalHarness, row
from streamer.journal.entries import Batch, JournalError
harness = JournalHarness(Path(sys.argv[1])).open()
last = []
while True:
    rows = [row(harness.number(), b"%d" % n * 100) for n in range(20)]
    gone = [entry.number for entry in last[::2]]
    harness.write(Batch(rows=rows, rows_done=gone))
    print(rows[0].number, rows[-1].number, flush=True)
    last = rows
"""


@pytest.mark.parametrize("commits", [1, 7, 40])
def test_a_kill_loses_nothing_that_was_reported(harness: MakeHarness, path: Path, commits: int) -> None:
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(commits)]
    process.kill()
    lines += process.stdout.readlines()
    process.wait()
    process.stdout.close()
    reported = [tuple(map(int, line.split())) for line in lines if line.endswith("\n")]
    at = harness().open()
    found = {entry.number for entry in at.journal.rows()}
    first, last = reported[-1]
    must = {number for low, _ in reported[:-1] for number in range(low + 1, low + 20, 2)}
    assert found >= must
    assert found >= set(range(first + 1, last + 1, 2))  # half of the last may have been deleted by one that went unreported
    assert found - must <= set(range(first, last + 21))
    assert at.journal.files_set_aside == 0
    assert at.number() > last


def test_another_program_may_read_while_it_runs(harness: MakeHarness, path: Path) -> None:
    at = harness().open()
    at.write(Batch(letters=[letter(1)]))
    execute(path, "UPDATE letters SET redrive = 1")
    at.write(Batch(rows=[row(2)]))
    assert at.journal.row_body(2) == b"body"


class Hanging:
    """A journal whose next transaction waits until it may go on."""

    def __init__(self, harness: JournalHarness, monkeypatch: pytest.MonkeyPatch) -> None:
        self.harness = harness
        self.may_go_on = threading.Event()
        apply, begun = harness.journal._store.apply, threading.Event()

        def slow(batch: Batch) -> None:
            def work(connection: object) -> None:
                begun.set()
                self.may_go_on.wait(60)

            harness.journal._store._file.use(work)
            apply(batch)

        monkeypatch.setattr(harness.journal._store, "apply", slow)
        self.done = harness.hand_over(Batch(rows=[row(1)]))
        assert begun.wait(10)


@pytest.fixture
def hanging(harness: MakeHarness, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hanging]:
    found = Hanging(harness().open(), monkeypatch)
    yield found
    found.may_go_on.set()


def test_a_transaction_that_does_not_end_counts_as_one_that_cannot_be_written(
    hanging: Hanging, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    journal = hanging.harness.journal
    journal.tick()
    assert (journal.state, caplog.text) == (JournalState.OK, "")
    monkeypatch.setattr(file, "HANGS_AFTER_S", 0.0)
    for _ in range(2):
        journal.tick()
    assert journal.state is JournalState.FAILING
    assert journal.problem == journal.hangs == f"{journal.path}: the disk has not ended a transaction within 0 s"
    with pytest.raises(JournalError, match="has not ended"):
        journal.change_letters(LetterChange([1]))
    hanging.may_go_on.set()
    hanging.harness.loop.run_until(lambda: bool(hanging.done))
    wait_until(lambda: journal.state is JournalState.OK)
    journal.tick()
    assert [record.getMessage().split()[0] for record in caplog.records] == ["journal_failing", "journal_healed"]
