"""Messages to protobuf and back: nothing is lost, nothing is added."""

import pytest
from hypothesis import given

from streamer.uprotocol.message import Attributes, UMessage, UMessageType
from streamer.uprotocol.proto import uprotocol_v1_pb2 as pb
from streamer.uprotocol.protobuf import (
    attributes_from_proto,
    attributes_to_proto,
    id_from_proto,
    id_to_proto,
    message_from_proto,
    message_to_proto,
    status_to_proto,
    uri_from_proto,
    uri_to_proto,
)
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from tests.unit.uprotocol.strategies import attributes, ids, messages, patterns


@given(messages)
def test_message_survives_the_wire(message: UMessage) -> None:
    assert message_from_proto(pb.UMessage.FromString(message_to_proto(message).SerializeToString())) == message


@given(attributes)
def test_attributes_without_id_survive_and_carry_none(a: Attributes) -> None:
    proto = pb.UAttributes.FromString(attributes_to_proto(None, a).SerializeToString())
    assert not proto.HasField("id")
    assert attributes_from_proto(proto) == a


@given(patterns)
def test_uri_survives(uri: UUri) -> None:
    assert uri_from_proto(pb.UUri.FromString(uri_to_proto(uri).SerializeToString())) == uri


@given(ids)
def test_id_is_two_halves_big_endian(uuid: bytes) -> None:
    proto = id_to_proto(uuid)
    assert (proto.msb, proto.lsb) == (int.from_bytes(uuid[:8], "big"), int.from_bytes(uuid[8:], "big"))
    assert id_from_proto(proto) == uuid


def test_absent_is_not_the_same_as_zero_or_empty() -> None:
    bare = Attributes(UMessageType.PUBLISH, UUri("veh1", 1, 1, 0x8000))
    zero = Attributes(
        UMessageType.PUBLISH, UUri("veh1", 1, 1, 0x8000), ttl=0, permission_level=0, commstatus=UCode.OK, token=""
    )
    assert attributes_to_proto(None, bare) != attributes_to_proto(None, zero)
    for a in (bare, zero):
        assert attributes_from_proto(attributes_to_proto(None, a)) == a
    uuid = bytes.fromhex("018bcfe5687f70008000000000000000")
    assert message_from_proto(message_to_proto(UMessage(uuid, bare, b""))).payload == b""
    assert message_from_proto(message_to_proto(UMessage(uuid, bare, None))).payload is None


@pytest.mark.parametrize("field", ["type", "priority", "commstatus", "payload_format"])
def test_number_that_no_enum_has_is_a_value_error(field: str) -> None:
    proto = pb.UAttributes(type=pb.UMESSAGE_TYPE_PUBLISH, source=uri_to_proto(UUri("veh1", 1, 1, 0x8000)))
    assert attributes_from_proto(proto).type is UMessageType.PUBLISH
    setattr(proto, field, 99)
    with pytest.raises(ValueError, match="99"):
        attributes_from_proto(pb.UAttributes.FromString(proto.SerializeToString()))


@pytest.mark.parametrize("code", UCode)
def test_status_carries_code_and_message(code: UCode) -> None:
    status = pb.UStatus.FromString(status_to_proto(code, "why").SerializeToString())
    assert (status.code, status.message) == (code, "why")
