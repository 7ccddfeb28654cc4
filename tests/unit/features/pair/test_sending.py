"""What is sent of what was written meanwhile leaves the same; and how much is on its way at a time."""

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.features.pair.sending import MOST_BYTES, Unsent, Window, size_of
from streamer.journal.entries import Batch, Mark
from tests.examples import examples
from tests.unit.journal.harness import JournalHarness, letter, row, segment


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def everything(unsent: Unsent, most_bytes: int) -> list[Batch]:
    batches = []
    while unsent:
        batches.append(unsent.take(most_bytes))
    return batches


def contents(journal: JournalHarness) -> tuple[object, ...]:
    reader = journal.journal
    rows, segments = list(reader.rows(everything=True)), list(reader.segments(everything=True))
    return rows, segments, list(reader.all_letters()), reader.letter_marks()


def batch_of(chosen: random.Random, number: int) -> Batch:
    """A batch as the journal of a busy streamer has it: new entries, and the end of some that were written before."""

    def some(table: int) -> list[int]:
        return [each * 6 + table for each in chosen.sample(range(number + 1), min(number, chosen.randrange(3)))]

    def is_new() -> bool:
        return chosen.random() < 0.6

    body = bytes(chosen.randrange(60))
    outcome = chosen.choice(["rejected", "expired"])
    return Batch(
        rows=[row(number * 6, body)] if is_new() else [],
        segments=[segment(chosen.choice([number, max(0, number - 1)]) * 6 + 2, body)] if is_new() else [],
        letters=[letter(number * 6 + 4, chosen.randrange(4), body, outcome=outcome)] if is_new() else [],
        rows_done=some(0),
        segments_done=some(2),
        letters_done=some(4) if chosen.random() < 0.3 else [],
        letters_unmarked=some(4) if chosen.random() < 0.3 else [],
        letters_marked=[Mark(each, number, None) for each in some(4)] if chosen.random() < 0.3 else [],
    )


@given(st.integers(0, 10_000), st.integers(1, 14), st.integers(1, 2000))
@settings(max_examples=examples(60))
def test_merged_and_split_they_leave_what_they_leave_one_by_one(
    tmp_path_factory: pytest.TempPathFactory, seed: int, count: int, most_bytes: int
) -> None:
    folder: Path = tmp_path_factory.mktemp("journals")
    chosen, unsent = random.Random(seed), Unsent()
    one_by_one, merged = JournalHarness(folder / "a.db").open(), JournalHarness(folder / "b.db").open()
    first = chosen.randrange(count)
    for number in range(count):
        batch = batch_of(chosen, number)
        if number < first:  # both have it before
            merged.write(batch)
        else:
            unsent.add(batch)
        one_by_one.write(batch)
    for batch in everything(unsent, most_bytes):
        merged.write(batch)
    assert contents(merged) == contents(one_by_one)
    assert (unsent.bytes, bool(unsent)) == (0, False)
    one_by_one.close()
    merged.close()


def test_what_is_deleted_before_it_was_sent_is_not_sent() -> None:
    unsent = Unsent()
    for number in range(2, 2002, 2):
        unsent.add(Batch(rows=[row(number)], segments=[segment(number + 1)], rows_done=[number - 2]))
        unsent.add(Batch(segments_done=[number + 1]))
    (batch,) = everything(unsent, 1 << 20)
    assert batch.rows == [row(2000)]
    assert batch.segments == []


def test_an_entry_is_sent_before_the_deletions_that_were_written_with_it() -> None:
    """If the rest never arrives, the message that has become a row is in the segment still."""
    unsent = Unsent()
    unsent.add(Batch(segments_done=[1], rows=[row(number, bytes(100)) for number in range(2, 42, 2)]))
    batches = everything(unsent, 600)
    assert [len(batch.rows) for batch in batches] == [2] * 10
    assert [batch.segments_done for batch in batches] == [[]] * 9 + [[1]]


def test_letters_of_a_storm_go_in_parts() -> None:
    unsent = Unsent()
    for number in range(0, 4000, 2):
        unsent.add(Batch(letters=[letter(number, number, bytes(1000))]))
    sizes = [size_of(batch) for batch in everything(unsent, 1)]
    assert len(sizes) > 5
    assert max(sizes) < 400_000


def test_the_window_is_as_large_as_what_is_answered_in_time() -> None:
    """50 kB/s: heartbeats queue behind what is on its way for less than the second that a lease lasts."""
    clock, rate = Clock(), 50_000
    window = Window(clock)
    number, on_the_way, worst = 0, [], 0
    window.sent(0, 0)  # a copy begins with a part that has nothing
    window.answered(0)
    for step in range(400):
        while window.has_room:
            number += 1
            window.sent(number, window.part_bytes)
            on_the_way.append((number, window.part_bytes))
        if step > 100:
            worst = max(worst, sum(size for _, size in on_the_way))
        answered, size = on_the_way.pop(0)
        clock.now_s += size / rate
        window.answered(answered)
    assert worst < 0.8 * rate


@pytest.mark.parametrize("round_trip_s", [0.0, 0.03, 0.2, 0.9])
def test_a_long_way_that_is_wide_gets_the_whole_window(round_trip_s: float) -> None:
    clock = Clock()
    window = Window(clock)
    number = 0
    for _ in range(10):
        while window.has_room:
            number += 1
            window.sent(number, window.part_bytes)
        clock.now_s += round_trip_s
        window.answered(number)
    window.sent(number + 1, MOST_BYTES - 1)
    assert window.has_room


def test_silence_counts_from_the_last_answer_or_from_when_something_was_sent() -> None:
    clock = Clock()
    window = Window(clock)
    clock.now_s += 50
    assert window.silent_s == 0
    window.sent(1, 10)
    window.sent(2, 10)
    clock.now_s += 3
    window.answered(1)
    clock.now_s += 4
    assert window.silent_s == 4
    window.answered(2)
    assert window.silent_s == 0
    window.sent(3, 10)
    clock.now_s += 1
    window.forget()
    assert window.silent_s == 0
