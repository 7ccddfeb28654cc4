"""The outcomes of a router, counted as its observers are told of them. No tests."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Protocol, TypeAlias

from streamer.delivery.lanes.lane import REDELIVERED, Delivery, Lane
from streamer.delivery.observers import OutcomeObserver
from streamer.routing.outcome import Failure, Outcome
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.status import UCode
from tests.clock import FakeClock

Counted: TypeAlias = Counter[tuple[str, str, str, str, str]]
"""How often an outcome was reported, by route, ingress, egress, outcome and code."""

_DELIVERED = Failure(Outcome.DELIVERED, UCode.OK, "")


class Ledger(OutcomeObserver):
    """Counts every outcome, and by egress the deliveries that are marked as redelivered."""

    def __init__(self) -> None:
        self.counted: Counted = Counter()
        self.redelivered: Counter[str] = Counter()

    def delivered(self, deliveries: Sequence[Delivery], now_s: float, now_ms: int) -> None:
        for delivery in deliveries:
            self._add(delivery.lane, _DELIVERED)
            self.redelivered[delivery.lane.queue.target] += delivery.history & REDELIVERED

    def failed(self, delivery: Delivery, failure: Failure, now_s: float, now_ms: int) -> None:
        self._add(delivery.lane, failure)

    def never_queued(
        self, message: UMessage, names: tuple[str, str, str], failure: Failure, now_s: float, now_ms: int
    ) -> None:
        self.counted[(*names, failure.outcome.value, failure.code.name)] += 1

    def confirmed(self, lane: Lane, records: bytes | bytearray, count: int, now_s: float) -> None:
        self._add(lane, _DELIVERED, count)

    def never_confirmed(
        self, lane: Lane, records: bytes | bytearray, count: int, failure: Failure, now_s: float, now_ms: int
    ) -> None:
        self._add(lane, failure, count)

    def _add(self, lane: Lane, failure: Failure, count: int = 1) -> None:
        of = lane.queue
        self.counted[of.name, of.source, of.target, failure.outcome.value, failure.code.name] += count


class Witness(Protocol):
    """An observer that a feature brings, which has to agree with the ledger. `tests.flow.witnesses` lists them."""

    def __init__(self, clock: FakeClock, endpoints: Iterable[str]) -> None: ...

    @property
    def observer(self) -> OutcomeObserver:
        """What the router tells its outcomes."""

    def check(self, counted: Counted) -> None:
        """Fail if the observer was told of other outcomes than the ledger."""
