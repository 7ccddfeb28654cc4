"""The services' state file: in memory and on disk, and read by others. Damage to it: `tests.unit.journal.test_file`."""

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamer.features.host.state import Row, StateError, StateFile
from tests.unit.journal.harness import execute

TABLES = {"names": "CREATE TABLE names (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT"}
ALL = "SELECT number, name FROM names ORDER BY number"


def pair_of(row: Row) -> tuple[int, str]:
    return row[0], row[1]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture(params=["on disk", "in memory"])
def state(request: pytest.FixtureRequest, path: Path) -> Iterator[StateFile]:
    state = StateFile(path if request.param == "on disk" else None, TABLES)
    state.open()
    yield state
    state.close()


def insert(number: int, name: str) -> tuple[str, tuple[int, str]]:
    return "INSERT INTO names VALUES (?, ?)", (number, name)


async def test_a_transaction_is_all_or_nothing_and_the_next_one_is_fine(state: StateFile) -> None:
    await state.write([insert(1, "a")])
    with pytest.raises(StateError, match="UNIQUE"):
        await state.write([insert(2, "b"), insert(3, "a")])
    assert state.read(ALL, pair_of) == [(1, "a")]
    await state.write([insert(2, "b")])
    assert state.read(ALL, pair_of) == [(1, "a"), (2, "b")]


async def test_a_row_that_makes_no_sense_is_left_out_and_logged(state: StateFile, caplog: pytest.LogCaptureFixture) -> None:
    await state.write([insert(1, "10"), insert(2, "ten"), insert(3, "11")])
    assert state.read(ALL, lambda row: int(row[1])) == [10, 11]
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"state_row_unreadable file={state.path} row=(2, 'ten') error=invalid literal for int()")


async def test_a_file_is_read_while_a_daemon_uses_it_and_afterwards(path: Path) -> None:
    daemon, reader = StateFile(path, TABLES), StateFile(path, TABLES)
    daemon.open()
    await daemon.write([insert(1, "a")])
    assert reader.open_to_read()
    assert reader.read(ALL, pair_of) == [(1, "a")]
    reader.close()
    daemon.close()
    content = await asyncio.to_thread(path.read_bytes)
    assert reader.open_to_read()
    assert reader.read(ALL, pair_of) == [(1, "a")]
    reader.close()
    assert await asyncio.to_thread(path.read_bytes) == content


def test_where_there_is_no_file_yet_there_is_nothing_to_read(path: Path) -> None:
    assert not StateFile(path, TABLES).open_to_read()
    assert not StateFile(None, TABLES).open_to_read()
    path.touch()
    assert not StateFile(path, TABLES).open_to_read()


def test_a_reader_is_told_of_damage_and_changes_nothing(path: Path) -> None:
    path.write_bytes(b"not a database at all" * 1000)
    with pytest.raises(StateError) as caught:
        StateFile(path, TABLES).open_to_read()
    reason = "file is not a database"
    assert str(caught.value) == f"{path}: damaged ({reason}); the daemon saves what it can when it opens the file"
    assert [file.name for file in path.parent.iterdir()] == ["state.db"]


def test_a_reader_is_told_of_the_database_of_another_program(path: Path) -> None:
    execute(path, "CREATE TABLE cars (name TEXT)")
    with pytest.raises(StateError, match="a database of another program"):
        StateFile(path, TABLES).open_to_read()


def test_a_file_without_a_mark_and_with_some_of_the_tables_keeps_its_rows(path: Path) -> None:
    """As an earlier version wrote it, for which a service was switched off."""
    earlier = sqlite3.connect(path)
    earlier.execute("CREATE TABLE names (number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE)")
    earlier.execute("INSERT INTO names (name) VALUES ('a')")
    earlier.commit()
    earlier.close()
    state = StateFile(path, TABLES | {"ages": "CREATE TABLE ages (age INTEGER NOT NULL) STRICT"})
    state.open()
    assert state.read(ALL, pair_of) == [(1, "a")]
    state.close()


async def test_a_closed_file_gives_no_rows_and_takes_none(path: Path) -> None:
    """The other one of a pair may come, or write, while this one ends."""
    state = StateFile(path, TABLES)
    state.open()
    state.close()
    answers: list[object] = []
    state.snapshot(answers.append)
    state.store([insert(1, "a")], (), lambda problem, has_kept: answers.append(problem))
    await asyncio.sleep(0)
    assert answers == []
