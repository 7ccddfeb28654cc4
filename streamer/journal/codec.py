"""The binary form of messages in the journal: single ones, and segments of many. Pure.

A single message is a serialized `uprotocol.v1.UMessage`, which may have its `Provenance` after the attributes. A segment has
messages that were sent and not confirmed: first the flows, each with everything that its messages have in common, then the
messages, each with the number of its flow.
"""

import json
import struct
from collections.abc import Iterator
from dataclasses import replace
from json.encoder import encode_basestring_ascii as _quoted
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from streamer.uprotocol.cache import Cache
from streamer.uprotocol.message import UNPROVEN, Attributes, Provenance, UMessage
from streamer.uprotocol.proto import stored_v1_pb2 as stored
from streamer.uprotocol.proto import uprotocol_v1_pb2 as pb
from streamer.uprotocol.protobuf import attributes_from_proto, attributes_to_proto, carried_to_proto, id_from_proto
from streamer.uprotocol.uri import everything_at

UNCHANGED = "="

_ID_BYTES: Final = 20  # of the field with the id: tag, length, two tags with 8 bytes each
_LEAST_BYTES: Final = 2 + _ID_BYTES
_NO_PAYLOAD: Final = 0xFFFF_FFFF
_COUNT = struct.Struct("<I")
_FLOW = struct.Struct("<II")
_RECORD: Final = struct.Struct("<IQQ16sI")  # flow, seq, entered_ms, id, length of the payload

_decoded: Cache[bytes, Attributes] = Cache(len)


class UnreadableError(ValueError):
    """The bytes in the journal do not have the form that this module writes."""


class PackedFlow(NamedTuple):
    """The part that messages of a segment have in common. ``outgoing``: see `sink_change`."""

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
    """Serialize one message. The part that it shares with others of its flow is serialized once."""
    rest = _pack_attributes(message.attributes)
    uuid, payload = message.id, message.payload
    head = b"\x0a%b\x0a\x12\x09%b\x11%b%b" % (_varint(_ID_BYTES + len(rest)), uuid[7::-1], uuid[:7:-1], rest)
    return head if payload is None else b"%b\x12%b%b" % (head, _varint(len(payload)), payload)


def _pack_attributes(attributes: Attributes) -> bytes:
    shared = attributes.shared
    if not shared.packed:
        shared.packed = _pack_shared(shared)
    return shared.packed if attributes is shared else shared.packed + carried_to_proto(attributes).SerializeToString()


def _pack_shared(attributes: Attributes) -> bytes:
    packed = attributes_to_proto(None, attributes).SerializeToString()
    identity, ceiling = attributes.provenance
    if attributes.provenance != UNPROVEN:
        packed += stored.Provenance(identity=identity, ceiling=ceiling).SerializeToString()
    if attributes.ttl != attributes.wire_ttl:
        packed += stored.Provenance(ttl=attributes.ttl).SerializeToString()
    return packed


def _unpack_attributes(packed: bytes) -> Attributes:
    """Reverse `_pack_attributes`; messages of a flow share the result. Raises DecodeError and ValueError."""
    try:
        return _decoded[packed]
    except KeyError:
        proto = pb.UAttributes.FromString(packed)
    if not (proto.HasField("reqid") or proto.HasField("token") or proto.HasField("traceparent")):
        return _decode_shared(packed, proto)
    reqid = id_from_proto(proto.reqid) if proto.HasField("reqid") else None
    token = proto.token if proto.HasField("token") else None
    traceparent = proto.traceparent if proto.HasField("traceparent") else None
    for carried in ("reqid", "token", "traceparent"):
        proto.ClearField(carried)
    rest = proto.SerializeToString()
    try:
        shared = _decoded[rest]
    except KeyError:
        shared = _decode_shared(rest, proto)
    return shared.carrying(reqid, token, traceparent)


def _decode_shared(packed: bytes, proto: pb.UAttributes) -> Attributes:
    """Return the attributes of a flow, with the provenance behind their fields."""
    attributes = attributes_from_proto(proto)
    kept = stored.Provenance.FromString(packed)
    if kept.HasField("ceiling"):
        identity = kept.identity if kept.HasField("identity") else None
        attributes = replace(attributes, provenance=Provenance(identity, kept.ceiling))
    if kept.HasField("ttl"):
        attributes = replace(attributes, ttl=kept.ttl)
    _decoded.remember(packed, attributes)
    return attributes


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
    """Reverse `pack`. Raises `UnreadableError`."""
    try:
        return _unpack_ours(body) or _unpack_any(body)
    except (DecodeError, ValueError) as exc:
        raise UnreadableError(f"not a message: {exc}") from exc


def _unpack_ours(body: bytes) -> UMessage | None:
    """Return a message whose fields are in the order of `pack`; None if they are not. Raises as `_unpack_attributes`."""
    if len(body) < _LEAST_BYTES:
        return None
    size, at = _read_varint(body, 1)
    start, end = at + _ID_BYTES, at + size
    if body[0] != 0x0A or not start <= end <= len(body):
        return None
    if body[at : at + 3] != b"\x0a\x12\x09" or body[at + 11] != 0x11:
        return None
    uuid = body[at + 10 : at + 2 : -1] + body[at + 19 : at + 11 : -1]
    payload = None
    if end < len(body):
        if body[end] != 0x12:
            return None
        size, at = _read_varint(body, end + 1)
        if at + size != len(body):
            return None
        payload = body[at:]
    return UMessage(uuid, _unpack_attributes(body[start:end]), payload)


def _unpack_any(body: bytes) -> UMessage:
    """Return a message with its fields in any order. Raises DecodeError and ValueError."""
    proto = pb.UMessage.FromString(body)
    uuid = id_from_proto(proto.attributes.id)
    proto.attributes.ClearField("id")
    attributes = _unpack_attributes(proto.attributes.SerializeToString())
    return UMessage(uuid, attributes, proto.payload if proto.HasField("payload") else None)


def _read_varint(body: bytes, at: int) -> tuple[int, int]:
    """Return a number of up to 64 bits, and the offset after it. Bytes beyond the end count as 0."""
    number = shift = 0
    while at < len(body) and shift < 64:
        digit = body[at]
        at += 1
        number |= (digit & 0x7F) << shift
        if digit < 0x80:
            break
        shift += 7
    return number, at


def without_payload(body: bytes) -> bytes:
    """Return a serialized message without its payload. Raises `UnreadableError`."""
    return pack(replace(unpack(body), payload=None))


def sink_change(incoming: Attributes, outgoing: Attributes) -> str:
    """Return how the streamer changed the sink: `UNCHANGED`, "" for removed, or the authority that was set."""
    if outgoing.sink == incoming.sink:
        return UNCHANGED
    return "" if outgoing.sink is None else outgoing.sink.authority


def outgoing(incoming: Attributes, change: str) -> Attributes:
    """Return the attributes to send: the received ones with a `sink_change` applied."""
    if change == UNCHANGED:
        return incoming
    return replace(incoming, sink=everything_at(change) if change else None)


def pack_flow(flow: PackedFlow) -> bytes:
    """Serialize the common part of some messages of a segment."""
    names = f"[{', '.join(map(_quoted, flow[:4]))}]".encode()  # as json.dumps writes it, in a ninth of the time
    attributes = _pack_attributes(flow.attributes)
    return _FLOW.pack(len(names), len(attributes)) + names + attributes


def pack_record(flow: int, seq: int, entered_ms: int, message: UMessage) -> tuple[bytes, bytes]:
    """Serialize one message of a segment, in two parts: its payload is not copied."""
    payload = message.payload
    if payload is None:
        return _RECORD.pack(flow, seq, entered_ms, message.id, _NO_PAYLOAD), b""
    return _RECORD.pack(flow, seq, entered_ms, message.id, len(payload)), payload


def pack_segment(flows: list[bytes], records: list[bytes]) -> bytes:
    """Join the results of `pack_flow` and `pack_record` to a segment."""
    return b"".join((_COUNT.pack(len(flows)), *flows, *records))


def start_of(flows: list[bytes]) -> int:
    """Return the offset of the first message in a segment with these flows."""
    return _COUNT.size + sum(map(len, flows))


def unpack_flows(body: bytes) -> tuple[list[PackedFlow], int]:
    """Return the flows of a segment, and the offset of its first message. Raises `UnreadableError`."""
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
            flows.append(PackedFlow(route, source, target, change, _unpack_attributes(packed)))
    except (struct.error, DecodeError, ValueError) as exc:
        raise UnreadableError(f"not a segment: {exc}") from exc
    return flows, at


def unpack_records(body: bytes, at: int) -> Iterator[PackedMessage]:
    """Yield the messages of a segment in the order in which they were sent. Raises `UnreadableError`."""
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
