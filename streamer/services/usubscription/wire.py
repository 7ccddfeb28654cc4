"""Translates between the service's records and the messages on the wire. Pure.

A payload is protobuf, plain or wrapped in Any; without a payload format it is whichever of the two it looks like. No
payload is an empty protobuf message: transports need not carry one. The response has the form of the request. A failure is a
Response with the code in commstatus and a UStatus as payload.
"""

from typing import TypeVar

from google.protobuf.any_pb2 import Any
from google.protobuf.message import DecodeError, Message
from google.protobuf.timestamp_pb2 import Timestamp

from streamer.services.usubscription.entries import (
    Command,
    CommandResponse,
    ReceivedUpdate,
    SubscribeAttributes,
    Subscription,
    SubscriptionState,
    Update,
)
from streamer.uprotocol.message import (
    Attributes,
    Options,
    UMessage,
    UMessageType,
    UPayloadFormat,
    UPriority,
    notification,
    response,
)
from streamer.uprotocol.proto import uprotocol_v1_pb2 as v1
from streamer.uprotocol.proto import usubscription_v3_pb2 as pb
from streamer.uprotocol.protobuf import status_to_proto, uri_from_proto, uri_to_proto
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import FIRST_TOPIC, LAST_TOPIC, UriError, UUri
from streamer.uprotocol.uuid import created_ms
from streamer.uprotocol.well_known import USUBSCRIPTION

SUBSCRIBE, UNSUBSCRIBE, FETCH_SUBSCRIPTIONS, REGISTER, UNREGISTER, FETCH_SUBSCRIBERS, RESET = 1, 2, 3, 6, 7, 8, 9
CHANGES = 0x8000
"""The topic SubscriptionChange."""

MAX_DETAILS_BYTES = 2048

_ANY_PREFIX = "type.googleapis.com/"
_TIMES_S = range(-62_135_596_800, 253_402_300_800)  # of a Timestamp: years 1 to 9999
_NS_PER_S = 1_000_000_000
_NS_PER_MS = 1_000_000
_WRAPPED = UPayloadFormat.PROTOBUF_WRAPPED_IN_ANY

Proto = TypeVar("Proto", bound=Message)


def read(message: UMessage, kind: type[Proto]) -> Proto:
    """The payload as a message of this kind. Raises `UStatusError` (INVALID_ARGUMENT) with what was expected."""
    payload, form = message.payload or b"", message.attributes.payload_format
    name = kind.DESCRIPTOR.full_name
    if form not in (_WRAPPED, UPayloadFormat.PROTOBUF, UPayloadFormat.UNSPECIFIED):
        raise _invalid(f"payload format: expected PROTOBUF or PROTOBUF_WRAPPED_IN_ANY, found {form.name}")
    try:
        if _is_wrapped(message):
            wrapped = Any.FromString(payload)
            if wrapped.type_url.rpartition("/")[2] != name:
                raise _invalid(f"payload: expected a {name}, found a {wrapped.type_url[:128]!r}")
            payload = wrapped.value
        return kind.FromString(payload)
    except DecodeError:
        raise _invalid(f"payload: expected a {name}, found {len(payload)} bytes that cannot be parsed as one") from None


def topic(is_set: bool, uri: v1.UUri, requester: UUri) -> UUri:
    """The topic in a request; without authority it is the requester's own. Raises `UStatusError` (INVALID_ARGUMENT)."""
    if not is_set:
        raise _invalid("topic: expected one, found none")
    found = _named("topic", uri, requester)
    if not found.is_topic:
        raise _invalid(f"topic {found}: expected a resource from {FIRST_TOPIC:X} to {LAST_TOPIC:X}")
    return found


def subscriber(is_set: bool, uri: v1.UUri, requester: UUri) -> UUri:
    """The subscriber in a request, as `topic`."""
    if not is_set:
        raise _invalid("subscriber: expected one, found none")
    found = _named("subscriber", uri, requester)
    if not found.is_entity:
        raise _invalid(f"subscriber {found}: expected a uEntity (resource 0)")
    return found


def subscribe_attributes(attributes: pb.SubscribeAttributes) -> SubscribeAttributes:
    """The attributes in a request. Times are rounded up to milliseconds. Raises `UStatusError` (INVALID_ARGUMENT)."""
    expire_ms = None
    if attributes.HasField("expire"):
        expire = attributes.expire
        if expire.seconds not in _TIMES_S or not 0 <= expire.nanos < _NS_PER_S:
            raise _invalid("attributes.expire: expected a Timestamp of the years 1 to 9999")
        expire_ms = expire.seconds * 1000 - (-expire.nanos // _NS_PER_MS)
    details = pb.SubscribeAttributes(details=attributes.details).SerializeToString(deterministic=True)
    if len(details) > MAX_DETAILS_BYTES:
        raise _invalid(f"attributes.details: expected at most {MAX_DETAILS_BYTES} bytes, found {len(details)}")
    sample_period_ms = attributes.sample_period_ms if attributes.HasField("sample_period_ms") else None
    return SubscribeAttributes(expire_ms, sample_period_ms, details)


def granted(now_ms: int, request: UMessage, proto: Message) -> UMessage:
    """The Response to a request that was granted, in its form."""
    payload, form = _written(request, proto)
    return response(now_ms, request, payload, UCode.OK, form)


def refused(now_ms: int, request: UMessage, code: UCode, text: str) -> UMessage:
    """The Response to a request that was refused, in its form."""
    payload, form = _written(request, status_to_proto(code, text))
    return response(now_ms, request, payload, code, form)


def subscription_response(topic: UUri, state: SubscriptionState) -> pb.SubscriptionResponse:
    """The payload of the response to Subscribe."""
    return pb.SubscriptionResponse(status=_status(state, ""), topic=uri_to_proto(topic))


def subscriber_info(entry: Subscription) -> pb.SubscriberInfo:
    """An entry of the response to FetchSubscribers."""
    return pb.SubscriberInfo(uri=uri_to_proto(entry.subscriber))


def subscription(entry: Subscription) -> pb.Subscription:
    """An entry of the response to FetchSubscriptions."""
    return pb.Subscription(
        topic=uri_to_proto(entry.topic),
        subscriber=subscriber_info(entry),
        status=_status(entry.state, ""),
        attributes=_attributes(entry.attributes),
    )


def update_message(now_ms: int, update: Update) -> UMessage:
    """The Notification of a change (004 §7)."""
    proto = pb.Update(
        topic=uri_to_proto(update.topic),
        subscriber=pb.SubscriberInfo(uri=uri_to_proto(update.subscriber)),
        status=_status(update.state, update.message),
        attributes=_attributes(update.attributes),
    )
    options = Options(payload_format=UPayloadFormat.PROTOBUF)
    return notification(now_ms, USUBSCRIPTION.at(update.via, CHANGES), update.sink, proto.SerializeToString(), options)


def command_message(authority: str, command: Command) -> UMessage:
    """The Request to the service at the topic's authority, with ourselves as the subscriber (004 §4.1, §4.2)."""
    name = uri_to_proto(command.topic)
    proto: Message
    if command.subscribe:
        proto = pb.SubscriptionRequest(topic=name)
        if command.period_ms:
            proto.attributes.sample_period_ms = command.period_ms
    else:
        proto = pb.UnsubscribeRequest(topic=name)
    attributes = Attributes(
        UMessageType.REQUEST,
        USUBSCRIPTION.at(authority),
        USUBSCRIPTION.at(command.topic.authority, SUBSCRIBE if command.subscribe else UNSUBSCRIBE),
        priority=UPriority.CS4,
        ttl=command.ttl_ms,
        payload_format=UPayloadFormat.PROTOBUF,
    )
    return UMessage(command.id, attributes, proto.SerializeToString()).check()


def command_response(message: UMessage) -> CommandResponse:
    """What a Response to one of our commands says."""
    code = message.attributes.commstatus or UCode.OK
    state, text = None, ""
    try:
        if code is not UCode.OK:
            text = read(message, v1.UStatus).message
        elif message.attributes.source.resource == SUBSCRIBE:
            proto = read(message, pb.SubscriptionResponse)
            if proto.HasField("status"):
                state, text = SubscriptionState(proto.status.state), proto.status.message
    except (UStatusError, ValueError):
        pass  # the code says enough, and an OK without a status does not count
    return CommandResponse(message.attributes.reqid or b"", code, state, text, created_ms(message.id))


def received_update(message: UMessage, ourselves: UUri) -> ReceivedUpdate | None:
    """What another service's Update says about ourselves; None if it is about others, or a topic of another authority."""
    source = message.attributes.source
    try:
        proto = read(message, pb.Update)
        state = SubscriptionState(proto.status.state)
    except (UStatusError, ValueError):
        return None
    topic = uri_from_proto(proto.topic)
    is_from_its_service = source == USUBSCRIPTION.at(topic.authority, CHANGES)
    if not is_from_its_service or uri_from_proto(proto.subscriber.uri) != ourselves or not proto.HasField("status"):
        return None
    return ReceivedUpdate(topic, state, proto.status.message, created_ms(message.id))


def _named(what: str, uri: v1.UUri, requester: UUri) -> UUri:
    found = uri_from_proto(uri)
    if not found.authority:
        found = found._replace(authority=requester.authority)
    try:
        found.check()
    except UriError as exc:
        raise _invalid(f"{what}: {exc}") from None
    if found.has_wildcard:
        raise _invalid(f"{what} {found}: expected no wildcard in authority, ue_id, version or resource")
    return found


def _is_wrapped(message: UMessage) -> bool:
    form = message.attributes.payload_format
    if form is not UPayloadFormat.UNSPECIFIED or message.payload is None:
        return form is _WRAPPED
    try:
        return "/uprotocol." in Any.FromString(message.payload).type_url
    except DecodeError:
        return False


def _written(request: UMessage, proto: Message) -> tuple[bytes, UPayloadFormat]:
    payload = proto.SerializeToString()
    if _is_wrapped(request):
        return Any(type_url=_ANY_PREFIX + proto.DESCRIPTOR.full_name, value=payload).SerializeToString(), _WRAPPED
    return payload, UPayloadFormat.PROTOBUF


def _status(state: SubscriptionState, text: str) -> pb.SubscriptionStatus:
    # The generated stubs want the generated enum type; any int of the enum is what the runtime takes.
    return pb.SubscriptionStatus(state=int(state), message=text)  # type: ignore[arg-type]


def _attributes(attributes: SubscribeAttributes) -> pb.SubscribeAttributes | None:
    if attributes == SubscribeAttributes():
        return None
    proto = pb.SubscribeAttributes.FromString(attributes.details)
    if attributes.expire_ms is not None:
        seconds, ms = divmod(attributes.expire_ms, 1000)
        proto.expire.CopyFrom(Timestamp(seconds=seconds, nanos=ms * _NS_PER_MS))
    if attributes.sample_period_ms is not None:
        proto.sample_period_ms = attributes.sample_period_ms
    return proto


def _invalid(text: str) -> UStatusError:
    return UStatusError(UCode.INVALID_ARGUMENT, text)
