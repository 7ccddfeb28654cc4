"""A damaged file: entries and tables of features are treated alike, from the log line to the file's new name."""

import asyncio
import logging
import os
import shutil
import sqlite3
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Protocol

import pytest

from streamer import __version__
from streamer.journal import damage
from streamer.journal.batches import LetterBounds
from streamer.journal.entries import Batch
from streamer.journal.file import DatabaseFile
from streamer.journal.reading import Reader
from streamer.journal.sqlite import FileError
from streamer.journal.store import Store
from tests.hosted import StateOn
from tests.unit.journal.harness import execute, row

PAGE_BYTES = 4096
BODY_BYTES = 300  # about a dozen to a page
ALL = range(1, 101)


class OpenFile(Protocol):
    """One of the two kinds of files, opened; entries are numbers."""

    def write(self, numbers: Iterable[int]) -> None: ...

    def read(self) -> list[int]: ...

    def close(self) -> None: ...


class JournalFile:
    table = "rows"

    def __init__(self, path: Path) -> None:
        self._store = Store(path, LetterBounds(100, 1 << 20, 3, 10_000))
        self._reader = Reader(path, lambda: self._store.generation)
        self._store.open()

    def write(self, numbers: Iterable[int]) -> None:
        self._store.apply(Batch(rows=[row(number, _body(number)) for number in numbers]))

    def read(self) -> list[int]:
        return [found.number for found in self._reader.rows(max(ALL) * 10)]

    def close(self) -> None:
        self._reader.close()
        self._store.close()


class ServicesFile:
    table = "entries"

    def __init__(self, path: Path) -> None:
        sql = "CREATE TABLE entries (number INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT"
        self._state = StateOn(path, {self.table: sql})
        self._state.open()

    def write(self, numbers: Iterable[int]) -> None:
        statements = [("INSERT INTO entries VALUES (?, ?)", (number, _body(number))) for number in numbers]
        asyncio.run(self._state.write(statements))

    def read(self) -> list[int]:
        return self._state.read("SELECT number FROM entries ORDER BY number", lambda found: int(found[0]))

    def close(self) -> None:
        self._state.close()


Kind = type[JournalFile] | type[ServicesFile]


def _body(number: int) -> bytes:
    return number.to_bytes(2, "big") * (BODY_BYTES // 2)


@pytest.fixture(params=[JournalFile, ServicesFile], ids=["journal", "tables"])
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder" / "file.db"


@pytest.fixture
def open_file(kind: Kind, path: Path) -> Iterator[Callable[[], OpenFile]]:
    opened: list[OpenFile] = []

    def make() -> OpenFile:
        opened.append(kind(path))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


@pytest.fixture
def full(open_file: Callable[[], OpenFile], path: Path) -> Path:
    """A closed file with all entries."""
    file = open_file()
    file.write(ALL)
    file.close()
    return path


def assert_works(file: OpenFile, kind: Kind, path: Path) -> None:
    """Entries can be written and read, now and after it is opened again, and nothing else is set aside."""
    before, count = file.read(), len(damage.set_aside(path))
    file.write([500])
    file.close()
    again = kind(path)
    assert again.read() == [*before, 500]
    again.close()
    assert len(damage.set_aside(path)) == count


def set_aside_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


def overwrite_page_of(path: Path, number: int) -> None:
    """As a bad disk does: overwrite the page that has an entry."""
    content = bytearray(path.read_bytes())
    page = content.index(_body(number)) // PAGE_BYTES
    content[page * PAGE_BYTES : (page + 1) * PAGE_BYTES] = b"\xaa" * PAGE_BYTES
    path.write_bytes(content)


def test_flipped_bytes_cost_the_entries_of_their_page(
    kind: Kind, open_file: Callable[[], OpenFile], full: Path, caplog: pytest.LogCaptureFixture
) -> None:
    overwrite_page_of(full, 50)
    damaged = full.read_bytes()
    file = open_file()
    kept = file.read()
    assert 50 not in kept
    assert (kept[0], kept[-1]) == (ALL[0], ALL[-1])  # entries before the page, and behind it
    assert set(kept) >= set(ALL) - set(range(50 - 14, 50 + 14))
    (aside,) = damage.set_aside(full)
    assert aside.read_bytes() == damaged
    (line,) = set_aside_lines(caplog)
    assert line.startswith(f"file_set_aside file={aside} kept={len(kept)} lost_at_least=1 reason=")
    assert_works(file, kind, full)


def test_a_file_that_is_not_a_database_is_set_aside(
    kind: Kind, open_file: Callable[[], OpenFile], path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_bytes(b"not a database at all" * 1000)
    file = open_file()
    (aside,) = damage.set_aside(path)
    assert aside.read_bytes().startswith(b"not a database")
    reason = "file is not a database"
    assert set_aside_lines(caplog) == [f"file_set_aside file={aside} kept=0 lost_at_least=0 reason={reason}"]
    assert_works(file, kind, path)


def test_a_file_of_zero_length_is_a_new_one(
    kind: Kind, open_file: Callable[[], OpenFile], path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.touch()
    file = open_file()
    assert file.read() == []
    assert (damage.set_aside(path), set_aside_lines(caplog)) == ([], [])
    assert_works(file, kind, path)


def test_a_file_of_zero_length_beside_a_log_is_damaged(kind: Kind, open_file: Callable[[], OpenFile], path: Path) -> None:
    path.touch()
    Path(f"{path}-wal").write_bytes(bytes(5000))
    file = open_file()
    (aside,) = damage.set_aside(path)
    assert Path(f"{aside}-wal").read_bytes() == bytes(5000)
    assert_works(file, kind, path)


def test_the_last_three_damaged_files_are_kept(open_file: Callable[[], OpenFile], path: Path) -> None:
    for n in range(5):
        path.write_bytes(b"%d is not a database" % n * 100)
        open_file().close()
    assert [aside.read_bytes()[:1] for aside in damage.set_aside(path)] == [b"2", b"3", b"4"]


def test_a_folder_that_was_set_aside_is_not_counted_and_stays(
    kind: Kind, open_file: Callable[[], OpenFile], path: Path
) -> None:
    folder = path.with_name(f"{path.name}.corrupt-20200101T000000.000000Z")
    (folder / "inside").mkdir(parents=True)
    for n in range(4):
        path.write_bytes(b"%d is not a database" % n * 100)
        file = open_file()
        if n < 3:
            file.close()
    assert [aside.read_bytes()[:1] for aside in damage.set_aside(path)] == [b"1", b"2", b"3"]
    assert_works(file, kind, path)
    assert (folder / "inside").is_dir()


@pytest.mark.parametrize("link", [False, True], ids=["itself", "behind a link"])
@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["folder", "pipe"])
def test_what_is_no_file_keeps_its_mode_and_is_named(
    open_file: Callable[[], OpenFile], path: Path, make: Callable[[Path], None], link: bool
) -> None:
    there = path.with_name("there") if link else path
    make(there)
    there.chmod(0o755)
    if link:
        path.symlink_to(there)
    with pytest.raises(FileError, match=f"{path}: expected a regular file"):
        open_file()
    assert stat.S_IMODE(there.stat().st_mode) == 0o755


@pytest.mark.parametrize("moved", [(), ("-wal",), ("-wal", "-shm"), ("-wal", "-shm", "")])
def test_a_replacement_that_a_crash_interrupted_is_finished(
    kind: Kind, open_file: Callable[[], OpenFile], full: Path, moved: tuple[str, ...]
) -> None:
    salvaged = full.with_name(f"{full.name}.salvaged")
    salvaged.write_bytes(full.read_bytes())
    for side in ("", "-wal", "-shm"):
        Path(f"{full}{side}").write_bytes(b"damaged" * 1000)
    for side in moved:
        Path(f"{full}{side}").unlink()
    file = open_file()
    assert file.read() == list(ALL)
    assert not salvaged.exists()
    assert_works(file, kind, full)


def test_damage_that_is_found_during_a_write_does_not_lose_that_write(
    kind: Kind, open_file: Callable[[], OpenFile], path: Path
) -> None:
    file = open_file()
    file.write(ALL)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (root,) = other.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (kind.table,)).fetchone()
    with path.open("r+b") as content:
        content.seek((root - 1) * PAGE_BYTES)
        content.write(b"\xaa" * PAGE_BYTES)
    execute(path, "PRAGMA user_version = 1")  # the writer's cache is outdated now
    file.write([200])
    assert file.read() == [200]
    assert len(damage.set_aside(path)) == 1
    assert_works(file, kind, path)


def remove_folder(path: Path) -> None:
    shutil.rmtree(path.parent)


def replace_file(path: Path) -> None:
    path.unlink()
    path.write_bytes(b"somebody else's")


def empty_file(path: Path) -> None:
    os.truncate(path, 0)


def remove_log(path: Path) -> None:
    Path(f"{path}-wal").unlink()


def remove_index(path: Path) -> None:
    Path(f"{path}-shm").unlink()


def replace_log(path: Path) -> None:
    remove_log(path)
    Path(f"{path}-wal").write_bytes(b"somebody else's")


def put_a_file_in_the_place_of_the_folder(path: Path) -> None:
    shutil.rmtree(path.parent)
    path.parent.touch()


REMOVALS = [Path.unlink, replace_file, empty_file, remove_log, remove_index, replace_log, remove_folder]


def as_a_kill_leaves_it(path: Path, folder: Path) -> Path:
    """A copy that nobody has open."""
    folder.mkdir()
    for side in damage.SIDES[::2]:
        with suppress(FileNotFoundError):
            shutil.copyfile(f"{path}{side}", folder / f"{path.name}{side}")
    return folder / path.name


@pytest.mark.parametrize("remove", REMOVALS)
def test_a_file_that_is_removed_while_in_use_is_written_again(
    kind: Kind, open_file: Callable[[], OpenFile], path: Path, tmp_path: Path, remove: Callable[[Path], None]
) -> None:
    file = open_file()
    file.write(ALL)
    remove(path)
    file.write([200])
    assert file.read() == [*ALL, 200]
    left = kind(as_a_kill_leaves_it(path, tmp_path / "killed"))
    assert left.read() == [*ALL, 200]
    left.close()
    assert_works(file, kind, path)


@pytest.mark.parametrize("remove", REMOVALS)
def test_what_is_written_while_the_file_is_removed_is_written_again_before_anybody_is_told(
    kind: Kind, path: Path, tmp_path: Path, remove: Callable[[Path], None]
) -> None:
    file = kind(path)
    file.write(ALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DatabaseFile, "_link", _followed_by(DatabaseFile._link, remove, path))
        file.write([200])
    left = kind(as_a_kill_leaves_it(path, tmp_path / "killed"))
    assert left.read() == [*ALL, 200]
    left.close()
    file.close()


def _followed_by(
    link: Callable[[DatabaseFile], sqlite3.Connection], remove: Callable[[Path], None], path: Path
) -> Callable[[DatabaseFile], sqlite3.Connection]:
    """The first time only."""
    calls: list[int] = []

    def and_remove(file: DatabaseFile) -> sqlite3.Connection:
        connection = link(file)
        calls.append(1)
        if len(calls) == 1:
            remove(path)
        return connection

    return and_remove


def test_a_folder_that_cannot_be_made_again_keeps_nothing_from_being_written_once_it_can(
    kind: Kind, open_file: Callable[[], OpenFile], path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = open_file()
    file.write(ALL)
    put_a_file_in_the_place_of_the_folder(path)
    for _ in range(2):
        with pytest.raises(FileError):
            file.write([200])
    path.parent.unlink()
    file.write([201])
    assert [number for number in file.read() if number != 200] == [*ALL, 201]
    (line,) = set_aside_lines(caplog)
    assert f"kept={len(ALL)}" in line or f"kept={len(ALL) + 1}" in line
    assert_works(file, kind, path)


# files that are left alone


def test_a_file_of_a_newer_version_is_left_alone(open_file: Callable[[], OpenFile], full: Path) -> None:
    execute(full, "PRAGMA user_version = 2")
    before = full.read_bytes()
    with pytest.raises(FileError) as caught:
        open_file()
    assert str(caught.value) == (
        f"{full}: format 2 was written by ustreamer {__version__}; this is ustreamer {__version__}, which knows formats "
        f"up to 1: install {__version__} or newer, or move the file away"
    )
    assert caught.value.is_newer
    assert full.read_bytes() == before


def test_the_database_of_another_program_is_left_alone(open_file: Callable[[], OpenFile], path: Path) -> None:
    execute(path, "CREATE TABLE cars (name TEXT)")
    before = path.read_bytes()
    with pytest.raises(FileError) as caught:
        open_file()
    assert str(caught.value) == f"{path}: a database of another program; it is left alone, name another file"
    assert path.read_bytes() == before


def test_a_file_that_another_streamer_uses_is_left_alone(kind: Kind, open_file: Callable[[], OpenFile], path: Path) -> None:
    open_file().write([1])
    with pytest.raises(FileError) as caught:
        kind(path)
    assert str(caught.value) == f"{path}: another streamer uses it: stop that one, or name another file here"
