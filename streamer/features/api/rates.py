"""Rates of routes and endpoints: how much their counters have grown since they were last read.

Reading an idle route costs a comparison of a few integers.
"""

import asyncio
from collections.abc import Iterator
from typing import Any, NamedTuple

from streamer.delivery.lanes.queue import RouteQueue
from streamer.delivery.outcomes.settle import NO_ROUTE
from streamer.delivery.router import Router
from streamer.delivery.stats import RouteStats
from streamer.routing.outcome import Outcome

_LANES = 2000
"""The most flows whose oldest message is determined in one reading. Routes beyond that are reported without it."""


_DELIVERED, _EXPIRED = Outcome.DELIVERED, Outcome.EXPIRED  # attribute look-ups would take longer than the rest
_REJECTED, _DEAD_LETTERED = Outcome.REJECTED, Outcome.DEAD_LETTERED


ROUTES_PER_ITERATION = 100
"""The most routes that are read in one iteration of the event loop."""


class Counters(NamedTuple):
    """One route's counters at a moment. ``queue``: None for messages that no route took."""

    name: str
    stats: RouteStats
    queued: int
    queue: RouteQueue | None


class RouteReading(NamedTuple):
    """The last counters of a route, and what is derived from them."""

    accepted: int
    delivered: int
    failed: int
    queued: int


def route_counters(router: Router) -> Iterator[Counters]:
    """Yield the counters of every active route, of failure notices, and of messages without a route (``none/ENDPOINT``)."""
    for queue in router.queues():
        if queue.stats.accepted:
            yield Counters(queue.name, queue.stats, queue.messages + queue.unconfirmed, queue)
    for name, ingress in list(router.ingresses.items()):
        if ingress.unrouted.accepted:
            yield Counters(f"{NO_ROUTE}/{name}", ingress.unrouted, 0, None)


def outcomes(stats: RouteStats) -> tuple[int, int]:
    """Return the numbers of delivered and of failed messages of a route."""
    delivered = failed = 0
    for (outcome, _), count in stats.outcomes.items():  # few, and faster than to hash their names
        if outcome is _DELIVERED:
            delivered += count
        elif outcome is _EXPIRED or outcome is _REJECTED or outcome is _DEAD_LETTERED:
            failed += count
    return delivered, failed


_NOTHING = RouteReading(0, 0, 0, 0)


class Rates:
    """Reads the counters, and reports the changes since the reading before. The first reading has no rates."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._routes: dict[str, RouteReading] = {}
        self._received: dict[str, int] = {}
        self._read_s: float | None = None

    def forget(self) -> None:
        """Forget the earlier counters: the next reading is the first again."""
        self._routes.clear()
        self._received.clear()
        self._read_s = None

    async def read(self, now_s: float) -> dict[str, Any]:
        """Return changed and non-empty routes, every endpoint, and the number of dead letters since the start."""
        span_s = 0.0 if self._read_s is None else now_s - self._read_s
        self._read_s = now_s
        return {
            "routes": await self._read_routes(span_s, now_s, is_first=not span_s),
            "endpoints": self._read_endpoints(span_s),
            "dead_letters": self._router.notices.made,
        }

    async def _read_routes(self, span_s: float, now_s: float, is_first: bool) -> dict[str, Any]:
        found: dict[str, Any] = {}
        lanes = _LANES
        before, self._routes = self._routes, {}
        for number, (name, stats, queued, queue) in enumerate(route_counters(self._router), 1):
            if not number % ROUTES_PER_ITERATION:
                await asyncio.sleep(0)
            last = before.get(name)
            if last is not None and not queued and not last.queued and stats.accepted == last.accepted:
                self._routes[name] = last  # nothing was accepted, so nothing was settled
                continue
            read = self._routes[name] = RouteReading(stats.accepted, *outcomes(stats), queued)
            if is_first and not queued:
                continue
            oldest_s = None
            if queue is not None and queue.messages and len(queue.lanes) <= lanes:
                lanes -= len(queue.lanes)
                oldest_s = queue.oldest_entered_s()
            last = last or (read if is_first else _NOTHING)
            found[name] = {
                "accepted_per_s": _per_s(read.accepted - last.accepted, span_s),
                "delivered_per_s": _per_s(read.delivered - last.delivered, span_s),
                "failed_per_s": _per_s(read.failed - last.failed, span_s),
                "queued": queued,
                "oldest_age_s": None if oldest_s is None else round(max(0.0, now_s - oldest_s), 3),
            }
        return found

    def _read_endpoints(self, span_s: float) -> dict[str, Any]:
        found: dict[str, Any] = {}
        before, self._received = self._received, {}
        for account in self._router.endpoint_accounts():
            received = self._received[account.name] = account.stats.received
            found[account.name] = {
                "received_per_s": _per_s(received - before.get(account.name, received), span_s),
                "in_flight": account.in_flight,
                "backlog": account.backlog,
                "state": account.link.state.value,
            }
        return found


def _per_s(count: int, span_s: float) -> float:
    return round(count / span_s, 1) if count > 0 and span_s > 0 else 0.0
