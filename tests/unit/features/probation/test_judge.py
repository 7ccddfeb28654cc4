"""What counts as worse than before, and for how long."""

import pytest

from streamer.features.probation.judge import MORE_BYTES, Measured, ProbationJudge
from streamer.transports.base import LinkState

UP, ALONE, DOWN = LinkState.UP, LinkState.ALONE, LinkState.DOWN


def reading(link: LinkState = UP, unconfirmed: int = 0, **routes: tuple[int, int]) -> Measured:
    return Measured({"cloud": link}, {"cloud": unconfirmed}, routes)


@pytest.mark.parametrize(
    ("before", "now", "is_worse"),
    [(UP, ALONE, True), (UP, DOWN, True), (ALONE, DOWN, True), (DOWN, DOWN, False), (ALONE, UP, False)],
)
def test_a_link_is_worse_once_it_stays_below_what_it_was(before: LinkState, now: LinkState, is_worse: bool) -> None:
    judge = ProbationJudge(reading(before), reading(), 30)
    assert [bool(judge.look(reading(now), now_s)) for now_s in (0, 29, 30)] == [False, False, is_worse]


def test_a_link_that_comes_back_within_its_patience_begins_anew() -> None:
    judge = ProbationJudge(reading(), reading(), 30)
    links = ((DOWN, 0), (DOWN, 29), (UP, 30), (DOWN, 31), (DOWN, 60))
    assert [judge.look(reading(link), now_s) for link, now_s in links] == [""] * 5
    assert judge.look(reading(DOWN), 61) == "cloud was up and stays down"


def test_a_removed_endpoint_is_not_judged_and_a_new_one_has_no_before() -> None:
    judge = ProbationJudge(reading(), reading(), 0)
    assert judge.look(Measured({"other": DOWN}, {"other": MORE_BYTES * 9}, {}), 1) == ""


@pytest.mark.parametrize(
    ("before", "now", "is_worse"), [(0, MORE_BYTES, False), (0, MORE_BYTES + 1, True), (500, MORE_BYTES + 999, False)]
)
def test_unconfirmed_bytes_are_worse_once_they_stay_beyond_what_they_were(before: int, now: int, is_worse: bool) -> None:
    judge = ProbationJudge(reading(unconfirmed=before), reading(), 30)
    assert judge.look(reading(unconfirmed=now), 0) == ""
    assert bool(judge.look(reading(unconfirmed=now), 30)) is is_worse


@pytest.mark.parametrize(
    ("before", "now", "is_worse"),
    [
        ((1000, 0), (10, 10), False),
        ((1000, 0), (11, 11), True),
        ((1000, 500), (100, 82), True),
        ((1000, 500), (100, 81), False),
        ((1000, 10), (2000, 43), False),
        ((1000, 10), (2000, 44), True),
        ((0, 0), (100, 100), False),
    ],
)
def test_more_failures_than_the_share_before_explains(before: tuple[int, int], now: tuple[int, int], is_worse: bool) -> None:
    after = before[0] + 5, before[1] + 5  # what failed during the reload itself does not count
    judge = ProbationJudge(reading(up=before), reading(up=after), 30)
    found = judge.look(reading(up=(after[0] + now[0], after[1] + now[1])), 0)
    assert bool(found) is is_worse


def test_it_says_how_many_have_failed_where_and_before() -> None:
    judge = ProbationJudge(reading(up=(1000, 1)), reading(up=(1000, 1)), 30)
    assert judge.look(reading(up=(1020, 21)), 0) == "20 of 20 messages have failed on up; before, 1 of 1000"


def test_what_fails_while_a_link_is_away_does_not_count_and_what_fails_afterwards_does() -> None:
    judge = ProbationJudge(reading(up=(1000, 0)), reading(up=(1000, 0)), 30)
    assert judge.look(reading(DOWN, up=(1020, 20)), 0) == ""
    assert judge.look(reading(DOWN, up=(1040, 40)), 29) == ""
    assert judge.look(reading(up=(1050, 50)), 30) == ""
    assert judge.look(reading(up=(1051, 51)), 31) == "11 of 11 messages have failed on up; before, 0 of 1000"
