"""Two daemons in a row, a broker between them that can be killed: what the audit of the traces is held against.

    uEntity at cloud → broker → daemon gw.one → broker between → daemon gw.two → broker → uEntity at plant

The ledger of the load says what was sent, acknowledged and received; it knows nothing of traces.
"""

import asyncio
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from tests.brokers import Mosquitto
from tests.fault.ledger import Ledger
from tests.fault.load import NOTIFICATION, TOPIC_SIDES, Book, Flow, flows
from tests.fault.mqtt_node import MqttNode
from tests.process import StreamerProcess
from tests.waiting import until

STREAMERS = ("gw.one", "gw.two")
HERE, THERE = "cloud", "plant"
_TOPIC = next(topic for topic, side in TOPIC_SIDES.items() if side == THERE)
_WITHIN_S = 30
RECEIVE_MAXIMUM = 20
"""What the broker between holds beyond this has not left it yet when it is killed."""


class Chain:
    """An asynchronous context manager. Traces of both daemons go to ``directory / "traces"``."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.ledger = Ledger()
        self.traces = directory / "traces"
        self.daemons: list[StreamerProcess] = []
        self._directory = directory
        self._book = Book(self.ledger, seed)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "Chain":
        async with AsyncExitStack() as stack:
            first, self.between, last = (stack.enter_context(Mosquitto()) for _ in range(3))
            self._sender = MqttNode(HERE, first.port, "in-vehicle", [f"{THERE}/#"], self._book)
            self._receiver = MqttNode(THERE, last.port, "in-vehicle", [f"{HERE}/#"], self._book)
            for node in (self._sender, self._receiver):
                node.start()
                stack.callback(node.close)
            for authority, near, far in zip(STREAMERS, (first, self.between), (self.between, last), strict=True):
                daemon = StreamerProcess(self._directory, self._configuration(authority, near, far))
                self.daemons.append(await stack.enter_async_context(daemon))
            await until(lambda: self._sender.is_ready and self._receiver.is_ready, within_s=_WITHIN_S, what="the uEntities")
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    def _configuration(self, authority: str, near: Mosquitto, far: Mosquitto) -> dict[str, Any]:
        return {
            "authority": authority,
            "endpoints": {"near": _endpoint(near, HERE), "far": _endpoint(far, THERE)},
            "routes": [
                {"name": "down", "from": "near", "to": "far", "publish": [f"//{HERE}/FFFFFFFF/FF/FFFF"]},
                {"name": "up", "from": "far", "to": "near"},
            ],
            "journal": {"path": str(self._directory / f"{authority}.db")},
            "trace": {"path": str(self.traces)},
            "shutdown": {"drain_s": 5},
        }

    def load(self, rate: float) -> None:
        """Start sending so many messages a second."""
        self._sender.pump.start(self._book.generator(flows(HERE, THERE, _TOPIC), 1024), rate)

    async def until_arrived(self, more: int) -> None:
        """Wait until so many more messages have arrived than now."""
        goal = self.ledger.arrivals() + more
        await until(lambda: self.ledger.arrivals() >= goal, within_s=_WITHIN_S, what=f"arrival of {more} more messages")

    async def lose_what_is_between(self, count: int) -> None:
        """Have the broker between hold so many messages for the second daemon, kill it, and start it with nothing."""
        one, two = self.daemons
        two.signal(signal.SIGSTOP)
        try:
            so_far = one.total("ustreamer_outcomes_total", route="down", outcome="delivered")
            await until(
                lambda: one.total("ustreamer_outcomes_total", route="down", outcome="delivered") >= so_far + count,
                within_s=_WITHIN_S,
                what=f"{count} messages at the broker between",
            )
            self.between.kill()
        finally:
            two.signal(signal.SIGCONT)
        for daemon, endpoint in ((one, "far"), (two, "near")):
            await daemon.until_down(endpoint)
        self.between.start()
        for daemon in self.daemons:
            await daemon.until_up()

    async def finish(self) -> None:
        """Stop the load, wait for what still comes, and stop the daemons: their traces are compacted then."""
        self._sender.pump.stop()
        await until(lambda: not self._sender.unconfirmed, within_s=_WITHIN_S, what="the broker's PUBACKs")
        last = self._book.message(Flow(NOTIFICATION, (HERE, 0x7F, 1, 0x8100), (THERE, 0x7F, 1, 0), THERE), 0, b"last")
        self._sender.pump.probe(last)
        await until(lambda: self.ledger.has_arrived(last.id), within_s=_WITHIN_S, what="the last message")
        for daemon in self.daemons:
            await daemon.until_total(0, "ustreamer_queue_messages")
        # The last broker has confirmed these. The uEntity behind it may still be reading.
        delivered = self.daemons[-1].total("ustreamer_outcomes_total", route="down", outcome="delivered")
        await until(lambda: self.ledger.arrivals() >= delivered, within_s=_WITHIN_S, what=f"{delivered:g} arrivals")
        for daemon in self.daemons:
            daemon.signal(signal.SIGTERM)
        assert await asyncio.gather(*(daemon.ended() for daemon in self.daemons)) == [0, 0]


def _endpoint(broker: Mosquitto, authority: str) -> dict[str, Any]:
    options = {
        "broker": broker.url,
        "topics": "in-vehicle",
        "keep_alive_s": 2,
        "receive_maximum": RECEIVE_MAXIMUM,
        "reconnect": {"initial_ms": 100, "max_ms": 300},
    }
    return {"transport": "mqtt5", "authorities": [authority], "options": options}
