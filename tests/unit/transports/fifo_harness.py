"""A `FifoSubscription` with a session whose FIFOs and bells the test fills and rings."""

import asyncio
import queue
import threading
from collections.abc import Callable, Iterable
from typing import Any

import zenoh

from streamer.transports.zenoh.fifo_subscription import FifoSubscription
from streamer.transports.zenoh.subscription import Gate
from streamer.uprotocol.uri import UUri
from tests.unit.transports.zenoh_deliveries import Deliveries
from tests.waiting import until

FILTER = (UUri("veh1", 0xFFFF_FFFF, 0xFF, 0xFFFF), None)
_UNDECLARED = object()


class FakeFifo:
    """A subscriber with its FIFO: full, it holds the sender back; undeclared, it gives what it has and then raises."""

    def __init__(self, room: int) -> None:
        self.handler = self
        self.samples: queue.Queue[Any] = queue.Queue(room)
        self.asked = 0  # how often the watcher has waited for a sample
        self.is_declared = True

    def arrive(self, sample: Any) -> None:
        self.samples.put(sample)

    def undeclare(self) -> None:
        self.is_declared = False
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


class FakeBell:
    """A subscriber that calls back."""

    def __init__(self, handler: "zenoh.handlers.Callback[Any]") -> None:
        self.arrive = handler.callback
        self.is_declared = True

    def undeclare(self) -> None:
        self.is_declared = False


class FilterHarness(Deliveries):
    """A subscription and what it has delivered. This is also the session, and what is posted is done at once.

    ``fifo`` is the youngest FIFO, ``bell`` the youngest bell. ``declaring`` and ``declared`` are called before and
    after each is declared.
    """

    def __init__(self, room: int = 10_000, is_declared: bool = True, gate: Gate | None = None) -> None:
        super().__init__()
        self.fifo = FakeFifo(room)
        self.bell: FakeBell | None = None
        self.subscribers: list[FakeFifo | FakeBell] = []
        self.declaring: Callable[[], None] = lambda: None
        self.declared: Callable[[], None] = lambda: None
        self.gate = gate or Gate()
        self.subscription = FifoSubscription(
            asyncio.get_running_loop(), FILTER, self.take, self.end, self.gate, lambda call: call()
        )
        if is_declared:
            self.declare()

    def declare(self) -> None:
        self.subscription.declare(self, "key", 1)  # type: ignore[arg-type]

    def declare_subscriber(self, key: str, handler: object, allowed_origin: object) -> FakeFifo | FakeBell:
        assert allowed_origin == zenoh.Locality.REMOTE
        self.declaring()
        if isinstance(handler, zenoh.handlers.Callback):
            made: FakeFifo | FakeBell = FakeBell(handler)
            self.bell = made  # type: ignore[assignment]
        else:
            made = self.fifo = FakeFifo(10_000) if self.subscribers else self.fifo
        self.subscribers.append(made)
        self.declared()
        return made

    def arrive(self, sample: object) -> None:
        """A sample comes: every subscriber gets it."""
        for subscriber in [each for each in self.subscribers if each.is_declared]:
            subscriber.arrive(sample)

    def look(self) -> None:
        """As much time passes as nothing has to come before the watcher rests, and is over now."""
        self.subscription._look()

    async def until_resting(self) -> None:
        """Nothing comes for long enough."""
        self.look()
        if self.bell is None or not self.bell.is_declared:  # something had come since the last look
            self.look()
        await until(lambda: self.subscription._fresh is None and self.subscription._handler is self.fifo)
        assert self.fifo.asked == 0


def sending(harness: FilterHarness, numbers: Iterable[int]) -> threading.Thread:
    """A thread of Zenoh that puts these into the FIFO."""

    def send() -> None:
        for number in numbers:
            harness.fifo.samples.put(number)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    return thread
