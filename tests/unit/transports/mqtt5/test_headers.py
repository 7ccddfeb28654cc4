"""Known headers: what is read by a known header is what reader and decoder would have read."""

import tracemalloc
from dataclasses import replace
from typing import Any

import mqtt5
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.transports.errors import MalformedPacketError
from streamer.transports.mqtt5 import frames, wire
from streamer.transports.mqtt5.decoder import PublishDecoder
from streamer.transports.mqtt5.headers import KnownHeaders
from streamer.uprotocol import cache
from streamer.uprotocol.flows import Flows
from streamer.uprotocol.message import Attributes, UMessage
from streamer.uprotocol.uuid import format_id, new_id
from tests.unit.transports.mqtt5.messages import ATTRIBUTES, ID, PUBLISH, REQUEST, arriving

OTHER_ID = new_id(1_790_000_000_001)
TOKEN = "a-token-that-is-somebody-s"
OTHER_TEXT = format_id(OTHER_ID).encode()
CHANGES = [b"\0", b"\x01", b"\x02", b"\x24", b"\x26", b"1", b"\x7f", b"\x80\x01", wire.ID_PROPERTY, OTHER_TEXT]


class Reader:
    """A decoder, and the headers that it has made known."""

    def __init__(self) -> None:
        self.headers = KnownHeaders()
        self.decoder = PublishDecoder("off-vehicle", "gateway", max_token_bytes=1024, flows=Flows())

    def decode(self, frame: bytes) -> UMessage:
        """The message by codec and decoder. Its header is known from then on."""
        packet = arriving(frame)
        message = self.decoder.decode(packet)
        self.headers.learn(frame, packet, message)
        return message

    def read(self, frame: bytes) -> tuple[UMessage, int] | None:
        return self.headers.read(frame)


def frame(attributes: Attributes, message_id: bytes = ID, payload: bytes | None = b"x", packet_id: int = 7) -> bytes:
    addressed = attributes if attributes.sink is not None else replace(attributes, sink=REQUEST.sink)
    return wire.Encoder("off-vehicle", "gateway").encode(UMessage(message_id, addressed, payload), packet_id, False)


def foreign(*more: tuple[str, str], message_id: bytes = ID, payload: bytes = b"x", **fields: str | bytes | int) -> bytes:
    """A packet of another program, with further user properties."""
    usual = [
        ("uP", "1"),
        ("1", format_id(message_id)),
        ("2", "up-pub.v1"),
        ("3", str(PUBLISH.source)),
        ("4", "//cloud/A/1/0"),
    ]
    qos = mqtt5.QoS.AT_LEAST_ONCE
    properties = [*usual, *more]
    return mqtt5.PublishPacket("veh1/cloud", payload, qos=qos, packet_id=1, user_properties=properties, **fields).write()  # type: ignore[arg-type]


@given(ATTRIBUTES, st.binary(max_size=300), st.binary(max_size=20_000), st.integers(1, 0xFFFF))
def test_next_message_of_a_flow_is_read_as_it_would_be_decoded(
    attributes: Attributes, first: bytes, second: bytes, packet_id: int
) -> None:
    attributes = replace(attributes, reqid=None, token=None, traceparent=None)
    reader = Reader()
    assert reader.read(frame(attributes, payload=first)) is None
    reader.decode(frame(attributes, payload=first))
    later = frame(attributes, OTHER_ID, second, packet_id)
    assert reader.read(later) == (Reader().decode(later), packet_id)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([ID, OTHER_ID]),
            st.lists(st.tuples(st.sampled_from(["x", "1"]), st.sampled_from([ID, OTHER_ID])), max_size=1),
            st.lists(st.tuples(st.integers(0, 200), st.sampled_from(CHANGES)), max_size=2),
        ),
        min_size=2,
        max_size=10,
    )
)
def test_whatever_came_before_a_packet_is_read_as_codec_and_decoder_do(
    packets: list[tuple[bytes, list[tuple[str, bytes]], list[tuple[int, bytes]]]],
) -> None:
    reader = Reader()
    for message_id, decoys, changes in packets:
        more = [(key, wire.ID_PROPERTY.decode() + format_id(shown)) for key, shown in decoys]
        data = bytearray(foreign(*more, ("y", "a text"), message_id=message_id))
        places = [1, *(at for at in range(2, len(data)) if data[at] < 0x30)]  # lengths and kinds, and what looks like an id
        for place, change in changes:
            at = places[place % len(places)]
            data[at : at + len(change)] = change
        later = bytes(data)
        try:
            packet = arriving(later)
            expected = reader.decoder.decode(packet)
        except (MalformedPacketError, frames.ProtocolError):
            assert reader.read(later) is None
            continue
        assert reader.read(later) in (None, (expected, packet.packet_id))
        reader.decode(later)


_BARE = replace(REQUEST, token=None)


@pytest.mark.parametrize(
    "carrying",
    [replace(_BARE, token=TOKEN), replace(_BARE, traceparent="00-" + "1" * 32), replace(_BARE, reqid=OTHER_ID)],
    ids=["token", "traceparent", "reqid"],
)
def test_what_a_message_carries_for_itself_is_not_taken_for_that_of_the_next(carrying: Attributes) -> None:
    reader = Reader()
    own, bare = frame(carrying), frame(_BARE)
    reader.decode(own)
    assert reader.read(own) is None
    reader.decode(bare)
    assert reader.read(own) is None
    assert reader.read(bare) == (UMessage(ID, _BARE, b"x"), 7)


@pytest.mark.parametrize(
    "other",
    [
        foreign(("x", "2")),
        foreign(("x", "1"), ("10", TOKEN)),
        foreign(("x", "1"), content_type="1"),
        foreign(("x", "1"), message_expiry_interval=2),
        foreign(("x", "1"), correlation_data=ID),
        foreign(("x", "1")).replace(b"veh1/cloud", b"veh2/cloud"),
        foreign(("x", "1")).replace(b"up-pub.v1", b"up-not.v1"),
    ],
    ids=["property", "token", "content type", "expiry", "correlation", "topic", "type"],
)
def test_packet_with_any_other_difference_is_not_known(other: bytes) -> None:
    reader = Reader()
    reader.decode(foreign(("x", "1")))
    assert reader.read(foreign(("x", "1"), message_id=OTHER_ID)) is not None
    assert reader.read(other) is None


@pytest.mark.parametrize("shown", [ID, OTHER_ID], ids=["the same", "another"])
def test_text_that_looks_like_the_id_is_not_taken_for_it(shown: bytes) -> None:
    reader = Reader()
    decoy = ("x", wire.ID_PROPERTY.decode() + format_id(shown))
    usual = arriving(foreign()).user_properties
    qos = mqtt5.QoS.AT_LEAST_ONCE
    packet = mqtt5.PublishPacket("veh1/cloud", b"x", qos=qos, packet_id=1, user_properties=[decoy, *usual]).write()
    assert reader.decode(packet).id == ID
    assert reader.read(packet) is None


@pytest.mark.parametrize("missing", range(1, 16))
def test_properties_that_end_within_one_of_them_are_malformed(missing: int) -> None:
    whole = foreign(("x", "a text that is longer than that"))
    at = whole.index(b"veh1/cloud") + len(b"veh1/cloud") + 2
    size, used = frames.variable_int(whole, at)
    short = whole[:at] + frames.as_variable_int(size - missing) + whole[at + used :]
    assert short != whole
    with pytest.raises(MalformedPacketError):
        Reader().decode(short)


def test_properties_beyond_what_is_looked_at_are_not_even_copied() -> None:
    reader = Reader()
    huge = foreign(*((f"x{number}", "y" * 60_000) for number in range(20)))
    assert reader.read(huge) is None
    tracemalloc.start()
    try:
        assert reader.read(huge) is None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10_000


def test_long_headers_take_no_more_than_the_bound_of_the_cache() -> None:
    reader = Reader()
    for number in range(1500):
        reader.decode(foreign(("junk", f"{number}".ljust(8000, "x"))))
    known = reader.headers._known
    assert 0 < sum(map(len, [*known, *known._old])) < 2 * 4 * 1024 * 1024


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (OTHER_TEXT, b"x" * 36),
        (OTHER_TEXT, b"\xff" * 36),
        (OTHER_TEXT, format_id(OTHER_ID).replace("-7", "-4").encode()),
        (b"\x00\x07", b"\x00\x00"),
        (b"\x32\x7e", b"\x32\xfe\x00"),
    ],
    ids=["no id", "no text", "another version", "packet id 0", "a length with a byte too many"],
)
def test_what_is_malformed_is_left_to_the_codec(old: bytes, new: bytes) -> None:
    reader = Reader()
    reader.decode(frame(PUBLISH))
    later = frame(PUBLISH, OTHER_ID)
    assert reader.read(later) is not None
    assert old in later
    assert reader.read(later.replace(old, new)) is None


def test_the_beginning_of_a_packet_is_no_message() -> None:
    reader = Reader()
    whole = frame(PUBLISH, payload=b"x" * 500)
    reader.decode(whole)
    assert reader.read(whole) is not None
    for end in range(2, len(whole)):
        assert reader.read(whole[:end]) is None


def test_qos_0_is_left_to_the_codec() -> None:
    reader = Reader()
    packet = arriving(foreign())
    without = mqtt5.PublishPacket(packet.topic, b"x", user_properties=packet.user_properties).write()
    reader.decode(foreign())
    reader.decode(without)
    assert reader.read(without) is None


def test_strangers_do_not_make_it_forget_what_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_ENTRIES", 4)
    reader = Reader()
    reader.decode(frame(PUBLISH))
    for ttl in range(1, 50):
        reader.decode(frame(replace(PUBLISH, ttl=ttl)))
        assert reader.read(frame(PUBLISH, OTHER_ID)) is not None
    assert reader.read(frame(replace(PUBLISH, ttl=1))) is None


def test_refused_packet_makes_nothing_known() -> None:
    reader = Reader()
    wrong = foreign().replace(b"veh1/cloud", b"veh9/cloud")
    for _ in range(2):
        with pytest.raises(MalformedPacketError):
            reader.decode(wrong)
        assert reader.read(wrong) is None


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"content_type": "3"},
        {"earlier": "3"},
        {"content_type": "0"},
        {"earlier": "0"},
        {"content_type": "3", "earlier": "7"},
    ],
)
@pytest.mark.parametrize("payload", [b"", b"x"])
def test_payload_formats_of_either_kind_are_read_as_codec_and_decoder_do(properties: dict[str, str], payload: bytes) -> None:
    fields: dict[str, Any] = {key: value for key, value in properties.items() if key == "content_type"}
    more = [("12", properties["earlier"])] if "earlier" in properties else []
    reader, later = Reader(), foreign(*more, message_id=OTHER_ID, payload=payload, **fields)
    reader.decode(foreign(*more, **fields))
    assert reader.read(later) == (Reader().decode(later), 1)


def test_a_packet_with_a_request_id_as_a_user_property_is_left_to_the_decoder() -> None:
    reader, response = Reader(), foreign(("9", format_id(OTHER_ID)))
    assert reader.decode(response).attributes.reqid == OTHER_ID
    assert reader.read(response) is None
