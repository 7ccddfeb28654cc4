"""The services' tables: in memory and on disk, and read by others. Damage to it: `tests.unit.journal.test_file`."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamer.features.host.state import Row, StateError, StateFile
from tests.hosted import StateOn

TABLES = {"names": "CREATE TABLE names (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT"}
ALL = "SELECT number, name FROM names ORDER BY number"


def pair_of(row: Row) -> tuple[int, str]:
    return row[0], row[1]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture(params=["on disk", "in memory"])
def state(request: pytest.FixtureRequest, path: Path) -> Iterator[StateFile]:
    state = StateOn(path if request.param == "on disk" else None, TABLES)
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
    daemon, reader = StateOn(path, TABLES), StateFile(None, TABLES)
    daemon.open()
    await daemon.write([insert(1, "a")])
    reader.open_to_read(path)
    assert reader.read(ALL, pair_of) == [(1, "a")]
    daemon.close()
    content = await asyncio.to_thread(path.read_bytes)
    reader.open_to_read(path)
    assert reader.read(ALL, pair_of) == [(1, "a")]
    reader.close()
    assert await asyncio.to_thread(path.read_bytes) == content


@pytest.mark.parametrize("is_there", [False, True])
def test_where_there_is_no_file_yet_there_is_nothing_to_read(path: Path, is_there: bool) -> None:
    if is_there:
        path.touch()
    reader = StateFile(None, TABLES)
    reader.open_to_read(path)
    assert reader.read(ALL, pair_of) == []


def test_a_reader_is_told_of_damage_and_changes_nothing(path: Path) -> None:
    path.write_bytes(b"not a database at all" * 1000)
    with pytest.raises(StateError) as caught:
        StateFile(None, TABLES).open_to_read(path)
    reason = "file is not a database"
    assert str(caught.value) == f"{path}: damaged ({reason}); the daemon saves what it can when it opens the file"
    assert [file.name for file in path.parent.iterdir()] == ["state.db"]
