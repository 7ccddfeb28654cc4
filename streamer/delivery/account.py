"""What a route has done and holds, for whoever reports it."""

from dataclasses import dataclass

from streamer.delivery.queue import RouteQueue
from streamer.delivery.stats import RouteStats


@dataclass(frozen=True, slots=True)
class RouteAccount:
    """What one route has done and holds, for whoever reports it."""

    name: str
    source: str
    target: str
    stats: RouteStats
    queued: int
    bytes: int
    oldest_age_s: float
    unconfirmed: int = 0
    """Part of ``queued``: sent, and not yet certain to have arrived."""


def account_of(queue: RouteQueue, now_s: float) -> RouteAccount:
    """The account of one queue at a time on the monotonic clock."""
    oldest_s = queue.oldest_entered_s()
    return RouteAccount(
        queue.name,
        queue.source,
        queue.target,
        queue.stats,
        queue.messages + queue.unconfirmed,
        queue.bytes,
        0.0 if oldest_s is None else now_s - oldest_s,
        queue.unconfirmed,
    )
