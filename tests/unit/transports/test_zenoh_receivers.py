"""Who is a receiver of messages with a sink, by the form of what he has subscribed to."""

import pytest

from streamer.transports.zenoh.receivers import MANY, Subscribers, receiver_segments
from streamer.transports.zenoh.wire import key_filter, narrowed
from streamer.uprotocol.uri import UUri, everything_at

FLOW = "up/veh1/1/0/1/8000/cloud/1/0/1/0"


@pytest.mark.parametrize(
    ("source", "sink"),
    [
        ("//*/FFFFFFFF/FF/FFFF", "//cloud/1/1/0"),
        ("//veh1/1/1/8000", "//cloud/1/1/0"),
        ("//*/FFFFFFFF/FF/FFFF", "//cloud/FFFFFFFF/FF/FFFF"),
        ("//*/FFFFFFFF/FF/FFFF", "//*/1/1/0"),
        ("//*/FFFFFFFF/FF/0", "//*/FFFFFFFF/FF/FFFF"),
        ("//*/FFFFFFFF/FF/7", "//*/FFFFFFFF/FF/FFFF"),
        ("//*/FFFFFFFF/FF/FFFF", "//*/FFFFFFFF/FF/0"),
    ],
)
def test_listener_of_uprotocol_is_a_receiver(source: str, sink: str) -> None:
    assert receiver_segments(key_filter(UUri.parse(source), UUri.parse(sink), ""))


def test_streamer_that_serves_everybody_is_a_receiver() -> None:
    keys = [key_filter(*part, "") for part in narrowed(everything_at("*"), everything_at("*"))]
    assert Subscribers(keys).reach(FLOW)


@pytest.mark.parametrize(
    "key",
    [
        "**",
        "up/**",
        "up/*/*/*/*/*/*/*/*/*/*",
        "up/veh1/*/*/*/8000/*/*/*/*/*",
        "up/*/*/*/*/{}/*/*/*/*/*",
        "up/**/cloud/1/0/1/0",
        "up/*/*/*/*/*/**",
        "up/veh1/**",
        "up/*/*/*/*/*/cl$*/1/0/1/0",
        "*/*/*/*/*/*/cloud/1/0/1/0",
        "up/*/*/*/*/*/cloud/1/0/1",
        "",
    ],
)
def test_what_takes_publishes_as_well_or_is_written_otherwise_is_a_recorder(key: str) -> None:
    assert not receiver_segments(key)
    assert not Subscribers([key]).reach(FLOW)


@pytest.mark.parametrize(
    ("key", "is_reached"),
    [
        (FLOW, True),
        ("up/*/*/*/*/*/cloud/1/0/1/0", True),
        ("up/veh1/*/*/*/*/cloud/*/*/*/*", True),
        ("up/*/*/*/*/*/cloud/**", True),
        ("up/*/*/*/*/*/cloud/1/0/1/0/**", True),
        ("up/*/*/*/*/*/cloud/2/**", False),
        ("up/veh2/1/0/1/8000/cloud/1/0/1/0", False),
        ("up/veh2/*/*/*/*/cloud/1/0/1/0", False),
        ("up/*/*/*/*/*/cloud/2/0/1/0", False),
    ],
)
def test_receiver_is_reached_by_what_its_key_covers(key: str, is_reached: bool) -> None:
    assert Subscribers([key, "up/**"]).reach(FLOW) is is_reached


def test_too_many_to_tell_apart_count_as_receivers() -> None:
    assert not Subscribers(f"up/x/{n:X}/0/1/8000/y/1/0/1/0" for n in range(MANY)).reach(FLOW)
    assert Subscribers(f"up/x/{n:X}/0/1/8000/y/1/0/1/0" for n in range(MANY + 1)).reach(FLOW)
    assert Subscribers(f"up/*/{n:X}/0/1/8000/y/1/0/1/0" for n in range(257)).reach(FLOW)
