"""A `FifoSubscription` with a session whose FIFO the test fills."""

import asyncio
import queue
import threading
from collections.abc import Iterable
from typing import Any

import zenoh

from streamer.transports.zenoh.fifo_subscription import FifoSubscription
from streamer.transports.zenoh.subscription import Gate
from streamer.uprotocol.uri import UUri
from tests.unit.transports.zenoh.deliveries import Deliveries

FILTER = (UUri("veh1", 0xFFFF_FFFF, 0xFF, 0xFFFF), None)
_UNDECLARED = object()


class FakeFifo:
    """A subscriber with its FIFO: full, it holds the sender back; undeclared, it gives what it has and then raises."""

    def __init__(self, room: int) -> None:
        self.handler = self
        self.samples: queue.Queue[Any] = queue.Queue(room)
        self.asked = 0  # how often the watcher has waited for a sample

    def undeclare(self) -> None:
        self.samples.put(_UNDECLARED)

    def recv(self) -> Any:
        self.asked += 1
        return self._given(self.samples.get())

    def try_recv(self) -> Any:
        try:
            return self._given(self.samples.get_nowait())
        except queue.Empty:
            return None

    def _given(self, sample: Any) -> Any:
        if sample is _UNDECLARED:
            self.samples.put(_UNDECLARED)
            raise zenoh.ZError("undeclared")
        return sample


class FilterHarness(Deliveries):
    """A subscription with its FIFO and what it has delivered. This is also the session."""

    def __init__(self, room: int = 10_000, is_declared: bool = True, gate: Gate | None = None) -> None:
        super().__init__()
        self.fifo = FakeFifo(room)
        self.gate = gate or Gate()
        self.subscription = FifoSubscription(asyncio.get_running_loop(), FILTER, self.take, self.end, self.gate)
        if is_declared:
            self.declare()

    def declare(self) -> None:
        self.subscription.declare(self, "key", 1)  # type: ignore[arg-type]

    def declare_subscriber(self, key: str, handler: object, allowed_origin: object) -> FakeFifo:
        assert isinstance(handler, zenoh.handlers.FifoChannel)
        assert allowed_origin == zenoh.Locality.REMOTE
        return self.fifo


def sending(harness: FilterHarness, numbers: Iterable[int]) -> threading.Thread:
    """A thread of Zenoh that puts these into the FIFO."""

    def send() -> None:
        for number in numbers:
            harness.fifo.samples.put(number)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    return thread
