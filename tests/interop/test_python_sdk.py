"""The SDK for Python on an in-vehicle broker, clients in Python that know only the wire on the other side of the daemon."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.e2e.roles import arrival, response
from tests.independent.message import Plain, Uri
from tests.independent.mqtt import MqttSide
from tests.independent.zenoh import ZenohSide
from tests.interop.networks import STREAMER, Between, between
from tests.interop.peers import Last, Payload, Peer, RefusedError
from tests.waiting import until

pytestmark = [pytest.mark.interop, pytest.mark.mosquitto]

SDK, OTHER = ("alpha", 0x1A34B, 1, 0), ("beta", 0x200CD, 1, 0)
METHOD, TOPIC = 0x7, 0x8A50
SUBSCRIBED = 2
OK, INVALID_ARGUMENT, NOT_FOUND = 0, 3, 5
WRAPPED, PROTOBUF, TEXT = 1, 2, 7


def of(uri: Uri, resource: int) -> Uri:
    return *uri[:3], resource


@pytest.fixture(params=["zenoh", "off-vehicle"])
async def crossing(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Between]:
    service = {"local": ["alpha", "beta"]}
    async with between(tmp_path, "in-vehicle", request.param, usubscription=service, utwin={}) as running:
        yield running


async def both(crossing: Between) -> tuple[Peer, MqttSide | ZenohSide]:
    keys = ["+/beta"] if crossing.networks[1].kind == "off-vehicle" else []
    return await crossing.up_python(0, SDK[1]), await crossing.python(1, *keys)


async def test_rpc_client_gets_answers_and_errors(crossing: Between) -> None:
    sdk, other = await both(crossing)
    method = of(OTHER, METHOD)

    async def answered(number: int, payload: bytes, **more: int) -> Plain:
        await until(lambda: len(other.arrived) > number, "the Request")
        asked = other.arrived[number]
        answer = Plain(**vars(response(asked, payload)) | {"payload_format": TEXT} | more)
        await crossing.until_wanted(1, answer)
        await other.send([answer])
        return asked

    asking = asyncio.create_task(sdk.invoke(method, Payload(b"question", TEXT), ttl=20_500, token="a token"))
    asked = await answered(0, b"answer")
    assert (asked.source, asked.sink, asked.ttl, asked.token) == (SDK, method, 20_500, "a token")
    assert (asked.payload, asked.payload_format) == (b"question", TEXT)
    assert await asking == Payload(b"answer", TEXT)
    asking = asyncio.create_task(sdk.invoke(method, Payload(b"question", TEXT), ttl=20_500))
    await answered(1, b"", commstatus=NOT_FOUND)
    with pytest.raises(RefusedError) as refused:
        await asking
    assert refused.value.code == NOT_FOUND
    crossing.daemon.check_books()


@pytest.mark.parametrize("fail", [None, NOT_FOUND])
async def test_rpc_server_answers(crossing: Between, fail: int | None) -> None:
    sdk, other = await both(crossing)
    await sdk.call("serve", name="service", resource=METHOD, fail=fail)
    asked = Plain(2, OTHER, of(SDK, METHOD), b"question", 5, 20_500, token="a token", payload_format=TEXT)
    await crossing.until_wanted(1, asked)
    await other.send([asked])
    assert await sdk.hears("service") == [asked]
    await until(lambda: bool(other.arrived), "the Response")
    (answer,) = other.arrived
    assert (answer.type, answer.source, answer.sink, answer.reqid) == (3, asked.sink, asked.source, asked.id)
    assert (answer.commstatus or 0) == (fail or 0)
    if fail is None:
        assert (answer.payload, answer.payload_format) == (b"question", TEXT)


async def test_notifications_cross_both_ways(crossing: Between) -> None:
    sdk, other = await both(crossing)
    news = Plain(4, of(OTHER, TOPIC), SDK, b"to the SDK", 3, 60_500, payload_format=TEXT)
    await sdk.call("start_listening", name="news", topic=news.source)
    await crossing.until_wanted(1, news)
    await other.send([news])
    assert await sdk.hears("news") == [news]
    await crossing.until_wanted(0, Plain(4, of(SDK, TOPIC), OTHER))
    await sdk.call("notify", Payload(b"from the SDK", TEXT), resource=TOPIC, to=OTHER, ttl=60_500, priority=3)
    await until(lambda: bool(other.arrived), "the Notification")
    (told,) = other.arrived
    assert told == await arrival(other, told)
    assert (told.type, told.source, told.sink, told.payload) == (4, of(SDK, TOPIC), OTHER, b"from the SDK")
    assert (told.ttl, told.priority, told.payload_format) == (60_500, 3, TEXT)


async def test_publishes_cross_and_a_subscription_brings_them(crossing: Between) -> None:
    """The SDK asks its uSubscription service without an authority, which means the local one."""
    sdk, other = await both(crossing)
    topic = of(OTHER, TOPIC)
    assert await sdk.call("subscribe", name="events", topic=topic) == SUBSCRIBED
    event = Plain(1, topic, None, b"event", 3, 60_500, payload_format=TEXT)
    await crossing.until_wanted(1, event)
    is_addressed = crossing.networks[1].kind == "off-vehicle"
    await other.send([event.addressed_to("alpha") if is_addressed else event])
    assert await sdk.hears("events") == [event]
    await sdk.call("unsubscribe", topic=topic)
    await sdk.call("publish", Payload(b"from the SDK", TEXT), resource=TOPIC, ttl=60_500, priority=3)
    await until(lambda: bool(other.arrived), "the Publish")
    (published,) = other.arrived
    assert (published.type, published.source, published.payload) == (1, of(SDK, TOPIC), b"from the SDK")
    assert (published.ttl, published.priority, published.payload_format) == (60_500, 3, TEXT)


async def test_utwin_answers_what_was_published_on_the_other_network(crossing: Between) -> None:
    sdk, other = await both(crossing)
    topic, silent, method = (of(OTHER, resource) for resource in (TOPIC, TOPIC + 1, METHOD))
    event = Plain(1, topic, None, b"event", 3, 600_500, payload_format=TEXT)
    await crossing.until_wanted(1, event)
    await other.send([event.addressed_to("alpha") if crossing.networks[1].kind == "off-vehicle" else event])
    await crossing.daemon.until_total(1, "ustreamer_accepted_messages_total")
    for utwin in ((STREAMER, 3, 2, 1), "/3/2/1"):
        for form in (WRAPPED, PROTOBUF):
            assert await sdk.ask_utwin(utwin, [topic, silent, method], form) == [
                Last(topic, OK, b"event", event),
                Last(silent, NOT_FOUND, None, None),
                Last(method, INVALID_ARGUMENT, None, None),
            ]
