"""Server-sent events (HTML Living Standard, 9.2): what the pages that never end have in common.

The law of this file:
- There are at most `MAX_STREAMS` streams, and taps besides: who has no token cannot keep out who has. Each has one task,
  which writes what its source has, at the source's pace.
- A reader that stalls stops only that task. What happens meanwhile is the source's matter, which keeps a bounded part of it.
- A stream ends when its reader is gone, when the daemon stops, or after `_STALLED_S` in which nothing could be written.
"""

import asyncio
import contextlib
import json
from datetime import UTC, datetime
from typing import Protocol

from aiohttp import web

from streamer.admin.access import refused
from streamer.admin.answers import PROLONG

MAX_STREAMS = 8
ALIVE_S = 15.0
"""After so many silent seconds a comment is sent: whoever waits longer knows that the connection is dead."""

_STALLED_S = 600.0
_ALIVE = b": alive\n\n"
_HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class Source(Protocol):
    """What a stream shows: asked for more every ``pace_s``, unless the reader stalls."""

    @property
    def pace_s(self) -> float: ...
    def take(self) -> bytes:
        """The events since the last time, encoded; none: empty."""
        ...


def event(kind: str, data: object) -> bytes:
    """One event. Whatever the data contains, it is one line of ASCII."""
    return f"event: {kind}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode("ascii")


def moment(ms: int) -> str:
    """Unix milliseconds of our own clock, as RFC 3339 has them."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Streams:
    """The streams of one kind."""

    def __init__(self, kind: str = "streams", most: int = MAX_STREAMS) -> None:
        """``kind``: what a refusal calls them."""
        self._kind = kind
        self._most = most
        self._count = 0
        self._closing = asyncio.Event()

    def close(self) -> None:
        """End every stream, and begin no other."""
        self._closing.set()

    def check(self) -> None:
        """Raise the refusal of a stream that would be one too many."""
        if self._closing.is_set():
            raise refused("the daemon is stopping", web.HTTPServiceUnavailable)
        if self._count >= self._most:
            raise refused(f"there are {self._most} {self._kind} already", web.HTTPServiceUnavailable, {"Retry-After": "5"})

    async def serve(self, request: web.Request, source: Source) -> web.StreamResponse:
        """Write what a source has until either side ends it."""
        self.check()
        answer = web.StreamResponse(headers=_HEADERS)
        self._count += 1
        try:
            await answer.prepare(request)
            await self._write(request, answer, source)
        except ConnectionError:
            pass  # the reader is gone
        finally:
            self._count -= 1
        return answer

    async def _write(self, request: web.Request, answer: web.StreamResponse, source: Source) -> None:
        now_s = asyncio.get_running_loop().time
        alive_s = 0.0  # when it is to be said next
        while not self._closing.is_set() and request.transport is not None and not request.transport.is_closing():
            data = source.take()
            if data or now_s() >= alive_s:
                request.app[PROLONG](request, _STALLED_S)
                await answer.write(data or _ALIVE)
                alive_s = now_s() + ALIVE_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(source.pace_s):
                    await self._closing.wait()
