"""A broker that forgets sessions and confirms nothing."""

from contextlib import AbstractAsyncContextManager

import mqtt5

from tests.mqtt_peer import BrokerConnection, FakeBroker, meanwhile


class ForgetfulBroker:
    """Answers pings and confirms messages, but never those that ``forgets`` names.

    ``in_order``: nor anything that comes behind such a message on the same connection, as MQTT wants it ([MQTT-4.6.0-2]).
    ``hangs``: nothing at all is confirmed. No SUBSCRIBE is answered unless it ``grants`` them.
    """

    def __init__(self, fake: FakeBroker, *forgets: bytes, keeps_session: bool = True, in_order: bool = False) -> None:
        self._fake = fake
        self._forgets = set(forgets)
        self._keeps_session = keeps_session
        self._in_order = in_order
        self.hangs = False
        self.grants = False
        self.subscribes = 0
        self.connections = 0
        self.sent: list[list[bytes]] = []
        """What has come, by connection."""

    async def _serve(self, peer: BrokerConnection) -> None:
        is_blocked = False
        await peer.accept(session_present=self._keeps_session and self.connections > 1)
        while True:
            packet = await peer.next_packet()
            if isinstance(packet, mqtt5.PingReqPacket):
                peer.write(mqtt5.PingRespPacket())
            elif isinstance(packet, mqtt5.SubscribePacket):
                self.subscribes += 1
                if self.grants:
                    granted = [mqtt5.SubAckReasonCode.GRANTED_QOS_AT_LEAST_ONCE] * len(packet.topic_filters)
                    peer.write(mqtt5.SubAckPacket(packet.packet_id, granted))
            elif isinstance(packet, mqtt5.PublishPacket):
                self.sent[-1].append(packet.payload)
                is_forgotten = packet.payload in self._forgets
                is_blocked |= is_forgotten and self._in_order
                if not (is_forgotten or is_blocked or self.hangs):
                    peer.write(mqtt5.PubAckPacket(packet.packet_id or 0))

    async def _serve_all(self) -> None:
        while True:
            peer = await self._fake.peer()
            self.connections += 1
            self.sent.append([])
            try:
                await self._serve(peer)
            except (AssertionError, ConnectionError):  # it was ended by the other side
                continue

    def serving(self) -> AbstractAsyncContextManager[None]:
        return meanwhile(self._serve_all())
