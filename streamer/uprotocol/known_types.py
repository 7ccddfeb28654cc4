"""The payloads whose types this project defines: recognizes them, and shows them to people and programs. Pure.

A payload in an Any says its own type. Any other one has the type of its method or topic at core.ustreamer or
core.usubscription (`proto/*.proto`), or is a UStatus: that of a Response that refuses.
"""

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from google.protobuf.any_pb2 import Any as AnyProto
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.timestamp_pb2 import Timestamp

from streamer.uprotocol.message import Attributes, UMessageType, UPayloadFormat
from streamer.uprotocol.payload import payload_as
from streamer.uprotocol.proto import uprotocol_v1_pb2 as v1
from streamer.uprotocol.proto import ustreamer_v1_pb2, usubscription_v3_pb2, usubscription_v4_pb2
from streamer.uprotocol.protobuf import id_from_proto, uri_from_proto
from streamer.uprotocol.uuid import format_id
from streamer.uprotocol.well_known import CHANGES, DEAD_LETTERS, STATUS, USTREAMER, USUBSCRIPTION, USUBSCRIPTION_4, EntityId

_SERVICES: Mapping[EntityId, tuple[ModuleType, Mapping[int, str], Mapping[int, str]]] = {
    USTREAMER: (
        ustreamer_v1_pb2,
        {
            1: "StopDispatch",
            2: "StartDispatch",
            3: "FetchStops",
            4: "Ping",
            0x10: "RegisterMulticastReceiver",
            0x11: "UnregisterMulticastReceiver",
            0x12: "ResolveMulticast",
        },
        {DEAD_LETTERS: "DeadLetter", STATUS: "Status"},
    ),
    USUBSCRIPTION: (
        usubscription_v3_pb2,
        {
            1: "Subscription",
            2: "Unsubscribe",
            3: "FetchSubscriptions",
            6: "Notifications",
            7: "Notifications",
            8: "FetchSubscribers",
            9: "Reset",
        },
        {CHANGES: "Update"},
    ),
    USUBSCRIPTION_4: (
        usubscription_v4_pb2,
        {1: "Subscribe", 2: "Unsubscribe", 3: "FetchSubscriptions", 4: "Notifications", 5: "Notifications", 6: "Reset"},
        {CHANGES: "Subscription"},
    ),
}
"""By service: the module of its messages, the methods by resource id, and the types of what it publishes, by topic."""

_MODULES = (v1, *(module for module, _, _ in _SERVICES.values()))


def type_of(a: Attributes) -> type[Message] | None:
    """Return the type of the payload of a message that is not in an Any; None: it is not one of ours."""
    if a.type is UMessageType.RESPONSE and a.commstatus:
        return v1.UStatus
    is_request = a.type is UMessageType.REQUEST
    place = a.sink if is_request else a.source
    if place is None or (service := _SERVICES.get(EntityId(place.ue_id, place.version))) is None:
        return None
    module, methods, topics = service
    name = topics.get(place.resource)
    if is_request or a.type is UMessageType.RESPONSE:
        method = methods.get(place.resource)
        name = None if method is None else f"{method}{'Request' if is_request else 'Response'}"
    return None if name is None else _type(module, name)


def decoded(a: Attributes, payload: bytes) -> Message | None:
    """Decode the payload of a message; None: its type is not one of ours, or it is not of its type."""
    try:
        if a.payload_format is UPayloadFormat.PROTOBUF_WRAPPED_IN_ANY:
            wrapped = AnyProto.FromString(payload)
            kind, payload = _named(wrapped.type_url.rpartition("/")[2]), wrapped.value
        elif a.payload_format in (UPayloadFormat.PROTOBUF, UPayloadFormat.UNSPECIFIED):
            kind = type_of(a)
        else:
            kind = None
        return None if kind is None else kind.FromString(payload)
    except DecodeError:
        return None


def readable(message: Message) -> dict[str, Any]:
    """Return the fields that are set, as JSON: enumerations by name, addresses, ids and times as text."""
    return {field.name: _readable(field, value) for field, value in message.ListFields()}


def _readable(field: FieldDescriptor, value: Any) -> Any:
    match value:
        case v1.UUri():
            return str(uri_from_proto(value))
        case v1.UUID():
            return format_id(id_from_proto(value))
        case Timestamp():
            return value.ToJsonString()
        case Message():
            return readable(value)
        case bytes():
            return payload_as(value, "json")
        case str() | float():
            return value
        case int():
            names = {} if field.enum_type is None else field.enum_type.values_by_number
            return names[value].name if value in names else value
    return [_readable(field, each) for each in value]


def _named(name: str) -> type[Message] | None:
    """Return the type of ours with this full name."""
    package, _, last = name.rpartition(".")
    modules = [each for each in _MODULES if each.DESCRIPTOR.package == package]
    return _type(modules[0], last) if modules and last in modules[0].DESCRIPTOR.message_types_by_name else None


def _type(module: ModuleType, name: str) -> type[Message]:
    found: type[Message] = getattr(module, name)
    return found
