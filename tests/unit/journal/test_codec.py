"""How messages look in the journal: what is packed is unpacked as it was, and what is damaged says so."""

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.journal import codec
from streamer.uprotocol.message import Attributes, Options, Provenance, UMessage, UMessageType, publish, request
from streamer.uprotocol.proto import uprotocol_v1_pb2 as pb
from streamer.uprotocol.protobuf import message_to_proto
from streamer.uprotocol.uri import UUri, everything_at
from streamer.uprotocol.uuid import new_id
from tests.examples import characters
from tests.flow.harness import CLOUD_METHOD, SPEED, VEHICLE_APP
from tests.unit.uprotocol.strategies import attributes, messages

NOW_MS = 1_700_000_000_000
TOPIC = UUri("veh1", 0xA, 1, 0x8000)
PLAIN = Attributes(UMessageType.PUBLISH, TOPIC)
names = st.text(characters, max_size=10)


@given(messages)
def test_a_message_is_unpacked_as_it_was_and_others_can_read_it_too(message: UMessage) -> None:
    packed = codec.pack(message)
    assert codec.unpack(packed) == message
    read = pb.UMessage.FromString(packed)
    assert read.payload == (message.payload or b"")
    assert read.attributes.source.authority_name == message.attributes.source.authority


@pytest.mark.parametrize("provenance", [Provenance("backend-1", 3), Provenance("", 6), Provenance(None, 0)])
@pytest.mark.parametrize("payload", [None, b"", b"x"])
def test_what_the_transport_said_of_a_message_is_kept(provenance: Provenance, payload: bytes | None) -> None:
    attributes = replace(PLAIN, provenance=provenance)
    message = UMessage(new_id(NOW_MS), attributes, payload)
    assert codec.unpack(codec.pack(message)) == message
    flow = codec.PackedFlow("up", "vehicle", "cloud", "=", attributes)
    assert codec.unpack_flows(codec.pack_segment([codec.pack_flow(flow)], []))[0] == [flow]


@given(messages)
def test_a_message_with_its_fields_in_another_order_is_read_too(message: UMessage) -> None:
    head, rest = pb.UMessage(payload=message.payload), message_to_proto(replace(message, payload=None))
    assert codec.unpack(head.SerializeToString() + rest.SerializeToString()) == message


def test_messages_of_a_flow_share_their_attributes() -> None:
    made = [UMessage(new_id(NOW_MS), PLAIN.carrying(None, None, trace), b"x") for trace in (None, None, "00-1", "00-2")]
    read = [codec.unpack(codec.pack(each)) for each in made]
    assert read == made
    assert len({id(each.attributes.shared) for each in read}) == 1
    assert read[0].attributes is read[1].attributes


@given(messages, st.data())
def test_a_message_that_was_cut_short_is_unreadable_or_another_one(message: UMessage, data: st.DataObject) -> None:
    """It is read within its bytes, whatever they are: the checksum is what finds damage."""
    body = codec.pack(message)
    with contextlib.suppress(codec.UnreadableError):
        codec.unpack(body[: data.draw(st.integers(0, len(body) - 1))])


@given(st.binary(max_size=60))
def test_whatever_is_read_nothing_else_is_raised(body: bytes) -> None:
    for start in (b"", b"\x0a", b"\x0a\x14\x0a\x12\x09", codec.pack(publish(NOW_MS, TOPIC))):
        with contextlib.suppress(codec.UnreadableError):
            codec.unpack(start + body)


def test_messages_with_the_same_attributes_keep_their_own_ids() -> None:
    first, second = publish(NOW_MS, TOPIC, b"1"), publish(NOW_MS, TOPIC, b"2")
    assert [codec.unpack(codec.pack(each)) for each in (first, second, first)] == [first, second, first]


@pytest.mark.parametrize("body", [b"\xff", codec.pack(publish(NOW_MS, TOPIC, b"x"))[:-1]], ids=["no message", "cut off"])
def test_a_damaged_message_is_unreadable(body: bytes) -> None:
    with pytest.raises(codec.UnreadableError):
        codec.unpack(body)


@pytest.mark.parametrize("came", [None, everything_at("fleet")])
@pytest.mark.parametrize("left", [None, everything_at("fleet"), everything_at("backup")])
def test_how_the_sink_was_changed_is_kept_in_a_word(came: UUri | None, left: UUri | None) -> None:
    incoming, outgoing = replace(PLAIN, sink=came), replace(PLAIN, sink=left)
    assert codec.outgoing(incoming, codec.sink_change(incoming, outgoing)) == outgoing


def test_attributes_that_were_not_changed_are_the_same_object() -> None:
    assert codec.outgoing(PLAIN, codec.UNCHANGED) is PLAIN


Record = tuple[int, int, int, UMessage]
records = st.lists(
    st.builds(
        lambda flow, seq, entered_ms, payload: (flow, seq, entered_ms, UMessage(new_id(NOW_MS), PLAIN, payload)),
        st.integers(0, 2),
        st.integers(0, (1 << 63) - 1),
        st.integers(0, 1 << 47),
        st.none() | st.binary(max_size=20),
    ),
    max_size=10,
)


@given(st.lists(st.builds(codec.PackedFlow, names, names, names, names, attributes), max_size=4), records)
def test_a_segment_is_unpacked_as_it_was(flows: list[codec.PackedFlow], packed: list[Record]) -> None:
    packed_flows = [codec.pack_flow(flow) for flow in flows]
    pieces = [piece for record in packed for piece in codec.pack_record(*record)]
    body = codec.pack_segment(packed_flows, pieces)
    found, start = codec.unpack_flows(body)
    assert found == flows
    assert start == codec.start_of(packed_flows)
    assert list(codec.unpack_records(body, start)) == [
        codec.PackedMessage(flow, seq, entered_ms, message.id, message.payload) for flow, seq, entered_ms, message in packed
    ]


def test_a_payload_is_not_copied_into_its_record() -> None:
    payload = b"x" * 100
    _, piece = codec.pack_record(0, 1, NOW_MS, publish(NOW_MS, TOPIC, payload))
    assert piece is payload


@pytest.mark.parametrize("end", range(12))
def test_torn_flows_are_unreadable(end: int) -> None:
    body = codec.pack_segment([codec.pack_flow(codec.PackedFlow("up", "vehicle", "cloud", "=", PLAIN))], [])
    with pytest.raises(codec.UnreadableError):
        codec.unpack_flows(body[:end])


def test_a_torn_record_is_unreadable_and_those_before_it_are_read() -> None:
    pieces = [piece for seq in (1, 2) for piece in codec.pack_record(0, seq, NOW_MS, publish(NOW_MS, TOPIC))]
    body = codec.pack_segment([], pieces)
    found = codec.unpack_records(body[:-1], codec.start_of([]))
    assert next(found).seq == 1
    with pytest.raises(codec.UnreadableError):
        next(found)


@pytest.mark.parametrize("made_ms", [40_000, NOW_MS - 3_600_000, NOW_MS, NOW_MS + 3_600_000])
@pytest.mark.parametrize("identity", [None, "device-7"])
def test_the_deadline_survives(made_ms: int, identity: str | None) -> None:
    message = publish(made_ms, SPEED, b"x", Options(ttl=1000)).ending(NOW_MS + 1000, NOW_MS)
    if identity is not None:
        message = replace(message, attributes=replace(message.attributes, provenance=Provenance(identity, 6)))
    read = codec.unpack(codec.pack(message))
    assert read == message
    assert read.expires_ms(NOW_MS, 0) == NOW_MS + 1000
    assert read.attributes.provenance == message.attributes.provenance


def test_an_earlier_version_reads_what_it_knows() -> None:
    message = request(40_000, VEHICLE_APP, CLOUD_METHOD, 1000).ending(NOW_MS + 1000, NOW_MS)
    read = pb.UMessage.FromString(codec.pack(message))
    assert read.attributes.ttl == 0xFFFF_FFFF
    assert read.attributes.sink.resource_id == CLOUD_METHOD.resource


def test_messages_whose_ttl_fits_are_written_as_before() -> None:
    message = publish(NOW_MS, SPEED, b"x", Options(ttl=1000))
    attributes = pb.UMessage.FromString(codec.pack(message)).attributes
    attributes.ClearField("id")
    assert codec._pack_attributes(message.attributes) == attributes.SerializeToString()
