"""One Publish for several authorities: a copy for each on a network that wants an address, and one wherever it goes."""

import asyncio
from dataclasses import replace
from typing import Any

from streamer.config.models import Config
from streamer.delivery.inbound.refusals import Admission
from streamer.routing.interest import EVERY_MESSAGE
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.uri import everything_at
from tests.flow.harness import ORDERS, SPEED, RouterHarness, configuration, three_networks


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
        assert harness.router.ingresses["cloud"].redrive(copy, 0, "", "", "") is Admission.TAKEN
        harness.router.pump.run()
        assert harness.sent("vehicle") == [order, order]


async def test_second_copy_is_acknowledged_and_the_first_when_it_has_arrived() -> None:
    async with RouterHarness(two_in_the_vehicle(), addressed=("cloud",)) as harness:
        harness.transports["vehicle"].is_withholding = True
        first, second = harness.arrive("cloud", *addressed(harness.speed(source=ORDERS), "veh1", "trailer1"))
        assert not first.acknowledged
        assert second.acknowledged
        harness.transports["vehicle"].release_withheld()
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


async def interested(harness: RouterHarness, *authorities: str, **sampled: int) -> None:
    """Have these subscribe to the speed; those in ``sampled`` to one message in so many ms."""
    harness.router.set_interest(SPEED, dict.fromkeys(authorities, EVERY_MESSAGE) | sampled, "test")
    await asyncio.sleep(0)
    await harness.router.listening.catch_up()


def by_interest(remember: dict[str, int] | None = None, **queue: Any) -> Config:
    routes = [{"from": "vehicle", "to": "cloud", "queue": queue}, {"from": "cloud", "to": "vehicle"}]
    return configuration(routes=routes, remember=remember or {})


async def test_publish_for_many_authorities_is_remembered_once_and_each_copy_is_known() -> None:
    async with RouterHarness(by_interest(), addressed=("cloud",)) as harness:
        everybody = [f"cloud{number}" for number in range(100)]
        await interested(harness, *everybody)
        speed = harness.speed()
        harness.arrive("vehicle", speed)
        assert harness.sent("cloud") == addressed(speed, *everybody)
        assert len(harness.router.seen) == 1
        harness.arrive("vehicle", *addressed(speed, "cloud0", "cloud99", "cloud100"))
        assert harness.sent("cloud") == addressed(speed, *everybody, "cloud100")
        assert harness.outcomes("none") == {"duplicate": 2}


async def test_copies_are_known_as_long_as_the_id_of_their_publish() -> None:
    async with RouterHarness(by_interest(), addressed=("cloud",)) as harness:
        await interested(harness, "cloud0", "cloud1")
        speed = harness.speed()
        harness.arrive("vehicle", speed)
        half_ms = int(harness.config.remember.seconds * 500)
        harness.clock.advance(half_ms)
        harness.arrive("vehicle", *addressed(speed, "cloud1"))
        assert harness.outcomes("none") == {"duplicate": 1}
        for _ in range(2):
            harness.clock.advance(half_ms)
            harness.arrive("vehicle", harness.speed())
        seen = harness.router.seen
        assert (len(seen.old_copies), len(seen.young_copies)) == (1, 1)


async def test_copy_that_found_no_room_is_not_known_and_goes_when_another_streamer_brings_it() -> None:
    async with RouterHarness(by_interest(messages=1, on_full="reject"), addressed=("cloud",)) as harness:
        await interested(harness, "cloud0", "cloud1")
        harness.transports["cloud"].lose_link()
        speed = harness.speed()
        harness.arrive("vehicle", speed)
        harness.transports["cloud"].restore_link()
        harness.arrive("vehicle", *addressed(speed, "cloud0", "cloud1"))
        assert harness.sent("cloud") == addressed(speed, "cloud0", "cloud1")
        assert harness.outcomes("vehicle-cloud") == {"delivered": 2, "rejected": 1}
        assert harness.outcomes("none") == {"duplicate": 1}


def own_sets(harness: RouterHarness) -> list[frozenset[str]]:
    """The sets of authorities that are remembered, each once."""
    seen = harness.router.seen
    return list({id(each): each for each in (*seen.young_copies.values(), *seen.old_copies.values())}.values())


async def test_messages_that_leave_out_the_same_copies_share_what_is_remembered() -> None:
    async with RouterHarness(by_interest(), addressed=("cloud",)) as harness:
        await interested(harness, "cloud0", "cloud1", seldom=3_600_000)
        harness.arrive("vehicle", *(harness.speed() for _ in range(10)))
        assert sorted(map(len, own_sets(harness))) == [2, 3]


async def test_messages_that_also_go_where_no_address_is_wanted_share_what_is_remembered() -> None:
    routes = [{"from": "vehicle", "to": "cloud"}, {"from": "vehicle", "to": "phone", "publish": [str(SPEED)]}]
    async with RouterHarness(three_networks(routes=routes), addressed=("cloud",)) as harness:
        await interested(harness, "cloud0", "cloud1")
        harness.arrive("vehicle", *(harness.speed() for _ in range(10)))
        assert len(harness.sent("phone")) == 10
        assert own_sets(harness) == [frozenset(("cloud0", "cloud1"))]


async def test_sets_of_copies_that_are_not_shared_count_as_ids() -> None:
    most, many = 1000, 50
    config = by_interest(remember={"ids": most})
    async with RouterHarness(config, addressed=("cloud",)) as harness:
        await interested(harness, *(f"cloud{number}" for number in range(many)), seldom=2, sometimes=3)
        for _ in range(100):
            harness.arrive("vehicle", harness.speed())
            harness.clock.advance(1)
        kept = sum(map(len, own_sets(harness)))
        assert 0 < len(harness.router.seen) + kept <= most + 3 * many
