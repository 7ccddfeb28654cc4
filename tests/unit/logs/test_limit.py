"""How many lines are written: bounded in number and in kinds, and nothing is left out uncounted."""

import random
from collections import Counter

from streamer.logs.limit import Limit


def test_what_has_no_line_is_counted_and_the_last_one_is_given_once_the_window_is_over() -> None:
    limit: Limit[str, int] = Limit(10, 100, 100)
    assert limit.has_line("a", 0)
    for number in range(5):
        assert not limit.has_line("a", number)
        limit.leave_out("a", number, number)
    assert limit.over(9.99) == []
    assert limit.over(10) == [("a", 5, 4)]
    assert not limit.has_line("a", 19)  # what was given has used up the line of its window
    assert limit.over(20) == []
    assert limit.is_idle


def test_a_kind_without_any_line_is_only_counted() -> None:
    limit: Limit[str, int] = Limit(10, 100, 100)
    assert not limit.has_line("a", 5, 0)
    limit.leave_out("a", 1, 5)
    assert limit.over(14) == []
    assert limit.over(15) == [("a", 1, 1)]


def test_a_line_that_is_written_drops_what_was_kept_before_it() -> None:
    limit: Limit[str, str] = Limit(10, 100, 100)
    assert limit.has_line("a", 0)
    limit.leave_out("a", "down", 1)
    assert limit.has_line("a", 2, most=2)
    assert limit.left_out("a") == 1
    assert limit.over(10) == []


def test_all_kinds_together_are_bounded_and_further_ones_share_one() -> None:
    limit: Limit[int, int] = Limit(10, lines=5, kinds=3)
    written = 0
    for number in range(100):
        if limit.has_line(number, 0):
            written += 1
        else:
            limit.leave_out(number, number, 0)
    assert written == 5
    assert limit.over(10) == [(5, 1, 5), (6, 1, 6), (7, 1, 7), (None, 92, 99)]


def test_at_the_end_nothing_waits_for_the_window() -> None:
    limit: Limit[str, int] = Limit(10, 1, 1)
    limit.leave_out("a", 7, 0)
    assert limit.over(0, is_end=True) == [("a", 1, 7)]


def test_whatever_happens_every_one_is_written_or_counted_and_lines_are_bounded() -> None:
    chance = random.Random(1)
    limit: Limit[int, int] = Limit(1, lines=20, kinds=8)
    happened, written, counted, now_s = Counter[str](), 0, 0, 0.0
    lines_in_window = 0
    for _ in range(20_000):
        now_s += chance.choice((0, 0.001, 0.01))
        over = limit.over(now_s)
        if over:
            assert lines_in_window <= 20 + 9
            lines_in_window = len(over)
        written += len(over)
        counted += sum(times - 1 for _, times, _ in over)
        kind = int(chance.expovariate(0.1))
        happened["all"] += 1
        if limit.has_line(kind, now_s, chance.choice((0, 1, 3))):
            written += 1
            lines_in_window += 1
            counted += limit.left_out(kind)
        else:
            limit.leave_out(kind, kind, now_s)
    over = limit.over(now_s, is_end=True)
    assert written + counted + sum(times for _, times, _ in over) == happened["all"]
