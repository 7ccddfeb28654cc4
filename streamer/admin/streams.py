"""Server-sent events (HTML Living Standard, 9.2): what the pages that never end have in common.

The law of this file:
- There are at most `MAX_STREAMS` streams, at most `MAX_ANONYMOUS` of them for clients without a token, and taps besides:
  clients without a token cannot lock out those that have one. Each stream has one task, which writes its source's data at
  the source's pace.
- A reader that stalls stops only that task. The source keeps a bounded part of what happens meanwhile.
- A stream ends when its reader is gone, when the token that it was opened with has been replaced, when the daemon stops, or
  after `_STALLED_S` in which nothing could be written.
"""

import asyncio
import contextlib
import json
from datetime import UTC, datetime
from typing import Protocol

from aiohttp import web

from streamer.admin.access import AUTHENTICATED, denied, refused
from streamer.admin.answers import PROLONG

MAX_STREAMS = 12
MAX_ANONYMOUS = 8
"""The most streams of those who have no token."""
ALIVE_S = 15.0
"""After so many silent seconds a comment is sent: whoever waits longer knows that the connection is dead."""

_STALLED_S = 600.0
_AUTHENTICATED_S = 1.0  # how often a token is looked at again
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

    def __init__(self, kind: str = "streams", most: int = MAX_STREAMS, max_anonymous: int = MAX_ANONYMOUS) -> None:
        """``kind``: what a refusal calls them. ``max_anonymous``: how many may be open without a token."""
        self._kind = kind
        self._most = most
        self._max_anonymous = max_anonymous
        self._count = {True: 0, False: 0}  # by whether their readers have proven that they may change something
        self._closing = asyncio.Event()

    def close(self) -> None:
        """End every stream, and begin no other."""
        self._closing.set()

    async def check(self, request: web.Request) -> bool:
        """Raise the refusal of a stream that would be one too many. Returns whether its reader has proven who they are."""
        is_authenticated = await request.app[AUTHENTICATED](request)
        if self._closing.is_set():
            raise refused("the daemon is stopping", web.HTTPServiceUnavailable)
        count = sum(self._count.values())
        if count >= self._most or (not is_authenticated and self._count[False] >= self._max_anonymous):
            raise refused(f"there are {count} {self._kind} already", web.HTTPServiceUnavailable, {"Retry-After": "5"})
        return is_authenticated

    async def serve(self, request: web.Request, source: Source) -> web.StreamResponse:
        """Write what a source has until either side ends it."""
        is_authenticated = await self.check(request)  # and counted before anything else happens
        answer = web.StreamResponse(headers=_HEADERS)
        self._count[is_authenticated] += 1
        try:
            await answer.prepare(request)
            await self._write(request, answer, source, is_authenticated)
        except ConnectionError:
            pass  # the reader is gone
        finally:
            self._count[is_authenticated] -= 1
        return answer

    async def _write(self, request: web.Request, answer: web.StreamResponse, source: Source, is_authenticated: bool) -> None:
        now_s = asyncio.get_running_loop().time
        alive_s = 0.0  # when it is to be said next
        authenticated_s = now_s() + _AUTHENTICATED_S
        while not self._closing.is_set() and request.transport is not None and not request.transport.is_closing():
            if is_authenticated and now_s() >= authenticated_s:
                if not await request.app[AUTHENTICATED](request):
                    denied(request, "the token was changed, or certificates of clients are not trusted any more")
                    return
                authenticated_s = now_s() + _AUTHENTICATED_S
            data = source.take()
            if data or now_s() >= alive_s:
                request.app[PROLONG](request, _STALLED_S)
                await answer.write(data or _ALIVE)
                alive_s = now_s() + ALIVE_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(source.pace_s):
                    await self._closing.wait()
