"""The SDK for Rust on both sides of the daemon: its transports, and its communication layer on top of them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from streamer.uprotocol.proto import usubscription_v3_pb2 as usub
from tests.independent.message import Plain, Uri, uri_text, uuid7
from tests.interop.networks import KINDS, STREAMER, Between, between
from tests.interop.peers import Last, Payload, Peer, RefusedError
from tests.waiting import until

pytestmark = [pytest.mark.interop, pytest.mark.mosquitto]

CLIENT, SERVER = 0x1A34B, 0x200CD
METHOD, TOPIC = 0x7, 0x8A50
EVERYTHING = 0xFFFFFFFF, 0xFF, 0xFFFF
OK, INVALID_ARGUMENT, DEADLINE_EXCEEDED, NOT_FOUND, PERMISSION_DENIED, UNIMPLEMENTED, INTERNAL = 0, 3, 4, 5, 7, 12, 13
UNSUBSCRIBED, SUBSCRIBED = 0, 2
WRAPPED, PROTOBUF, RAW, TEXT = 1, 2, 6, 7
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
PAIRS = [("in-vehicle", "zenoh"), ("off-vehicle", "zenoh"), ("in-vehicle", "off-vehicle"), ("zenoh", "zenoh")]
WAYS = [pytest.param(pair, way, id=f"{pair[way]}-to-{pair[1 - way]}") for pair in PAIRS for way in (0, 1)]


def of(uri: Uri, resource: int) -> Uri:
    return *uri[:3], resource


@pytest.fixture
async def crossing(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Between]:
    async with between(tmp_path, *request.param) as running:
        yield running


def every_type(near: Uri, far: Uri) -> list[Plain]:
    """One message of each type, with all attributes that the type can have."""
    return [
        Plain(4, of(near, TOPIC), far, b"\x00\xff notification", 2, 60_500, traceparent=TRACE, payload_format=RAW),
        Plain(4, of(near, 0x8000), far),
        Plain(2, near, of(far, METHOD), b"question", 5, 61_001, 3, token="a token", traceparent=TRACE, payload_format=TEXT),
        Plain(3, of(near, METHOD), far, b"answer", 6, 60_001, commstatus=0, reqid=uuid7(), payload_format=TEXT),
        Plain(3, of(near, METHOD), far, b"", 5, 60_001, commstatus=NOT_FOUND, reqid=uuid7(), traceparent=TRACE),
    ]


@pytest.mark.parametrize(("crossing", "way"), WAYS, indirect=["crossing"])
async def test_transport_layer_carries_every_type_with_every_attribute(crossing: Between, way: int) -> None:
    near, far = await crossing.rust(way, CLIENT), await crossing.rust(1 - way, SERVER)
    await far.call("listen", name="all", source=(near.uri[0], *EVERYTHING), sink=(far.uri[0], *EVERYTHING))
    messages = every_type(near.uri, far.uri)
    await crossing.until_wanted(way, messages[0])
    for message in messages:
        await near.send(message)
    heard = await far.hears("all", len(messages))
    assert {each.id: each for each in heard} == {each.id: each for each in messages}
    assert len(heard) == len(messages)


@pytest.mark.parametrize(("crossing", "way"), [way for way in WAYS if "off" not in str(way.id)], indirect=["crossing"])
async def test_publish_crosses(crossing: Between, way: int) -> None:
    """By the publisher and by the transport. Off-vehicle the SDK sends none: it knows no sink for it."""
    near, far = await crossing.rust(way, CLIENT), await crossing.rust(1 - way, SERVER)
    topic = of(near.uri, TOPIC)
    await far.call("listen", name="topic", source=topic)
    await crossing.until_wanted(way, Plain(1, topic))
    message = Plain(1, topic, None, b"\x00 bytes", 3, 60_500, permission_level=7, traceparent=TRACE, payload_format=RAW)
    await near.send(message)
    await near.call("publish", Payload(b"text", TEXT), resource=TOPIC, priority=3, ttl=60_500)
    await near.call("publish", resource=TOPIC)
    heard = {each.payload: each for each in await far.hears("topic", 3)}
    first, second, third = heard[message.payload], heard[b"text"], heard[b""]
    assert first == message
    assert (second.type, second.source, second.sink, second.priority, second.ttl) == (1, topic, None, 3, 60_500)
    assert (second.payload_format, third.source) == (TEXT, topic)
    assert third.ttl in (0, None)  # the SDK's is 0, which as an expiry interval mosquitto leaves out


@pytest.mark.parametrize(("crossing", "way"), WAYS, indirect=["crossing"])
async def test_notifier_is_heard(crossing: Between, way: int) -> None:
    near, far = await crossing.rust(way, SERVER), await crossing.rust(1 - way, CLIENT)
    topic = of(near.uri, TOPIC)
    await far.call("start_listening", name="news", topic=topic)
    await crossing.until_wanted(way, Plain(4, topic, far.uri))
    await near.call("notify", Payload(b"news", TEXT), resource=TOPIC, to=far.uri, ttl=60_500, priority=3)
    (heard,) = await far.hears("news")
    assert (heard.type, heard.source, heard.sink, heard.priority, heard.ttl) == (4, topic, far.uri, 3, 60_500)
    assert (heard.payload, heard.payload_format) == (b"news", TEXT)


@pytest.mark.parametrize(("crossing", "way"), WAYS, indirect=["crossing"])
async def test_rpc_with_answers_errors_and_time_outs(crossing: Between, way: int) -> None:
    """One method at a time: off-vehicle all requests have one topic, and the SDK passes each to every method."""
    client, server = await crossing.rust(way, CLIENT), await crossing.rust(1 - way, SERVER)
    method, question = of(server.uri, METHOD), Payload(b"\x00 question", RAW)
    request = Plain(2, client.uri, method)

    await server.call("serve", name="echo", resource=METHOD)
    await crossing.until_wanted(way, request)
    assert await client.invoke(method, question, ttl=20_500, token="a token", priority=6) == question
    (asked,) = await server.hears("echo")
    assert (asked.source, asked.sink, asked.ttl) == (client.uri, method, 20_500)
    assert (asked.token, asked.priority, asked.payload_format) == ("a token", 6, RAW)
    assert await client.invoke(method, None) in (None, Payload(b"", 0))
    await server.call("unserve", resource=METHOD)

    await server.call("serve", name="failing", resource=METHOD, fail=PERMISSION_DENIED)
    await crossing.until_wanted(way, request)
    with pytest.raises(RefusedError, match="as the test wants") as refused:
        await client.invoke(method, question)
    assert refused.value.code == PERMISSION_DENIED
    await server.call("unserve", resource=METHOD)

    await server.call("serve", name="late", resource=METHOD, late=True)
    await crossing.until_wanted(way, request)
    with pytest.raises(RefusedError) as refused:
        await client.invoke(method, Payload(b"too late", RAW), ttl=700)
    assert refused.value.code == DEADLINE_EXCEEDED
    # Over Zenoh what the method before has heard comes again: who had listened has left within `uncertain_s`.
    await until(lambda: b"too late" in [each.payload for each in server.heard["late"]], "the Request")
    crossing.daemon.check_books()


async def subscribed(crossing: Between, way: int) -> tuple[Peer, Peer, Uri]:
    """Publisher, subscriber, and a topic of the one that the other has subscribed to with the SDK's subscriber."""
    publisher, subscriber = await crossing.rust(way, SERVER), await crossing.rust(1 - way, CLIENT)
    topic = of(publisher.uri, TOPIC)
    await crossing.until_wanted(1 - way, Plain(2, subscriber.uri, (subscriber.uri[0], 0, 3, 1)))
    await subscriber.call("subscribe", name="events", topic=topic)
    return publisher, subscriber, topic


@pytest.fixture
async def subscribing(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Between]:
    """Only what is subscribed to crosses; the streamer is the uSubscription service of both networks."""
    first, second = request.param
    service = {"local": ["alpha", "beta"]}
    async with between(tmp_path, first, second, publish=False, usubscription=service) as running:
        yield running


SUBSCRIBING = [way for way in WAYS if "off" not in str(way.id)]
"""Off-vehicle the SDK's subscriber can do nothing: its listener has no sink, and there is no topic without one."""


@pytest.mark.parametrize(("subscribing", "way"), SUBSCRIBING, indirect=["subscribing"])
async def test_subscriber_gets_what_is_published_until_it_leaves(subscribing: Between, way: int) -> None:
    """The SDK asks its uSubscription service without an authority, which means the local one."""
    publisher, subscriber, topic = await subscribed(subscribing, way)
    await subscribing.until_wanted(way, Plain(1, topic))
    await publisher.call("publish", Payload(b"event", TEXT), resource=TOPIC)
    (heard,) = await subscriber.hears("events")
    assert (heard.source, heard.sink, heard.payload) == (topic, None, b"event")
    fetched = await subscriber.call("ask_usubscription", operation="fetch_subscribers", topic=topic)
    (found,) = usub.FetchSubscribersResponse.FromString(bytes.fromhex(fetched)).subscribers
    assert (found.uri.authority_name, found.uri.ue_id) == subscriber.uri[:2]
    await subscriber.call("ask_usubscription", operation="unsubscribe", topic=topic)
    await subscribing.until_wanted(way, Plain(1, topic), is_wanted=False)
    await publisher.call("publish", Payload(b"nobody's", TEXT), resource=TOPIC)
    await subscriber.call("start_listening", name="after it", topic=topic)
    await subscribing.until_wanted(way, Plain(4, topic, subscriber.uri))
    await publisher.call("notify", resource=TOPIC, to=subscriber.uri)
    await subscriber.hears("after it")
    assert [each.payload for each in subscriber.heard["events"]] == [b"event"]


@pytest.mark.parametrize(("subscribing", "way"), SUBSCRIBING, indirect=["subscribing"])
async def test_subscriber_is_told_of_changes(subscribing: Between, way: int) -> None:
    """By what the subscriber does inside; its handlers of changes are not exported (0.9.0)."""
    _, subscriber, topic = await subscribed(subscribing, way)
    await subscriber.call("start_listening", name="changes", topic="/0/3/8000")
    await subscriber.call("ask_usubscription", operation="unsubscribe", topic=topic)
    told = subscriber.heard["changes"]  # the subscription itself may be told of, too
    await until(lambda: bool(told) and usub.Update.FromString(told[-1].payload).status.state == UNSUBSCRIBED, "the change")
    assert told[-1].sink == subscriber.uri
    assert usub.Update.FromString(told[-1].payload).topic.resource_id == TOPIC


@pytest.mark.parametrize(("subscribing", "way"), SUBSCRIBING, indirect=["subscribing"])
async def test_unsubscribe_of_the_subscriber_names_no_topic(subscribing: Between, way: int) -> None:
    """A defect of the SDK (0.9.0): its Unsubscribe has no topic, so the service refuses it, and the subscription stays."""
    _, subscriber, topic = await subscribed(subscribing, way)
    with pytest.raises(RefusedError) as refused:
        await subscriber.call("unsubscribe", name="events", topic=topic)
    assert refused.value.code == INTERNAL
    fetched = await subscriber.call("ask_usubscription", operation="fetch_subscribers", topic=topic)
    assert len(usub.FetchSubscribersResponse.FromString(bytes.fromhex(fetched)).subscribers) == 1


@pytest.mark.parametrize("subscribing", [("in-vehicle", "zenoh")], indirect=True)
@pytest.mark.parametrize("side", [0, 1], ids=["mqtt", "zenoh"])
async def test_every_operation_of_the_usubscription_client(subscribing: Between, side: int) -> None:
    app = await subscribing.rust(side, CLIENT)
    topic = (subscribing.networks[1 - side].authority, SERVER, 1, TOPIC)

    async def ask(operation: str) -> bytes:
        answer = await app.call("ask_usubscription", operation=operation, topic=topic)
        return bytes.fromhex(answer or "")

    await subscribing.until_wanted(side, Plain(2, app.uri, (app.uri[0], 0, 3, 1)))
    await ask("register_for_notifications")
    response = usub.SubscriptionResponse.FromString(await ask("subscribe"))
    assert response.status.state == SUBSCRIBED
    (found,) = usub.FetchSubscriptionsResponse.FromString(await ask("fetch_subscriptions")).subscriptions
    assert (found.subscriber.uri.authority_name, found.topic.resource_id) == (app.uri[0], TOPIC)
    await ask("unregister_for_notifications")
    await ask("unsubscribe")
    assert usub.FetchSubscribersResponse.FromString(await ask("fetch_subscribers")).subscribers == []
    with pytest.raises(RefusedError) as refused:
        await ask("reset")
    assert refused.value.code == PERMISSION_DENIED


UTWINS: list[Uri | str] = ["/3/2/1", *((authority, 3, 2, 1) for authority in (STREAMER, "alpha", "beta"))]
"""The method at the client's own authority, which the SDK may leave out, at the other one, and at that of the streamer."""
PUBLISHING = [way for way in WAYS if not str(way.id).startswith("off")]
"""Off-vehicle the SDK sends no Publish; it can ask for those of others."""


@pytest.mark.parametrize(("pair", "way"), PUBLISHING)
async def test_utwin_answers_clients_on_both_networks(tmp_path: Path, pair: tuple[str, str], way: int) -> None:
    """Each asks for what was published, for what nobody has published, and for what is no topic."""
    async with between(tmp_path, *pair, usubscription={"local": ["alpha", "beta"]}, utwin={}) as crossing:
        publisher = await crossing.rust(way, SERVER)
        topic, silent, method = (of(publisher.uri, resource) for resource in (TOPIC, TOPIC + 1, METHOD))
        await crossing.until_wanted(way, Plain(1, topic))
        now = Plain(1, topic, None, b"\x00 now", 3, 600_500, traceparent=TRACE, payload_format=RAW)
        for message in (Plain(1, topic, None, b"earlier", 3, 600_500), now):
            await publisher.send(message)
        await crossing.daemon.until_total(2, "ustreamer_accepted_messages_total")
        for side in (0, 1):
            client = await crossing.rust(side, CLIENT)
            for utwin in UTWINS:
                sink = (client.uri[0], 3, 2, 1) if isinstance(utwin, str) else utwin
                await crossing.until_wanted(side, Plain(2, client.uri, sink))
                for form in (WRAPPED, PROTOBUF):
                    assert await client.ask_utwin(utwin, [topic, silent, method], form) == [
                        Last(topic, OK, now.payload, now),
                        Last(silent, NOT_FOUND, None, None),
                        Last(method, INVALID_ARGUMENT, None, None),
                    ]
        crossing.daemon.check_books()


@pytest.mark.parametrize(("pair", "way"), PUBLISHING)
async def test_utwin_gives_a_client_only_what_it_may_subscribe_to(tmp_path: Path, pair: tuple[str, str], way: int) -> None:
    """The device of the publisher is local, that of the client is not: it may have what a route publishes to it."""
    local = ("alpha", "beta")[way]
    source, target = ("first", "second")[way], ("second", "first")[way]
    allowed = (local, SERVER, 1, TOPIC)
    routes = [{"from": source, "to": target, "publish": [uri_text(allowed)]}, {"from": target, "to": source}]
    service = {"local": [local], "subscribe": []}
    async with between(tmp_path, *pair, routes=routes, usubscription=service, utwin={}) as crossing:
        publisher, client = await crossing.rust(way, SERVER), await crossing.rust(1 - way, CLIENT)
        await crossing.until_wanted(way, Plain(1, allowed))
        message = Plain(1, allowed, None, b"for all", 3, 600_500, payload_format=TEXT)
        await publisher.send(message)
        await crossing.daemon.until_total(1, "ustreamer_accepted_messages_total")
        utwin, denied = (STREAMER, 3, 2, 1), of(allowed, TOPIC + 1)
        await crossing.until_wanted(1 - way, Plain(2, client.uri, utwin))
        assert await client.ask_utwin(utwin, [denied, allowed], WRAPPED) == [
            Last(denied, PERMISSION_DENIED, None, None),
            Last(allowed, OK, b"for all", message),
        ]


@pytest.mark.parametrize(("pair", "way"), SUBSCRIBING)
async def test_subscriber_gets_the_last_value_and_what_is_published_after_it(
    tmp_path: Path, pair: tuple[str, str], way: int
) -> None:
    service = {"local": ["alpha", "beta"], "initial": True}
    async with between(tmp_path, *pair, usubscription=service, utwin={}) as crossing:
        publisher = await crossing.rust(way, SERVER)
        topic = of(publisher.uri, TOPIC)
        await crossing.until_wanted(way, Plain(1, topic))
        earlier, last, later = (Plain(1, topic, None, each, 3, 600_500) for each in (b"earlier", b"last", b"later"))
        for message in (earlier, last):
            await publisher.send(message)
        await crossing.daemon.until_total(2, "ustreamer_outcomes_total")  # unheard or delivered
        subscriber = await crossing.rust(1 - way, CLIENT)
        await crossing.until_wanted(1 - way, Plain(2, subscriber.uri, (subscriber.uri[0], 0, 3, 1)))
        await subscriber.call("subscribe", name="events", topic=topic)
        assert await subscriber.hears("events") == [last]
        await publisher.send(later)
        assert await subscriber.hears("events", 2) == [last, later]


@pytest.mark.parametrize("pair", [("in-vehicle", "zenoh"), ("off-vehicle", "zenoh")], ids="~".join)
@pytest.mark.parametrize("side", [0, 1], ids=["mqtt", "zenoh"])
async def test_utwin_refuses_a_question_without_topics_and_other_methods(
    tmp_path: Path, pair: tuple[str, str], side: int
) -> None:
    async with between(tmp_path, *pair, utwin={}) as crossing:
        client, method = await crossing.rust(side, CLIENT), (STREAMER, 3, 2, 1)
        await crossing.until_wanted(side, Plain(2, client.uri, method))
        for asked, code in ((method, INVALID_ARGUMENT), (of(method, 2), UNIMPLEMENTED)):
            for form in (WRAPPED, PROTOBUF):
                with pytest.raises(RefusedError) as refused:
                    await client.ask_utwin(asked, [], form)
                assert refused.value.code == code


assert set(KINDS) == {kind for pair in PAIRS for kind in pair}
