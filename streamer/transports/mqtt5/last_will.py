"""Publishes an endpoint's own connection state: online, offline, and the will that its broker publishes.

Pure: times are passed in. All of it is on the topic of the streamer's status, in the form of a status. The law of this file:

- Each CONNECT has a will: OFFLINE, with the time of that connection. The broker publishes it once the streamer has been away
  for the will delay (MQTT 5, 3.1.3.2.2), or once the session has ended, if that comes first.
- After a CONNACK the streamer says ONLINE, unless it is certain that the broker has not published the will: the session is
  the same one, the broker's last packet came less than the delay ago, and it has neither ended nor refused a connection.
- At an orderly stop the streamer says OFFLINE. If that cannot be written, the broker publishes the will.
- Nothing is retained: on an off-vehicle broker, all messages for one authority have the same topic. Nothing has a TTL, which
  would count from the time of the connection.
"""

from typing import Final

import mqtt5

from streamer.transports.mqtt5.options import WillOptions
from streamer.transports.mqtt5.wire import Structure, encode, topic_for
from streamer.uprotocol.message import Attributes, UMessage, UMessageType, UPayloadFormat
from streamer.uprotocol.proto import ustreamer_v1_pb2 as pb
from streamer.uprotocol.uri import everything_at
from streamer.uprotocol.uuid import new_id
from streamer.uprotocol.well_known import STATUS, USTREAMER

_LATE_S: Final = 1.0  # how much later than the broker sent it the streamer may have received its last packet


class LastWill:
    """The will of the endpoint ``name`` of the streamer ``authority``, and what it says itself. ``topic``: where."""

    def __init__(self, name: str, authority: str, version: str, structure: Structure, options: WillOptions) -> None:
        sink = None if options.to is None else everything_at(options.to)
        source = USTREAMER.at(authority, STATUS)
        self._attributes = Attributes(UMessageType.PUBLISH, source, sink, payload_format=UPayloadFormat.PROTOBUF)
        self.topic = topic_for(self._attributes, structure, authority)
        self._name = name
        self._version = version
        self._delay_s = options.delay_s
        self._connected_ms = 0
        self._heard_s: float | None = None  # when the broker's last packet came on the connection before, if any
        self._counts_as_offline = False

    def of_connection(self, now_ms: int) -> mqtt5.Will:
        """Return the will for a CONNECT that is sent now."""
        self._connected_ms = now_ms
        packet, _ = mqtt5.read(memoryview(encode(self.offline(now_ms, "the connection was lost"), self.topic, 1)))
        assert isinstance(packet, mqtt5.PublishPacket)
        return mqtt5.Will(
            packet.topic,
            payload=packet.payload,
            qos=mqtt5.QoS.AT_LEAST_ONCE,
            content_type=packet.content_type,
            will_delay_interval=self._delay_s,
            user_properties=packet.user_properties,
        )

    def online(self, now_ms: int) -> UMessage:
        """Return the message that the endpoint has connected."""
        return self._message(now_ms, pb.LINK_ONLINE, "up")

    def offline(self, now_ms: int, reason: str) -> UMessage:
        """Return the message that the endpoint is disconnected."""
        return self._message(now_ms, pb.LINK_OFFLINE, "down", reason)

    def _message(self, now_ms: int, link: pb.Link, state: str, *reasons: str) -> UMessage:
        status = pb.Status(
            link=link,
            reasons=reasons,
            version=self._version,
            endpoints=[pb.EndpointStatus(name=self._name, transport="mqtt5", state=state)],
        )
        status.connected.FromMilliseconds(self._connected_ms)
        return UMessage(new_id(now_ms), self._attributes, status.SerializeToString())

    def is_news(self, now_s: float, session_present: bool) -> bool:
        """Return whether ONLINE has to be said on the connection that begins now (monotonic)."""
        heard_s, is_offline = self._heard_s, self._counts_as_offline
        self._heard_s, self._counts_as_offline = None, False
        return heard_s is None or is_offline or not session_present or now_s - heard_s >= self._delay_s - _LATE_S

    def lost(self, heard_s: float) -> None:
        """Note the end of a connection on which the broker's last packet came at ``heard_s`` (monotonic)."""
        self._heard_s = heard_s

    def counts_as_offline(self) -> None:
        """Note that OFFLINE was said, or may have been, because the broker has ended or refused a connection."""
        self._counts_as_offline = True
