"""What is kept, how long, and what a recording is written for."""

from typing import Any

import pytest

from streamer.features.black_box.ring import CAUSES, EVENTS, Causes, Ring, Shown


def shown(at_s: float, size: int = 100) -> Shown:
    return Shown(int(at_s * 1e9), EVENTS, bytes(size))


def times(ring: Ring) -> list[float]:
    return [each.at_ns / 1e9 for each in ring.take()]


def test_the_last_seconds_are_kept_and_what_was_taken_is_not_taken_again() -> None:
    ring = Ring(10, 1 << 20)
    for at_s in (0, 5, 10, 10.5):
        ring.add(shown(at_s))
    assert ring.left_out == 0
    assert times(ring) == [5, 10, 10.5]
    ring.add(shown(11))
    assert times(ring) == [11]


def test_no_more_bytes_are_kept_than_there_may_be_and_what_had_no_room_is_counted() -> None:
    ring = Ring(1000, 10_000)
    for at_s in range(100):
        ring.add(shown(at_s, 800))
    assert (times(ring), ring.left_out) == ([*range(90, 100)], 0)
    for at_s in range(100):
        ring.add(shown(at_s, 800))
    assert ring.left_out == 90
    ring.add(shown(100, 1 << 20))  # larger than everything
    assert times(ring) == []


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([("message", {"outcome": "unheard"})], ["unheard"]),
        ([("message", {"outcome": "delivered"}), ("left_out", {"messages": 3})], ["", ""]),
        ([("dead_letter", {"number": 1}), ("dead_letter", {"left_out": 7})], ["dead-letter", "dead-letter"]),
        ([("state", {"what": "endpoint", "name": "a", "state": "down"})], [""]),  # as it was before
        (
            [("state", {"what": "endpoint", "name": "a", "state": state}) for state in ("up", "down", "down", "up", "down")],
            ["", "endpoint-down", "", "", "endpoint-down"],
        ),
        ([("state", {"what": "route", "name": "a", "state": state}) for state in ("up", "down")], ["", ""]),
    ],
)
def test_the_causes(events: list[tuple[str, dict[str, Any]]], expected: list[str]) -> None:
    causes = Causes(CAUSES)
    assert [causes.of(*each) for each in events] == expected
    none = Causes(())
    assert not any(none.of(*each) for each in events)
