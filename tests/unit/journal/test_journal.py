"""The journal on real files: what was reported as written is there, in order, after a restart."""

import sqlite3
import time
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamer.journal import batches, codec
from streamer.journal import journal as journal_module
from streamer.journal.entries import ENTRY_BYTES, Batch, CorruptEntryError, JournalError, Letter
from streamer.journal.journal import JournalState
from streamer.journal.letters import LetterChange
from streamer.uprotocol.message import publish
from streamer.uprotocol.uri import UUri
from tests.examples import examples
from tests.unit.journal.conftest import MakeHarness
from tests.unit.journal.harness import BOUNDS, JournalHarness, execute, letter, letters_in, row, segment

# writing and reading


def test_what_was_written_is_there_after_a_restart(harness: MakeHarness) -> None:
    first = harness().open()
    rows = [row(first.number(), n.to_bytes(2, "big") * n) for n in range(600)]
    kept = segment(first.number())
    first.write(Batch(rows=rows, segments=[kept], letters=[letter(first.number())]))
    first.write(Batch(rows_done=[rows[0].number, rows[300].number]))
    first.close()

    second = harness().open()
    assert second.journal.state is JournalState.OK
    assert list(second.journal.rows()) == rows[1:300] + rows[301:]
    assert list(second.journal.segments()) == [kept]
    assert second.number() == 603
    assert second.journal.bytes == first.journal.bytes


def test_rows_that_are_written_now_are_not_among_those_that_were_found(harness: MakeHarness) -> None:
    first = harness().open()
    first.write(Batch(rows=[row(1)]))
    first.close()
    second = harness().open()
    second.write(Batch(rows=[row(second.number())]))
    assert [found.number for found in second.journal.rows()] == [1]


def test_bodies_are_read_one_by_one(harness: MakeHarness) -> None:
    at = harness().open()
    at.write(Batch(rows=[row(1, b"one"), row(2, b"")], segments=[segment(3, b"three")]))
    assert (at.journal.row_body(1), at.journal.row_body(2), at.journal.segment_body(3)) == (b"one", b"", b"three")


@pytest.mark.parametrize("table", ["rows", "segments"])
def test_a_missing_body_is_an_error(harness: MakeHarness, table: str) -> None:
    journal = harness().open().journal
    with pytest.raises(CorruptEntryError, match=f"{table} 7: not in the journal"):
        (journal.row_body if table == "rows" else journal.segment_body)(7)


def test_a_changed_body_is_an_error_and_counted(harness: MakeHarness, path: Path) -> None:
    at = harness().open()
    at.write(Batch(rows=[row(1)]))
    execute(path, "UPDATE rows SET body = ?", b"bodY")
    with pytest.raises(CorruptEntryError, match="rows 1: its body was changed"):
        at.journal.row_body(1)
    assert at.journal.entries_corrupt == 1


def test_a_row_replaces_the_one_with_its_number(harness: MakeHarness) -> None:
    at = harness().open()
    at.write(Batch(rows=[row(1, b"longer than before"), row(2)], segments=[segment(3)]))
    at.write(Batch(rows=[row(1, b"new")], segments=[segment(3, b"new")]))
    assert (at.journal.row_body(1), at.journal.segment_body(3)) == (b"new", b"new")
    assert at.journal.bytes == 3 * ENTRY_BYTES + len(b"new" + b"body" + b"new")


def test_a_batch_too_large_for_one_statement_is_still_one_transaction(
    harness: MakeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "_MAX_BLOB_BYTES", 10)
    at = harness().open()
    at.write(Batch(rows=[row(1), row(2)], segments=[segment(3)], letters=[letter(4)]))
    at.write(Batch(rows=[row(5), row(6)], rows_done=[1], segments_done=[3], letters_done=[4]))
    assert [at.journal.row_body(number) for number in (2, 5, 6)] == [b"body"] * 3
    assert at.journal.bytes == 3 * (ENTRY_BYTES + 4)
    assert at.journal.commits == 2


def test_counters_count_what_was_written(harness: MakeHarness) -> None:
    at = harness().open()
    at.write(Batch(rows=[row(1), row(2)]))
    at.write(Batch(rows_done=[1]))
    journal = at.journal
    assert (journal.commits, journal.rows_written, journal.failures, journal.problem) == (2, 2, 0, "")
    assert journal.last_commit_s > 0


def test_one_batch_at_a_time(harness: MakeHarness) -> None:
    at = harness().open()
    done = at.hand_over(Batch(rows=[row(1)]))
    assert at.journal.is_busy
    with pytest.raises(AssertionError):
        at.journal.write(Batch(), lambda: None)
    at.loop.run_until(lambda: bool(done))
    assert not at.journal.is_busy


def test_the_batch_that_is_being_written_counts_already(harness: MakeHarness) -> None:
    at = harness().open()
    done = at.hand_over(Batch(rows=[row(1)]))
    assert at.journal.bytes == ENTRY_BYTES + 4
    at.loop.run_until(lambda: bool(done))
    assert at.journal.bytes == ENTRY_BYTES + 4


# numbers


def test_numbers_continue_above_those_in_the_file(harness: MakeHarness) -> None:
    first = harness().open()
    first.write(Batch(rows=[row(5)], segments=[segment(9)], letters=[letter(7)]))
    first.close()
    assert harness().open().number() == 10


def test_numbers_from_before_the_file_is_read_are_above_those_in_it(harness: MakeHarness) -> None:
    first = harness().open()
    first.write(Batch(rows=[row(first.number()) for _ in range(3)]))
    second = harness()
    number = second.number()
    second.start()  # fails: the file is in use
    assert second.journal.state is JournalState.FAILING
    first.close()
    second.loop.run_until(lambda: bool(second.opened))
    assert number > 3
    assert second.number() == number + 1
    assert [found.number for found in second.journal.rows()] == [1, 2, 3]


def test_entries_with_numbers_from_the_future_are_renumbered_in_order(harness: MakeHarness) -> None:
    future = 1 << 62
    first = harness().open()
    rows = [row(future + n, bytes([n])) for n in range(3)]
    first.write(Batch(rows=rows, segments=[segment(future + 3)]))
    first.close()
    second = harness()
    number = second.number()
    second.open()
    found = list(second.journal.rows())
    assert [entry.body for entry in found] == [b"\0", b"\1", b"\2"]
    assert [entry.number for entry in found] == sorted(entry.number for entry in found)
    assert next(second.journal.segments()).number < number
    second.write(Batch(rows=[row(number)]))
    assert second.journal.row_body(found[0].number) == b"\0"


# dead letters


def test_the_same_message_on_the_same_route_is_one_letter(harness: MakeHarness, path: Path) -> None:
    at = harness().open()
    at.write(Batch(letters=[letter(1), letter(2, route="other")]))
    at.write(Batch(letters=[letter(3)]))
    assert letters_in(path) == [(2, "other"), (3, "r")]
    assert at.journal.bytes == 2 * (ENTRY_BYTES + len(b"letter"))
    assert at.journal.letters_evicted == 0


def test_the_oldest_letters_go_when_there_are_too_many(harness: MakeHarness, path: Path) -> None:
    at = harness(max_letters=3).open()
    at.write(Batch(letters=[letter(n, uuid=n) for n in range(1, 6)]))
    at.write(Batch(letters=[letter(6, uuid=6)], rows=[row(7)]))
    assert [number for number, _ in letters_in(path)] == [4, 5, 6]
    assert at.journal.letters_evicted == 3


def test_other_bounds_for_letters_hold_from_the_next_batch_on(harness: MakeHarness, path: Path) -> None:
    at = harness(max_letters=3).open()
    at.write(Batch(letters=[letter(n, uuid=n) for n in range(1, 4)]))
    at.journal.use(BOUNDS._replace(max_letters=2))
    at.write(Batch(letters=[letter(4, uuid=4)]))
    assert [number for number, _ in letters_in(path)] == [3, 4]
    at.journal.use(BOUNDS._replace(max_letters=4))
    at.write(Batch(letters=[letter(n, uuid=n) for n in range(5, 8)]))
    assert [number for number, _ in letters_in(path)] == [4, 5, 6, 7]


def test_the_oldest_letters_go_when_they_are_too_large(harness: MakeHarness, path: Path) -> None:
    at = harness(max_letter_bytes=2 * (ENTRY_BYTES + 10)).open()
    at.write(Batch(letters=[letter(n, uuid=n, body=bytes(10)) for n in range(1, 4)]))
    assert [number for number, _ in letters_in(path)] == [2, 3]
    at.write(Batch(letters=[letter(4, uuid=4, body=bytes(11))]))
    assert [number for number, _ in letters_in(path)] == [4]
    assert at.journal.letters_evicted == 3


@pytest.mark.parametrize("outcome", ["expired", "rejected"])
def test_a_letter_that_is_larger_than_the_store_evicts_no_other(harness: MakeHarness, path: Path, outcome: str) -> None:
    sent = publish(1_700_000_000_000, UUri("veh1", 0xA, 1, 0x8000), bytes(5000))
    body = codec.pack(sent)
    at = harness(max_letter_bytes=4 * (ENTRY_BYTES + 1000)).open()
    at.journal.use(BOUNDS._replace(max_bytes=4 * (ENTRY_BYTES + 1000), max_rejected_bytes=4 * (ENTRY_BYTES + 1000)))
    at.write(Batch(letters=[letter(n, uuid=n, outcome=outcome, body=bytes(500)) for n in range(1, 4)]))
    at.write(Batch(letters=[letter(4, uuid=4, outcome=outcome, body=body)]))
    assert [number for number, _ in letters_in(path)] == [1, 2, 3, 4]
    assert at.journal.letters_evicted == 0
    (kept,) = [codec.unpack(at.journal.letter_body(4))]
    assert (kept.id, kept.attributes, kept.payload) == (sent.id, sent.attributes, None)
    at.write(Batch(letters=[letter(5, uuid=5, outcome=outcome, body=b"\xff" * 6000)]))
    assert [number for number, _ in letters_in(path)] == [1, 2, 3, 4]


def test_letters_that_another_program_deleted_make_room(harness: MakeHarness, path: Path) -> None:
    at = harness(max_letters=3).open()
    at.write(Batch(letters=[letter(n, uuid=n) for n in range(1, 4)]))
    execute(path, "DELETE FROM letters WHERE number = 3")
    at.write(Batch(letters=[letter(4, uuid=4)]))
    assert [number for number, _ in letters_in(path)] == [1, 2, 4]
    assert at.journal.bytes == 3 * (ENTRY_BYTES + len(b"letter"))


@pytest.mark.parametrize("is_busy", [False, True])
def test_deleted_letters_no_longer_count_once_that_is_on_disk(harness: MakeHarness, path: Path, is_busy: bool) -> None:
    at = harness(idle_s=3600).open()
    at.write(Batch(rows=[row(1)], letters=[letter(2)]))
    done = at.hand_over(Batch(rows=[row(3)])) if is_busy else ["done"]
    assert at.journal.change_letters(LetterChange([1, 2])) == 1
    assert letters_in(path) == []
    at.loop.run_until(lambda: bool(done) and at.journal.bytes == (1 + is_busy) * (ENTRY_BYTES + len(b"body")))


def test_a_mark_is_on_disk_before_it_is_confirmed_and_its_letter_is_given_out_at_once(harness: MakeHarness) -> None:
    given: list[tuple[Letter, int | None]] = []

    def take(letters: list[Letter], ttls: list[int | None]) -> None:
        given.extend(zip(letters, ttls, strict=True))

    at = harness(idle_s=3600).open(on_redrive=take)
    at.write(Batch(letters=[letter(n, uuid=n) for n in range(1, 4)]))
    assert at.journal.change_letters(LetterChange([1, 3, 99], 7, 50)) == 2
    at.close()
    assert given == []
    again = harness(idle_s=3600).open(on_redrive=take)
    again.loop.run_until(lambda: bool(given))
    assert given == [(letter(1, uuid=1), 50), (letter(3, uuid=3), 50)]
    given.clear()
    assert again.journal.change_letters(LetterChange([2], 8)) == 1
    again.loop.run_until(lambda: bool(given))
    assert given == [(letter(2, uuid=2), None)]


def test_a_failing_journal_changes_no_letters_and_says_so(harness: MakeHarness, path: Path) -> None:
    path.mkdir()
    at = harness().start()
    with pytest.raises(JournalError, match="expected a regular file"):
        at.journal.change_letters(LetterChange([1]))


def test_a_journal_that_fails_while_it_is_idle_says_so_once(
    harness: MakeHarness, path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    at = harness().open(on_redrive=lambda letters, ttls: None)

    def fail() -> bool:
        raise JournalError("no")

    monkeypatch.setattr(at.journal._store, "tidy", fail)
    deadline_s = time.monotonic() + 10
    while at.journal.failures < 5:
        assert time.monotonic() < deadline_s
        time.sleep(0.002)
    assert not [record for record in caplog.records if record.getMessage().startswith("journal_healed")]


def test_a_change_that_is_given_up_is_not_made_later(
    harness: MakeHarness, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = harness(idle_s=3600).open()
    at.write(Batch(letters=[letter(1)]))
    goes_on = Event()
    apply = at.journal._store.apply
    monkeypatch.setattr(at.journal._store, "apply", lambda batch: (goes_on.wait(10), apply(batch)))
    monkeypatch.setattr(journal_module, "_CHANGE_S", 0.0)
    done = at.hand_over(Batch(rows=[row(2)]))
    with pytest.raises(JournalError, match="busy"):
        at.journal.change_letters(LetterChange([1]))
    goes_on.set()
    at.loop.run_until(lambda: bool(done))
    at.write(Batch(rows=[row(3)]))
    assert [number for number, _ in letters_in(path)] == [1]


def test_marked_letters_are_all_given_out_as_fast_as_they_are_taken(harness: MakeHarness, path: Path) -> None:
    """Each page of them is followed by a transaction. That a look at other programs' marks is far away holds up nothing."""
    number = 500
    before = harness(max_letters=number).open()
    before.write(Batch(letters=[letter(n, uuid=n) for n in range(1, number + 1)]))
    before.close()
    execute(path, "UPDATE letters SET redrive = 1")
    taken: list[int] = []
    done: list[str] = []

    def take(letters: list[Letter], ttls: list[int | None]) -> None:
        taken.extend(each.number for each in letters)
        at.journal.write(Batch(letters_done=[each.number for each in letters]), lambda: done.append("done"))

    at = harness(max_letters=number, idle_s=3600)
    at.open(on_redrive=take)
    at.loop.run_until(lambda: len(taken) >= number)
    assert taken == list(range(1, number + 1))
    at.loop.run_until(lambda: len(done) == len(taken) // 64 + 1)
    assert letters_in(path) == []


# everything at once, against a model


_numbers = st.integers(1, 12)
_bodies = st.binary(max_size=20)
_batch = st.builds(
    Batch,
    rows=st.lists(st.builds(row, _numbers, _bodies), unique_by=itemgetter(0), max_size=4),
    segments=st.lists(st.builds(segment, _numbers, _bodies), unique_by=itemgetter(0), max_size=2),
    rows_done=st.lists(_numbers, max_size=4),
    segments_done=st.lists(_numbers, max_size=2),
)


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_batch, max_size=6))
def test_any_sequence_of_batches_leaves_what_a_model_expects(
    tmp_path_factory: pytest.TempPathFactory, sequence: list[Batch]
) -> None:
    path = tmp_path_factory.mktemp("model") / "journal.db"
    rows: dict[int, Any] = {}
    segments: dict[int, Any] = {}
    first = JournalHarness(path).open()
    for batch in sequence:
        first.write(batch)
        for kept, gone, new in ((rows, batch.rows_done, batch.rows), (segments, batch.segments_done, batch.segments)):
            for number in gone:
                kept.pop(number, None)
            kept.update({entry.number: entry for entry in new})
    first.close()
    second = JournalHarness(path).open()
    try:
        assert list(second.journal.rows()) == [rows[number] for number in sorted(rows)]
        assert list(second.journal.segments()) == [segments[number] for number in sorted(segments)]
        held = [*rows.values(), *segments.values()]
        assert first.journal.bytes == second.journal.bytes == sum(len(entry.body) + ENTRY_BYTES for entry in held)
    finally:
        second.close()


# the file


def test_nobody_else_may_read_the_files(harness: MakeHarness, tmp_path: Path) -> None:
    path = tmp_path / "state" / "journal.db"
    at = harness(path).open()
    at.write(Batch(rows=[row(1)]))
    modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    assert modes == dict.fromkeys(("journal.db", "journal.db-wal", "journal.db-shm", "journal.db.lock"), 0o600)
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_file_that_others_could_read_is_closed_to_them(harness: MakeHarness, path: Path) -> None:
    harness().open().close()
    path.chmod(0o644)
    harness().open()
    assert path.stat().st_mode & 0o777 == 0o600


def test_unused_space_is_released(harness: MakeHarness, path: Path) -> None:
    at = harness().open()
    at.write(Batch(rows=[row(n, bytes(1 << 20)) for n in range(1, 9)]))
    at.write(Batch(rows_done=list(range(1, 9))))
    wal = Path(f"{path}-wal")
    deadline = _deadline()
    while path.stat().st_size > 2 << 20 or wal.stat().st_size > 0:
        deadline()


def test_the_log_stays_within_its_bounds(harness: MakeHarness, path: Path) -> None:
    at = harness().open()
    sizes = []
    for n in range(1, 200):
        at.write(Batch(rows=[row(n, bytes(1 << 19))], rows_done=[n - 1]))
        sizes.append(Path(f"{path}-wal").stat().st_size)
    assert max(sizes) < 32 << 20


def test_what_was_handed_over_is_written_before_it_stops(harness: MakeHarness) -> None:
    first = harness().open()
    done = first.hand_over(Batch(rows=[row(1)]))
    assert first.journal.stop(10)
    assert done == []  # the loop is no longer called
    assert [found.number for found in harness().open().journal.rows()] == [1]


def test_a_journal_that_was_never_started_stops(harness: MakeHarness) -> None:
    assert harness().journal.stop(0)


def test_a_closed_loop_does_no_harm(harness: MakeHarness, path: Path) -> None:
    at = harness().open()

    def closed(*_: object) -> None:
        raise RuntimeError("Event loop is closed")

    at.journal._post = closed
    at.hand_over(Batch(rows=[row(1)]))
    assert at.journal.stop(10)
    assert sqlite3.connect(path).execute("SELECT count(*) FROM rows").fetchone() == (1,)


def _deadline(within_s: float = 10) -> Callable[[], None]:
    end_s = time.monotonic() + within_s

    def check() -> None:
        assert time.monotonic() < end_s
        time.sleep(0.002)

    return check
