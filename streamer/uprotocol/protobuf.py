"""Translates between `UMessage` and the protobuf messages of package `uprotocol.v1`."""

from streamer.uprotocol.message import Attributes, UMessage, UMessageType, UPayloadFormat, UPriority
from streamer.uprotocol.proto import uprotocol_v1_pb2 as pb
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri


def uri_to_proto(uri: UUri) -> pb.UUri:
    """Convert a `UUri` to protobuf."""
    return pb.UUri(authority_name=uri.authority, ue_id=uri.ue_id, ue_version_major=uri.version, resource_id=uri.resource)


def uri_from_proto(uri: pb.UUri) -> UUri:
    """Convert a `UUri` from protobuf; fields are not checked."""
    return UUri(uri.authority_name, uri.ue_id, uri.ue_version_major, uri.resource_id)


def id_to_proto(uuid: bytes) -> pb.UUID:
    """Convert the 16 bytes of an id to two 64-bit halves."""
    return pb.UUID(msb=int.from_bytes(uuid[:8], "big"), lsb=int.from_bytes(uuid[8:], "big"))


def id_from_proto(uuid: pb.UUID) -> bytes:
    """Convert two 64-bit halves to the 16 bytes of an id."""
    return uuid.msb.to_bytes(8, "big") + uuid.lsb.to_bytes(8, "big")


def attributes_to_proto(uuid: bytes | None, a: Attributes) -> pb.UAttributes:
    """Convert attributes to UAttributes, without an id if ``uuid`` is None. Absent attributes stay absent."""
    # The generated stubs want the generated enum types; any int of the enum is what the runtime takes.
    return pb.UAttributes(
        id=None if uuid is None else id_to_proto(uuid),
        type=int(a.type),  # type: ignore[arg-type]
        source=uri_to_proto(a.source),
        sink=None if a.sink is None else uri_to_proto(a.sink),
        priority=int(a.priority),  # type: ignore[arg-type]
        ttl=a.wire_ttl,
        permission_level=a.permission_level,
        commstatus=None if a.commstatus is None else int(a.commstatus),  # type: ignore[arg-type]
        reqid=None if a.reqid is None else id_to_proto(a.reqid),
        token=a.token,
        traceparent=a.traceparent,
        payload_format=int(a.payload_format),  # type: ignore[arg-type]
    )


def carried_to_proto(a: Attributes) -> pb.UAttributes:
    """Convert only the carried attributes. Their bytes are appended to those of the shared ones (`Attributes.shared`)."""
    return pb.UAttributes(reqid=None if a.reqid is None else id_to_proto(a.reqid), token=a.token, traceparent=a.traceparent)


def attributes_from_proto(p: pb.UAttributes) -> Attributes:
    """Convert `Attributes` from protobuf. Raises ValueError for an enum number that is not in the specification."""
    return Attributes(
        type=UMessageType(p.type),
        source=uri_from_proto(p.source),
        sink=uri_from_proto(p.sink) if p.HasField("sink") else None,
        priority=UPriority(p.priority),
        ttl=p.ttl if p.HasField("ttl") else None,
        permission_level=p.permission_level if p.HasField("permission_level") else None,
        commstatus=UCode(p.commstatus) if p.HasField("commstatus") else None,
        reqid=id_from_proto(p.reqid) if p.HasField("reqid") else None,
        token=p.token if p.HasField("token") else None,
        traceparent=p.traceparent if p.HasField("traceparent") else None,
        payload_format=UPayloadFormat(p.payload_format),
    )


def message_to_proto(message: UMessage) -> pb.UMessage:
    """Convert a message to protobuf."""
    return pb.UMessage(attributes=attributes_to_proto(message.id, message.attributes), payload=message.payload)


def message_from_proto(p: pb.UMessage) -> UMessage:
    """Convert a message from protobuf; fields are not checked. Raises ValueError for unknown enum numbers."""
    return UMessage(
        id_from_proto(p.attributes.id), attributes_from_proto(p.attributes), p.payload if p.HasField("payload") else None
    )


def status_to_proto(code: UCode, message: str) -> pb.UStatus:
    """Build a UStatus with a message for people."""
    return pb.UStatus(code=int(code), message=message)  # type: ignore[arg-type]  # see attributes_to_proto
