"""Topics that are forwarded because somebody subscribed: from when to when, to whom, and how often."""

import pytest

from streamer.delivery.lifecycle.reload import Reload
from streamer.routing.interest import EVERY_MESSAGE
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.message import Attributes, UMessage, UMessageType
from streamer.uprotocol.uri import everything_at
from tests.flow.harness import GATEWAY, ORDERS, SPEED, RouterHarness, configuration, three_networks
from tests.flow.interested import want

DOWN = {"from": "cloud", "to": "vehicle"}
UP = {"from": "vehicle", "to": "cloud"}
BARE = configuration(routes=[UP, DOWN])


def received(harness: RouterHarness, endpoint: str) -> int:
    return harness.router.ingresses[endpoint].stats.received


async def test_a_topic_is_received_and_forwarded_only_while_there_is_interest() -> None:
    async with RouterHarness(BARE) as harness:
        harness.arrive("cloud", harness.speed(b"before", source=ORDERS))
        await want(harness, ORDERS, {"veh1": EVERY_MESSAGE})
        harness.arrive("cloud", harness.speed(b"during", source=ORDERS))
        await want(harness, ORDERS, {})
        harness.arrive("cloud", harness.speed(b"after", source=ORDERS))
        assert [message.payload for message in harness.sent("vehicle")] == [b"during"]
        assert harness.sent("vehicle")[0].attributes.sink is None
        assert received(harness, "cloud") == 1
        assert harness.outcomes("cloud-vehicle") == {"delivered": 1}


async def test_another_topic_of_the_same_uentity_is_not_received() -> None:
    async with RouterHarness(BARE) as harness:
        await want(harness, ORDERS, {"veh1": EVERY_MESSAGE})
        harness.arrive("cloud", harness.speed(source=ORDERS._replace(resource=ORDERS.resource + 1)))
        assert received(harness, "cloud") == 0


async def test_messages_that_wait_when_the_last_subscriber_leaves_are_delivered() -> None:
    async with RouterHarness(BARE) as harness:
        await want(harness, ORDERS, {"veh1": EVERY_MESSAGE})
        harness.transports["vehicle"].lose_link()
        harness.arrive("cloud", harness.speed(b"accepted", source=ORDERS))
        await want(harness, ORDERS, {})
        harness.transports["vehicle"].restore_link()
        assert [message.payload for message in harness.sent("vehicle")] == [b"accepted"]


async def test_an_addressed_network_gets_one_copy_for_each_interested_authority() -> None:
    async with RouterHarness(BARE, addressed=("cloud",)) as harness:
        await want(harness, SPEED, {"backend": EVERY_MESSAGE, "phone7": EVERY_MESSAGE})
        harness.arrive("vehicle", harness.speed())
        assert [message.attributes.sink for message in harness.sent("cloud")] == [
            everything_at("backend"),
            everything_at("phone7"),
        ]
        assert harness.outcomes("vehicle-cloud") == {"delivered": 2}


async def test_an_interested_authority_that_a_route_lists_too_gets_one_copy_of_every_message() -> None:
    config = configuration(routes=[UP | {"publish": [str(SPEED)], "publish_to": ["backend"]}])
    async with RouterHarness(config, addressed=("cloud",)) as harness:
        await want(harness, SPEED, {"backend": 60_000})
        harness.arrive("vehicle", harness.speed(b"1"), harness.speed(b"2"))
        assert [(m.attributes.sink, m.payload) for m in harness.sent("cloud")] == [
            (everything_at("backend"), b"1"),
            (everything_at("backend"), b"2"),
        ]


async def test_a_publish_that_is_addressed_to_us_is_for_those_interested_behind_us() -> None:
    async with RouterHarness(BARE, addressed=("cloud",)) as harness:
        await want(harness, ORDERS, {"veh1": EVERY_MESSAGE})
        copy = UMessage(
            harness.speed().id, Attributes(UMessageType.PUBLISH, ORDERS, everything_at(GATEWAY)), b"for whom it concerns"
        )
        harness.arrive("cloud", copy)
        assert [(m.attributes.sink, m.payload) for m in harness.sent("vehicle")] == [(None, b"for whom it concerns")]


async def test_nothing_goes_back_to_a_network_that_is_interested_in_its_own_topic() -> None:
    async with RouterHarness(BARE) as harness:
        await want(harness, SPEED, {"veh1": EVERY_MESSAGE})
        harness.arrive("vehicle", harness.speed())
        assert received(harness, "vehicle") == 0
        assert harness.sent("vehicle") == harness.sent("cloud") == []


async def test_only_networks_with_interest_get_a_copy() -> None:
    config = three_networks(routes=[UP, {"from": "vehicle", "to": "phone"}])
    async with RouterHarness(config) as harness:
        await want(harness, SPEED, {"phone1": EVERY_MESSAGE})
        harness.arrive("vehicle", harness.speed())
        assert len(harness.sent("phone")) == 1
        assert harness.sent("cloud") == []


@pytest.mark.parametrize(
    ("interested", "kept"),
    [
        ({"veh1": 1000}, [0, 1000, 2000]),
        ({"veh1": 1000, "veh2": 400}, [0, 400, 800, 1200, 1600, 2000]),
        ({"veh1": 1000, "veh2": EVERY_MESSAGE}, list(range(0, 2001, 200))),
    ],
    ids=["one", "the fastest of two", "one wants all"],
)
async def test_messages_beyond_the_fastest_period_behind_an_endpoint_are_sampled_out(
    interested: dict[str, int], kept: list[int]
) -> None:
    config = configuration(
        endpoints={
            "vehicle": {"transport": "memory", "authorities": ["veh1", "veh2"]},
            "cloud": {"transport": "memory", "authorities": ["*"]},
        },
        routes=[DOWN],
    )
    async with RouterHarness(config) as harness:
        await want(harness, ORDERS, interested)
        begin_ms = harness.clock.ms
        batches = []
        for _ in range(11):
            batches.append(harness.arrive("cloud", harness.speed(str(harness.clock.ms - begin_ms).encode(), source=ORDERS)))
            harness.pass_time(200)
        assert [int(message.payload or b"") for message in harness.sent("vehicle")] == kept
        left_out = 11 - len(kept)
        expected = {"delivered": len(kept)} | ({"sampled_out": left_out} if left_out else {})
        assert harness.outcomes("cloud-vehicle") == expected
        assert harness.dead_letters("cloud") == []
        assert all(copy.acknowledged for batch in batches for copy in batch)


async def test_authorities_of_an_addressed_network_each_get_their_own_pace() -> None:
    async with RouterHarness(BARE, addressed=("cloud",)) as harness:
        await want(harness, SPEED, {"slow": 1000, "fast": 100})
        for _ in range(10):
            harness.arrive("vehicle", harness.speed())
            harness.pass_time(100)
        sinks = [message.attributes.sink for message in harness.sent("cloud")]
        assert sinks.count(everything_at("fast")) == 10
        assert sinks.count(everything_at("slow")) == 1


async def test_the_pace_is_kept_when_others_subscribe_and_leave() -> None:
    async with RouterHarness(BARE) as harness:
        await want(harness, ORDERS, {"veh1": 1000})
        harness.arrive("cloud", harness.speed(b"1", source=ORDERS))
        await want(harness, SPEED, {"cloud": EVERY_MESSAGE})
        harness.pass_time(500)
        harness.arrive("cloud", harness.speed(b"2", source=ORDERS))
        assert [message.payload for message in harness.sent("vehicle")] == [b"1"]


async def test_a_clock_that_was_set_back_does_not_silence_a_topic() -> None:
    async with RouterHarness(BARE) as harness:
        await want(harness, ORDERS, {"veh1": 1000})
        harness.arrive("cloud", harness.speed(b"1", source=ORDERS))
        harness.clock.ms -= 3_600_000
        harness.arrive("cloud", harness.speed(b"2", source=ORDERS))
        assert [message.payload for message in harness.sent("vehicle")] == [b"1", b"2"]


async def test_a_topic_with_two_owners_stays_until_both_have_left() -> None:
    async with RouterHarness(BARE) as harness:
        await want(harness, ORDERS, {"veh1": 5000}, "one")
        await want(harness, ORDERS, {"veh1": 1000}, "other")
        assert harness.router.interest.of(ORDERS) == {"veh1": 1000}
        await want(harness, ORDERS, {}, "other")
        assert harness.router.interest.of(ORDERS) == {"veh1": 5000}
        harness.arrive("cloud", harness.speed(source=ORDERS))
        await want(harness, ORDERS, {}, "one")
        harness.arrive("cloud", harness.speed(source=ORDERS))
        assert received(harness, "cloud") == 1


async def test_subscriptions_outlive_a_reload_and_find_new_routes() -> None:
    async with RouterHarness(configuration(routes=[UP])) as harness:
        await want(harness, ORDERS, {"veh1": EVERY_MESSAGE})
        harness.arrive("cloud", harness.speed(b"no way", source=ORDERS))
        await Reload(harness.router, BARE).run()
        harness.arrive("cloud", harness.speed(b"a way", source=ORDERS))
        await Reload(harness.router, configuration(routes=[UP])).run()
        harness.arrive("cloud", harness.speed(b"none again", source=ORDERS))
        assert [message.payload for message in harness.sent("vehicle")] == [b"a way"]
        assert received(harness, "cloud") == 1


async def test_a_pattern_that_comes_and_goes_with_a_reload_leaves_the_interest() -> None:
    listed = configuration(routes=[UP, DOWN | {"publish": [str(ORDERS)]}])
    async with RouterHarness(listed) as harness:
        await want(harness, ORDERS, {"veh1": EVERY_MESSAGE})
        harness.arrive("cloud", harness.speed(b"1", source=ORDERS))
        await Reload(harness.router, BARE).run()
        harness.arrive("cloud", harness.speed(b"2", source=ORDERS))
        await Reload(harness.router, listed).run()
        await want(harness, ORDERS, {})
        harness.arrive("cloud", harness.speed(b"3", source=ORDERS))
        await Reload(harness.router, BARE).run()
        harness.arrive("cloud", harness.speed(b"4", source=ORDERS))
        assert [message.payload for message in harness.sent("vehicle")] == [b"1", b"2", b"3"]


async def test_a_message_on_its_way_when_the_last_subscriber_leaves_is_unwanted_and_acknowledged() -> None:
    """A transport may have received it before it was told to cease."""
    async with RouterHarness(BARE) as harness:
        await want(harness, ORDERS, {"veh1": EVERY_MESSAGE})
        await want(harness, ORDERS, {})
        late = MemoryReceived(harness.speed(source=ORDERS))
        harness.router.ingresses["cloud"].on_receive(late)
        assert late.acknowledged
        assert harness.outcomes("none") == {"unwanted": 1}
