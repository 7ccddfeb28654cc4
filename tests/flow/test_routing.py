"""What goes where: a dialogue with the router on memory transports."""

from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.message import UMessageType, response, without_sink
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri, everything_at
from tests.flow.stage import (
    CLIMATE,
    CLOUD_APP,
    CLOUD_METHOD,
    ORDERS,
    SPEED,
    VEHICLE_APP,
    Stage,
    configuration,
    three_networks,
)


async def test_publish_crosses_where_a_pattern_matches() -> None:
    async with Stage() as stage:
        message = stage.speed(b"50 km/h", token="t", permission_level=3, ttl=1500)
        (received,) = stage.arrive("vehicle", message)
        assert stage.sent("cloud") == [message]
        assert received.acknowledged
        assert stage.outcomes("vehicle-cloud") == {"delivered": 1}


async def test_publish_without_pattern_is_wanted_by_nobody() -> None:
    async with Stage() as stage:
        # A transport hands over only what its filters match; one that hands over more must do no harm.
        received = MemoryReceived(stage.speed(source=ORDERS))
        stage.router.ingresses["cloud"].on_receive(received)
        assert stage.sent("vehicle") == []
        assert stage.outcomes("none") == {"unwanted": 1}
        assert stage.dead_letters("cloud") == []
        assert received.acknowledged


async def test_notification_request_and_response_cross_both_ways() -> None:
    async with Stage() as stage:
        up = stage.notify(b"door open")
        down = stage.notify(b"unlock", sink=VEHICLE_APP, source=ORDERS)
        ask_down, ask_up = stage.ask(), stage.ask(source=VEHICLE_APP, method=CLOUD_METHOD)
        answer_up = response(stage.clock.ms, ask_down, b"21 C", UCode.OK)
        answer_down = response(stage.clock.ms, ask_up, b"ok")
        stage.arrive("vehicle", up, ask_up, answer_up)
        stage.arrive("cloud", down, ask_down, answer_down)
        assert stage.sent("cloud") == [ask_up, answer_up, up]  # CS4 before CS1
        assert {m.id for m in stage.sent("vehicle")} == {down.id, ask_down.id, answer_down.id}
        assert stage.outcomes("none") == {}


async def test_exact_authority_wins_over_wildcard() -> None:
    config = three_networks(
        routes=[{"from": "vehicle", "to": "cloud"}, {"from": "vehicle", "to": "phone"}],
    )
    async with Stage(config) as stage:
        message = stage.notify(sink=UUri("phone1", 1, 1, 0))
        stage.arrive("vehicle", message)
        assert stage.sent("phone") == [message]
        assert stage.sent("cloud") == []


async def test_publish_goes_over_every_route_that_wants_it() -> None:
    config = three_networks(
        routes=[
            {"from": "vehicle", "to": "cloud", "publish": ["//veh1/FFFFFFFF/FF/FFFF"]},
            {"from": "vehicle", "to": "phone", "publish": [str(SPEED)]},
        ],
    )
    async with Stage(config) as stage:
        speed = stage.speed()
        (received,) = stage.arrive("vehicle", speed)
        assert stage.sent("cloud") == stage.sent("phone") == [speed]
        assert received.acknowledged


async def test_source_is_acknowledged_only_after_every_destination_confirmed() -> None:
    config = three_networks(
        routes=[
            {"from": "vehicle", "to": "cloud", "publish": ["//veh1/FFFFFFFF/FF/FFFF"]},
            {"from": "vehicle", "to": "phone", "publish": ["//veh1/FFFFFFFF/FF/FFFF"]},
        ],
    )
    async with Stage(config) as stage:
        stage.transports["phone"].hold = True
        (received,) = stage.arrive("vehicle", stage.speed())
        assert not received.acknowledged
        stage.transports["phone"].release_held()
        assert received.acknowledged


async def test_publish_is_addressed_where_the_network_wants_an_authority() -> None:
    config = configuration(
        routes=[
            {
                "from": "vehicle",
                "to": "cloud",
                "publish": ["//veh1/FFFFFFFF/FF/FFFF"],
                "publish_to": ["cloud", "backup"],
            },
            {"from": "cloud", "to": "vehicle"},
        ]
    )
    async with Stage(config, addressed=("cloud",)) as stage:
        speed = stage.speed(b"x")
        stage.arrive("vehicle", speed)
        assert [m.attributes.sink for m in stage.sent("cloud")] == [everything_at("cloud"), everything_at("backup")]
        assert [without_sink(m) for m in stage.sent("cloud")] == [speed, speed]


async def test_publish_addressed_to_an_authority_loses_its_sink_on_the_last_leg() -> None:
    async with Stage() as stage:
        order = stage.speed(b"new route", source=ORDERS)
        addressed = order._replace(attributes=type(order.attributes)(UMessageType.PUBLISH, ORDERS, everything_at("veh1")))
        stage.arrive("cloud", addressed)
        assert [m.id for m in stage.sent("vehicle")] == [order.id]
        assert stage.sent("vehicle")[0].attributes.sink is None


async def test_message_for_its_own_network_is_left_alone() -> None:
    async with Stage() as stage:
        (received,) = stage.arrive("cloud", stage.ask(source=CLOUD_APP, method=UUri("cloud2", 1, 1, 1)))
        assert stage.sent("vehicle") == stage.sent("cloud") == []
        assert received.acknowledged


async def test_same_id_twice_is_forwarded_once_and_both_copies_are_acknowledged_together() -> None:
    async with Stage() as stage:
        stage.transports["cloud"].hold = True
        message = stage.notify(b"once")
        (first,) = stage.arrive("vehicle", message)
        (second,) = stage.arrive("vehicle", message)
        assert not first.acknowledged
        assert not second.acknowledged
        stage.transports["cloud"].release_held()
        assert first.acknowledged
        assert second.acknowledged
        (third,) = stage.arrive("vehicle", message)
        assert third.acknowledged
        assert stage.sent("cloud") == [message]
        assert stage.outcomes("none") == {"duplicate": 2}


async def test_ids_are_forgotten_within_their_bound() -> None:
    async with Stage(configuration(remember={"ids": 10, "seconds": 600})) as stage:
        for _ in range(100):
            stage.arrive("vehicle", stage.notify())
        assert len(stage.router.seen) <= 10


async def test_message_of_our_own_that_comes_back_is_not_forwarded() -> None:
    async with Stage() as stage:
        own = stage.notify(source=UUri("gateway.veh1", 4, 1, 0x8001), sink=CLOUD_APP)
        stage.arrive("vehicle", own)
        assert stage.sent("cloud") == []
        assert stage.outcomes("none") == {"local": 1}


async def test_routes_change_while_messages_wait() -> None:
    async with Stage() as stage:
        stage.transports["cloud"].lose_link()
        waiting = stage.speed(b"kept")
        stage.arrive("vehicle", waiting)
        await stage.router.reload(configuration(routes=[{"from": "vehicle", "to": "cloud", "name": "up"}]))
        stage.arrive("vehicle", stage.speed(b"no longer wanted"))
        notice = stage.notify(b"still routed")
        stage.arrive("vehicle", notice)
        stage.transports["cloud"].restore_link()
        assert stage.sent("cloud") == [waiting, notice]
        stage.arrive("cloud", stage.ask(method=CLIMATE))
        assert stage.sent("vehicle") == []
        assert stage.outcomes("none")["rejected"] == 1
        stage.pass_time(100)
        assert {account.name for account in stage.router.accounts()} >= {"up", "none"}
        assert "vehicle-cloud" not in {account.name for account in stage.router.accounts()}
