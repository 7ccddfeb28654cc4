"""One Publish for several authorities: a copy for each on a network that wants an address, and one wherever it goes."""

from dataclasses import replace
from typing import Any

from streamer.config.models import Config
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.uri import everything_at
from tests.flow.harness import ORDERS, RouterHarness, configuration, three_networks


def addressed(message: UMessage, *authorities: str) -> list[UMessage]:
    """Its copies on a network that wants an address."""
    return [replace(message, attributes=replace(message.attributes, sink=everything_at(name))) for name in authorities]


def two_in_the_vehicle(**changes: Any) -> Config:
    return configuration(
        endpoints={
            "vehicle": {"transport": "memory", "authorities": ["veh1", "trailer1"]},
            "cloud": {"transport": "memory", "authorities": ["*"]},
        },
        **changes,
    )


async def test_publish_for_two_authorities_behind_one_endpoint_arrives_there_once() -> None:
    async with RouterHarness(two_in_the_vehicle(), addressed=("cloud",)) as harness:
        order = harness.speed(source=ORDERS)
        first, second = harness.arrive("cloud", *addressed(order, "veh1", "trailer1"))
        assert harness.sent("vehicle") == [order]
        assert harness.outcomes("cloud-vehicle") == {"delivered": 1, "duplicate": 1}
        assert harness.outcomes("none") == {}
        assert first.acknowledged
        assert second.acknowledged
        harness.arrive("cloud", *addressed(order, "trailer1"))  # its own copy again
        assert harness.sent("vehicle") == [order]
        assert harness.outcomes("none") == {"duplicate": 1}


async def test_publish_that_is_redriven_goes_again_where_it_has_gone() -> None:
    async with RouterHarness(two_in_the_vehicle(), addressed=("cloud",)) as harness:
        order = harness.speed(source=ORDERS)
        (copy,) = addressed(order, "veh1")
        harness.arrive("cloud", copy)
        assert harness.router.ingresses["cloud"].redrive(copy)
        harness.router.pump.run()
        assert harness.sent("vehicle") == [order, order]


async def test_second_copy_is_acknowledged_and_the_first_when_it_has_arrived() -> None:
    async with RouterHarness(two_in_the_vehicle(), addressed=("cloud",)) as harness:
        harness.transports["vehicle"].hold = True
        first, second = harness.arrive("cloud", *addressed(harness.speed(source=ORDERS), "veh1", "trailer1"))
        assert not first.acknowledged
        assert second.acknowledged
        harness.transports["vehicle"].release_held()
        assert first.acknowledged
        assert not any(harness.router.seen.young.values())  # nothing but ids is kept


async def test_second_copy_is_taken_where_the_first_found_no_room() -> None:
    config = two_in_the_vehicle(routes=[{"from": "cloud", "to": "vehicle", "queue": {"messages": 1, "on_full": "reject"}}])
    async with RouterHarness(config, addressed=("cloud",)) as harness:
        harness.transports["vehicle"].lose_link()
        before, order = harness.speed(source=ORDERS), harness.speed(source=ORDERS)
        harness.arrive("cloud", *addressed(before, "veh1"), *addressed(order, "veh1"))
        harness.transports["vehicle"].restore_link()
        harness.arrive("cloud", *addressed(order, "trailer1"))
        assert harness.sent("vehicle") == [before, order]
        assert harness.outcomes("cloud-vehicle") == {"delivered": 2, "rejected": 1}


async def test_copies_for_authorities_behind_different_endpoints_all_go() -> None:
    config = three_networks(routes=[{"from": "cloud", "to": "vehicle"}, {"from": "cloud", "to": "phone"}])
    async with RouterHarness(config, addressed=("cloud",)) as harness:
        order = harness.speed(source=ORDERS)
        harness.arrive("cloud", *addressed(order, "veh1", "phone1"))
        assert harness.sent("vehicle") == harness.sent("phone") == [order]
