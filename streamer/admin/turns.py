"""Turns for pages that take work, so that requests of strangers do not pile up.

A page works for one request at a time, and a few others wait. One more is refused. A request whose client is gone when its
turn comes is given up: aiohttp ends no page because its client has closed the connection.
"""

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from streamer.admin.access import refused

MAX_WAITING = 16
"""Requests that wait for one page: half of the connections that there may be."""

Page = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Turns:
    """The turns of one page, or of pages that must not work at the same time."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._waiting = 0

    @asynccontextmanager
    async def of(self, request: web.Request) -> AsyncIterator[None]:
        """A request's turn. Raises an HTTP error if too many wait, or if the client is gone by then."""
        if self._waiting >= MAX_WAITING:
            text = f"{self._waiting} requests wait for this page already"
            raise refused(text, web.HTTPServiceUnavailable, {"Retry-After": "1"})
        self._waiting += 1
        try:
            await self._turn.acquire()
        finally:
            self._waiting -= 1
        try:
            if is_gone(request):
                raise refused("the client is gone", web.HTTPServiceUnavailable)
            yield
        finally:
            self._turn.release()


def in_turn(page: Page) -> Page:
    """A page that works for one request at a time."""
    turns = Turns()

    @functools.wraps(page)  # it stays marked as in `streamer.admin.access`
    async def wait_and_work(request: web.Request) -> web.StreamResponse:
        async with turns.of(request):
            return await page(request)

    return wait_and_work


def is_gone(request: web.Request) -> bool:
    """Whether nobody waits for the answer any more."""
    return request.transport is None or request.transport.is_closing()
