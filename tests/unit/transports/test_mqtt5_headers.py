"""Known headers: what is read without the codec is what codec and decoder would have read."""

from dataclasses import replace

import mqtt5
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.transports.errors import MalformedPacketError
from streamer.transports.mqtt5 import frames, wire
from streamer.transports.mqtt5.decoder import PublishDecoder
from streamer.transports.mqtt5.headers import KnownHeaders
from streamer.uprotocol import cache
from streamer.uprotocol.message import Attributes, UMessage, UPayloadFormat
from streamer.uprotocol.uuid import format_id, new_id
from tests.unit.transports.mqtt5_messages import ATTRIBUTES, ID, PUBLISH, REQUEST

OTHER_ID = new_id(1_790_000_000_001)
TOKEN = "a-token-that-is-somebody-s"


class Reader:
    """A decoder, and the headers that it has made known."""

    def __init__(self) -> None:
        self.headers = KnownHeaders()
        self.decoder = PublishDecoder("off-vehicle", "gateway", max_token_bytes=1024)

    def decode(self, frame: bytes) -> UMessage:
        """The message by codec and decoder. Its header is known from then on."""
        packet = frames.read(memoryview(frame))
        message = self.decoder.decode(packet)
        self.headers.learn(memoryview(frame), message, packet.content_type is not None)
        return message

    def read(self, frame: bytes) -> tuple[UMessage, int] | None:
        return self.headers.read(memoryview(frame))


def frame(attributes: Attributes, message_id: bytes = ID, payload: bytes | None = b"x", packet_id: int = 7) -> bytes:
    addressed = attributes if attributes.sink is not None else replace(attributes, sink=REQUEST.sink)
    return wire.Encoder("off-vehicle", "gateway").encode(UMessage(message_id, addressed, payload), packet_id, False)


def foreign(*more: tuple[str, str], message_id: bytes = ID, **fields: str | bytes | int) -> bytes:
    """A packet of another program, with further user properties."""
    usual = [
        ("uP", "1"),
        ("1", format_id(message_id)),
        ("2", "up-pub.v1"),
        ("3", str(PUBLISH.source)),
        ("4", "//cloud/A/1/0"),
    ]
    qos = mqtt5.QoS.AT_LEAST_ONCE
    return mqtt5.PublishPacket("veh1/cloud", b"x", qos=qos, packet_id=1, user_properties=[*usual, *more], **fields).write()  # type: ignore[arg-type]


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


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # text that is not UTF-8: the codec panics
@given(st.data())
def test_changed_bytes_are_read_as_codec_and_decoder_do_or_not_at_all(data: st.DataObject) -> None:
    reader = Reader()
    known = frame(replace(PUBLISH, ttl=data.draw(st.sampled_from([None, 1500])), payload_format=UPayloadFormat.JSON))
    reader.decode(known)
    changed = bytearray(known)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(2, len(changed) - 1))] = data.draw(st.integers(0, 127))
    try:
        packet = frames.read(memoryview(changed))
        expected = PublishDecoder("off-vehicle", "gateway", max_token_bytes=1024).decode(packet), packet.packet_id
    except MalformedPacketError:
        expected = None
    assert reader.read(bytes(changed)) in (None, expected)


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


def test_text_that_looks_like_the_id_is_not_taken_for_it() -> None:
    reader = Reader()
    decoy = wire.ID_PROPERTY.decode() + format_id(OTHER_ID)
    usual = frames.read(memoryview(foreign())).user_properties
    packet = mqtt5.PublishPacket(
        "veh1/cloud", b"x", qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=1, user_properties=[("x", decoy), *usual]
    ).write()
    assert reader.decode(packet).id == ID
    assert reader.read(packet) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (format_id(OTHER_ID).encode(), b"x" * 36),
        (format_id(OTHER_ID).encode(), b"\xff" * 36),
        (format_id(OTHER_ID).encode(), format_id(OTHER_ID).replace("-7", "-4").encode()),
        (b"\x00\x07", b"\x00\x00"),
    ],
    ids=["no id", "no text", "another version", "packet id 0"],
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
    packet = frames.read(memoryview(foreign()))
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
