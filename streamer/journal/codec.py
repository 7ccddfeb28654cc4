"""The binary form of messages in the journal: single ones, and segments of many. Pure.

A single message is a serialized `uprotocol.v1.UMessage`, which may have its `Provenance` after the attributes. A segment has
messages that were sent and not confirmed: first the flows, each with everything that its messages have in common, then the
messages, each with the number of its flow.
"""

import json
import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from streamer.uprotocol.cache import Cache
from streamer.uprotocol.message import UNPROVEN, Attributes, Provenance, UMessage
from streamer.uprotocol.proto import stored_v1_pb2 as stored
from streamer.uprotocol.proto import uprotocol_v1_pb2 as pb
from streamer.uprotocol.protobuf import attributes_from_proto, attributes_to_proto, carried_to_proto, message_from_proto
from streamer.uprotocol.uri import everything_at

UNCHANGED = "="

_ID_BYTES: Final = 20  # of the field with the id: tag, length, two tags with 8 bytes each
_NO_PAYLOAD: Final = 0xFFFF_FFFF
_COUNT = struct.Struct("<I")
_FLOW = struct.Struct("<II")
_RECORD: Final = struct.Struct("<IQQ16sI")  # flow, seq, entered_ms, id, length of the payload

_encoded: Cache[Attributes, bytes] = Cache()
_routes: Cache[tuple[str, str, str, str], bytes] = Cache()


class UnreadableError(ValueError):
    """The bytes in the journal do not have the form that we write."""


class PackedFlow(NamedTuple):
    """What messages of a segment have in common. ``outgoing``: see `sink_change`."""

    route: str
    source: str
    target: str
    outgoing: str
    attributes: Attributes


class PackedMessage(NamedTuple):
    """One message of a segment; ``flow`` is the index of its flow."""

    flow: int
    seq: int
    entered_ms: int
    id: bytes
    payload: bytes | None


def pack(message: UMessage) -> bytes:
    """Serialize one message. What it shares with others of its flow is serialized once."""
    rest = _pack_attributes(message.attributes)
    uuid, payload = message.id, message.payload
    head = b"\x0a%b\x0a\x12\x09%b\x11%b%b" % (_varint(_ID_BYTES + len(rest)), uuid[7::-1], uuid[:7:-1], rest)
    return head if payload is None else b"%b\x12%b%b" % (head, _varint(len(payload)), payload)


def _pack_attributes(attributes: Attributes) -> bytes:
    shared = attributes.shared
    try:
        packed = _encoded[shared]
    except KeyError:
        packed = _pack_shared(shared)
        _encoded.remember(shared, packed)
    return packed if attributes is shared else packed + carried_to_proto(attributes).SerializeToString()


def _pack_shared(attributes: Attributes) -> bytes:
    packed = attributes_to_proto(None, attributes).SerializeToString()
    identity, ceiling = attributes.provenance
    if attributes.provenance == UNPROVEN:
        return packed
    return packed + stored.Provenance(identity=identity, ceiling=ceiling).SerializeToString()


def _with_provenance(attributes: Attributes, packed: bytes) -> Attributes:
    """The attributes with what was kept behind their fields."""
    kept = stored.Provenance.FromString(packed)
    if not kept.HasField("ceiling"):
        return attributes
    identity = kept.identity if kept.HasField("identity") else None
    return replace(attributes, provenance=Provenance(identity, kept.ceiling))


def _varint(number: int) -> bytes:
    if number < 0x80:
        return bytes((number,))
    digits = bytearray()
    while number >= 0x80:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)


def unpack(body: bytes) -> UMessage:
    """The opposite of `pack`. Raises `UnreadableError`."""
    try:
        proto = pb.UMessage.FromString(body)
        message = message_from_proto(proto)
        attributes = _with_provenance(message.attributes, proto.attributes.SerializeToString())
    except (DecodeError, ValueError) as exc:
        raise UnreadableError(f"not a message: {exc}") from exc
    return replace(message, attributes=attributes)


def without_payload(body: bytes) -> bytes:
    """The same message without its payload. Raises `UnreadableError`."""
    return pack(replace(unpack(body), payload=None))


def sink_change(incoming: Attributes, outgoing: Attributes) -> str:
    """How the streamer changed the sink: `UNCHANGED`, empty for removed, or the authority to which it was set."""
    if outgoing.sink == incoming.sink:
        return UNCHANGED
    return "" if outgoing.sink is None else outgoing.sink.authority


def outgoing(incoming: Attributes, change: str) -> Attributes:
    """The attributes that are sent, by a `sink_change`."""
    if change == UNCHANGED:
        return incoming
    return replace(incoming, sink=everything_at(change) if change else None)


def pack_flow(flow: PackedFlow) -> bytes:
    """Serialize the common part of some messages of a segment."""
    route = flow[:4]
    try:
        names = _routes[route]
    except KeyError:
        names = json.dumps(route).encode()
        _routes.remember(route, names)
    attributes = _pack_attributes(flow.attributes)
    return _FLOW.pack(len(names), len(attributes)) + names + attributes


def pack_record(flow: int, seq: int, entered_ms: int, message: UMessage) -> tuple[bytes, bytes]:
    """Serialize one message of a segment, in two parts: its payload is not copied."""
    payload = message.payload
    if payload is None:
        return _RECORD.pack(flow, seq, entered_ms, message.id, _NO_PAYLOAD), b""
    return _RECORD.pack(flow, seq, entered_ms, message.id, len(payload)), payload


def pack_segment(flows: list[bytes], records: list[bytes]) -> bytes:
    """A whole segment, from the results of `pack_flow` and `pack_record`."""
    return b"".join((_COUNT.pack(len(flows)), *flows, *records))


def start_of(flows: list[bytes]) -> int:
    """The offset of the first message in a segment with these flows."""
    return _COUNT.size + sum(map(len, flows))


def unpack_flows(body: bytes) -> tuple[list[PackedFlow], int]:
    """The flows of a segment, and the offset of its first message. Raises `UnreadableError`."""
    try:
        (count,) = _COUNT.unpack_from(body)
        at = _COUNT.size
        flows = []
        for _ in range(count):
            names, attributes = _FLOW.unpack_from(body, at)
            at += _FLOW.size
            route, source, target, change = json.loads(body[at : at + names])
            at += names
            packed = body[at : at + attributes]
            at += attributes
            read = _with_provenance(attributes_from_proto(pb.UAttributes.FromString(packed)), packed)
            flows.append(PackedFlow(route, source, target, change, read))
    except (struct.error, DecodeError, ValueError) as exc:
        raise UnreadableError(f"not a segment: {exc}") from exc
    return flows, at


def unpack_records(body: bytes, at: int) -> Iterator[PackedMessage]:
    """The messages of a segment, in the order in which they were sent. Raises `UnreadableError`."""
    while at < len(body):
        try:
            flow, seq, entered_ms, uuid, length = _RECORD.unpack_from(body, at)
        except struct.error as exc:
            raise UnreadableError(f"torn segment: {exc}") from exc
        at += _RECORD.size
        payload = None
        if length != _NO_PAYLOAD:
            payload = body[at : at + length]
            at += length
        yield PackedMessage(flow, seq, entered_ms, uuid, payload)
