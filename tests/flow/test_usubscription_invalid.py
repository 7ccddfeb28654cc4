"""uSubscription from outside: what it refuses with INVALID_ARGUMENT (4.1 to 4.4, 5, 7.2), and its protobuf."""

import pytest
from google.protobuf.any_pb2 import Any
from google.protobuf.message import Message

from streamer.uprotocol.message import UPayloadFormat
from streamer.uprotocol.proto import uprotocol_v1_pb2 as v1
from streamer.uprotocol.proto import usubscription_v3_pb2 as pb
from streamer.uprotocol.protobuf import uri_to_proto
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from tests.flow.devices import Devices
from tests.flow.uentities import (
    FETCH_SUBSCRIBERS,
    FETCH_SUBSCRIPTIONS,
    REGISTER,
    RESET,
    SUBSCRIBE,
    UNREGISTER,
    UNSUBSCRIBE,
    Client,
)

TOPIC = UUri("dev1", 0x10, 1, 0x8001)

WITH_TOPIC = {
    "Subscribe": (SUBSCRIBE, pb.SubscriptionRequest),
    "Unsubscribe": (UNSUBSCRIBE, pb.UnsubscribeRequest),
    "FetchSubscribers": (FETCH_SUBSCRIBERS, pb.FetchSubscribersRequest),
    "FetchSubscriptions": (FETCH_SUBSCRIPTIONS, pb.FetchSubscriptionsRequest),
    "RegisterForNotifications": (REGISTER, pb.NotificationsRequest),
    "UnregisterForNotifications": (UNREGISTER, pb.NotificationsRequest),
}
METHODS = pytest.mark.parametrize(("method", "kind"), WITH_TOPIC.values(), ids=WITH_TOPIC)

WILDCARDS = {
    "any authority": TOPIC._replace(authority="*"),
    "any uEntity": TOPIC._replace(ue_id=0xFFFF_FFFF),
    "any type": TOPIC._replace(ue_id=0xFFFF),
    "any instance": TOPIC._replace(ue_id=0xFFFF_0010),
    "any version": TOPIC._replace(version=0xFF),
    "any resource": TOPIC._replace(resource=0xFFFF),
}
MALFORMED = {
    "authority in capitals": TOPIC._replace(authority="DEV1"),
    "authority with a slash": TOPIC._replace(authority="dev1/x"),
    "long authority": TOPIC._replace(authority="d" * 129),
    "version beyond 8 bits": TOPIC._replace(version=0x100),
    "resource beyond 16 bits": TOPIC._replace(resource=0x1_8001),
}


@pytest.fixture
async def app(app: Client) -> Client:
    await app.subscribe(TOPIC)
    return app


async def nothing_has_changed(app: Client) -> None:
    assert await app.subscriptions(app.uri) == ([(TOPIC, app.uri, 2)], False)
    assert len(app.updates) == 1


@METHODS
@pytest.mark.parametrize("topic", (WILDCARDS | MALFORMED).values(), ids=WILDCARDS | MALFORMED)
async def test_topic_that_is_invalid_or_has_a_wildcard(app: Client, method: int, kind: type[Message], topic: UUri) -> None:
    status = await app.refused(method, kind(topic=uri_to_proto(topic)))
    assert status.code == UCode.INVALID_ARGUMENT
    assert status.message.startswith("topic")
    await nothing_has_changed(app)


@METHODS
@pytest.mark.parametrize("resource", [0, 1, 0x7FFF], ids=["the uEntity", "a method", "the last method"])
async def test_topic_whose_resource_is_not_a_topic(app: Client, method: int, kind: type[Message], resource: int) -> None:
    status = await app.refused(method, kind(topic=uri_to_proto(TOPIC._replace(resource=resource))))
    assert status.code == UCode.INVALID_ARGUMENT
    await nothing_has_changed(app)


@METHODS
async def test_topic_or_payload_that_is_missing_or_unreadable(app: Client, method: int, kind: type[Message]) -> None:
    unreadable = [b"\xff\xff\xff"]
    if method != FETCH_SUBSCRIPTIONS:  # which then returns everybody
        unreadable.append(kind().SerializeToString())
    for payload in unreadable:
        answer = await app.ask(method, payload)
        assert answer.attributes.commstatus is UCode.INVALID_ARGUMENT
        assert v1.UStatus.FromString(answer.payload or b"").code == UCode.INVALID_ARGUMENT
    await nothing_has_changed(app)


SUBSCRIBERS = {
    "any authority": UUri("*", 0xA, 1, 0),
    "any uEntity": UUri("dev1", 0xFFFF_FFFF, 1, 0),
    "any type": UUri("dev1", 0xFFFF, 1, 0),
    "any resource": UUri("dev1", 0xA, 1, 0xFFFF),
    "authority in capitals": UUri("DEV1", 0xA, 1, 0),
    "version beyond 8 bits": UUri("dev1", 0xA, 0x100, 0),
    "a topic": UUri("dev1", 0xA, 1, 0x8001),
}


@pytest.mark.parametrize("subscriber", SUBSCRIBERS.values(), ids=SUBSCRIBERS)
async def test_subscriber_that_is_invalid_or_has_a_wildcard(app: Client, subscriber: UUri) -> None:
    info = pb.SubscriberInfo(uri=uri_to_proto(subscriber))
    status = await app.refused(FETCH_SUBSCRIPTIONS, pb.FetchSubscriptionsRequest(subscriber=info))
    assert status.code == UCode.INVALID_ARGUMENT


# The protobuf definitions: field numbers are written out, so that the generated module is not compared with itself


def field(number: int, content: bytes) -> bytes:
    """A length-delimited field of protobuf, of less than 128 bytes."""
    return bytes([number << 3 | 2, len(content)]) + content


def varint(number: int, value: int) -> bytes:
    """A varint field of protobuf."""
    found = bytes([number << 3])
    while value > 0x7F:
        found += bytes([value & 0x7F | 0x80])
        value >>= 7
    return found + bytes([value])


def uri(authority: str, ue_id: int, version: int, resource: int = 0) -> bytes:
    found = field(1, authority.encode()) + varint(2, ue_id) + varint(3, version)
    return found + (varint(4, resource) if resource else b"")


TOPIC_BYTES = uri("dev1", 0x10, 1, 0x8001)
OTHER_BYTES = uri("dev1", 0x10, 1, 0x8002)
APP_BYTES = uri("dev1", 0xA, 1)


async def answered(app: Client, method: int, payload: bytes) -> bytes:
    answer = await app.ask(method, payload)
    assert answer.attributes.commstatus in (None, UCode.OK)
    assert answer.attributes.payload_format is UPayloadFormat.PROTOBUF
    return answer.payload or b""


async def test_subscribe_and_unsubscribe_are_as_the_definition_says(app: Client) -> None:
    expire = varint(1, app.now_ms // 1000 + 60)
    asked = field(1, OTHER_BYTES) + field(3, field(1, expire) + varint(3, 500))
    status = field(1, varint(1, 2))
    assert await answered(app, SUBSCRIBE, asked) == status + field(3, OTHER_BYTES)
    assert await answered(app, UNSUBSCRIBE, field(1, OTHER_BYTES)) == b""
    await app.all_is_said()
    told = field(1, OTHER_BYTES) + field(2, field(1, APP_BYTES))
    attributes = field(4, field(1, expire) + varint(3, 500))
    assert [message.payload for message in app.notifications[1:]] == [
        told + field(3, varint(1, 2)) + attributes,
        told + field(3, b"") + attributes,
    ]


async def test_fetch_subscribers_is_as_the_definition_says(app: Client) -> None:
    entry, more = field(1, field(1, APP_BYTES)), varint(2, 0)
    assert await answered(app, FETCH_SUBSCRIBERS, field(1, TOPIC_BYTES)) == entry + more
    assert await answered(app, FETCH_SUBSCRIBERS, field(1, TOPIC_BYTES) + varint(2, 1)) == more


async def test_fetch_subscriptions_is_as_the_definition_says(app: Client) -> None:
    entry = field(1, field(1, TOPIC_BYTES) + field(2, field(1, APP_BYTES)) + field(3, varint(1, 2)))
    more = varint(2, 0)
    for about in (field(1, TOPIC_BYTES), field(2, field(1, APP_BYTES))):
        assert await answered(app, FETCH_SUBSCRIPTIONS, about) == entry + more
        assert await answered(app, FETCH_SUBSCRIPTIONS, about + varint(3, 1)) == more


async def test_register_and_unregister_are_as_the_definition_says(app: Client) -> None:
    assert await answered(app, REGISTER, field(1, OTHER_BYTES)) == b""
    assert await answered(app, UNREGISTER, field(1, OTHER_BYTES)) == b""


async def test_reset_is_as_the_definition_says(devices: Devices, app: Client) -> None:
    peer = await devices.client(1, 0)
    reason = field(1, varint(1, 1) + field(2, b"factory"))
    assert await answered(peer, RESET, reason) == b""
    assert await app.subscriptions(app.uri) == ([], False)


async def test_request_wrapped_in_any_is_answered_wrapped_in_any(app: Client) -> None:
    wrapped = Any(type_url="type.googleapis.com/uprotocol.core.usubscription.v3.SubscriptionRequest")
    wrapped.value = field(1, TOPIC_BYTES)
    answer = await app.ask(SUBSCRIBE, wrapped, UPayloadFormat.PROTOBUF_WRAPPED_IN_ANY)
    assert answer.attributes.payload_format is UPayloadFormat.PROTOBUF_WRAPPED_IN_ANY
    found = Any.FromString(answer.payload or b"")
    assert found.type_url.endswith("/uprotocol.core.usubscription.v3.SubscriptionResponse")
    assert found.value == field(1, varint(1, 2)) + field(3, TOPIC_BYTES)
