"""uSubscription from outside: its protobuf, of which all field numbers are written out."""

import pytest
from google.protobuf.any_pb2 import Any

from streamer.uprotocol.message import UPayloadFormat
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


@pytest.fixture
async def app(app: Client) -> Client:
    await app.subscribe(TOPIC)
    return app


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
