"""Zenoh keys and attachments, checked against plain protobuf."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.transports.errors import Malformed, MalformedPacketError
from streamer.transports.zenoh.wire import NO_SINK, PRIORITIES, Decoder, encode_attachment, key_filter, key_for
from streamer.uprotocol.message import Attributes, UMessage, UMessageType, UPayloadFormat, UPriority
from streamer.uprotocol.proto import uprotocol_v1_pb2 as pb
from streamer.uprotocol.protobuf import attributes_to_proto
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri, everything_at
from streamer.uprotocol.uuid import check_id, new_id

TOPIC = UUri.parse("//veh1/A8000/2/8A50")
PUBLISH = Attributes(UMessageType.PUBLISH, TOPIC)
ID = new_id(1_700_000_000_000)
OWN = "gateway"
DECODER = Decoder(OWN, max_header_bytes=8192, max_token_bytes=1024)

uuids = st.binary(min_size=16, max_size=16).map(
    lambda raw: raw[:6] + bytes((0x70 | raw[6] & 0x0F, raw[7], 0x80 | raw[8] & 0x3F)) + raw[9:]
)
uint32 = st.integers(0, 0xFFFF_FFFF)
uris = st.builds(
    UUri,
    st.from_regex(r"[a-z0-9\-._~]{1,20}", fullmatch=True),
    uint32,
    st.integers(0, 0xFF),
    st.integers(0, 0xFFFF),
)
text = st.text(max_size=20)
any_attributes = st.builds(
    Attributes,
    type=st.sampled_from(UMessageType),
    source=uris,
    sink=st.none() | uris,
    priority=st.sampled_from(UPriority),
    ttl=st.none() | uint32,
    permission_level=st.none() | uint32,
    commstatus=st.none() | st.sampled_from(UCode),
    reqid=st.none() | uuids,
    token=st.none() | text,
    traceparent=st.none() | text,
    payload_format=st.sampled_from(UPayloadFormat),
)


def without_publish_sink(attributes: Attributes) -> Attributes:
    return replace(attributes, sink=None) if attributes.type is UMessageType.PUBLISH else attributes


def attachment_of(proto: pb.UAttributes) -> bytes:
    return b"\x01" + proto.SerializeToString()


def decode(payload: bytes, attachment: bytes | None, attributes: Attributes = PUBLISH) -> UMessage:
    """Decode on the key of a message with these attributes, sent with the highest priority."""
    return DECODER.decode(key_for(attributes, OWN), 6, payload, attachment)


def refusal(attachment: bytes | None, key: str = key_for(PUBLISH, "")) -> Malformed:
    with pytest.raises(MalformedPacketError) as caught:
        DECODER.decode(key, 6, b"payload", attachment)
    return caught.value.reason


# -- keys


def test_key_of_a_request_is_that_of_the_specification() -> None:
    source, sink = UUri.parse("up://device1/403BA/3/0"), UUri.parse("up://device2/CD/4/B")
    attributes = Attributes(UMessageType.REQUEST, source, sink, UPriority.CS4, ttl=1000)
    assert key_for(attributes, "gateway") == "up/device1/3BA/4/3/0/device2/CD/0/4/B"


def test_key_of_a_publish_ends_in_braces() -> None:
    assert key_for(PUBLISH, "gateway") == f"up/veh1/8000/A/2/8A50/{NO_SINK}"


def test_key_of_a_publish_leaves_out_the_sink_that_a_streamer_set() -> None:
    assert key_for(replace(PUBLISH, sink=everything_at("cloud")), "gateway") == key_for(PUBLISH, "gateway")


def test_empty_authority_becomes_our_own() -> None:
    attributes = Attributes(UMessageType.PUBLISH, UUri("", 0x3BA, 3, 0x9876))
    assert key_for(attributes, "gateway") == f"up/gateway/3BA/0/3/9876/{NO_SINK}"


def test_wildcards_become_stars_segment_by_segment() -> None:
    assert key_filter(everything_at("*"), everything_at("veh1"), "gateway") == "up/*/*/*/*/*/veh1/*/*/*/*"
    assert key_filter(UUri("veh1", 0xFFFF, 0xFF, 0x8000), None, "gateway") == f"up/veh1/*/0/*/8000/{NO_SINK}"
    assert key_filter(UUri("veh1", 0xFFFF_0123, 1, 0xFFFF), None, "gateway") == f"up/veh1/123/*/1/*/{NO_SINK}"


def test_there_is_one_zenoh_priority_for_each_class() -> None:
    names = {p: PRIORITIES[replace(PUBLISH, priority=p).priority_class] for p in UPriority}
    assert names == {
        UPriority.UNSPECIFIED: "DATA_LOW",
        UPriority.CS0: "BACKGROUND",
        UPriority.CS1: "DATA_LOW",
        UPriority.CS2: "DATA",
        UPriority.CS3: "DATA_HIGH",
        UPriority.CS4: "INTERACTIVE_LOW",
        UPriority.CS5: "INTERACTIVE_HIGH",
        UPriority.CS6: "REAL_TIME",
    }


# -- attachment


@given(uuids, any_attributes)
def test_attachment_parses_to_what_protobuf_itself_writes(uuid: bytes, attributes: Attributes) -> None:
    attachment = encode_attachment(UMessage(uuid, attributes))
    assert attachment[0] == 1
    assert pb.UAttributes.FromString(attachment[1:]) == attributes_to_proto(uuid, without_publish_sink(attributes))


@given(uuids, any_attributes, st.binary(max_size=20))
def test_what_was_encoded_is_decoded_to_the_same(uuid: bytes, attributes: Attributes, payload: bytes) -> None:
    attachment = encode_attachment(UMessage(uuid, attributes, payload))
    unknown = not payload and attributes.payload_format is UPayloadFormat.UNSPECIFIED
    expected = UMessage(uuid, without_publish_sink(attributes), None if unknown else payload)
    assert decode(payload, attachment, attributes) == expected
    assert decode(payload, attachment, attributes) == expected  # and again, from memory


@given(uuids, any_attributes)
def test_fields_may_come_in_any_order(uuid: bytes, attributes: Attributes) -> None:
    rest = attributes_to_proto(None, attributes).SerializeToString()
    only_id = pb.UAttributes(id=attributes_to_proto(uuid, attributes).id).SerializeToString()
    assert decode(b"x", b"\x01" + rest + only_id, attributes) == UMessage(uuid, attributes, b"x")


@given(uuids, uuids)
def test_a_second_id_overrides_the_first_as_in_protobuf(first: bytes, second: bytes) -> None:
    only_id = pb.UAttributes(id=attributes_to_proto(second, PUBLISH).id).SerializeToString()
    attachment = encode_attachment(UMessage(first, PUBLISH)) + only_id
    assert decode(b"x", attachment).id == second
    assert decode(b"x", attachment).id == second


def test_messages_of_one_flow_share_their_attributes() -> None:
    one = decode(b"x", encode_attachment(UMessage(new_id(1), PUBLISH)))
    two = decode(b"y", encode_attachment(UMessage(new_id(2), PUBLISH)))
    assert one.attributes is two.attributes


def test_empty_payload_is_a_payload_only_with_a_format() -> None:
    assert decode(b"", encode_attachment(UMessage(ID, PUBLISH, b""))).payload is None
    with_format = replace(PUBLISH, payload_format=UPayloadFormat.RAW)
    assert decode(b"", encode_attachment(UMessage(ID, with_format, b""))).payload == b""


# -- what is no message


def test_sample_without_attachment_is_malformed() -> None:
    assert refusal(None) is Malformed.MARKER


@pytest.mark.parametrize(
    "attachment",
    [b"", b"\x00", b"\x02" + encode_attachment(UMessage(ID, PUBLISH))[1:]],
    ids=["nothing", "version 0", "version 2"],
)
def test_other_versions_are_refused(attachment: bytes) -> None:
    assert refusal(attachment) is Malformed.VERSION


@pytest.mark.parametrize(
    "attachment",
    [b"\x01", b"\x01\xff", encode_attachment(UMessage(ID, PUBLISH))[:-1], encode_attachment(UMessage(ID, PUBLISH))[:15]],
    ids=["empty", "garbage", "truncated", "truncated within the id"],
)
def test_unreadable_attributes_are_refused(attachment: bytes) -> None:
    assert refusal(attachment) is Malformed.ATTACHMENT


@pytest.mark.parametrize(
    "uuid",
    [None, bytes(16), ID[:6] + b"\x40" + ID[7:], ID[:8] + b"\xc0" + ID[9:]],
    ids=["missing", "zero", "version 4", "variant 11"],
)
def test_ids_other_than_uuidv7_are_refused(uuid: bytes | None) -> None:
    assert refusal(attachment_of(attributes_to_proto(uuid, PUBLISH))) is Malformed.ID


@pytest.mark.parametrize(
    "field",
    [
        {"source": None},
        {"source": pb.UUri(authority_name="VEH 1", ue_id=1, ue_version_major=1, resource_id=0x8000)},
        {"source": pb.UUri(authority_name="veh1", ue_id=1, ue_version_major=0x100, resource_id=0x8000)},
        {"source": pb.UUri(authority_name="veh1", ue_id=1, ue_version_major=1, resource_id=0x10000)},
        {"sink": pb.UUri(authority_name="v" * 129)},
    ],
    ids=["missing", "authority", "version", "resource", "sink"],
)
def test_bad_uris_are_refused(field: dict[str, pb.UUri | None]) -> None:
    proto = attributes_to_proto(ID, PUBLISH)
    for name, uri in field.items():
        proto.ClearField(name)
        if uri is not None:
            getattr(proto, name).CopyFrom(uri)
    assert refusal(attachment_of(proto)) is Malformed.URI


@pytest.mark.parametrize("name", ["type", "priority", "commstatus", "payload_format"])
def test_unknown_enum_numbers_are_refused(name: str) -> None:
    proto = attributes_to_proto(ID, PUBLISH)
    setattr(proto, name, 99)
    assert refusal(attachment_of(proto)) is Malformed.CODE


def valid_or_malformed(payload: bytes, attachment: bytes | None, attributes: Attributes = PUBLISH) -> None:
    try:
        message = decode(payload, attachment, attributes)
    except MalformedPacketError:
        return
    assert isinstance(message.attributes, Attributes)
    check_id(message.id)


@given(st.binary(max_size=50), st.none() | st.binary(max_size=200))
def test_random_bytes_raise_nothing_but_malformed(payload: bytes, attachment: bytes | None) -> None:
    valid_or_malformed(payload, attachment)


@given(uuids, any_attributes, st.data())
def test_damaged_attachments_raise_nothing_but_malformed(uuid: bytes, attributes: Attributes, data: st.DataObject) -> None:
    damaged = bytearray(encode_attachment(UMessage(uuid, attributes)))
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(damaged)))
    valid_or_malformed(b"x", bytes(damaged), attributes)
    valid_or_malformed(b"x", bytes(damaged[:cut]), attributes)
