"""Zenoh keys and attachments, checked against plain protobuf."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.transports.errors import Malformed, MalformedPacketError
from streamer.transports.zenoh.wire import (
    NO_SINK,
    PRIORITIES,
    Arrived,
    SampleDecoder,
    encode_attachment,
    key_filter,
    key_for,
    narrowed,
    sample_bytes,
)
from streamer.uprotocol.flows import Flows
from streamer.uprotocol.message import Attributes, UMessage, UMessageType, UPayloadFormat, UPriority
from streamer.uprotocol.proto import uprotocol_v1_pb2 as pb
from streamer.uprotocol.protobuf import attributes_to_proto
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri, everything_at
from streamer.uprotocol.uuid import check_id, new_id
from tests.examples import characters
from tests.unit.transports.counting_cache import CountingCache

TOPIC = UUri.parse("//veh1/A8000/2/8A50")
PUBLISH = Attributes(UMessageType.PUBLISH, TOPIC)
ID = new_id(1_700_000_000_000)
OWN = "gateway"
DECODER = SampleDecoder(OWN, max_header_bytes=8192, max_token_bytes=1024, flows=Flows())

uuids = st.binary(min_size=16, max_size=16).map(
    lambda raw: raw[:6] + bytes((0x70 | raw[6] & 0x0F, raw[7], 0x80 | raw[8] & 0x3F)) + raw[9:]
)
uint32 = st.integers(0, 0xFFFF_FFFF)
uris = st.builds(
    UUri,
    st.text("abcdefghijklmnopqrstuvwxyz0123456789-._~", min_size=1, max_size=20),
    uint32,
    st.integers(0, 0xFF),
    st.integers(0, 0xFFFF),
).filter(lambda uri: not uri.has_wildcard)
text = st.text(characters, max_size=20)
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


def test_only_a_listener_for_all_messages_to_everybody_is_narrowed() -> None:
    every = everything_at("*")
    assert narrowed(every, every) == ((every._replace(resource=0), every), (every, every._replace(resource=0)))
    for source, sink in (
        (every, None),
        (every, everything_at("cloud")),  # copies of a Publish for this authority are meant, too
        (every, every._replace(resource=7)),
        (every._replace(resource=0x8000), every),
    ):
        assert narrowed(source, sink) == ((source, sink),)


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


# -- the key, the priority and the header

REQUEST = Attributes(
    UMessageType.REQUEST, UUri.parse("//veh1/403BA/3/0"), UUri.parse("//cloud/CD/4/B"), UPriority.CS4, ttl=1000
)


@pytest.mark.parametrize(
    "carried", [{}, {"reqid": new_id(1)}, {"token": "t" * 200}, {"token": "é", "traceparent": "00-1-2-01"}]
)
@pytest.mark.parametrize("payload", [None, b"", b"x" * 300])
def test_the_size_of_a_sample_is_that_of_its_payload_and_its_attachment(
    carried: dict[str, Any], payload: bytes | None
) -> None:
    message = UMessage(ID, replace(REQUEST, **carried), payload)
    attachment = encode_attachment(message)
    assert sample_bytes(message) == len(attachment) + len(payload or b"")


LOCAL_SINK = replace(REQUEST, sink=UUri.parse("/CD/4/B"))
LOCAL_SOURCE = replace(REQUEST, source=UUri.parse("/403BA/3/0"))

AGREEING = {
    "publish": (PUBLISH, f"up/veh1/8000/A/2/8A50/{NO_SINK}"),
    "publish that a streamer addressed": (replace(PUBLISH, sink=everything_at("cloud")), f"up/veh1/8000/A/2/8A50/{NO_SINK}"),
    "request": (REQUEST, "up/veh1/3BA/4/3/0/cloud/CD/0/4/B"),
    "request to the sender's device": (LOCAL_SINK, "up/veh1/3BA/4/3/0/veh1/CD/0/4/B"),
    "request to our device": (LOCAL_SINK, "up/veh1/3BA/4/3/0/gateway/CD/0/4/B"),
    "request of a local source": (LOCAL_SOURCE, "up/veh1/3BA/4/3/0/cloud/CD/0/4/B"),
}
DISAGREEING = {
    "publish of somebody else": (PUBLISH, f"up/evil/8000/A/2/8A50/{NO_SINK}"),
    "publish on another topic": (PUBLISH, f"up/veh1/8000/A/2/8A51/{NO_SINK}"),
    "publish on everybody's key": (PUBLISH, f"up/*/8000/A/2/8A50/{NO_SINK}"),
    "publish on every key": (PUBLISH, "up/**"),
    "publish with a sink in its key": (PUBLISH, "up/veh1/8000/A/2/8A50/cloud/CD/0/4/B"),
    "request of somebody else": (REQUEST, "up/evil/3BA/4/3/0/cloud/CD/0/4/B"),
    "request to somebody else": (REQUEST, "up/veh1/3BA/4/3/0/evil/CD/0/4/B"),
    "request to another method": (REQUEST, "up/veh1/3BA/4/3/0/cloud/CD/0/4/C"),
    "request without a sink in its key": (REQUEST, f"up/veh1/3BA/4/3/0/{NO_SINK}"),
    "request to another device's local method": (LOCAL_SINK, "up/veh1/3BA/4/3/0/cloud/CD/0/4/B"),
    "lower case": (PUBLISH, f"up/veh1/8000/a/2/8a50/{NO_SINK}"),
    "no segments": (PUBLISH, "up"),
    "nothing": (PUBLISH, ""),
}


@pytest.mark.parametrize(("attributes", "key"), AGREEING.values(), ids=AGREEING)
def test_message_on_its_own_key_is_read(attributes: Attributes, key: str) -> None:
    proto = attributes_to_proto(ID, attributes)
    arrived = DECODER.decode(key, 6, b"x", attachment_of(proto))
    assert arrived == UMessage(ID, replace(attributes, source=arrived.attributes.source, sink=arrived.attributes.sink), b"x")


LOCAL = {
    "publish": (replace(PUBLISH, source=TOPIC._replace(authority="")), AGREEING["publish"][1], "veh1", None),
    "request to the sender's device": (*AGREEING["request to the sender's device"], "veh1", "veh1"),
    "request to our device": (*AGREEING["request to our device"], "veh1", "gateway"),
    "request of a local source": (*AGREEING["request of a local source"], "veh1", "cloud"),
    "both": (replace(LOCAL_SOURCE, sink=LOCAL_SINK.sink), "up/veh1/3BA/4/3/0/veh1/CD/0/4/B", "veh1", "veh1"),
}


@pytest.mark.parametrize(("local", "key", "source", "sink"), LOCAL.values(), ids=LOCAL)
def test_address_without_authority_gets_that_of_the_key(local: Attributes, key: str, source: str, sink: str | None) -> None:
    arrived = DECODER.decode(key, 6, b"x", attachment_of(attributes_to_proto(ID, local))).attributes
    assert arrived.source == local.source._replace(authority=source)
    assert arrived.sink == (None if local.sink is None else local.sink._replace(authority=sink or ""))
    assert arrived.problems == ()


def test_local_address_on_a_key_whose_authority_is_none_is_malformed() -> None:
    local = replace(PUBLISH, source=TOPIC._replace(authority=""))
    attachment = attachment_of(attributes_to_proto(ID, local))
    assert refusal(attachment, f"up/VEH 1/8000/A/2/8A50/{NO_SINK}") is Malformed.URI


@pytest.mark.parametrize(("attributes", "key"), DISAGREEING.values(), ids=DISAGREEING)
def test_message_on_the_key_of_another_is_malformed(attributes: Attributes, key: str) -> None:
    attachment = attachment_of(attributes_to_proto(ID, attributes))
    decode(b"x", attachment, attributes)  # learned on its own key
    assert refusal(attachment, key) is Malformed.ADDRESS


@pytest.mark.parametrize("key", ["up/**", "up/*/*/*/*/*/{}/{}/{}/{}/{}", "up/*/8000/A/2/8A50/{}/{}/{}/{}/{}"])
def test_no_message_is_on_a_key_with_wildcards(key: str) -> None:
    source = UUri("*", 0xA8000, 2, 0x8A50)
    proto = attributes_to_proto(ID, Attributes(UMessageType.PUBLISH, source))
    assert refusal(attachment_of(proto), key) is Malformed.ADDRESS


@given(any_attributes, st.integers(0, 6))
def test_no_message_is_treated_in_a_higher_class_than_its_sample(attributes: Attributes, level: int) -> None:
    attachment = encode_attachment(UMessage(ID, attributes))
    arrived = DECODER.decode(key_for(attributes, OWN), level, b"x", attachment).attributes
    assert arrived.priority_class == min(attributes.priority_class, level)
    assert arrived.priority is attributes.priority
    assert (arrived == without_publish_sink(attributes)) == (level >= attributes.priority_class)


@pytest.mark.parametrize("token", ["x" * 1025, "\u00e4" * 513])
def test_token_beyond_its_bound_is_malformed(token: str) -> None:
    assert refusal(encode_attachment(UMessage(ID, replace(PUBLISH, token=token)))) is Malformed.HEADER


def test_attachment_beyond_its_bound_is_malformed_whatever_is_in_it() -> None:
    unknown_field = b"\xfa\x7f\x80\x40" + bytes(8192)  # field 2047
    assert refusal(encode_attachment(UMessage(ID, PUBLISH)) + unknown_field) is Malformed.HEADER
    assert refusal(b"\x01" + bytes(8192)) is Malformed.HEADER


def test_what_differs_in_every_message_is_read_once_per_flow() -> None:
    decoder = SampleDecoder(OWN, 8192, 1024, Flows())
    decoder._known = known = CountingCache[Arrived, Attributes]()
    shared = set()
    for n in range(2000):
        attributes = replace(REQUEST, token=f"token {n}", traceparent=f"00-{n + 1:032x}-{n + 1:016x}-01", reqid=new_id(n))
        message = UMessage(new_id(n), attributes, b"x")
        arrived = decoder.decode(key_for(REQUEST, OWN), 6, b"x", encode_attachment(message))
        assert arrived == message
        shared.add(id(arrived.attributes.shared))
    assert len(known.learned) == 1
    assert len(shared) == 1
    assert len(decoder._known) == len(decoder._flows) == 1


def test_attachments_of_8_kib_take_no_more_than_the_bound_of_the_cache() -> None:
    decoder = SampleDecoder(OWN, 8192, 1024, Flows())
    attachment = encode_attachment(UMessage(ID, PUBLISH))
    for n in range(3000):
        decoder.decode(key_for(PUBLISH, OWN), 6, b"x", attachment + b"\xfa\x7f\xc0\x3e" + f"{n}".rjust(8000).encode())
    assert sum(len(rest) for _, _, rest in (*decoder._known, *decoder._known._old)) <= 2 * 4 * 1024 * 1024


@pytest.mark.parametrize(
    ("made_ms", "kind", "ttl"),
    [
        (1_700_000_000_000 - 3_600_000, UMessageType.PUBLISH, 3_601_000),
        (40_000, UMessageType.PUBLISH, 0),
        (40_000, UMessageType.REQUEST, 0xFFFF_FFFF),
        (1_700_000_000_000 + 3_600_000, UMessageType.PUBLISH, 1),
    ],
)
def test_a_ttl_from_the_arrival_is_sent_as_far_as_it_fits(made_ms: int, kind: UMessageType, ttl: int) -> None:
    now_ms = 1_700_000_000_000
    message = UMessage(new_id(made_ms), Attributes(kind, TOPIC, ttl=1000)).ending(now_ms + 1000, now_ms)
    assert message.expires_ms(now_ms, 0) == now_ms + 1000
    attachment = encode_attachment(message)
    assert pb.UAttributes.FromString(attachment[1:]).ttl == ttl
