"""Multicast through the router: who has registered gets it, and what came from one global network goes to no other."""

import asyncio
from typing import Any

import pytest

from streamer.delivery.lifecycle.reload import Reload
from streamer.features.host.access import Access
from streamer.features.multicast.config import catalogue
from streamer.features.multicast.ids import MulticastId
from streamer.features.multicast.service import MulticastReceivers, Registration
from streamer.routing.decide import decide
from streamer.uprotocol.message import Attributes, Options, UMessage, UMessageType, publish
from streamer.uprotocol.uri import UUri, everything_at
from tests.clock import START_MS
from tests.flow.harness import RouterHarness, configuration
from tests.hosted import StateOn

EVERYBODY = Access("gateway", frozenset({"veh1", "phone1", "cloud"}))
NEWS = "//cloud/C0/1/0/news"
LOCAL_NEWS, WORLD_NEWS, PLAIN = (UUri("cloud", 0xC0, 1, resource) for resource in (0x9001, 0x9002, 0x9003))
DOORS = "//veh1/A8000/2/0/doorOpened"
DOOR = UUri("veh1", 0xA8000, 2, 0x8011)
VEHICLE_APP, SECOND_APP, PHONE_APP = UUri("veh1", 0xA, 1, 0), UUri("veh1", 0xB, 1, 0), UUri("phone1", 0xA, 1, 0)
BACKEND_APP = UUri("cloud", 0xA, 1, 0)
CATALOGUE = [
    {"provider": "//cloud/C0/1/0", "broadcast": "news", "partitions": {"local": 0x9001, "world/all": 0x9002}},
    {"provider": "//veh1/A8000/2/0", "broadcast": "doorOpened", "partitions": {"": 0x8011}},
]


def networks(**changes: Any) -> dict[str, Any]:
    """A vehicle's own network, and two that connect devices: the cloud's, and the phone's because it says so."""
    return {
        "endpoints": {
            "vehicle": {"transport": "memory", "authorities": ["veh1"]},
            "cloud": {"transport": "memory", "authorities": ["cloud"]},
            "phone": {"transport": "memory", "authorities": ["phone1"], "global": True},
        },
        "routes": [
            {"from": here, "to": there}
            for here in ("vehicle", "cloud", "phone")
            for there in ("vehicle", "cloud", "phone")
            if here != there
        ],
        "multicast": CATALOGUE,
    } | changes


def networked_router(**changes: Any) -> RouterHarness:
    return RouterHarness(configuration(**networks(**changes)), addressed=("cloud",))


async def receivers(harness: RouterHarness, *registrations: tuple[UUri, str]) -> MulticastReceivers:
    """The service on this router, with these uEntities registered for these ids."""
    state = StateOn(None, MulticastReceivers.TABLES)
    state.open()
    made = MulticastReceivers(state, harness.router, catalogue(harness.config), EVERYBODY)
    for receiver, pattern in registrations:
        await made.register(Registration(receiver, MulticastId.parse(pattern)))
    await follow(harness)
    return made


async def follow(harness: RouterHarness) -> None:
    await asyncio.sleep(0)  # the turn of the loop after which it holds
    await harness.router.listening.catch_up()


def fired(topic: UUri, payload: bytes = b"") -> UMessage:
    return publish(START_MS, topic, payload)


def payloads(harness: RouterHarness, endpoint: str) -> list[bytes | None]:
    return [message.payload for message in harness.sent(endpoint)]


async def test_who_has_registered_with_wildcards_gets_what_they_match() -> None:
    async with networked_router() as harness:
        await receivers(harness, (VEHICLE_APP, f"{NEWS}/world/*"))
        harness.arrive("cloud", fired(LOCAL_NEWS, b"local"), fired(WORLD_NEWS, b"world"), fired(PLAIN, b"plain"))
        assert payloads(harness, "vehicle") == [b"world"]
        assert payloads(harness, "phone") == []


async def test_a_topic_is_forwarded_until_the_last_registration_is_gone() -> None:
    async with networked_router() as harness:
        service = await receivers(harness, (VEHICLE_APP, f"{NEWS}/*"), (SECOND_APP, f"{NEWS}/world/+"))
        await service.unregister(Registration(VEHICLE_APP, MulticastId.parse(f"{NEWS}/*")))
        await follow(harness)
        harness.arrive("cloud", fired(LOCAL_NEWS, b"1"), fired(WORLD_NEWS, b"2"))
        await service.unregister(Registration(SECOND_APP, MulticastId.parse(f"{NEWS}/world/+")))
        await follow(harness)
        harness.arrive("cloud", fired(WORLD_NEWS, b"3"))
        assert payloads(harness, "vehicle") == [b"2"]
        assert harness.router.ingresses["cloud"].stats.received == 1


async def test_an_ordinary_subscription_and_a_registration_do_not_end_each_other() -> None:
    async with networked_router() as harness:
        service = await receivers(harness, (VEHICLE_APP, f"{NEWS}/local"))
        harness.router.set_interest(LOCAL_NEWS, {"veh1": 0}, "subscription")
        await service.unregister(Registration(VEHICLE_APP, MulticastId.parse(f"{NEWS}/local")))
        await follow(harness)
        harness.arrive("cloud", fired(LOCAL_NEWS, b"subscribed"))
        await service.register(Registration(VEHICLE_APP, MulticastId.parse(f"{NEWS}/local")))
        harness.router.set_interest(LOCAL_NEWS, {}, "subscription")
        await follow(harness)
        harness.arrive("cloud", fired(LOCAL_NEWS, b"registered"))
        assert payloads(harness, "vehicle") == [b"subscribed", b"registered"]


async def test_one_publish_reaches_every_network_on_which_somebody_has_registered() -> None:
    async with networked_router() as harness:
        await receivers(harness, (BACKEND_APP, DOORS), (PHONE_APP, f"{DOORS}/*"))
        harness.arrive("vehicle", fired(DOOR, b"open"))
        assert payloads(harness, "cloud") == payloads(harness, "phone") == [b"open"]
        assert harness.sent("cloud")[0].attributes.sink == everything_at("cloud")


# The transient mark.


async def test_what_came_from_a_global_network_is_published_to_no_other_global_one() -> None:
    async with networked_router() as harness:
        await receivers(harness, (VEHICLE_APP, f"{NEWS}/local"), (PHONE_APP, f"{NEWS}/local"))
        harness.arrive("cloud", fired(LOCAL_NEWS, b"news"))
        assert payloads(harness, "vehicle") == [b"news"]
        assert payloads(harness, "phone") == []


async def test_a_pattern_of_a_route_does_not_lift_the_mark() -> None:
    routes = [{"from": "cloud", "to": "phone", "publish": ["//cloud/FFFFFFFF/FF/FFFF"]}]
    async with networked_router(routes=routes) as harness:
        harness.arrive("cloud", fired(LOCAL_NEWS, b"multicast"), fired(PLAIN, b"plain"))
        assert payloads(harness, "phone") == [b"plain"]


async def test_an_ordinary_topic_goes_from_one_global_network_to_another() -> None:
    async with networked_router() as harness:
        harness.router.set_interest(PLAIN, {"phone1": 0}, "subscription")
        await follow(harness)
        harness.arrive("cloud", fired(PLAIN, b"plain"))
        assert payloads(harness, "phone") == [b"plain"]


async def test_an_address_does_not_lift_the_mark() -> None:
    async with networked_router() as harness:
        for topic, payload in ((LOCAL_NEWS, b"multicast"), (PLAIN, b"plain")):
            attributes = Attributes(UMessageType.PUBLISH, topic, everything_at("phone1"))
            harness.arrive("cloud", UMessage(fired(topic).id, attributes, payload))
        assert payloads(harness, "phone") == [b"plain"]
        assert harness.dead_letters("cloud") == []


async def test_the_mark_leaves_no_trace_in_the_message() -> None:
    async with networked_router() as harness:
        await receivers(harness, (VEHICLE_APP, f"{NEWS}/local"))
        message = publish(START_MS, LOCAL_NEWS, b"news", Options(ttl=5000, token="t"))
        harness.arrive("cloud", message)
        assert harness.sent("vehicle") == [message]


@pytest.mark.parametrize(("cloud", "phone"), [(False, True), (True, False), (False, False)])
async def test_both_ends_have_to_be_global(cloud: bool, phone: bool) -> None:
    endpoints = networks()["endpoints"]
    endpoints["cloud"]["global"], endpoints["phone"]["global"] = cloud, phone
    async with networked_router(endpoints=endpoints) as harness:
        await receivers(harness, (PHONE_APP, f"{NEWS}/local"))
        harness.arrive("cloud", fired(LOCAL_NEWS, b"news"))
        assert payloads(harness, "phone") == [b"news"]


async def test_a_network_that_wants_a_sink_authority_is_global_unless_it_says_otherwise() -> None:
    table = networked_router().router.table
    assert table.connecting == {"cloud", "phone"}
    endpoints = networks()["endpoints"]
    endpoints["cloud"]["global"] = False
    assert networked_router(endpoints=endpoints).router.table.connecting == {"phone"}


async def test_the_mark_is_explained() -> None:
    decision = decide(
        UMessageType.PUBLISH, LOCAL_NEWS, None, "cloud", networked_router().router.table, {"phone1": 0, "veh1": 0}
    )
    assert [hop.route.name for hop in decision.hops] == ["cloud-vehicle"]
    (line,) = [line for line in decision.why if "cloud-phone" in line]
    assert "multicast" in line


async def test_a_reload_marks_by_the_new_catalogue() -> None:
    async with networked_router() as harness:
        service = await receivers(harness, (PHONE_APP, f"{NEWS}/local"), (VEHICLE_APP, f"{NEWS}/local"))
        harness.router.set_interest(LOCAL_NEWS, {"phone1": 0}, "subscription")
        new = configuration(**networks(multicast=CATALOGUE[1:]))
        await Reload(harness.router, new).run()
        service.use(catalogue(new), EVERYBODY)
        await follow(harness)
        harness.arrive("cloud", fired(LOCAL_NEWS, b"plain now"))
        assert payloads(harness, "phone") == [b"plain now"]
        assert payloads(harness, "vehicle") == []
