"""The write-ahead log of a file whose owner was killed: damage in it is noticed, and what is left is kept.

Entries and tables of features are treated alike, but only entries have checksums of their own.
"""

import asyncio
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamer.journal import damage, wal
from streamer.journal.batches import LetterBounds
from streamer.journal.entries import Batch, JournalError
from streamer.journal.file import problem_of
from streamer.journal.letters import open_letters
from streamer.journal.reading import Reader
from streamer.journal.schema import JOURNAL
from streamer.journal.sqlite import CorruptFileError, connect
from streamer.journal.store import Store
from tests.examples import examples
from tests.hosted import StateOn
from tests.unit.journal.harness import row

TRANSACTIONS = 20
ROWS = 10  # in each, about a page
ALL = list(range(TRANSACTIONS * ROWS))
FRAME_BYTES = 24 + 4096
BOUNDS = LetterBounds(100, 1 << 20, 100, 1 << 20)


def body(number: int) -> bytes:
    return number.to_bytes(2, "big") * 150


def rows_of(numbers: range) -> Batch:
    return Batch(rows=[row(number, body(number)) for number in numbers])


def opened(path: Path) -> Store:
    store = Store(path, BOUNDS)
    store.open()
    return store


def numbers_in(path: Path) -> list[int]:
    """What a daemon that starts now has; nothing that is not as it was written."""
    store, reader = opened(path), Reader(path, lambda: 0)
    try:
        found = list(reader.rows(1 << 62))
        assert all(each.body == body(each.number) for each in found)
        store.apply(rows_of(range(1000, 1001)))
        return [each.number for each in found]
    finally:
        reader.close()
        store.close()


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A journal as a kill leaves it: everything is in its log."""
    folder = tmp_path_factory.mktemp("killed")
    running = tmp_path_factory.mktemp("running") / "journal.db"
    store = opened(running)
    for start in range(0, len(ALL), ROWS):
        store.apply(rows_of(range(start, start + ROWS)))
    for side in damage.SIDES:
        shutil.copyfile(f"{running}{side}", folder / f"journal.db{side}")
    yield folder / "journal.db"
    store.close()


@pytest.fixture
def path(killed: Path, tmp_path: Path) -> Path:
    return copied(killed, tmp_path / "journal.db")


def copied(killed: Path, to: Path) -> Path:
    for side in damage.SIDES:
        shutil.copyfile(f"{killed}{side}", f"{to}{side}")
    return to


def change(path: Path, how: Callable[[bytearray], bytes | bytearray]) -> None:
    """Damage the log."""
    whole = Path(f"{path}-wal")
    whole.write_bytes(how(bytearray(whole.read_bytes())))


def flipped(at: int) -> Callable[[bytearray], bytearray]:
    def flip(content: bytearray) -> bytearray:
        content[at] ^= 1
        return content

    return flip


def zeroed(start: int, end: int) -> Callable[[bytearray], bytearray]:
    def zero(content: bytearray) -> bytearray:
        first, last = (at % len(content) if at < 0 else at for at in (start, end))
        content[first:last] = bytes(last - first)
        return content

    return zero


def restarted(path: Path) -> None:
    """The system was started since: the index is gone, or tells of another time."""
    Path(f"{path}-shm").unlink()


def test_a_whole_log_is_whole_and_left_as_it_is(path: Path) -> None:
    before = Path(f"{path}-wal").read_bytes()
    found = wal.look(path)
    assert found.problem == ""
    assert Path(f"{path}-wal").read_bytes() == before
    assert numbers_in(path) == ALL
    assert damage.set_aside(path) == []


@pytest.mark.parametrize("is_restarted", [False, True], ids=["after a kill", "after a start of the system"])
@pytest.mark.parametrize(
    ("how", "most_lost"),
    [
        (lambda content: flipped(content.index(body(55)) + 7)(content), 1),
        (flipped(17), 0),  # a salt in the header
        (zeroed(32 + 20 * FRAME_BYTES, 32 + 22 * FRAME_BYTES), 60),
        (lambda content: zeroed(at := content.index(body(55)), at + 512)(content), 60),
    ],
    ids=["bit", "header", "frames", "sector"],
)
def test_damage_in_the_middle_of_the_log_costs_what_was_there_and_not_what_follows(
    path: Path, caplog: pytest.LogCaptureFixture, how: Callable[[bytearray], bytearray], most_lost: int, is_restarted: bool
) -> None:
    change(path, how)
    damaged = Path(f"{path}-wal").read_bytes()
    if is_restarted:
        restarted(path)
    found = numbers_in(path)
    assert set(found) <= set(ALL)
    assert len(ALL) - most_lost <= len(found)
    assert found[-1] == ALL[-1]
    (aside,) = damage.set_aside(path)
    assert Path(f"{aside}-wal").read_bytes() == damaged
    assert f"file_set_aside file={aside} kept={len(found)} " in caplog.text
    assert "reason=its log is damaged: SQLite reads " in caplog.text


@pytest.mark.parametrize(
    "how",
    [
        lambda content: content[: 32 + 20 * FRAME_BYTES],
        lambda content: content[: 32 + 20 * FRAME_BYTES + 1000],
        lambda content: b"",
        zeroed(32 + 20 * FRAME_BYTES, -1),
        flipped(-1000),  # in the last transaction
    ],
    ids=["cut short", "cut within a frame", "empty", "zeros to the end", "bit in the last one"],
)
def test_a_log_that_lost_its_end_after_a_kill_is_noticed(path: Path, how: Callable[[bytearray], bytes]) -> None:
    change(path, how)
    with closing_store(path) as store:
        assert store.generation == 1
    assert len(damage.set_aside(path)) == 1


def closing_store(path: Path) -> closing[Store]:
    return closing(opened(path))


def test_a_log_whose_last_transaction_a_loss_of_power_cut_short_is_not_damaged(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    change(path, flipped(-1000))
    restarted(path)
    assert numbers_in(path) == ALL[:-ROWS]
    assert damage.set_aside(path) == []
    assert "wal_cut_short file=" in caplog.text


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (lambda path: os.truncate(path, 0), "the file is empty, but its log is not empty"),
        (Path.unlink, "the file is missing, but its log is not empty"),
        (
            lambda path: path.write_bytes(bytes(path.stat().st_size)),
            "the file does not begin as a database, but its log is not empty",
        ),
    ],
    ids=["empty", "missing", "zeros"],
)
def test_a_file_that_is_gone_is_made_again_from_its_log(
    path: Path, caplog: pytest.LogCaptureFixture, harm: Callable[[Path], object], reason: str
) -> None:
    harm(path)
    assert numbers_in(path) == ALL
    assert f"kept={len(ALL)} lost_at_least=0 reason={reason}" in caplog.text


def test_what_is_in_the_file_already_is_not_replaced_by_what_is_left_of_an_older_log(path: Path) -> None:
    """All of the log was put into the file before its end was lost."""
    with closing(connect(path)) as connection, closing(connect(path, read_only=True)) as reader:
        reader.execute("SELECT count(*) FROM rows").fetchone()  # or the log would be removed at the end
        assert connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[2] > 20
        copied(path, other := path.with_name("other.db"))
    change(other, lambda content: content[: 32 + 20 * FRAME_BYTES])
    assert numbers_in(other) == ALL


def test_frames_that_are_left_over_from_before_are_no_damage(path: Path) -> None:
    running = path.with_name("running.db")
    with closing_store(running) as store, closing(sqlite3.connect(running)) as other:
        for start in range(0, len(ALL), ROWS):
            store.apply(rows_of(range(start, start + ROWS)))
        assert other.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()[0] == 0
        store.apply(rows_of(range(len(ALL), len(ALL) + ROWS)))
        copied(running, path)
        copied(running, later := path.with_name("later.db"))
    restarted(later)
    for each in (path, later):
        assert len(wal.scan(each).frames) < os.path.getsize(f"{each}-wal") // FRAME_BYTES
        assert numbers_in(each) == [*ALL, *range(len(ALL), len(ALL) + ROWS)]
        assert damage.set_aside(each) == []


def test_a_transaction_that_failed_at_its_end_is_no_damage(path: Path) -> None:
    """Its frames have the salts of the log, and checksums that do not go on from those of a later one in their place."""
    change(path, lambda content: content + content[len(content) - 3 * FRAME_BYTES :])
    assert numbers_in(path) == ALL
    assert damage.set_aside(path) == []


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=4), st.floats(0, 1), st.booleans()
)
def test_whatever_happens_to_the_log_nothing_false_is_read_and_nothing_is_lost_silently(
    tmp_path_factory: pytest.TempPathFactory, killed: Path, flips: list[tuple[float, int]], end: float, is_cut: bool
) -> None:
    path = copied(killed, tmp_path_factory.mktemp("changed") / "journal.db")

    def harm(content: bytearray) -> bytearray:
        for where, value in flips:
            content[int(where * len(content))] = value
        return content[: int(end * len(content))] if is_cut else content

    change(path, harm)
    found = numbers_in(path)
    assert found == ALL or (damage.set_aside(path) and set(found) <= set(ALL))


def test_what_has_no_checksum_of_its_own_is_kept_only_from_whole_frames(tmp_path: Path) -> None:
    running, path = tmp_path / "running.db", tmp_path / "state.db"
    table = "CREATE TABLE entries (number INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT"
    state = StateOn(running, {"entries": table})
    state.open()
    written = {number: body(number) * 10 for number in range(30)}
    for number, content in written.items():
        asyncio.run(state.write([("INSERT INTO entries VALUES (?, ?)", (number, content))]))
    copied(running, path)
    state.close()
    change(path, lambda content: flipped(content.index(body(11)) + 9)(content))
    again = StateOn(path, {"entries": table})
    again.open()
    found = again.read("SELECT number, body FROM entries", lambda values: (int(values[0]), bytes(values[1])))
    again.close()
    assert dict(found).items() <= written.items()
    assert 11 in written.keys() - dict(found).keys() <= {10, 11, 12}  # and what was on its page
    assert len(damage.set_aside(path)) == 1


def test_programs_that_only_look_say_it_and_leave_the_damage_to_the_daemon(path: Path) -> None:
    change(path, lambda content: flipped(content.index(body(55)))(content))
    before = Path(f"{path}-wal").read_bytes()
    assert "its log is damaged" in problem_of(path, JOURNAL)
    with pytest.raises(CorruptFileError, match="its log is damaged"), open_letters(path):
        pass
    assert Path(f"{path}-wal").read_bytes() == before
    assert len(numbers_in(path)) == len(ALL) - 1


def test_what_cannot_be_linked_is_copied(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*paths: object) -> None:
        raise PermissionError("no links here")

    monkeypatch.setattr(os, "link", refuse)
    change(path, flipped(17))
    assert numbers_in(path) == ALL
    assert not list(path.parent.glob("*.seen*"))


def test_a_log_that_cannot_be_read_is_an_error_of_the_file(path: Path) -> None:
    Path(f"{path}-wal").unlink()
    Path(f"{path}-wal").mkdir()
    with pytest.raises(JournalError, match="Is a directory"):
        opened(path)
