"""Messages, queues and deliveries for the tests of the delivery package."""

from streamer.config.models import QueuePolicy
from streamer.delivery.lane import Delivery, Lane
from streamer.delivery.queue import RouteQueue
from streamer.delivery.stats import RouteStats
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.message import Options, UMessage, UPriority, publish
from streamer.uprotocol.uri import UUri

NOW_MS = 1_700_000_000_000


def topic(number: int = 0) -> UUri:
    return UUri("veh1", 0xA, 1, 0x8000 + number)


def message(
    flow: int = 0, level: int = 1, ttl: int | None = None, payload: bytes | None = None, made_ms: int = NOW_MS
) -> UMessage:
    """A Publish of one flow, in priority class ``level``."""
    return publish(made_ms, topic(flow), payload, Options(priority=UPriority(level + 1), ttl=ttl))


def queue_policy(**keys: object) -> QueuePolicy:
    return QueuePolicy.model_validate({"retry": {"jitter": 0}} | keys)


def route_queue(name: str = "up", **keys: object) -> RouteQueue:
    return RouteQueue(name, "vehicle", "cloud", queue_policy(**keys), RouteStats())


def push(queue: RouteQueue, sent: UMessage, lane: Lane | None = None) -> Delivery:
    """Accept a message on the lane of its flow."""
    lane = lane or queue.lane((sent.attributes.source, sent.attributes.sink))
    return queue.push(MemoryReceived(sent), sent, lane, 100.0, NOW_MS)
