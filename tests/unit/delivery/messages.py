"""Messages, queues and deliveries for the tests of the delivery package."""

from collections.abc import Callable
from typing import Any

from streamer.config.models import QueuePolicy
from streamer.delivery.lanes.lane import Delivery, Lane, LaneOwner
from streamer.delivery.lanes.queue import RouteQueue
from streamer.delivery.stats import RouteStats
from streamer.routing.outcome import Failure
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.message import Options, UMessage, UPriority, publish
from streamer.uprotocol.uri import UUri
from tests.constants import with_constants

NOW_MS = 1_700_000_000_000


def topic(number: int = 0) -> UUri:
    return UUri("veh1", 0xA, 1, 0x8000 + number)


def message(
    flow: int = 0, level: int = 1, ttl: int | None = None, payload: bytes | None = None, made_ms: int = NOW_MS
) -> UMessage:
    """A Publish of one flow, in priority class ``level``."""
    return publish(made_ms, topic(flow), payload, Options(priority=UPriority(level + 1), ttl=ttl))


def queue_policy(**keys: Any) -> QueuePolicy:
    return with_constants(QueuePolicy, **keys)


class FakeOwner:
    """An owner of lanes that records the deliveries that it evicts, in ``given_up``, and settles them if ``fail`` is set."""

    def __init__(self) -> None:
        self.fail: Callable[[Delivery, Failure], None] | None = None
        self.given_up: list[tuple[Delivery, Failure]] = []
        self.lanes: list[Lane] = []
        self.is_window_full = False

    def lane_added(self, lane: Lane) -> None:
        self.lanes.append(lane)

    def lane_retired(self, lane: Lane) -> None:
        self.lanes.remove(lane)

    def queued(self, lane: Lane) -> None:
        pass

    def evict(self, delivery: Delivery, failure: Failure) -> None:
        delivery.lane.drop(delivery)
        self.given_up.append((delivery, failure))
        if self.fail is not None:
            self.fail(delivery, failure)


def route_queue(name: str = "up", owner: LaneOwner | None = None, has_journal: bool = False, **keys: Any) -> RouteQueue:
    policy = queue_policy(**keys)
    return RouteQueue(name, "vehicle", "cloud", policy, RouteStats(), owner or FakeOwner(), None, has_journal)


def push(queue: RouteQueue, sent: UMessage, lane: Lane | None = None) -> Delivery:
    """Accept a message on the lane of its flow."""
    lane = lane or queue.lane((sent.attributes.source, sent.attributes.sink))
    return queue.push(MemoryReceived(sent), sent, lane, 100.0, NOW_MS)
