"""The pages with the state of the streamer, its endpoints, its routes and its queues.

Counters are copied, some routes in each iteration of the event loop, as for the metrics.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from itertools import islice
from pathlib import Path
from typing import Any

from aiohttp import web

from streamer import __version__
from streamer.config.shown import fingerprint
from streamer.delivery.lanes.lane import CLASSES, WAITS_FOR, Lane
from streamer.delivery.lanes.queue import RouteQueue
from streamer.delivery.stats import LATENCY_BOUNDS, EndpointAccount, Histogram, RouteAccount
from streamer.features.api.answers import API, in_turns
from streamer.features.api.readiness import alone, link_of, unready
from streamer.features.api.request_queue import one_at_a_time
from streamer.features.record import RunningStreamer
from streamer.journal.entries import JournalError
from streamer.journal.letters import LetterFilter, open_letters
from streamer.journal.moments import as_moment
from streamer.journal.sqlite import CorruptFileError
from streamer.uprotocol.form import FORM
from streamer.uprotocol.message import UPriority

ROUTES_PER_ITERATION = 50
LANES_PER_ITERATION = 500
"""The most lanes that are read in one iteration of the event loop."""


class StatusPages:
    """The state of a `RunningStreamer`."""

    def __init__(self, running: RunningStreamer) -> None:
        self._running = running

    def routes(self) -> list[web.RouteDef]:
        """Return the HTTP routes of these pages."""
        return [
            web.get(API, one_at_a_time(self._self)),
            web.get(f"{API}/endpoints", self._endpoints),
            web.get(f"{API}/routes", one_at_a_time(self._routes)),
            web.get(f"{API}/queues", one_at_a_time(self._queues)),
        ]

    async def _self(self, request: web.Request) -> web.Response:
        running = self._running
        metrics = running.config.metrics
        reasons = unready(running.router)
        return web.json_response(
            {
                "name": "ustreamer",
                "version": __version__,
                "form": FORM,
                "authority": running.config.authority,
                "started": as_moment(running.started_ms),
                "uptime_s": round(running.router.clock.monotonic_s() - running.started_s, 3),
                "ready": not reasons,
                "reasons": reasons,
                "notes": [*alone(running.router), *(note for feature in running.features for note in feature.notes())],
                "config_fingerprint": fingerprint(running.config),
                "console": metrics is not None and metrics.has_console,
                "journal": await self._journal(),
            }
            | {name: value for feature in running.features for name, value in feature.state().items()}
        )

    async def _journal(self) -> dict[str, Any] | None:
        journal = self._running.router.journal
        if journal is None:
            return None
        return {
            "path": str(journal.path),
            "state": journal.state.value,
            "problem": journal.problem,
            "bytes": journal.bytes,
            "max_bytes": journal.max_bytes,
            "dead_letters": await asyncio.to_thread(_letters, journal.path),
        }

    async def _endpoints(self, request: web.Request) -> web.Response:
        endpoints = self._running.config.endpoints
        found = []
        for account in self._running.router.endpoint_accounts():
            configured = endpoints.get(account.name)
            found.append(_endpoint(account, () if configured is None else configured.authorities))
        return web.json_response({"endpoints": found})

    async def _routes(self, request: web.Request) -> web.Response:
        found = []
        accounts = self._running.router.accounts()
        while some := list(islice(accounts, ROUTES_PER_ITERATION)):
            found += [_route(account) for account in some]
            await asyncio.sleep(0)
        return web.json_response({"routes": found})

    async def _queues(self, request: web.Request) -> web.Response:
        found = []
        for queue in self._running.router.queues():
            counted = Counted()
            async for lane in lanes_of(queue):
                counted.add(lane)
            found.append(_queue(queue, counted))
        return web.json_response({"queues": found})


async def lanes_of(queue: RouteQueue) -> AsyncIterator[Lane]:
    """Yield the present lanes of a queue, some in each iteration of the event loop; those removed meanwhile are left out."""
    async for lane in in_turns(list(queue.lanes.values()), LANES_PER_ITERATION):
        if not lane.retired:
            yield lane


class Counted:
    """Counts the waiting messages by priority class, and the lanes by the reason why they are held."""

    def __init__(self) -> None:
        self.by_class = [0] * CLASSES
        self.held = dict.fromkeys(WAITS_FOR, 0)

    def add(self, lane: Lane) -> None:
        if lane.queued_messages:
            for level, number in enumerate(lane.by_class):
                self.by_class[level] += number
        if lane.waiting_messages:
            for why in lane.waits_for():
                self.held[why] += 1


def _letters(journal: Path) -> int | None:
    """Return the number of dead letters; None if the file cannot be read now."""
    try:
        with open_letters(journal) as file:
            return file.count(LetterFilter())[0]
    except (JournalError, CorruptFileError):
        return None


def _endpoint(account: EndpointAccount, authorities: Iterable[str]) -> dict[str, Any]:
    stats = account.stats
    return {
        "name": account.name,
        "transport": account.transport,
        **link_of(account.link),
        "problems": list(account.problems),
        "authorities": list(authorities),
        "received_packets": stats.packets,
        "received_messages": stats.received,
        "malformed": dict(stats.malformed),
        "unwanted": dict(stats.unwanted),
        "backlog": account.backlog,
        "in_flight": account.in_flight,
        "reconnects": stats.reconnects,
        "wire_bytes": None if account.wire_bytes is None else account.wire_bytes._asdict(),
        "payload_bytes": account.payload_bytes._asdict(),
    }


def _route(account: RouteAccount) -> dict[str, Any]:
    stats = account.stats
    outcomes: dict[str, int] = {}
    for (outcome, _), number in stats.outcomes.items():
        outcomes[outcome.value] = outcomes.get(outcome.value, 0) + number
    return {
        "name": account.name,
        "ingress": account.source,
        "egress": account.target,
        "accepted": stats.accepted,
        "outcomes": outcomes,
        "codes": [
            {"outcome": outcome.value, "code": code.name, "count": number}
            for (outcome, code), number in stats.outcomes.items()
        ],
        "queued": account.queued,
        "queued_bytes": account.bytes,
        "oldest_age_s": round(account.oldest_age_s, 3),
        "unconfirmed": account.unconfirmed,
        "paused_flows": account.paused_lanes or 0,
        "paused_messages": account.paused_messages,
        "retries": stats.retries,
        "limited": stats.limited,
        "wire_bytes": stats.wire_bytes._asdict(),
        "payload_bytes": stats.payload_bytes._asdict(),
        "latency": {"in_daemon": _latency(stats.in_daemon), "end_to_end": _latency(stats.end_to_end)},
    }


def _latency(histogram: Histogram) -> dict[str, Any]:
    return {
        "p50_s": quantile(histogram, 0.5),
        "p99_s": quantile(histogram, 0.99),
        "count": sum(histogram.counts),
        "sum_s": round(histogram.sum, 6),
    }


def quantile(histogram: Histogram, part: float) -> float | None:
    """Return the bucket bound below which this part of the observations lies, or the highest bound; None: there are none."""
    wanted = part * sum(histogram.counts)
    if not wanted:
        return None
    seen = 0
    for bound, number in zip(LATENCY_BOUNDS, histogram.counts, strict=False):
        seen += number
        if seen >= wanted:
            return bound
    return LATENCY_BOUNDS[-1]


def _queue(queue: RouteQueue, counted: Counted) -> dict[str, Any]:
    bounds = queue.policy.queue
    return {
        "route": queue.name,
        "ingress": queue.source,
        "egress": queue.target,
        "messages": queue.messages,
        "max_messages": bounds.messages,
        "bytes": queue.bytes,
        "max_bytes": bounds.bytes,
        "on_full": bounds.on_full,
        "per_priority": {UPriority(level + 1).name: number for level, number in enumerate(counted.by_class) if number},
        "held": counted.held,
    }
