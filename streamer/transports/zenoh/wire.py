"""uProtocol messages as Zenoh keys, attachments and priorities (`up-l1/zenoh.adoc`).

Pure: text and bytes in, text and bytes out. The common part of the messages of a flow is computed once per `Attributes`
(sending) or once per key, priority and fields (receiving) and cached, with the result of the check that the key belongs to
the message. Access control can restrict the keys of senders, so an address that does not match the key is forged. An address
without authority gets the key's. Messages of a flow differ in the id, which comes first, in 20 bytes of fixed layout, and in
the fields that only some messages carry (`Attributes.carrying`).

Of a sample, key, kind, priority, payload and attachment are read. Other fields say nothing about the message: encoding (the
format is in the attributes), timestamp (the time is in the id), source info, express, congestion control.
"""

from typing import Final

import zenoh
from google.protobuf.message import DecodeError

from streamer.transports.authorities import completed
from streamer.transports.errors import Malformed, MalformedPacketError, check_token, wrong_address
from streamer.transports.received import KNOWN_PAYLOAD_BYTES
from streamer.uprotocol.cache import Cache
from streamer.uprotocol.flows import Flows
from streamer.uprotocol.message import Attributes, UMessage, UMessageType, UPayloadFormat
from streamer.uprotocol.proto import uprotocol_v1_pb2 as pb
from streamer.uprotocol.protobuf import attributes_from_proto, attributes_to_proto, carried_to_proto, id_from_proto
from streamer.uprotocol.uri import ANY_AUTHORITY, ANY_INSTANCE, ANY_RESOURCE, ANY_TYPE, ANY_VERSION, UUri
from streamer.uprotocol.uuid import UuidError, check_id

ATTACHMENT_VERSION = 1
NO_SINK = "{}/{}/{}/{}/{}"

PRIORITIES = ("BACKGROUND", "DATA_LOW", "DATA", "DATA_HIGH", "INTERACTIVE_LOW", "INTERACTIVE_HIGH", "REAL_TIME")
"""Zenoh's name for each priority class, CS0 to CS6."""

_PUT: Final = zenoh.SampleKind.PUT
_LOWEST_PRIORITY = 7  # Zenoh's number for BACKGROUND; REAL_TIME is 1

# The marker, then field 1 of UAttributes (18 bytes long) with field 1 of UUID (fixed64); field 2 of UUID follows.
_HEAD: Final = b"\x01\x0a\x12\x09"
_LSB_TAG = 0x11
_REST = 21  # where the fields after the id begin
_SOURCE_AT, _SINK_AT = 1, 6
"""The indexes of the authorities among a key's segments."""
_TOKEN_FIELD = 10
_FIXED_KINDS = {1: 8, 5: 4}
"""Protobuf's wire types of fixed length."""

Arrived = tuple[str, int, bytes]
"""The common part of the received messages of one flow: key, priority class, fields after the id."""


def key_for(attributes: Attributes, own_authority: str) -> str:
    """Return the key on which to put a message. ``own_authority`` replaces an empty authority."""
    sink = None if attributes.type is UMessageType.PUBLISH else attributes.sink
    return key_filter(attributes.source, sink, own_authority)


def key_filter(source_filter: UUri, sink_filter: UUri | None, own_authority: str) -> str:
    """Return the key expression that covers a listener's filter; wildcards become ``*``."""
    sink = NO_SINK if sink_filter is None else _segments(sink_filter, own_authority)
    return f"up/{_segments(source_filter, own_authority)}/{sink}"


def narrowed(source_filter: UUri, sink_filter: UUri | None) -> tuple[tuple[UUri, UUri | None], ...]:
    """Return filters that together match the same as a listener's filter, and whose keys match no unwanted Publish.

    In a key, a ``*`` for the sink's authority also matches the mark for "no sink", so a listener for messages to all
    authorities would receive every Publish, too. But a Request comes from resource 0, and a Response or Notification goes to
    resource 0.
    """
    if (
        sink_filter is None
        or sink_filter.authority != ANY_AUTHORITY
        or not source_filter.resource == sink_filter.resource == ANY_RESOURCE
    ):
        return ((source_filter, sink_filter),)
    return ((source_filter._replace(resource=0), sink_filter), (source_filter, sink_filter._replace(resource=0)))


def _segments(uri: UUri, own_authority: str) -> str:
    type_id, instance_id = _segment(uri.type_id, ANY_TYPE), _segment(uri.instance_id, ANY_INSTANCE)
    version, resource = _segment(uri.version, ANY_VERSION), _segment(uri.resource, ANY_RESOURCE)
    return f"{uri.authority or own_authority}/{type_id}/{instance_id}/{version}/{resource}"


def _segment(number: int, wild: int) -> str:
    return "*" if number == wild else f"{number:X}"


def encode_attachment(message: UMessage) -> bytes:
    """Return the attachment of a valid message: the version byte and its serialized UAttributes.

    A Publish is sent without the sink that a streamer may have set, because Rust receivers refuse a Publish with a sink.
    """
    attributes, uuid = message.attributes, message.id
    shared = attributes.shared
    rest = shared.attachment or _encode(shared)
    if attributes is not shared:
        rest += carried_to_proto(attributes).SerializeToString()
    return b"%b%b\x11%b%b" % (_HEAD, uuid[7::-1], uuid[:7:-1], rest)


def _encode(shared: Attributes) -> bytes:
    proto = attributes_to_proto(None, shared)
    if shared.type is UMessageType.PUBLISH:
        proto.ClearField("sink")
    shared.attachment = proto.SerializeToString()
    return shared.attachment


def sample_bytes(message: UMessage) -> int:
    """Return the size of a message that was encoded: its payload and its attachment."""
    attributes = message.attributes
    size = _REST + len(attributes.shared.attachment) + message.payload_bytes
    if attributes.extra_bytes or attributes.reqid is not None:
        size += carried_to_proto(attributes).ByteSize()
    return size


class SampleDecoder:
    """Decodes the samples of one endpoint, which has ``flows``; ``own_authority`` is the endpoint's own.

    ``last_bytes``: the size of the last sample, with its attachment.
    """

    def __init__(self, own_authority: str, max_header_bytes: int, max_token_bytes: int, flows: Flows) -> None:
        self._own_authority = own_authority
        self._max_header_bytes = max_header_bytes
        self._max_token_bytes = max_token_bytes
        self._known: Cache[Arrived, Attributes] = Cache(_bytes_of)
        self._flows = flows
        self.last_bytes = 0

    def message_of(self, sample: zenoh.Sample) -> UMessage:
        """Return the message in a sample. Raises `MalformedPacketError`."""
        attachment, payload = sample.attachment, sample.payload.to_bytes()
        if not payload and sample.kind != _PUT:  # a DELETE has no payload
            raise MalformedPacketError(Malformed.KIND, f"on {str(sample.key_expr)[:300]!r}: a DELETE; expected a PUT")
        attached = None if attachment is None else attachment.to_bytes()
        self.last_bytes = len(payload) + (0 if attached is None else len(attached))
        return self.decode(
            str(sample.key_expr),
            _LOWEST_PRIORITY - int(sample.priority),  # type: ignore[call-overload]  # it has int(), not in the stubs
            payload,
            attached,
        )

    def part_of(self, sample: zenoh.Sample) -> tuple[UMessage, int]:
        """Return the readable part of a message whose attributes are too large, and the length of its payload.

        The part has the first attributes, without the token, and the beginning of the payload. Raises
        `MalformedPacketError`.
        """
        attachment, payload = sample.attachment, sample.payload.to_bytes()
        message = self.decode(
            str(sample.key_expr),
            _LOWEST_PRIORITY - int(sample.priority),  # type: ignore[call-overload]
            payload[:KNOWN_PAYLOAD_BYTES],
            None if attachment is None else _first_fields(attachment.to_bytes()[: self._max_header_bytes]),
        )
        return message, len(payload)

    def decode(self, key: str, level: int, payload: bytes, attachment: bytes | None) -> UMessage:
        """Return the message of a sample. Raises `MalformedPacketError`; the rules per message type are not checked here.

        ``level``: the priority class of the sample, 0 to 6, which is the ceiling of the message.
        """
        if attachment is None:
            raise MalformedPacketError(Malformed.MARKER, "no attachment")
        if len(attachment) > self._max_header_bytes:
            detail = f"an attachment of {len(attachment)} bytes, more than max_header_bytes {self._max_header_bytes}"
            raise MalformedPacketError(Malformed.HEADER, detail)
        attributes = None
        if attachment[:4] == _HEAD and len(attachment) > _REST and attachment[12] == _LSB_TAG:
            uuid = attachment[11:3:-1] + attachment[20:12:-1]
            if uuid[6] >> 4 != 7 or uuid[8] >> 6 != 0b10:
                raise MalformedPacketError(Malformed.ID, f"{uuid.hex()}: expected a UUIDv7")
            rest = attachment[_REST:]
            attributes = self._known.get((key, level, rest)) or self._read(key, level, rest)
        if attributes is None:
            uuid, proto = _parse_whole(attachment)
            attributes = self._with_carried(key, level, None, proto)
        # Zenoh does not distinguish "no payload" from an empty one. A format comes only with a payload.
        if not payload and attributes.payload_format is UPayloadFormat.UNSPECIFIED:
            return UMessage(uuid, attributes, None)
        return UMessage(uuid, attributes, payload)

    def _read(self, key: str, level: int, rest: bytes) -> Attributes | None:
        """Return the attributes in the fields after the id; None if a second id is among them, which would override it."""
        proto = _parse(rest)
        return None if proto.HasField("id") else self._with_carried(key, level, rest, proto)

    def _with_carried(self, key: str, level: int, rest: bytes | None, proto: pb.UAttributes) -> Attributes:
        """Return the attributes of a sample that has carried attributes, or whose flow is not cached.

        ``rest`` are the bytes of ``proto``, if they are known.
        """
        reqid = id_from_proto(proto.reqid) if proto.HasField("reqid") else None
        token = proto.token if proto.HasField("token") else None
        traceparent = proto.traceparent if proto.HasField("traceparent") else None
        if token is not None:
            check_token(token, self._max_token_bytes)
        if rest is None or reqid is not None or token is not None or traceparent is not None:
            for name in ("id", "reqid", "token", "traceparent"):
                proto.ClearField(name)
            rest = proto.SerializeToString()
        arrived = (key, level, rest)
        try:
            shared = self._known[arrived]
        except KeyError:
            shared = self._learn(arrived, proto)
        return shared.carrying(reqid, token, traceparent)

    def _learn(self, arrived: Arrived, proto: pb.UAttributes) -> Attributes:
        key, level, _ = arrived
        if "*" in key:
            raise wildcards_in(key)
        attributes = _attributes(proto)
        if not self._agrees(attributes, key):
            raise wrong_address(attributes.source, attributes.sink, key)
        segments = key.split("/")
        attributes = completed(attributes, segments[_SOURCE_AT], segments[_SINK_AT])
        if level < attributes.priority_class:
            attributes = attributes.below(level)
        attributes = self._flows.of(attributes)
        self._known.remember(arrived, attributes)
        return attributes

    def _agrees(self, attributes: Attributes, key: str) -> bool:
        """Return whether a message may be on a key. An address without authority is local to the sender, or to us."""
        sender = key.split("/", 2)[1] if "/" in key else ""
        return key in (key_for(attributes, sender), key_for(attributes, self._own_authority))


def wildcards_in(key: str) -> MalformedPacketError:
    """Return the error for a sample on a key with wildcards, which Zenoh gives to all matching subscriptions."""
    return MalformedPacketError(Malformed.ADDRESS, f"on {key[:300]!r}: expected a key without wildcards")


def _bytes_of(arrived: Arrived) -> int:
    key, _, rest = arrived
    return len(key) + len(rest)


def _first_fields(attachment: bytes) -> bytes:
    """Return the complete fields in the beginning of an attachment, parsed as protobuf, without the token."""
    kept = bytearray(attachment[:1])
    at = 1
    while at < len(attachment):
        tag, after = _varint(attachment, at)
        kind = tag & 7
        if kind == 0:
            _, after = _varint(attachment, after)
        elif kind == 2:
            size, after = _varint(attachment, after)
            after += size
        elif kind in _FIXED_KINDS:
            after += _FIXED_KINDS[kind]
        else:
            break
        if after > len(attachment):
            break
        if tag >> 3 != _TOKEN_FIELD:
            kept += attachment[at:after]
        at = after
    return bytes(kept)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number, and the offset behind it, which is beyond the data if the number is incomplete."""
    value = 0
    for shift in range(0, 64, 7):
        if at >= len(data):
            break
        digit = data[at]
        at += 1
        value |= (digit & 0x7F) << shift
        if digit < 0x80:
            return value, at
    return 0, len(data) + 1


def _parse_whole(attachment: bytes) -> tuple[bytes, pb.UAttributes]:
    """Parse an attachment whose fields are in any order and form that protobuf allows."""
    if attachment[:1] != bytes((ATTACHMENT_VERSION,)):
        raise MalformedPacketError(Malformed.VERSION, f"attachment begins with {attachment[:1].hex() or 'nothing'}")
    if len(attachment) == 1:
        raise MalformedPacketError(Malformed.ATTACHMENT, "no attributes")
    proto = _parse(attachment[1:])
    if not proto.HasField("id"):
        raise MalformedPacketError(Malformed.ID, "missing")
    try:
        uuid = check_id(id_from_proto(proto.id))
    except UuidError as exc:
        raise MalformedPacketError(Malformed.ID, str(exc)) from exc
    return uuid, proto


def _parse(data: bytes) -> pb.UAttributes:
    try:
        return pb.UAttributes.FromString(data)
    except DecodeError as exc:
        raise MalformedPacketError(Malformed.ATTACHMENT, "the attributes are not valid protobuf") from exc


def _attributes(proto: pb.UAttributes) -> Attributes:
    if not proto.HasField("source"):
        raise MalformedPacketError(Malformed.URI, "source: missing")
    try:
        attributes = attributes_from_proto(proto)
    except ValueError as exc:
        raise MalformedPacketError(Malformed.CODE, str(exc)) from exc
    for name, uri in (("source", attributes.source), ("sink", attributes.sink)):
        try:
            if uri is not None:
                uri.check()
        except ValueError as exc:
            raise MalformedPacketError(Malformed.URI, f"{name}: {exc}") from exc
    return attributes
