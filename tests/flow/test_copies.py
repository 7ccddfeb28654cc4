"""One router, and copies that come the wrong way: they suppress nothing, and what nobody else vouches for is reported."""

from dataclasses import replace

import pytest

from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from tests.flow.stage import VEHICLE_APP, Stage, configuration, three_networks
from tests.flow.world import ANY

WIDE = [
    {"from": "vehicle", "to": "cloud", "publish": [f"//*/{ANY}"]},
    {"from": "cloud", "to": "vehicle", "publish": [f"//*/{ANY}"]},
]


@pytest.mark.parametrize("ms", [0, 999])
async def test_copy_that_comes_before_its_original_does_not_suppress_it(ms: int) -> None:
    async with Stage(configuration(routes=WIDE)) as stage:
        message = stage.speed()
        (copy,) = stage.arrive("cloud", message)
        assert copy.acknowledged  # it is not ours to deliver, and must not hold up what is
        stage.pass_time(ms)
        stage.arrive("vehicle", message)
        assert stage.sent("cloud") == [message]
        stage.pass_time(1000)
        assert stage.outcomes("vehicle-cloud") == {"delivered": 1}
        assert stage.outcomes("none") == {"duplicate": 1}
        assert stage.dead_letters("cloud") == []


async def test_copy_that_comes_after_its_original_is_a_duplicate_at_once() -> None:
    async with Stage(configuration(routes=WIDE)) as stage:
        message = stage.speed()
        stage.transports["cloud"].hold = True
        stage.arrive("vehicle", message)
        (copy,) = stage.arrive("cloud", message)
        assert copy.acknowledged
        assert stage.outcomes("none") == {"duplicate": 1}


async def test_forged_message_is_reported_after_the_grace_and_once_and_suppresses_nothing() -> None:
    async with Stage(configuration(routes=WIDE)) as stage:
        message = stage.speed()
        stage.arrive("cloud", message)
        stage.arrive("cloud", message)
        stage.pass_time(999)
        assert stage.dead_letters("cloud") == []
        stage.pass_time(1)
        (letter,) = stage.dead_letters("cloud")
        assert letter.status.code == UCode.UNAUTHENTICATED
        stage.arrive("cloud", message)
        stage.pass_time(1000)
        assert len(stage.dead_letters("cloud")) == 1
        assert stage.outcomes("none") == {"rejected": 1, "duplicate": 2}
        assert stage.sent("vehicle") == []
        stage.arrive("vehicle", message)
        assert stage.sent("cloud") == [message]


async def test_message_of_an_unknown_authority_is_reported_at_once_and_suppresses_nothing() -> None:
    config = configuration(
        endpoints={
            "vehicle": {"transport": "memory", "authorities": ["veh1"]},
            "cloud": {"transport": "memory", "authorities": ["cloud"]},
        }
    )
    async with Stage(config) as stage:
        real = stage.notify()
        forged = real._replace(attributes=replace(real.attributes, source=UUri("nobody", 1, 1, 0x8001)))
        stage.arrive("vehicle", forged, forged)
        assert [letter.status.code for letter in stage.dead_letters("vehicle")] == [UCode.UNAUTHENTICATED]
        assert stage.outcomes("none") == {"rejected": 1, "duplicate": 1}
        stage.arrive("vehicle", real)
        assert stage.sent("cloud") == [real]


FORGERIES = [
    pytest.param(UUri("x", 0xA, 1, 0x8001), UUri("phone1", 1, 1, 0), UCode.PERMISSION_DENIED, id="denied"),
    pytest.param(UUri("x", 0xA, 1, 0), VEHICLE_APP, UCode.INVALID_ARGUMENT, id="invalid"),
]


@pytest.mark.parametrize(("source", "sink", "code"), FORGERIES)
async def test_what_is_denied_or_invalid_is_reported_once_and_suppresses_nothing(
    source: UUri, sink: UUri, code: UCode
) -> None:
    async with Stage(three_networks(routes=WIDE)) as stage:
        real = stage.notify()
        forged = real._replace(attributes=replace(real.attributes, source=source, sink=sink))
        stage.arrive("cloud", forged, forged)
        assert [letter.status.code for letter in stage.dead_letters("cloud")] == [code]
        assert stage.outcomes("none") == {"rejected": 1, "duplicate": 1}
        stage.arrive("vehicle", real)
        assert stage.sent("cloud") == [real]
        stage.arrive("cloud", forged)  # of what has been carried, whatever else has its id is a copy
        assert stage.outcomes("none") == {"rejected": 1, "duplicate": 2}


async def test_copy_that_has_reached_its_sink_by_another_way_is_no_failure() -> None:
    async with Stage() as stage:
        (copy,) = stage.arrive("vehicle", stage.ask())
        assert copy.acknowledged
        stage.pass_time(1000)
        assert stage.outcomes("none") == {"local": 1}
        assert stage.sent("vehicle") == stage.sent("cloud") == []
        assert stage.dead_letters("vehicle") == []


async def test_copy_of_a_message_that_is_held_back_is_a_duplicate() -> None:
    routes = [WIDE[0] | {"queue": {"messages": 1}}, WIDE[1]]
    async with Stage(configuration(routes=routes)) as stage:
        stage.transports["cloud"].lose_link()
        messages = [stage.speed() for _ in range(3)]
        stage.arrive("vehicle", *messages)
        stage.arrive("cloud", *messages)
        stage.pass_time(1000)
        assert stage.dead_letters("cloud") == []
        assert stage.outcomes("none") == {"duplicate": 3}
        stage.transports["cloud"].restore_link()
        assert stage.sent("cloud") == messages


async def test_original_that_is_forgotten_before_the_grace_ends_is_seen_in_time() -> None:
    async with Stage(configuration(routes=WIDE, remember={"ids": 10, "seconds": 600})) as stage:
        message = stage.speed()
        stage.arrive("cloud", message)
        stage.arrive("vehicle", message)
        for _ in range(100):
            stage.arrive("vehicle", stage.speed())
        stage.pass_time(1000)
        assert stage.dead_letters("cloud") == []
        assert stage.outcomes("none") == {"duplicate": 1}


async def test_strays_are_bounded_in_number_and_the_oldest_is_judged_early() -> None:
    async with Stage(configuration(routes=WIDE, dead_letter={"queue": {"messages": 100_000}})) as stage:
        first = stage.speed()
        stage.arrive("cloud", first)
        stage.arrive("cloud", *(stage.speed() for _ in range(9_999)))
        assert stage.dead_letters("cloud") == []
        stage.arrive("cloud", stage.speed())
        (letter,) = stage.dead_letters("cloud")
        assert letter.message.attributes.id.lsb == int.from_bytes(first.id[8:], "big")
        assert len(stage.router.ingresses["cloud"].misrouted) == 10_000
        stage.pass_time(1000)
        assert stage.outcomes("none") == {"rejected": 10_001}


async def test_strays_are_bounded_in_bytes() -> None:
    async with Stage(configuration(routes=WIDE)) as stage:
        for _ in range(40):
            stage.arrive("cloud", stage.speed(bytes(1024 * 1024)))
            assert stage.router.ingresses["cloud"].misrouted.bytes <= 16 * 1024 * 1024
        assert len(stage.dead_letters("cloud")) == 25


async def test_strays_of_a_streamer_that_stops_are_no_failures() -> None:
    async with Stage(configuration(routes=WIDE)) as stage:
        stage.arrive("cloud", stage.speed())
        assert await stage.router.drain(0) == 0
        assert stage.outcomes("none") == {"duplicate": 1}
        assert stage.dead_letters("cloud") == []
