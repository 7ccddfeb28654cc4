"""What is forwarded because somebody has asked for it: starts, stops, copies, and how often."""

import asyncio

import pytest

from streamer.routing.interest import EVERY_MESSAGE
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.message import Attributes, UMessage, UMessageType
from streamer.uprotocol.uri import UUri, everything_at
from tests.flow.stage import GATEWAY, ORDERS, SPEED, Stage, configuration, three_networks

DOWN = {"from": "cloud", "to": "vehicle"}
UP = {"from": "vehicle", "to": "cloud"}
BARE = configuration(routes=[UP, DOWN])


async def want(stage: Stage, topic: UUri, interested: dict[str, int], owner: str = "test") -> None:
    stage.router.want(topic, interested, owner)
    await asyncio.sleep(0)  # the turn of the loop after which it holds
    await stage.router.subscriber.catch_up()


def received(stage: Stage, endpoint: str) -> int:
    return stage.router.ingresses[endpoint].stats.received


async def test_a_topic_is_received_and_forwarded_only_while_somebody_wants_it() -> None:
    async with Stage(BARE) as stage:
        stage.arrive("cloud", stage.speed(b"before", source=ORDERS))
        await want(stage, ORDERS, {"veh1": EVERY_MESSAGE})
        stage.arrive("cloud", stage.speed(b"during", source=ORDERS))
        await want(stage, ORDERS, {})
        stage.arrive("cloud", stage.speed(b"after", source=ORDERS))
        assert [message.payload for message in stage.sent("vehicle")] == [b"during"]
        assert stage.sent("vehicle")[0].attributes.sink is None
        assert received(stage, "cloud") == 1
        assert stage.outcomes("cloud-vehicle") == {"delivered": 1}


async def test_another_topic_of_the_same_uentity_is_not_received() -> None:
    async with Stage(BARE) as stage:
        await want(stage, ORDERS, {"veh1": EVERY_MESSAGE})
        stage.arrive("cloud", stage.speed(source=ORDERS._replace(resource=ORDERS.resource + 1)))
        assert received(stage, "cloud") == 0


async def test_what_waits_when_the_last_one_leaves_is_delivered() -> None:
    async with Stage(BARE) as stage:
        await want(stage, ORDERS, {"veh1": EVERY_MESSAGE})
        stage.transports["vehicle"].lose_link()
        stage.arrive("cloud", stage.speed(b"accepted", source=ORDERS))
        await want(stage, ORDERS, {})
        stage.transports["vehicle"].restore_link()
        assert [message.payload for message in stage.sent("vehicle")] == [b"accepted"]


async def test_an_addressed_network_gets_one_copy_for_each_authority_that_asked() -> None:
    async with Stage(BARE, addressed=("cloud",)) as stage:
        await want(stage, SPEED, {"backend": EVERY_MESSAGE, "phone7": EVERY_MESSAGE})
        stage.arrive("vehicle", stage.speed())
        assert [message.attributes.sink for message in stage.sent("cloud")] == [
            everything_at("backend"),
            everything_at("phone7"),
        ]
        assert stage.outcomes("vehicle-cloud") == {"delivered": 2}


async def test_an_authority_that_a_route_lists_and_that_asks_gets_one_copy_and_all_of_it() -> None:
    config = configuration(routes=[UP | {"publish": [str(SPEED)], "publish_to": ["backend"]}])
    async with Stage(config, addressed=("cloud",)) as stage:
        await want(stage, SPEED, {"backend": 60_000})
        stage.arrive("vehicle", stage.speed(b"1"), stage.speed(b"2"))
        assert [(m.attributes.sink, m.payload) for m in stage.sent("cloud")] == [
            (everything_at("backend"), b"1"),
            (everything_at("backend"), b"2"),
        ]


async def test_a_publish_that_is_addressed_to_us_is_for_those_behind_us_who_asked() -> None:
    async with Stage(BARE, addressed=("cloud",)) as stage:
        await want(stage, ORDERS, {"veh1": EVERY_MESSAGE})
        copy = UMessage(
            stage.speed().id, Attributes(UMessageType.PUBLISH, ORDERS, everything_at(GATEWAY)), b"for whom it concerns"
        )
        stage.arrive("cloud", copy)
        assert [(m.attributes.sink, m.payload) for m in stage.sent("vehicle")] == [(None, b"for whom it concerns")]


async def test_nothing_goes_back_to_a_network_that_asks_for_its_own_topic() -> None:
    async with Stage(BARE) as stage:
        await want(stage, SPEED, {"veh1": EVERY_MESSAGE})
        stage.arrive("vehicle", stage.speed())
        assert received(stage, "vehicle") == 0
        assert stage.sent("vehicle") == stage.sent("cloud") == []


async def test_only_networks_of_those_who_asked_get_a_copy() -> None:
    config = three_networks(routes=[UP, {"from": "vehicle", "to": "phone"}])
    async with Stage(config) as stage:
        await want(stage, SPEED, {"phone1": EVERY_MESSAGE})
        stage.arrive("vehicle", stage.speed())
        assert len(stage.sent("phone")) == 1
        assert stage.sent("cloud") == []


@pytest.mark.parametrize(
    ("interested", "kept"),
    [
        ({"veh1": 1000}, [0, 1000, 2000]),
        ({"veh1": 1000, "veh2": 400}, [0, 400, 800, 1200, 1600, 2000]),
        ({"veh1": 1000, "veh2": EVERY_MESSAGE}, list(range(0, 2001, 200))),
    ],
    ids=["one", "the fastest of two", "one wants all"],
)
async def test_what_is_more_than_anybody_behind_an_endpoint_asked_for_is_sampled_out(
    interested: dict[str, int], kept: list[int]
) -> None:
    config = configuration(
        endpoints={
            "vehicle": {"transport": "memory", "authorities": ["veh1", "veh2"]},
            "cloud": {"transport": "memory", "authorities": ["*"]},
        },
        routes=[DOWN],
    )
    async with Stage(config) as stage:
        await want(stage, ORDERS, interested)
        begin_ms = stage.clock.ms
        batches = []
        for _ in range(11):
            batches.append(stage.arrive("cloud", stage.speed(str(stage.clock.ms - begin_ms).encode(), source=ORDERS)))
            stage.pass_time(200)
        assert [int(message.payload or b"") for message in stage.sent("vehicle")] == kept
        left_out = 11 - len(kept)
        expected = {"delivered": len(kept)} | ({"sampled_out": left_out} if left_out else {})
        assert stage.outcomes("cloud-vehicle") == expected
        assert stage.dead_letters("cloud") == []
        assert all(copy.acknowledged for batch in batches for copy in batch)


async def test_authorities_of_an_addressed_network_each_get_their_own_pace() -> None:
    async with Stage(BARE, addressed=("cloud",)) as stage:
        await want(stage, SPEED, {"slow": 1000, "fast": 100})
        for _ in range(10):
            stage.arrive("vehicle", stage.speed())
            stage.pass_time(100)
        sinks = [message.attributes.sink for message in stage.sent("cloud")]
        assert sinks.count(everything_at("fast")) == 10
        assert sinks.count(everything_at("slow")) == 1


async def test_the_pace_is_kept_when_others_subscribe_and_leave() -> None:
    async with Stage(BARE) as stage:
        await want(stage, ORDERS, {"veh1": 1000})
        stage.arrive("cloud", stage.speed(b"1", source=ORDERS))
        await want(stage, SPEED, {"cloud": EVERY_MESSAGE})
        stage.pass_time(500)
        stage.arrive("cloud", stage.speed(b"2", source=ORDERS))
        assert [message.payload for message in stage.sent("vehicle")] == [b"1"]


async def test_a_clock_that_was_set_back_does_not_silence_a_topic() -> None:
    async with Stage(BARE) as stage:
        await want(stage, ORDERS, {"veh1": 1000})
        stage.arrive("cloud", stage.speed(b"1", source=ORDERS))
        stage.clock.ms -= 3_600_000
        stage.arrive("cloud", stage.speed(b"2", source=ORDERS))
        assert [message.payload for message in stage.sent("vehicle")] == [b"1", b"2"]


async def test_two_owners_ask_and_the_topic_stays_until_both_have_left() -> None:
    async with Stage(BARE) as stage:
        await want(stage, ORDERS, {"veh1": 5000}, "one")
        await want(stage, ORDERS, {"veh1": 1000}, "other")
        assert stage.router.interest.of(ORDERS) == {"veh1": 1000}
        await want(stage, ORDERS, {}, "other")
        assert stage.router.interest.of(ORDERS) == {"veh1": 5000}
        stage.arrive("cloud", stage.speed(source=ORDERS))
        await want(stage, ORDERS, {}, "one")
        stage.arrive("cloud", stage.speed(source=ORDERS))
        assert received(stage, "cloud") == 1


async def test_subscriptions_outlive_a_reload_and_find_new_routes() -> None:
    async with Stage(configuration(routes=[UP])) as stage:
        await want(stage, ORDERS, {"veh1": EVERY_MESSAGE})
        stage.arrive("cloud", stage.speed(b"no way", source=ORDERS))
        await stage.router.reload(BARE)
        stage.arrive("cloud", stage.speed(b"a way", source=ORDERS))
        await stage.router.reload(configuration(routes=[UP]))
        stage.arrive("cloud", stage.speed(b"none again", source=ORDERS))
        assert [message.payload for message in stage.sent("vehicle")] == [b"a way"]
        assert received(stage, "cloud") == 1


async def test_a_pattern_that_comes_and_goes_with_a_reload_leaves_what_was_asked_for() -> None:
    listed = configuration(routes=[UP, DOWN | {"publish": [str(ORDERS)]}])
    async with Stage(listed) as stage:
        await want(stage, ORDERS, {"veh1": EVERY_MESSAGE})
        stage.arrive("cloud", stage.speed(b"1", source=ORDERS))
        await stage.router.reload(BARE)
        stage.arrive("cloud", stage.speed(b"2", source=ORDERS))
        await stage.router.reload(listed)
        await want(stage, ORDERS, {})
        stage.arrive("cloud", stage.speed(b"3", source=ORDERS))
        await stage.router.reload(BARE)
        stage.arrive("cloud", stage.speed(b"4", source=ORDERS))
        assert [message.payload for message in stage.sent("vehicle")] == [b"1", b"2", b"3"]


async def test_a_message_in_the_air_when_the_last_one_leaves_is_unwanted_and_acknowledged() -> None:
    """A transport may have received it before it was told to cease."""
    async with Stage(BARE) as stage:
        await want(stage, ORDERS, {"veh1": EVERY_MESSAGE})
        await want(stage, ORDERS, {})
        late = MemoryReceived(stage.speed(source=ORDERS))
        stage.router.ingresses["cloud"].on_receive(late)
        assert late.acknowledged
        assert stage.outcomes("none") == {"unwanted": 1}
