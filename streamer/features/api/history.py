"""The history of every route over the last hour: `GET /api/v1/history`. Recorded always; bounded."""

import asyncio
import json
from array import array
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from streamer.delivery.router import Router
from streamer.features.api.rates import outcomes, route_counters
from streamer.features.api.request_queue import one_at_a_time

INTERVAL_S = 10
SAMPLES = 360
MAX_ROUTES = 200
"""The most routes with a history: those that had messages first. The answer has the number of the others."""

_MOST = 0xFFFF_FFFF


class _Track:
    """One route's samples. All tracks have the same number of samples."""

    __slots__ = ("accepted", "delivered", "failed", "last", "queued")

    def __init__(self, samples: int, last: tuple[int, int, int]) -> None:
        """``last``: the counters of accepted, delivered and failed messages at the last sample."""
        nothing = bytes(samples * array("I").itemsize)
        self.accepted, self.delivered, self.failed, self.queued = (array("I", nothing) for _ in range(4))
        self.last = last

    def add(self, accepted: int, delivered: int, failed: int, queued: int) -> None:
        before, self.last = self.last, (accepted, delivered, failed)
        counts = (*(now - last for now, last in zip(self.last, before, strict=True)), queued)
        for series, count in zip((self.accepted, self.delivered, self.failed, self.queued), counts, strict=True):
            series.append(max(0, min(count, _MOST)))
            if len(series) >= 2 * SAMPLES:
                del series[:SAMPLES]


class History:
    """Samples how many messages each route has accepted, has delivered, has failed to deliver, and holds."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._clock = router.clock
        self._tracks: dict[str, _Track] = {}
        self._samples = 0
        self._left_out = 0
        self._due_s = self._clock.monotonic_s() + INTERVAL_S
        self._last_ms = self._clock.wall_ms()

    def routes(self) -> list[web.RouteDef]:
        """Return the HTTP routes of these pages."""
        return [web.get("/api/v1/history", one_at_a_time(self._show))]

    def tick(self, now_s: float) -> None:
        """Take a sample if one is due. After a long pause (suspend) the samples in between are missing."""
        if now_s >= self._due_s:
            late_s = now_s - self._due_s
            self._due_s = now_s + INTERVAL_S - (late_s if late_s < INTERVAL_S else 0.0)
            self._sample()

    def _sample(self) -> None:
        there: dict[str, tuple[int, int, int, int]] = {}
        left_out = 0
        for name, stats, queued, _ in route_counters(self._router):
            if name not in self._tracks and len(self._tracks) >= MAX_ROUTES:
                left_out += 1
                continue
            if name not in self._tracks:  # this is its first message, or there was no room for it before
                before = (stats.accepted, *outcomes(stats)) if self._left_out else (0, 0, 0)
                self._tracks[name] = _Track(self._samples, before)
            other = there.get(name, (0, 0, 0, 0))  # a removed route of that name may still deliver what it held
            delivered, failed = outcomes(stats)
            there[name] = (other[0] + stats.accepted, other[1] + delivered, other[2] + failed, other[3] + queued)
        self._tracks = {name: track for name, track in self._tracks.items() if name in there}
        for name, track in self._tracks.items():
            track.add(*there[name])
        self._left_out = left_out
        self._samples = min(self._samples + 1, SAMPLES)
        self._last_ms = self._clock.wall_ms()

    async def _show(self, request: web.Request) -> web.Response:
        tracks = (
            {
                name: tuple(
                    series[-self._samples :] for series in (track.accepted, track.delivered, track.failed, track.queued)
                )
                for name, track in self._tracks.items()
            }
            if self._samples
            else {}
        )
        start = datetime.fromtimestamp(self._last_ms / 1000 - self._samples * INTERVAL_S, UTC)
        head = {
            "interval_s": INTERVAL_S,
            "start": start.isoformat(timespec="seconds").replace("+00:00", "Z"),
            "left_out_routes": self._left_out,
        }
        # Two hundred routes are a megabyte of text.
        return web.json_response(text=await asyncio.to_thread(_text, head, tracks))


def _text(head: dict[str, Any], tracks: "dict[str, tuple[array[int], ...]]") -> str:
    routes = [
        {
            "name": name,
            "accepted_per_s": [count / INTERVAL_S for count in accepted],
            "delivered_per_s": [count / INTERVAL_S for count in delivered],
            "failed_per_s": [count / INTERVAL_S for count in failed],
            "queued": queued.tolist(),
        }
        for name, (accepted, delivered, failed, queued) in tracks.items()
    ]
    return json.dumps(head | {"routes": routes}, separators=(",", ":"))
