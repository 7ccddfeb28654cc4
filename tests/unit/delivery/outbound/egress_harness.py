"""An egress by itself, with its queues, a clock that the test advances, and a `FakeTransport`."""

from typing import Any, NamedTuple

from streamer.config.models import QueueBounds, QueuePolicy
from streamer.delivery.custody.custody import Custody
from streamer.delivery.custody.unconfirmed import UnconfirmedStore
from streamer.delivery.outbound.egress import Egress
from streamer.delivery.outcomes.failure_notices import FailureNotices, NoticeOptions
from streamer.delivery.outcomes.settle import Settler
from streamer.delivery.pump import Pump
from streamer.delivery.seen import SeenIds
from streamer.transports.errors import PermanentError, RefusedError
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.status import UCode
from tests.clock import FakeClock
from tests.unit.delivery.fake_transport import FakeTransport
from tests.unit.delivery.messages import message, push, route_queue

NOT_NOW = RefusedError(UCode.RESOURCE_EXHAUSTED, "not now")
NEVER = PermanentError(UCode.PERMISSION_DENIED, "never")
PATIENT = {"initial_ms": 100, "max_ms": 100, "attempts": 1_000_000}


class EgressHarness:
    """An egress with its queues and a transport. Every settled delivery lets the next one go, as in the router."""

    def __init__(self, transport: FakeTransport | None = None, unconfirmed_s: float = 0, **keys: Any) -> None:
        """``unconfirmed_s``: how long messages stay unconfirmed; 0: the egress has no store."""
        self.clock = FakeClock()
        self.transport = transport or FakeTransport()
        seen = SeenIds(1000, 1000, 0)
        custody = Custody(lambda after_s, call: None, self.clock, seen)
        options = NoticeOptions("gateway", 0x8001, (), QueueBounds(), QueuePolicy())
        self.settler = Settler(self.clock, seen, custody, FailureNotices(options, custody, self.clock))
        pump = Pump(self.clock)
        store = UnconfirmedStore("cloud", unconfirmed_s, 1 << 30, custody, seen) if unconfirmed_s else None
        if store is not None:
            custody.add_store(store)
        self.egress = Egress("cloud", self.transport, self.settler, custody, self.clock, lambda: 0.5, pump, store)
        self.queue = route_queue("up", self.egress, **keys)
        self.egress.add_queue(self.queue)

    def load(self, *messages: UMessage) -> list["LoadedDelivery"]:
        """Accept messages without sending yet."""
        held = []
        for sent in messages:
            delivery = push(self.queue, sent)
            assert isinstance(delivery.received, MemoryReceived)
            held.append(LoadedDelivery(delivery.message, delivery.received))
            self.egress.mark_ready(delivery.lane)
        return held

    def pump(self) -> None:
        self.egress.pump(self.clock.ms)

    def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        self.egress.tick(self.clock.s, self.clock.ms)

    def outcomes(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for (outcome, _), number in self.queue.stats.outcomes.items():
            found[outcome.value] = found.get(outcome.value, 0) + number
        return found

    def check_books(self) -> None:
        assert self.queue.stats.accepted == self.queue.stats.settled + self.queue.messages
        lanes = self.queue.lanes.values()
        assert self.egress.in_flight == sum(lane.in_flight for lane in lanes)
        assert self.queue.messages == self.egress.in_flight + sum(lane.queued_messages for lane in lanes)


class LoadedDelivery(NamedTuple):
    """The messages of a delivery, which it drops when it is settled."""

    message: UMessage
    received: MemoryReceived


def flows(messages: list[UMessage]) -> list[int]:
    return [m.attributes.source.resource - 0x8000 for m in messages]


def open_windows(harness: EgressHarness, flow_numbers: list[int], messages: int = 100) -> None:
    """Widen the windows of lanes, then forget the messages sent for that."""
    waiting = harness.transport.confirms_at_once
    harness.transport.confirms_at_once = True
    for flow in flow_numbers:
        harness.load(*(message(flow) for _ in range(messages)))
    harness.pump()
    harness.transport.batches.clear()
    harness.transport.confirms_at_once = waiting
