"""Queues the requests of expensive pages, so that each page handles one request at a time and few of them wait.

A request beyond `MAX_WAITING` is refused. A request whose client has closed the connection meanwhile is dropped when it
reaches the head of the queue: aiohttp does not cancel the handlers of closed connections.
"""

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from streamer.features.api.access import refused

MAX_WAITING = 16
"""The most requests that wait for one page: half of the connections that the port accepts."""

Page = Callable[[web.Request], Awaitable[web.StreamResponse]]


class RequestQueue:
    """The queue of one page, or of pages that must not work at the same time."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._waiting = 0

    @asynccontextmanager
    async def admit(self, request: web.Request) -> AsyncIterator[None]:
        """Wait until no other request is handled, then handle this one within the context.

        Raises an HTTP error if too many requests wait, or if the client has gone meanwhile.
        """
        if self._waiting >= MAX_WAITING:
            text = f"{self._waiting} requests wait for this page already"
            raise refused(text, web.HTTPServiceUnavailable, {"Retry-After": "1"})
        self._waiting += 1
        try:
            await self._lock.acquire()
        finally:
            self._waiting -= 1
        try:
            if is_gone(request):
                raise refused("the client is gone", web.HTTPServiceUnavailable)
            yield
        finally:
            self._lock.release()


def one_at_a_time(page: Page) -> Page:
    """Wrap a page so that it handles one request at a time."""
    queue = RequestQueue()

    @functools.wraps(page)  # it stays marked as in `streamer.features.api.access`
    async def wait_and_work(request: web.Request) -> web.StreamResponse:
        async with queue.admit(request):
            return await page(request)

    return wait_and_work


def is_gone(request: web.Request) -> bool:
    """Return whether the client has closed the connection."""
    return request.transport is None or request.transport.is_closing()
