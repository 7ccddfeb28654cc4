"""The part of the wire format that the versions share: payloads, names and times. Pure.

A payload is protobuf, plain or wrapped in Any; without a payload format, its bytes decide. An absent payload is an empty
message: transports need not carry one. The response has the form of the request. A failure is a
Response with the code in commstatus and a UStatus as payload.
"""

import contextlib
from typing import TypeVar

from google.protobuf.any_pb2 import Any
from google.protobuf.message import DecodeError, Message
from google.protobuf.timestamp_pb2 import Timestamp

from streamer.features.host.rpc import MAX_BYTES, payload_of
from streamer.features.usubscription.entries import Command, CommandResponse, SubscriptionState, Update
from streamer.uprotocol.message import (
    Attributes,
    Options,
    UMessage,
    UMessageType,
    UPayloadFormat,
    UPriority,
    notification,
    publish,
    response,
)
from streamer.uprotocol.proto import uprotocol_v1_pb2 as v1
from streamer.uprotocol.protobuf import status_to_proto, uri_from_proto
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import ANY_AUTHORITY, ANY_TYPE, FIRST_TOPIC, LAST_TOPIC, UriError, UUri
from streamer.uprotocol.uuid import created_ms
from streamer.uprotocol.well_known import CHANGES, USUBSCRIPTION, EntityId

MAX_TEXT = 256
"""The most characters of another service's text that are passed on to subscribers."""

_ANY_PREFIX = "type.googleapis.com/"
_TIMES_S = range(-62_135_596_800, 253_402_300_800)  # of a Timestamp: years 1 to 9999
_LAST_MS = _TIMES_S.stop * 1000 - 1
_NS_PER_S = 1_000_000_000
_NS_PER_MS = 1_000_000
_WRAPPED = UPayloadFormat.PROTOBUF_WRAPPED_IN_ANY
_PLAIN = Options(payload_format=UPayloadFormat.PROTOBUF)

Proto = TypeVar("Proto", bound=Message)


def read(message: UMessage, kind: type[Proto], max_bytes: int | None = MAX_BYTES) -> Proto:
    """Parse the payload as a message of this kind. Raises `UStatusError` (INVALID_ARGUMENT)."""
    payload, form = payload_of(message, max_bytes), message.attributes.payload_format
    name = kind.DESCRIPTOR.full_name
    if form not in (_WRAPPED, UPayloadFormat.PROTOBUF, UPayloadFormat.UNSPECIFIED):
        raise invalid(f"payload format: expected PROTOBUF or PROTOBUF_WRAPPED_IN_ANY, found {form.name}")
    try:
        if _is_wrapped(message, max_bytes):
            wrapped = Any.FromString(payload)
            if wrapped.type_url.rpartition("/")[2] != name:
                raise invalid(f"payload: expected a {name}, found a {wrapped.type_url[:128]!r}")
            payload = wrapped.value
        return kind.FromString(payload)
    except DecodeError:
        raise invalid(f"payload: expected a {name}, found {len(payload)} bytes that cannot be parsed as one") from None


def granted(now_ms: int, request: UMessage, proto: Message) -> UMessage:
    """Return the Response to a request that was granted, in the form of the request."""
    payload, form = _written(request, proto)
    return response(now_ms, request, payload, UCode.OK, form)


def refused(now_ms: int, request: UMessage, code: UCode, text: str) -> UMessage:
    """Return the Response to a request that was refused, in the form of the request."""
    payload, form = _written(request, status_to_proto(code, text))
    return response(now_ms, request, payload, code, form)


def named(what: str, uri: v1.UUri, requester: UUri) -> UUri:
    """Return a URI in a request; an empty authority becomes the requester's. Raises `UStatusError` (INVALID_ARGUMENT)."""
    found = uri_from_proto(uri)
    if not found.authority:
        found = found._replace(authority=requester.authority)
    try:
        return found.check()
    except UriError as exc:
        raise invalid(f"{what}: {exc}") from None


def named_there(uri: v1.UUri, message: UMessage) -> UUri:
    """Return a URI in another service's message, unchecked. An empty authority becomes the service's."""
    found = uri_from_proto(uri)
    if found.authority or not any(found):
        return found
    return found._replace(authority=message.attributes.source.authority)


def exact(what: str, uri: v1.UUri, requester: UUri) -> UUri:
    """Return a URI in a request, as `named`. Raises `UStatusError` if it has a wildcard, too."""
    found = named(what, uri, requester)
    if found.has_wildcard:
        raise invalid(f"{what} {found}: expected no wildcard in authority, ue_id, version or resource")
    return found


def check_service(source: UUri, number: int) -> None:
    """Raise `UStatusError` unless ``number``, the source's ue_id, is that of a uSubscription service."""
    if number != USUBSCRIPTION.ue_id:
        raise UStatusError(UCode.PERMISSION_DENIED, f"source {source}: only another uSubscription service (ue_id 0) may")


def check_topic(topic: UUri) -> UUri:
    """Return the topic if it can be subscribed to, whatever its instance and version. Raises `UStatusError`."""
    if not topic.is_topic:
        raise invalid(f"topic {topic}: expected a resource from {FIRST_TOPIC:X} to {LAST_TOPIC:X}")
    if topic.authority in ("", ANY_AUTHORITY) or topic.type_id == ANY_TYPE:
        raise invalid(f"topic {topic}: expected an authority and a service, no wildcard for either")
    return topic


def time_ms(what: str, time: Timestamp) -> int:
    """Return a time in a request as Unix milliseconds, rounded up. Raises `UStatusError` (INVALID_ARGUMENT)."""
    if time.seconds not in _TIMES_S or not 0 <= time.nanos < _NS_PER_S:
        raise invalid(f"{what}: expected a Timestamp of the years 1 to 9999")
    return time.seconds * 1000 - (-time.nanos // _NS_PER_MS)


def timestamp(time_ms: int) -> Timestamp:
    """Return Unix milliseconds as a Timestamp, at most the end of the year 9999."""
    seconds, ms = divmod(min(time_ms, _LAST_MS), 1000)
    return Timestamp(seconds=seconds, nanos=ms * _NS_PER_MS)


def change_message(now_ms: int, entity: EntityId, update: Update, proto: Message) -> UMessage:
    """Return the notification of a change, from the service ``entity``."""
    topic, payload = entity.at(update.via, CHANGES), proto.SerializeToString()
    if update.sink is None:
        return publish(now_ms, topic, payload, _PLAIN)
    return notification(now_ms, topic, update.sink, payload, _PLAIN)


def command_request(authority: str, entity: EntityId, method: int, command: Command, proto: Message) -> UMessage:
    """Return the Request to the service ``entity`` at ``authority``, with ourselves as the subscriber."""
    attributes = Attributes(
        UMessageType.REQUEST,
        USUBSCRIPTION.at(authority),
        entity.at(command.topic.authority, method),
        priority=UPriority.CS4,
        ttl=command.ttl_ms,
        payload_format=UPayloadFormat.PROTOBUF,
    )
    return UMessage(command.id, attributes, proto.SerializeToString()).check()


def command_response(message: UMessage, state: SubscriptionState | None = None, text: str = "") -> CommandResponse:
    """Parse the Response to one of our commands; ``state`` and ``text`` are from its payload, if that was parsed."""
    code = message.attributes.commstatus or UCode.OK
    if code is not UCode.OK:
        with contextlib.suppress(UStatusError):  # the code says enough
            text = read(message, v1.UStatus).message
    return CommandResponse(message.attributes.reqid or b"", code, state, passed_on(text), created_ms(message.id))


def passed_on(text: str) -> str:
    """Return the part of another service's text that is passed on."""
    return text[:MAX_TEXT]


def invalid(text: str) -> UStatusError:
    """Return the error for an invalid request."""
    return UStatusError(UCode.INVALID_ARGUMENT, text)


def _is_wrapped(message: UMessage, max_bytes: int | None = MAX_BYTES) -> bool:
    form = message.attributes.payload_format
    if form is not UPayloadFormat.UNSPECIFIED or message.payload is None:
        return form is _WRAPPED
    try:
        return "/uprotocol." in Any.FromString(payload_of(message, max_bytes)).type_url
    except (DecodeError, UStatusError):
        return False


def _written(request: UMessage, proto: Message) -> tuple[bytes, UPayloadFormat]:
    payload = proto.SerializeToString()
    if _is_wrapped(request):
        return Any(type_url=_ANY_PREFIX + proto.DESCRIPTOR.full_name, value=payload).SerializeToString(), _WRAPPED
    return payload, UPayloadFormat.PROTOBUF
