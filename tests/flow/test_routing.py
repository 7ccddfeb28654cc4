"""Which messages go over which routes, and which acknowledgements follow."""

from dataclasses import replace

from streamer.delivery.lifecycle.reload import Reload
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.message import UMessageType, response
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri, everything_at
from tests.flow.harness import (
    CLIMATE,
    CLOUD_APP,
    CLOUD_METHOD,
    ORDERS,
    SPEED,
    VEHICLE_APP,
    RouterHarness,
    configuration,
    three_networks,
)


async def test_publish_crosses_where_a_pattern_matches() -> None:
    async with RouterHarness() as harness:
        message = harness.speed(b"50 km/h", token="t", permission_level=3, ttl=1500)
        (received,) = harness.arrive("vehicle", message)
        assert harness.sent("cloud") == [message]
        assert received.acknowledged
        assert harness.outcomes("vehicle-cloud") == {"delivered": 1}


async def test_publish_without_pattern_or_subscriber_is_unwanted() -> None:
    async with RouterHarness() as harness:
        # A transport hands over only what its filters match; one that hands over more must do no harm.
        received = MemoryReceived(harness.speed(source=ORDERS))
        harness.router.ingresses["cloud"].on_receive(received)
        assert harness.sent("vehicle") == []
        assert harness.outcomes("none") == {"unwanted": 1}
        assert harness.dead_letters("cloud") == []
        assert received.acknowledged


async def test_notification_request_and_response_cross_both_ways() -> None:
    async with RouterHarness() as harness:
        up = harness.notify(b"door open")
        down = harness.notify(b"unlock", sink=VEHICLE_APP, source=ORDERS)
        ask_down, ask_up = harness.ask(), harness.ask(source=VEHICLE_APP, method=CLOUD_METHOD)
        answer_up = response(harness.clock.ms, ask_down, b"21 C", UCode.OK)
        answer_down = response(harness.clock.ms, ask_up, b"ok")
        harness.arrive("vehicle", up, ask_up, answer_up)
        harness.arrive("cloud", down, ask_down, answer_down)
        assert harness.sent("cloud") == [ask_up, answer_up, up]  # CS4 before CS1
        assert {m.id for m in harness.sent("vehicle")} == {down.id, ask_down.id, answer_down.id}
        assert harness.outcomes("none") == {}


async def test_exact_authority_wins_over_wildcard() -> None:
    config = three_networks(routes=[{"from": "vehicle", "to": "cloud"}, {"from": "vehicle", "to": "phone"}])
    async with RouterHarness(config) as harness:
        message = harness.notify(sink=UUri("phone1", 1, 1, 0))
        harness.arrive("vehicle", message)
        assert harness.sent("phone") == [message]
        assert harness.sent("cloud") == []


async def test_publish_goes_over_every_route_whose_pattern_matches() -> None:
    config = three_networks(
        routes=[
            {"from": "vehicle", "to": "cloud", "publish": ["//veh1/FFFFFFFF/FF/FFFF"]},
            {"from": "vehicle", "to": "phone", "publish": [str(SPEED)]},
        ]
    )
    async with RouterHarness(config) as harness:
        speed = harness.speed()
        (received,) = harness.arrive("vehicle", speed)
        assert harness.sent("cloud") == harness.sent("phone") == [speed]
        assert received.acknowledged


async def test_source_is_acknowledged_only_after_every_destination_confirmed() -> None:
    config = three_networks(
        routes=[
            {"from": "vehicle", "to": "cloud", "publish": ["//veh1/FFFFFFFF/FF/FFFF"]},
            {"from": "vehicle", "to": "phone", "publish": ["//veh1/FFFFFFFF/FF/FFFF"]},
        ]
    )
    async with RouterHarness(config) as harness:
        harness.transports["phone"].is_withholding = True
        (received,) = harness.arrive("vehicle", harness.speed())
        assert not received.acknowledged
        harness.transports["phone"].release_withheld()
        assert received.acknowledged


async def test_publish_is_addressed_where_the_network_wants_an_authority() -> None:
    config = configuration(
        routes=[
            {"from": "vehicle", "to": "cloud", "publish": ["//veh1/FFFFFFFF/FF/FFFF"], "publish_to": ["cloud", "backup"]},
            {"from": "cloud", "to": "vehicle"},
        ]
    )
    async with RouterHarness(config, addressed=("cloud",)) as harness:
        speed = harness.speed(b"x")
        harness.arrive("vehicle", speed)
        assert [m.attributes.sink for m in harness.sent("cloud")] == [everything_at("cloud"), everything_at("backup")]
        assert [replace(m, attributes=replace(m.attributes, sink=None)) for m in harness.sent("cloud")] == [speed, speed]


async def test_publish_addressed_to_an_authority_loses_its_sink_on_the_last_leg() -> None:
    async with RouterHarness() as harness:
        order = harness.speed(b"new route", source=ORDERS)
        addressed = replace(order, attributes=type(order.attributes)(UMessageType.PUBLISH, ORDERS, everything_at("veh1")))
        harness.arrive("cloud", addressed)
        assert [m.id for m in harness.sent("vehicle")] == [order.id]
        assert harness.sent("vehicle")[0].attributes.sink is None


async def test_message_for_its_own_network_is_left_alone() -> None:
    async with RouterHarness() as harness:
        (received,) = harness.arrive("cloud", harness.ask(source=CLOUD_APP, method=UUri("cloud2", 1, 1, 1)))
        assert harness.sent("vehicle") == harness.sent("cloud") == []
        assert received.acknowledged


async def test_same_id_twice_is_forwarded_once_and_both_copies_are_acknowledged_together() -> None:
    async with RouterHarness() as harness:
        harness.transports["cloud"].is_withholding = True
        message = harness.notify(b"once")
        (first,) = harness.arrive("vehicle", message)
        (second,) = harness.arrive("vehicle", message)
        assert not first.acknowledged
        assert not second.acknowledged
        harness.transports["cloud"].release_withheld()
        assert first.acknowledged
        assert second.acknowledged
        (third,) = harness.arrive("vehicle", message)
        assert third.acknowledged
        assert harness.sent("cloud") == [message]
        assert harness.outcomes("none") == {"duplicate": 2}


async def test_ids_are_forgotten_within_their_bound() -> None:
    async with RouterHarness(configuration(remember={"ids": 10, "seconds": 600})) as harness:
        for _ in range(100):
            harness.arrive("vehicle", harness.notify())
        assert len(harness.router.seen) <= 10


async def test_message_of_our_own_that_comes_back_is_not_forwarded() -> None:
    async with RouterHarness() as harness:
        own = harness.notify(source=UUri("gateway.veh1", 4, 1, 0x8001), sink=CLOUD_APP)
        harness.arrive("vehicle", own)
        assert harness.sent("cloud") == []
        assert harness.outcomes("none") == {"local": 1}


async def test_routes_change_while_messages_wait() -> None:
    async with RouterHarness() as harness:
        harness.transports["cloud"].lose_link()
        waiting = harness.speed(b"kept")
        harness.arrive("vehicle", waiting)
        await Reload(harness.router, configuration(routes=[{"from": "vehicle", "to": "cloud", "name": "up"}])).run()
        harness.arrive("vehicle", harness.speed(b"no longer wanted"))
        notice = harness.notify(b"still routed")
        harness.arrive("vehicle", notice)
        harness.transports["cloud"].restore_link()
        assert harness.sent("cloud") == [waiting, notice]
        harness.arrive("cloud", harness.ask(method=CLIMATE))
        assert harness.sent("vehicle") == []
        assert harness.outcomes("none")["rejected"] == 1
        harness.pass_time(100)
        assert {account.name for account in harness.router.accounts()} >= {"up", "none"}
        assert "vehicle-cloud" not in {account.name for account in harness.router.accounts()}
