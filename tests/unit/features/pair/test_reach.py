"""What a streamer of a pair could connect when it was active, and what it says of that."""

import pytest

from streamer.features.pair.reach import FIRST_WAIT_S, LONGEST_WAIT_S, STEADY_S, Reach


def test_what_it_has_had_and_what_it_has_never_tried_is_worth_an_attempt() -> None:
    reach = Reach({}, 0.0)
    assert reach.is_unknown("cloud")
    assert reach.may_try("cloud", 0.0)
    assert reach.connected(["cloud"], 0.0)
    assert not reach.connected(["cloud"], 0.2)
    assert not reach.is_unknown("cloud")
    assert reach.may_try("cloud", 0.0)
    assert reach.is_unknown("plant")


@pytest.mark.parametrize(("times", "wait_s"), [(1, 60), (2, 120), (3, 240), (6, 1800), (5000, 1800)])
def test_what_was_refused_is_worth_one_after_a_while_that_doubles(times: int, wait_s: float) -> None:
    reach = Reach({"cloud": times}, 100.0)
    assert not reach.may_try("cloud", 100.0 + wait_s - 0.1)
    assert reach.may_try("cloud", 100.0 + wait_s)
    assert not reach.is_unknown("cloud")
    assert FIRST_WAIT_S <= wait_s <= LONGEST_WAIT_S


def test_one_process_counts_a_failure_once_and_what_is_up_again_begins_anew() -> None:
    reach = Reach({"cloud": 2, "plant": 0}, 0.0)
    assert reach.failed(["cloud", "plant"])
    assert not reach.failed(["cloud", "plant"])
    assert reach.refused == {"cloud": 3, "plant": 1}
    assert not reach.connected(["cloud"], 1.0)
    assert reach.connected(["cloud"], 1.0 + STEADY_S)
    assert reach.failed(["cloud"])
    assert reach.refused == {"cloud": 1, "plant": 1}


def test_what_is_up_for_a_moment_again_and_again_counts_as_refused() -> None:
    """A broker that accepts each session and ends it at once: else the roles would change every minute, for ever."""
    reach = Reach({"cloud": 3}, 0.0)
    for second in range(100):
        assert not reach.connected(["cloud"] if second % 5 else [], float(second))
    assert reach.refused == {"cloud": 3}


def test_two_that_are_both_refused_hand_over_less_and_less_often() -> None:
    """Each tries, fails after `prefer_s`, and hands over as soon as the other one says that it may try."""
    prefer_s, now_s = 3.0, 0.0
    handovers: list[float] = []
    refused: list[dict[str, int]] = [{}, {}]
    standby = Reach(refused[1], now_s)
    active = 0
    while now_s < 86_400:
        now_s += 1.0
        if standby.may_try("cloud", now_s) and now_s - (handovers[-1] if handovers else 0.0) > prefer_s:
            working = Reach(refused[active], now_s)
            working.failed(["cloud"])
            refused[active] = working.refused
            standby, active = Reach(refused[active], now_s), 1 - active
            handovers.append(now_s)
    assert len([each for each in handovers if each < 780]) <= 8  # 13 minutes: it was 60
    assert len(handovers) < 24 * 2 + 12
    assert handovers[-1] - handovers[-2] >= LONGEST_WAIT_S
