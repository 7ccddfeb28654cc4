"""Messages that are mapped to MQTT 5 packets and back. No tests."""

import mqtt5
from hypothesis import strategies as st

from streamer.transports.mqtt5.publish import Publish, read
from streamer.uprotocol.message import Attributes, UMessageType, UPayloadFormat, UPriority
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.uuid import new_id

ID = new_id(1_790_000_000_000)
TOPIC = UUri.parse("//veh1/A8000/2/8A50")
PUBLISH = Attributes(UMessageType.PUBLISH, TOPIC)
REQUEST = Attributes(
    UMessageType.REQUEST,
    UUri.parse("//veh1/403BA/3/0"),
    UUri.parse("//cloud/CD/4/B"),
    priority=UPriority.CS4,
    ttl=1500,
    token="secret",
    permission_level=5,
)

_authorities = st.sampled_from(["veh1", "cloud.example", "[::1]"])
_names = st.builds(UUri, _authorities, st.integers(0, 0xFFFFFFFF), st.integers(0, 0xFF), st.integers(0, 0xFFFF))
_uint32 = st.none() | st.integers(0, 2**32 - 1)
_text = st.text(st.characters(exclude_categories=["Cs", "Cc", "Cn"]), max_size=40)  # what MQTT 5 has as text (1.5.4)
ATTRIBUTES = st.builds(
    Attributes,
    st.sampled_from([kind for kind in UMessageType if kind]),
    _names,
    st.none() | _names,
    priority=st.sampled_from(UPriority),
    ttl=_uint32,
    permission_level=_uint32,
    commstatus=st.none() | st.sampled_from(UCode),
    reqid=st.none() | st.binary(min_size=16, max_size=16),
    token=st.none() | _text,
    traceparent=st.none() | _text,
    payload_format=st.sampled_from(UPayloadFormat),
)


def through_codec(data: bytes) -> mqtt5.PublishPacket:
    """Return what the codec, which does not read for the daemon, reads."""
    packet, _ = mqtt5.read(memoryview(data))
    assert isinstance(packet, mqtt5.PublishPacket)
    return packet


def arriving(data: bytes) -> Publish:
    """Return a PUBLISH as the intake reads it."""
    return read(data, max_header_bytes=1 << 24)
