"""Lanes on a network that says who listens."""

from collections.abc import Sequence

from streamer.delivery.lanes.lane import REDELIVERED, Delivery, Hold, Lane
from streamer.delivery.outbound.absent import AbsentLanes
from streamer.routing.outcome import Outcome
from streamer.transports.base import Presence
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.status import UCode
from tests.clock import START_MS
from tests.unit.delivery.fake_transport import FakeTransport
from tests.unit.delivery.messages import message
from tests.unit.delivery.settler_harness import SettlerHarness

ABSENT_S = 60


UNHEARD = {(Outcome.UNHEARD, UCode.OK): 1}


class FakeLanes:
    """A fake egress. ``log`` has the calls."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.absent: AbsentLanes | None = None

    def mark_ready(self, lane: Lane) -> None:
        self.log.append("file")
        if lane.is_for_nobody and self.absent is not None:
            self.absent.unheard(lane)

    def hold(self, lane: Lane, why: Hold) -> None:
        lane.set_hold(lane.hold | why)

    def release_hold(self, lane: Lane, why: Hold) -> None:
        self.log.append("release")
        lane.set_hold(lane.hold & ~why)

    def refill(self, lane: Lane) -> None:
        self.log.append("refill")

    def wait_before_last_try(self, lane: Lane, is_lost: bool = False) -> None:
        pass

    def confirm_arrived(self) -> None:
        pass

    def pump(self, now_ms: int) -> None:
        self.log.append(f"pump {now_ms}")


class PresenceHarness(SettlerHarness):
    """The lanes of one route, on a network that says who listens."""

    def __init__(self) -> None:
        super().__init__()
        self.transport = FakeTransport()
        self.sent: list[Delivery] = []
        self.lanes = FakeLanes()
        self.absent = self.lanes.absent = AbsentLanes(self.transport, self.settler, self.held.store, self.clock, self.lanes)

    def watched(self, sent: UMessage, presence: Presence = Presence.ABSENT) -> Delivery:
        """A message in a new lane."""
        self.transport.set_presence(sent.attributes.source, sent.attributes.sink, presence)
        self.absent.watch(self.queue.lane((sent.attributes.source, sent.attributes.sink)))
        return self.accept(sent)

    def change(self, lane: Lane, presence: Presence) -> None:
        self.transport.set_presence(*lane.key, presence)

    def tick(self, after_s: float = 0) -> None:
        self.clock.advance(round(after_s * 1000))
        self.absent.tick(self.clock.s)


def give_back(lane: Lane, sent: Sequence[Delivery]) -> None:
    """The link over which these were sent is lost."""
    for delivery in sent:
        lane.returned()
        delivery.history |= REDELIVERED
        lane.put_back(delivery)


def lose_receiver(harness: PresenceHarness, count: int = 1) -> Lane:
    """The lane of a flow whose last listener goes while so many Publishes are in flight: ``harness.sent``."""
    delivery = harness.watched(message(), Presence.PRESENT)
    for _ in range(count - 1):
        harness.accept(message())
    delivery.lane.take(count, START_MS, 0.0, harness.sent, [])
    harness.change(delivery.lane, Presence.ABSENT)
    return delivery.lane
