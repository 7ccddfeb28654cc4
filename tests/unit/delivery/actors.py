"""What the router's parts are tested with: messages, deliveries, a clock to wind, a transport that obeys."""

from collections.abc import Callable, Sequence

from streamer.config.models import QueuePolicy
from streamer.delivery.lane import Delivery, Lane, LaneOwner
from streamer.delivery.queue import RouteQueue
from streamer.delivery.stats import RouteStats
from streamer.routing.outcome import Failure
from streamer.transports.base import Done, LinkState, Parcel, TransportContext
from streamer.transports.errors import LinkLostError, SendError
from streamer.transports.memory import MemoryOptions, MemoryReceived, MemoryTransport
from streamer.uprotocol.message import Options, UMessage, UPriority, publish
from streamer.uprotocol.uri import UUri

NOW_MS = 1_700_000_000_000


class WoundClock:
    """Moves only when told."""

    def __init__(self) -> None:
        self.ms = NOW_MS
        self.s = 100.0

    def wall_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return self.s

    def wind(self, ms: int) -> None:
        self.ms += ms
        self.s += ms / 1000


def topic(number: int = 0) -> UUri:
    return UUri("veh1", 0xA, 1, 0x8000 + number)


def message(
    flow: int = 0, level: int = 1, ttl: int | None = None, payload: bytes | None = None, made_ms: int = NOW_MS
) -> UMessage:
    """A Publish of one flow, in priority class ``level``."""
    return publish(made_ms, topic(flow), payload, Options(priority=UPriority(level + 1), ttl=ttl))


def queue_policy(**keys: object) -> QueuePolicy:
    return QueuePolicy.model_validate({"retry": {"jitter": 0}} | keys)


class NoOwner:
    """Owns lanes and does nothing with them. ``given_up`` is what it had to give up."""

    def __init__(self) -> None:
        self.given_up: list[tuple[Delivery, Failure]] = []
        self.lanes: list[Lane] = []

    def lane_came(self, lane: Lane) -> None:
        self.lanes.append(lane)

    def lane_retired(self, lane: Lane) -> None:
        self.lanes.remove(lane)

    def queued(self, lane: Lane) -> None:
        pass

    def give_up(self, delivery: Delivery, failure: Failure) -> None:
        delivery.lane.drop(delivery)
        self.given_up.append((delivery, failure))


def route_queue(name: str = "up", owner: LaneOwner | None = None, has_journal: bool = False, **keys: object) -> RouteQueue:
    return RouteQueue(name, "vehicle", "cloud", queue_policy(**keys), RouteStats(), owner or NoOwner(), None, has_journal)


def push(queue: RouteQueue, sent: UMessage, lane: Lane | None = None) -> Delivery:
    """Accept a message on the lane of its flow."""
    lane = lane or queue.lane((sent.attributes.source, sent.attributes.sink))
    return queue.push(MemoryReceived(sent), sent, lane, 100.0, NOW_MS)


class Harbour(MemoryTransport):
    """Confirms when told: at once, or later in any pieces. ``submitted`` is every batch as it came.

    ``fail_at`` raises half way through a batch, after so many of its parcels were taken.
    """

    def __init__(self, confirms_at_once: bool = True, capacity: int = 1000) -> None:
        super().__init__(TransportContext("cloud", "gateway"), MemoryOptions(window=capacity))
        self.confirms_at_once = confirms_at_once
        self.submitted: list[list[UMessage]] = []
        self.open: list[tuple[Parcel, Done]] = []
        self.verdict: Callable[[UMessage], SendError | None] = lambda message: None
        self.fail_at: int | None = None
        self.state = LinkState.UP

    def submit(self, parcels: Sequence[Parcel], done: Done) -> None:
        self.submitted.append([parcel.message for parcel in parcels])
        for number, parcel in enumerate(parcels):
            if number == self.fail_at:
                self.fail_at = None
                raise ZeroDivisionError("the plugin has a fault")
            if self.confirms_at_once:
                done((parcel,), self.verdict(parcel.message))
            else:
                self.open.append((parcel, done))

    def answer(self, *positions: int, error: SendError | None = None) -> None:
        """Answer the open parcels at these positions with one call, in that order; all of them if none is named."""
        chosen = [self.open[position] for position in positions or range(len(self.open))]
        self.open = [entry for entry in self.open if entry not in chosen]
        chosen[0][1]([parcel for parcel, _ in chosen], error)

    def lose(self) -> None:
        """The link goes: everything open comes back, in order."""
        self.set_state(LinkState.DOWN)
        if self.open:
            self.answer(error=LinkLostError())

    @property
    def left(self) -> list[UMessage]:
        """Everything submitted, in order."""
        return [message for batch in self.submitted for message in batch]
