"""What the versions have in common on the wire: payloads, names and times. Pure.

A payload is protobuf, plain or wrapped in Any; without a payload format it is taken for the one that it looks like. No
payload is an empty protobuf message: transports need not carry one. The response has the form of the request. A failure is a
Response with the code in commstatus and a UStatus as payload.
"""

import contextlib
from typing import TypeVar

from google.protobuf.any_pb2 import Any
from google.protobuf.message import DecodeError, Message
from google.protobuf.timestamp_pb2 import Timestamp

from streamer.services.payload import MAX_BYTES, payload_of
from streamer.services.usubscription.entries import Command, CommandResponse, SubscriptionState, Update
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
"""Characters of another service's text that are passed on, to each subscriber."""

_ANY_PREFIX = "type.googleapis.com/"
_TIMES_S = range(-62_135_596_800, 253_402_300_800)  # of a Timestamp: years 1 to 9999
_LAST_MS = _TIMES_S.stop * 1000 - 1
_NS_PER_S = 1_000_000_000
_NS_PER_MS = 1_000_000
_WRAPPED = UPayloadFormat.PROTOBUF_WRAPPED_IN_ANY
_PLAIN = Options(payload_format=UPayloadFormat.PROTOBUF)

Proto = TypeVar("Proto", bound=Message)


def read(message: UMessage, kind: type[Proto], max_bytes: int | None = MAX_BYTES) -> Proto:
    """The payload as a message of this kind. Raises `UStatusError` (INVALID_ARGUMENT) with what was expected."""
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
    """The Response to a request that was granted, in its form."""
    payload, form = _written(request, proto)
    return response(now_ms, request, payload, UCode.OK, form)


def refused(now_ms: int, request: UMessage, code: UCode, text: str) -> UMessage:
    """The Response to a request that was refused, in its form."""
    payload, form = _written(request, status_to_proto(code, text))
    return response(now_ms, request, payload, code, form)


def named(what: str, uri: v1.UUri, requester: UUri) -> UUri:
    """A URI in a request; without authority it is at the requester's own. Raises `UStatusError` (INVALID_ARGUMENT)."""
    found = uri_from_proto(uri)
    if not found.authority:
        found = found._replace(authority=requester.authority)
    try:
        return found.check()
    except UriError as exc:
        raise invalid(f"{what}: {exc}") from None


def named_there(uri: v1.UUri, message: UMessage) -> UUri:
    """A URI in a message of another service, unchecked; without authority it is local there. An empty one stays empty."""
    found = uri_from_proto(uri)
    if found.authority or not any(found):
        return found
    return found._replace(authority=message.attributes.source.authority)


def exact(what: str, uri: v1.UUri, requester: UUri) -> UUri:
    """As `named`, without wildcards."""
    found = named(what, uri, requester)
    if found.has_wildcard:
        raise invalid(f"{what} {found}: expected no wildcard in authority, ue_id, version or resource")
    return found


def check_service(source: UUri, number: int) -> None:
    """Raises `UStatusError` unless ``number``, of the source, is that of a uSubscription service."""
    if number != USUBSCRIPTION.ue_id:
        raise UStatusError(UCode.PERMISSION_DENIED, f"source {source}: only another uSubscription service (ue_id 0) may")


def check_topic(topic: UUri) -> UUri:
    """Return the topic if it can be subscribed to; any instance or version will do. Raises `UStatusError`."""
    if not topic.is_topic:
        raise invalid(f"topic {topic}: expected a resource from {FIRST_TOPIC:X} to {LAST_TOPIC:X}")
    if topic.authority in ("", ANY_AUTHORITY) or topic.type_id == ANY_TYPE:
        raise invalid(f"topic {topic}: expected an authority and a service, no wildcard for either")
    return topic


def time_ms(what: str, time: Timestamp) -> int:
    """A time in a request, rounded up to milliseconds. Raises `UStatusError` (INVALID_ARGUMENT)."""
    if time.seconds not in _TIMES_S or not 0 <= time.nanos < _NS_PER_S:
        raise invalid(f"{what}: expected a Timestamp of the years 1 to 9999")
    return time.seconds * 1000 - (-time.nanos // _NS_PER_MS)


def timestamp(time_ms: int) -> Timestamp:
    """Unix milliseconds as protobuf, which ends with the year 9999."""
    seconds, ms = divmod(min(time_ms, _LAST_MS), 1000)
    return Timestamp(seconds=seconds, nanos=ms * _NS_PER_MS)


def change_message(now_ms: int, entity: EntityId, update: Update, proto: Message) -> UMessage:
    """The message that tells a change, from the service that has this name."""
    topic, payload = entity.at(update.via, CHANGES), proto.SerializeToString()
    if update.sink is None:
        return publish(now_ms, topic, payload, _PLAIN)
    return notification(now_ms, topic, update.sink, payload, _PLAIN)


def command_request(authority: str, entity: EntityId, method: int, command: Command, proto: Message) -> UMessage:
    """The Request to the service with this name at the topic's authority, with ourselves as the subscriber."""
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
    """What a Response to one of our commands says; ``state`` and ``text`` are those of a payload that was understood."""
    code = message.attributes.commstatus or UCode.OK
    if code is not UCode.OK:
        with contextlib.suppress(UStatusError):  # the code says enough
            text = read(message, v1.UStatus).message
    source, reqid = message.attributes.source, message.attributes.reqid or b""
    return CommandResponse(reqid, code, state, passed_on(text), created_ms(message.id), source.version)


def passed_on(text: str) -> str:
    """A text of another service, as far as it is passed on."""
    return text[:MAX_TEXT]


def invalid(text: str) -> UStatusError:
    """What is raised for a request that cannot be meant."""
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
