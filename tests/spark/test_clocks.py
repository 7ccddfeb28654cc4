"""The streamers' clocks from the ages of messages: X ⇄ Y ⇄ Z, with transits of 2 ms down and 6 ms up."""

from collections.abc import Iterable
from typing import NamedTuple

import pytest

from spark_jobs.clocks import estimate

DOWN_US, UP_US = 2_000, 6_000


class Row(NamedTuple):
    streamer: str
    src_authority: str
    sink_authority: str | None
    ingress: str | None
    egress: str | None
    hour_of_message: int
    messages: int
    age_us: int


def rows(skew_us: dict[str, int], flows: Iterable[tuple[str, str | None, bool]], chain: str = "XYZ") -> list[Row]:
    """Each flow in three hours, one of which waited between the streamers."""
    made = []
    for source, sink, down in flows:
        for hour, wait_us in ((1, 0), (2, 3_000_000), (3, 0)):
            for hop, name in enumerate(chain if down else reversed(chain)):
                age_us = hop * ((DOWN_US if down else UP_US) + wait_us) + skew_us.get(name, 0)
                ends = ("up", "down") if down else ("down", "up")
                made.append(Row(name, source, sink, *ends, hour, 100, age_us))
    return made


@pytest.mark.parametrize("skew_us", [90_000_000, -45_000_000, 3_000, 0])
def test_both_directions_give_the_skew_to_half_the_difference_of_the_transits(skew_us: int) -> None:
    clocks = estimate(rows({"Y": skew_us}, [("cloud", "car", True), ("car", "cloud", False)]))
    assert clocks["Y"].skew_us == skew_us + (DOWN_US - UP_US) / 2
    assert clocks["Z"].skew_us == DOWN_US - UP_US
    assert (clocks["X"].skew_us, clocks["X"].against) == (0, None)
    assert {each.group for each in clocks.values()} == {"X"}


def test_publishes_without_a_sink_are_enough() -> None:
    clocks = estimate(rows({"Y": 7_000_000}, [("cloud", None, True), ("car", None, False)]))
    assert clocks["Y"].skew_us == 7_000_000 + (DOWN_US - UP_US) / 2


def test_one_direction_shows_only_what_no_transit_explains() -> None:
    near, far = (estimate(rows({"Y": skew_us}, [("cloud", "car", True)], "XY"))["Y"] for skew_us in (400_000, 90_000_000))
    assert near.skew_us is None
    assert far.skew_us == 90_000_000 + DOWN_US
    assert near.group == far.group == "Y"


def test_messages_of_a_streamer_itself_tell_their_direction() -> None:
    """Y's dead letters go up to X, and all else comes down: no endpoint is used both ways."""
    letters = [
        Row("Y", "Y", None, None, "down", 1, 50, 90_000_000),
        Row("X", "Y", None, "down", None, 1, 50, UP_US),
    ]
    clocks = estimate([*rows({"Y": 90_000_000}, [("cloud", "car", True)], "XY"), *letters])
    assert clocks["Y"].skew_us == 90_000_000 + (DOWN_US - UP_US) / 2


def test_the_reference_is_the_streamer_with_most_messages() -> None:
    more = rows({"Y": 5_000_000}, [("cloud", "car", True), ("car", "cloud", False)])
    clocks = estimate([*more, Row("Y", "site", None, "site", "down", 1, 10, 0)])
    assert (clocks["Y"].against, clocks["X"].against) == (None, "Y")
    assert clocks["X"].skew_us == -5_000_000 - (DOWN_US - UP_US) / 2


def test_streamers_without_a_message_in_common_stand_alone() -> None:
    clocks = estimate([Row("X", "a", None, "in", "out", 1, 9, 5), Row("Y", "b", None, "in", "out", 1, 8, 5)])
    assert [(each.skew_us, each.against, each.messages) for each in clocks.values()] == [(0, None, 0)] * 2
