"""A broker that refuses messages as a script says; what it takes is written into the ledger."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import mqtt5

from tests.fault.ledger import Ledger, Sent, digest_of
from tests.fault.mqtt_tap import id_of
from tests.mqtt_peer import FakeBroker

Script = Callable[[Sent, int], int | None]
"""A message and how often it was refused before → the reason code to refuse it with, None to take it."""


class ScriptedBroker:
    """One broker of one side; it keeps no session. ``refusals`` counts by message id."""

    def __init__(self, side: str, ledger: Ledger, script: Script) -> None:
        self.side = side
        self.port = 0
        self.refusals: Counter[bytes] = Counter()
        self._ledger = ledger
        self._script = script
        self._fake = FakeBroker()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["ScriptedBroker"]:
        async with self._fake.running():
            self.port = int(self._fake.url.rpartition(":")[2])
            accepting = asyncio.create_task(self._accept(), name="scripted broker")
            try:
                yield self
            finally:
                accepting.cancel()
                await asyncio.gather(accepting, return_exceptions=True)

    async def _accept(self) -> None:
        while True:
            await (await self._fake.peer()).answer_publishes(self._answer)

    def _answer(self, packet: mqtt5.PublishPacket) -> bytes:
        message_id = id_of(packet.user_properties)
        assert message_id is not None
        assert packet.packet_id is not None
        entry = self._ledger.entry(message_id)
        reason = None if entry is None else self._script(entry, self.refusals[message_id])
        if reason is not None:
            self.refusals[message_id] += 1
            return b"\x40\x03" + packet.packet_id.to_bytes(2, "big") + bytes([reason])
        self._ledger.arrived(self.side, message_id, digest_of(packet.payload))
        return mqtt5.PubAckPacket(packet.packet_id).write()
