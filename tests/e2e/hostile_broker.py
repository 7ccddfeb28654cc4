"""A broker that ends each session soon, as one does that gives it to a thief of the client id."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import mqtt5

from tests.mqtt_peer import BrokerConnection, FakeBroker, meanwhile

TAKEN_OVER = b"\xe0\x02\x8e\x00"
"""DISCONNECT: another client has connected with this client id (MQTT 5, 3.14.2.1)."""


class HostileBroker:
    """Ends each session after ``lives_s``, with the reason 0x8E if it ``says_why``; else it resets the connection.

    ``refuses``: no connection is accepted at all, for this reason.
    """

    def __init__(self, lives_s: float = 0.0, says_why: bool = False, refuses: int | None = None) -> None:
        self._lives_s = lives_s
        self._says_why = says_why
        self._refuses = refuses
        self._fake = FakeBroker()
        self._serving: set[asyncio.Task[None]] = set()
        self.url = ""
        self.ended = 0
        """Sessions that it has ended."""
        self.refused = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator["HostileBroker"]:
        async with self._fake.running(), meanwhile(self._accept()):
            self.url = self._fake.url
            yield self

    async def _accept(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            while True:
                try:
                    peer = await self._fake.peer()
                except TimeoutError:
                    continue
                tasks.create_task(self._serve(peer))

    async def _serve(self, peer: BrokerConnection) -> None:
        try:
            async with asyncio.timeout(30):
                if self._refuses is not None:
                    await peer.next(mqtt5.ConnectPacket)
                    peer.write(bytes([0x20, 3, 0, self._refuses, 0]))
                    self.refused += 1
                    return
                await peer.accept()
                try:
                    async with asyncio.timeout(self._lives_s):
                        await peer.grant()
                        while True:
                            packet = await peer.next_packet()
                            if isinstance(packet, mqtt5.PublishPacket):
                                peer.write(mqtt5.PubAckPacket(packet.packet_id or 0))
                except TimeoutError:
                    self.ended += 1
                    if self._says_why:
                        peer.write(TAKEN_OVER)
                        await peer.closed()
                    else:
                        peer.drop()
        except (AssertionError, ConnectionError, TimeoutError):
            return  # the streamer has closed it, or it was no client
