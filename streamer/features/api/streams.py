"""Server-sent events (HTML Living Standard, 9.2): shared by the pages that are streams.

The law of this file:
- There are at most `MAX_STREAMS` streams, at most `MAX_ANONYMOUS` of them for clients without a token; taps count
  separately: clients without a token cannot lock out those that have one. Each stream has one task, which writes its
  source's data at the source's pace.
- A reader that does not read blocks only its own task. The source keeps a bounded part of the data meanwhile.
- A stream ends when its reader is gone, when the token that it was opened with has been replaced, when the daemon stops, or
  after `_STALLED_S` in which nothing could be written.
"""

import asyncio
import contextlib
import json
from datetime import UTC, datetime
from typing import Protocol

from aiohttp import web

from streamer.features.api.access import AUTHENTICATED, denied, refused
from streamer.features.api.answers import PROLONG

MAX_STREAMS = 12
MAX_ANONYMOUS = 8
"""The most streams of clients without a token."""
ALIVE_S = 15.0
"""After so many seconds without data a comment is sent, so that a client can recognise a dead connection."""

_STALLED_S = 600.0
_AUTHENTICATED_S = 1.0  # between two checks of a stream's token
_ALIVE = b": alive\n\n"
_HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class Source(Protocol):
    """The data of a stream: `take` is called every ``pace_s`` seconds unless the reader does not keep up."""

    @property
    def pace_s(self) -> float: ...
    def take(self) -> bytes:
        """Return the events since the last call, encoded; empty: none."""
        ...


def event(kind: str, data: object) -> bytes:
    """Encode one event. The data become one line of ASCII whatever they contain."""
    return f"event: {kind}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode("ascii")


def moment(ms: int) -> str:
    """Format Unix milliseconds of our own clock by RFC 3339."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Streams:
    """The streams of one kind."""

    def __init__(self, kind: str = "streams", most: int = MAX_STREAMS, max_anonymous: int = MAX_ANONYMOUS) -> None:
        """``kind``: the word for these streams in refusals. ``max_anonymous``: the most open streams without a token."""
        self._kind = kind
        self._most = most
        self._max_anonymous = max_anonymous
        self._count = {True: 0, False: 0}  # by whether their readers are authenticated
        self._closing = asyncio.Event()

    def close(self) -> None:
        """End every stream, and refuse new ones."""
        self._closing.set()

    async def check(self, request: web.Request) -> bool:
        """Refuse a stream beyond the bounds, with an HTTP error. Returns whether its reader is authenticated."""
        is_authenticated = await request.app[AUTHENTICATED](request)
        if self._closing.is_set():
            raise refused("the daemon is stopping", web.HTTPServiceUnavailable)
        count = sum(self._count.values())
        if count >= self._most or (not is_authenticated and self._count[False] >= self._max_anonymous):
            raise refused(f"there are {count} {self._kind} already", web.HTTPServiceUnavailable, {"Retry-After": "5"})
        return is_authenticated

    async def serve(self, request: web.Request, source: Source) -> web.StreamResponse:
        """Write the events of ``source`` until the stream ends."""
        is_authenticated = await self.check(request)  # no await before the stream is counted
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
        alive_s = 0.0  # when the next comment is due
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
