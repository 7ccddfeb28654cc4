"""A damaged journal: whole entries are kept, changed ones are not. See `test_file` for damage to any file."""

import json
import os
import shutil
import sqlite3
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from streamer.journal.entries import Batch
from streamer.journal.journal import JournalState
from tests.examples import examples
from tests.unit.journal.conftest import MakeHarness
from tests.unit.journal.harness import JournalHarness, execute, letter, row, segment

ROWS = [row(n, bytes([n]) * 300) for n in range(1, 101)]
SEGMENTS = [segment(n, bytes([n]) * 9000) for n in range(101, 104)]
LETTERS = [letter(n, uuid=n) for n in range(104, 124)]
EVERYTHING = Batch(rows=ROWS, segments=SEGMENTS, letters=LETTERS)
COUNT = len(ROWS) + len(SEGMENTS) + len(LETTERS)


@pytest.fixture
def full(path: Path) -> Path:
    """A closed journal with many entries."""
    harness = JournalHarness(path).open()
    harness.write(EVERYTHING)
    harness.close()
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, for tests that do not change it."""
    path = tmp_path_factory.mktemp("whole") / "journal.db"
    harness = JournalHarness(path).open()
    harness.write(EVERYTHING)
    harness.close()
    return path


def assert_works(harness: JournalHarness) -> None:
    number = harness.number()
    harness.write(Batch(rows=[row(number)]))
    assert harness.journal.row_body(number) == b"body"


def test_a_changed_body_costs_that_entry_only(harness: MakeHarness, full: Path, caplog: pytest.LogCaptureFixture) -> None:
    content = full.read_bytes()
    at_byte = content.index(ROWS[41].body)
    full.write_bytes(content[:at_byte] + b"\xff" + content[at_byte + 1 :])
    at = harness().open()
    assert list(at.journal.rows()) == ROWS[:41] + ROWS[42:]
    assert list(at.journal.segments()) == SEGMENTS
    assert at.journal.entries_corrupt == 1
    assert f"kept={COUNT - 1} lost_at_least=1" in caplog.text
    assert_works(at)


def test_a_truncated_file_keeps_what_is_left(harness: MakeHarness, full: Path) -> None:
    os.truncate(full, full.stat().st_size - 5000)
    at = harness().open()
    assert at.journal.files_set_aside == 1
    rows = list(at.journal.rows())
    assert rows
    assert set(rows) <= set(ROWS)
    assert_works(at)


@pytest.mark.parametrize(
    ("before", "after"), [(b"attempts INTEGER,", b"attempt2 INTEGER,"), (b"outcome TEXT", b"outcame TEXT")]
)
def test_another_name_in_the_schema_is_damage(whole: Path, tmp_path: Path, before: bytes, after: bytes) -> None:
    """SQLite finds nothing wrong with such a file."""
    content = whole.read_bytes()
    at = content.index(before)
    path = tmp_path / "renamed.db"
    path.write_bytes(content[:at] + after + content[at + len(before) :])
    harness = JournalHarness(path).open()
    try:
        assert harness.journal.files_set_aside == 1
        assert_works(harness)
    finally:
        harness.close()


@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=8))
@example([(0.0, 0)])
@example([(0.036341208845642736, 32)])  # there as well, and the schema is valid
@example([(0.03, 0x80)])  # in the text of the schema, which SQLite's error repeats
def test_whatever_byte_is_flipped_nothing_false_is_read(
    tmp_path_factory: pytest.TempPathFactory, whole: Path, flips: list[tuple[float, int]]
) -> None:
    path = tmp_path_factory.mktemp("flipped") / "journal.db"
    changed = bytearray(whole.read_bytes())
    for where, value in flips:
        if not 60 <= (at := int(where * len(changed))) < 72:  # the version and the program: tested on their own
            changed[at] = value
    path.write_bytes(changed)
    harness = JournalHarness(path).open()
    try:
        rows, segments = list(harness.journal.rows()), list(harness.journal.segments())
        assert {entry.body for entry in rows} <= {entry.body for entry in ROWS}
        assert {entry.body for entry in segments} <= {entry.body for entry in SEGMENTS}
        if not harness.journal.files_set_aside:
            assert (len(rows), len(segments)) == (len(ROWS), len(SEGMENTS))
        assert_works(harness)
    finally:
        harness.close()


@pytest.mark.parametrize("kind", ["garbage", "torn"])
def test_a_damaged_log_costs_what_was_in_its_damaged_part(
    harness: MakeHarness, path: Path, tmp_path: Path, kind: str
) -> None:
    first = harness(idle_s=100).open()  # or the log could be taken into the file while both are copied
    first.write(Batch(rows=ROWS))
    copy = tmp_path / "copy" / "journal.db"
    copy.parent.mkdir()
    shutil.copy(path, copy)
    log = Path(f"{path}-wal").read_bytes()
    Path(f"{copy}-wal").write_bytes(log[:-100] if kind == "torn" else log[:-4000] + os.urandom(4000))
    at = harness(copy).open()
    assert list(at.journal.rows()) == []  # one transaction: all or nothing
    assert_works(at)


# a crash


def test_a_salvage_that_was_interrupted_is_begun_again(harness: MakeHarness, full: Path) -> None:
    full.with_name(full.name + ".salvage").write_bytes(b"half a file")
    content = bytearray(full.read_bytes())
    content[content.index(ROWS[3].body)] ^= 1
    full.write_bytes(content)
    at = harness().open()
    assert list(at.journal.rows()) == ROWS[:3] + ROWS[4:]


# while it runs


def test_damage_at_run_time_loses_no_batch(harness: MakeHarness, path: Path) -> None:
    at = harness().open()
    at.write(EVERYTHING)
    connection = sqlite3.connect(path, isolation_level=None)  # does what a bad disk would do
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    root = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'segments'").fetchone()[0]
    connection.close()
    with path.open("r+b") as file:
        file.seek((root - 1) * 4096)
        file.write(b"\xaa" * 4096)
    execute(path, "UPDATE rows SET attempts = 1 WHERE number = 1")  # the writer's cache is outdated now
    at.write(Batch(segments=[segment(500)], segments_done=[101]))
    assert at.journal.files_set_aside == 1
    assert at.journal.state is JournalState.OK
    assert at.journal.segment_body(500) == b"segment"
    assert at.journal.row_body(1) == ROWS[0].body
    at.close()
    assert [found.number for found in harness().open().journal.rows()] == [entry.number for entry in ROWS]


# what the copy keeps


def test_text_that_is_not_utf_8_is_read(harness: MakeHarness, full: Path) -> None:
    execute(full, "UPDATE rows SET outgoing = CAST(x'ff41' AS TEXT) WHERE number = 1")
    assert next(harness().open().journal.rows()).outgoing == "\ufffdA"


def test_the_copy_keeps_the_marks_for_a_redrive(harness: MakeHarness, full: Path) -> None:
    execute(full, "UPDATE letters SET redrive = 5, redrive_ttl = 7 WHERE number = 104")
    execute(full, "UPDATE rows SET crc = 0 WHERE number = 1")
    asked: list[str] = []
    at = harness()
    opened = at.open(lambda letters, ttls: asked.append(json.dumps([[each.number for each in letters], ttls])))
    opened.loop.run_until(lambda: bool(asked))
    assert asked == ["[[104], [7]]"]
    assert at.journal.files_set_aside == 1
