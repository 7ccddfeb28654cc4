"""Messages that are mapped to MQTT 5 packets and back. No tests."""

import mqtt5

from streamer.transports.mqtt5 import frames
from streamer.uprotocol.message import Attributes, UMessageType, UPriority
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


def through_codec(data: bytes) -> mqtt5.PublishPacket:
    packet: mqtt5.PublishPacket = frames.read(memoryview(data))
    return packet
