"""Copies that come from the wrong network: they suppress nothing, and one without an original is reported."""

from dataclasses import replace

import pytest

from streamer.delivery.lifecycle.departure import Drain
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from tests.flow.harness import VEHICLE_APP, RouterHarness, configuration, three_networks
from tests.flow.mesh import ANY

WIDE = [
    {"from": "vehicle", "to": "cloud", "publish": [f"//*/{ANY}"]},
    {"from": "cloud", "to": "vehicle", "publish": [f"//*/{ANY}"]},
]


@pytest.mark.parametrize("ms", [0, 999])
async def test_copy_that_comes_before_its_original_does_not_suppress_it(ms: int) -> None:
    async with RouterHarness(configuration(routes=WIDE)) as harness:
        message = harness.speed()
        (copy,) = harness.arrive("cloud", message)
        assert copy.acknowledged  # it is not ours to deliver, and must not hold up what is
        harness.pass_time(ms)
        harness.arrive("vehicle", message)
        assert harness.sent("cloud") == [message]
        harness.pass_time(1000)
        assert harness.outcomes("vehicle-cloud") == {"delivered": 1}
        assert harness.outcomes("none") == {"duplicate": 1}
        assert harness.dead_letters("cloud") == []


async def test_copy_that_comes_after_its_original_is_a_duplicate_at_once() -> None:
    async with RouterHarness(configuration(routes=WIDE)) as harness:
        message = harness.speed()
        harness.transports["cloud"].is_withholding = True
        harness.arrive("vehicle", message)
        (copy,) = harness.arrive("cloud", message)
        assert copy.acknowledged
        assert harness.outcomes("none") == {"duplicate": 1}


async def test_forged_message_is_reported_after_the_grace_and_once_and_suppresses_nothing() -> None:
    async with RouterHarness(configuration(routes=WIDE)) as harness:
        message = harness.speed()
        harness.arrive("cloud", message)
        harness.arrive("cloud", message)
        harness.pass_time(999)
        assert harness.dead_letters("cloud") == []
        harness.pass_time(1)
        (letter,) = harness.dead_letters("cloud")
        assert letter.status.code == UCode.UNAUTHENTICATED
        harness.arrive("cloud", message)
        harness.pass_time(1000)
        assert len(harness.dead_letters("cloud")) == 1
        assert harness.outcomes("none") == {"rejected": 1, "duplicate": 2}
        assert harness.sent("vehicle") == []
        harness.arrive("vehicle", message)
        assert harness.sent("cloud") == [message]


async def test_message_of_an_unknown_authority_is_reported_at_once_and_suppresses_nothing() -> None:
    config = configuration(
        endpoints={
            "vehicle": {"transport": "memory", "authorities": ["veh1"]},
            "cloud": {"transport": "memory", "authorities": ["cloud"]},
        }
    )
    async with RouterHarness(config) as harness:
        real = harness.notify()
        forged = replace(real, attributes=replace(real.attributes, source=UUri("nobody", 1, 1, 0x8001)))
        harness.arrive("vehicle", forged, forged)
        assert [letter.status.code for letter in harness.dead_letters("vehicle")] == [UCode.UNAUTHENTICATED]
        assert harness.outcomes("none") == {"rejected": 1, "duplicate": 1}
        harness.arrive("vehicle", real)
        assert harness.sent("cloud") == [real]


FORGERIES = [
    pytest.param(UUri("x", 0xA, 1, 0x8001), UUri("phone1", 1, 1, 0), UCode.PERMISSION_DENIED, id="denied"),
    pytest.param(UUri("x", 0xA, 1, 0), VEHICLE_APP, UCode.INVALID_ARGUMENT, id="invalid"),
]


@pytest.mark.parametrize(("source", "sink", "code"), FORGERIES)
async def test_what_is_denied_or_invalid_is_reported_once_and_suppresses_nothing(
    source: UUri, sink: UUri, code: UCode
) -> None:
    async with RouterHarness(three_networks(routes=WIDE)) as harness:
        real = harness.notify()
        forged = replace(real, attributes=replace(real.attributes, source=source, sink=sink))
        harness.arrive("cloud", forged, forged)
        assert [letter.status.code for letter in harness.dead_letters("cloud")] == [code]
        assert harness.outcomes("none") == {"rejected": 1, "duplicate": 1}
        harness.arrive("vehicle", real)
        assert harness.sent("cloud") == [real]
        harness.arrive("cloud", forged)  # of what has been carried, whatever else has its id is a copy
        assert harness.outcomes("none") == {"rejected": 1, "duplicate": 2}


async def test_copy_that_has_reached_its_sink_by_another_way_is_not_a_failure() -> None:
    async with RouterHarness() as harness:
        (copy,) = harness.arrive("vehicle", harness.ask())
        assert copy.acknowledged
        harness.pass_time(1000)
        assert harness.outcomes("none") == {"local": 1}
        assert harness.sent("vehicle") == harness.sent("cloud") == []
        assert harness.dead_letters("vehicle") == []


async def test_copy_of_a_message_in_the_backlog_is_a_duplicate() -> None:
    routes = [WIDE[0] | {"queue": {"messages": 1}}, WIDE[1]]
    async with RouterHarness(configuration(routes=routes)) as harness:
        harness.transports["cloud"].lose_link()
        messages = [harness.speed() for _ in range(3)]
        harness.arrive("vehicle", *messages)
        harness.arrive("cloud", *messages)
        harness.pass_time(1000)
        assert harness.dead_letters("cloud") == []
        assert harness.outcomes("none") == {"duplicate": 3}
        harness.transports["cloud"].restore_link()
        assert harness.sent("cloud") == messages


async def test_original_that_is_forgotten_before_the_grace_ends_is_seen_in_time() -> None:
    async with RouterHarness(configuration(routes=WIDE, remember={"ids": 10, "seconds": 600})) as harness:
        message = harness.speed()
        harness.arrive("cloud", message)
        harness.arrive("vehicle", message)
        for _ in range(100):
            harness.arrive("vehicle", harness.speed())
        harness.pass_time(1000)
        assert harness.dead_letters("cloud") == []
        assert harness.outcomes("none") == {"duplicate": 1}


async def test_misrouted_copies_are_bounded_in_number_and_the_oldest_is_judged_early() -> None:
    async with RouterHarness(configuration(routes=WIDE, dead_letter={"queue": {"messages": 100_000}})) as harness:
        first = harness.speed()
        harness.arrive("cloud", first)
        harness.arrive("cloud", *(harness.speed() for _ in range(9_999)))
        assert harness.dead_letters("cloud") == []
        harness.arrive("cloud", harness.speed())
        (letter,) = harness.dead_letters("cloud")
        assert letter.message.attributes.id.lsb == int.from_bytes(first.id[8:], "big")
        assert len(harness.router.ingresses["cloud"].misrouted) == 10_000
        harness.pass_time(1000)
        assert harness.outcomes("none") == {"rejected": 10_001}


async def test_misrouted_copies_are_bounded_in_bytes() -> None:
    async with RouterHarness(configuration(routes=WIDE)) as harness:
        for _ in range(40):
            harness.arrive("cloud", harness.speed(bytes(1024 * 1024)))
            assert harness.router.ingresses["cloud"].misrouted.bytes <= 16 * 1024 * 1024
        assert len(harness.dead_letters("cloud")) == 25


async def test_misrouted_copies_of_a_streamer_that_stops_are_not_failures() -> None:
    async with RouterHarness(configuration(routes=WIDE)) as harness:
        harness.arrive("cloud", harness.speed())
        assert await Drain(harness.router).run(0) == 0
        assert harness.outcomes("none") == {"duplicate": 1}
        assert harness.dead_letters("cloud") == []
