"""uProtocol messages as Zenoh keys, attachments and priorities (`up-l1/zenoh.adoc`).

Pure: text and bytes in, text and bytes out. What all messages of a flow have in common is computed once per `Attributes`
and remembered. Only the id differs, which comes first, in 20 bytes of fixed layout.
"""

from google.protobuf.message import DecodeError

from streamer.transports.errors import Malformed, MalformedPacketError
from streamer.uprotocol.message import Attributes, UMessage, UMessageType, UPayloadFormat
from streamer.uprotocol.proto import uprotocol_v1_pb2 as pb
from streamer.uprotocol.protobuf import attributes_from_proto, attributes_to_proto, id_from_proto
from streamer.uprotocol.uri import ANY_AUTHORITY, ANY_INSTANCE, ANY_RESOURCE, ANY_TYPE, ANY_VERSION, UUri
from streamer.uprotocol.uuid import UuidError, check_id

ATTACHMENT_VERSION = 1
NO_SINK = "{}/{}/{}/{}/{}"

PRIORITIES = ("BACKGROUND", "DATA_LOW", "DATA", "DATA_HIGH", "INTERACTIVE_LOW", "INTERACTIVE_HIGH", "REAL_TIME")
"""Zenoh's name for each priority class, CS0 to CS6."""

# The marker, then field 1 of UAttributes (18 bytes long) with field 1 of UUID (fixed64); field 2 of UUID follows.
_HEAD = b"\x01\x0a\x12\x09"
_LSB_TAG = 0x11
_REST = 21  # where the fields after the id begin

_CACHE_SIZE = 8192
_encoded: dict[Attributes, bytes] = {}
_decoded: dict[bytes, Attributes] = {}


def key_for(attributes: Attributes, own_authority: str) -> str:
    """The key to put a message on. ``own_authority`` stands in for an empty one."""
    sink = None if attributes.type is UMessageType.PUBLISH else attributes.sink
    return key_filter(attributes.source, sink, own_authority)


def key_filter(source_filter: UUri, sink_filter: UUri | None, own_authority: str) -> str:
    """The key expression that covers a listener's filter; wildcards become ``*``."""
    sink = NO_SINK if sink_filter is None else _segments(sink_filter, own_authority)
    return f"up/{_segments(source_filter, own_authority)}/{sink}"


def narrowed(source_filter: UUri, sink_filter: UUri | None) -> tuple[tuple[UUri, UUri | None], ...]:
    """Filters that together match the same as a listener's filter, with keys that match a Publish only if it is meant.

    In a key, a ``*`` in the place of the sink's authority also matches the mark for "no sink". A listener for messages to
    everybody would therefore receive every Publish too. But a Request comes from resource 0, and a Response or Notification
    goes to resource 0.
    """
    if (
        sink_filter is None
        or sink_filter.authority != ANY_AUTHORITY
        or not source_filter.resource == sink_filter.resource == ANY_RESOURCE
    ):
        return ((source_filter, sink_filter),)
    return ((source_filter._replace(resource=0), sink_filter), (source_filter, sink_filter._replace(resource=0)))


def _segments(uri: UUri, own_authority: str) -> str:
    numbers = (
        (uri.type_id, ANY_TYPE),
        (uri.instance_id, ANY_INSTANCE),
        (uri.version, ANY_VERSION),
        (uri.resource, ANY_RESOURCE),
    )
    return "/".join((uri.authority or own_authority, *("*" if n == wild else f"{n:X}" for n, wild in numbers)))


def encode_attachment(message: UMessage) -> bytes:
    """The attachment of a valid message: the version byte and its serialized UAttributes.

    A Publish is sent without the sink that a streamer may have set, because Rust receivers refuse a Publish that has one.
    """
    attributes = message.attributes
    rest = _encoded.get(attributes)
    if rest is None:
        proto = attributes_to_proto(None, attributes)
        if attributes.type is UMessageType.PUBLISH:
            proto.ClearField("sink")
        rest = proto.SerializeToString()
        if attributes.is_shared:
            if len(_encoded) >= _CACHE_SIZE:
                _encoded.clear()
            _encoded[attributes] = rest
    uuid = message.id
    return b"%b%b\x11%b%b" % (_HEAD, uuid[7::-1], uuid[:7:-1], rest)


def decode(payload: bytes, attachment: bytes | None) -> UMessage:
    """A message from a sample. Raises `MalformedPacketError`; the rules per message type are not checked here."""
    if attachment is None:
        raise MalformedPacketError(Malformed.MARKER, "no attachment")
    if attachment[:4] == _HEAD and len(attachment) > _REST and attachment[12] == _LSB_TAG:
        uuid = attachment[11:3:-1] + attachment[20:12:-1]
        if uuid[6] >> 4 != 7 or uuid[8] >> 6 != 0b10:
            raise MalformedPacketError(Malformed.ID, f"{uuid.hex()}: expected a UUIDv7")
        attributes = _decoded.get(attachment[_REST:]) or _decode_rest(attachment[_REST:])
        if attributes is None:
            uuid, attributes = _decode_slowly(attachment)
    else:
        uuid, attributes = _decode_slowly(attachment)
    # Zenoh does not distinguish "no payload" from an empty one. A format comes only with a payload.
    if not payload and attributes.payload_format is UPayloadFormat.UNSPECIFIED:
        return UMessage(uuid, attributes, None)
    return UMessage(uuid, attributes, payload)


def _decode_rest(rest: bytes) -> Attributes | None:
    """The fields after the id. None if a second id is among them, which would override the first."""
    proto = _parse(rest)
    if proto.HasField("id"):
        return None
    attributes = _attributes(proto)
    if attributes.is_shared:
        if len(_decoded) >= _CACHE_SIZE:
            _decoded.clear()
        _decoded[rest] = attributes
    return attributes


def _decode_slowly(attachment: bytes) -> tuple[bytes, Attributes]:
    """Decode an attachment whose fields are in any order and form that protobuf allows."""
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
    return uuid, _attributes(proto)


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
