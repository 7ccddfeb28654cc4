"""One thread for the Zenoh calls that can block: open, declare, undeclare, close. They run in the order of their asking.

Daemon threads, not an executor: whoever leaves the event loop waits for an executor's threads, and closing a session
while a receiver is stalled takes Zenoh 10 s.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

import zenoh

logger = logging.getLogger("ustreamer.zenoh")

T = TypeVar("T")


def tell_loop(loop: asyncio.AbstractEventLoop, callback: Callable[..., Any], *args: Any) -> bool:
    """Have the loop call ``callback`` soon, from any thread. False if the loop is closed."""
    try:
        loop.call_soon_threadsafe(callback, *args)
    except RuntimeError:  # the loop was closed before this thread ended
        return False
    return True


class Control:
    """The thread and its queue."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self._loop = loop
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=self._run, name=f"{name}-control", daemon=True).start()

    def post(self, call: Callable[[], None]) -> None:
        """Run ``call`` without waiting; what Zenoh refuses is logged."""
        self._calls.put(call)

    def ask(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        """Run ``call``; the future has its result or its `zenoh.ZError`."""
        future: asyncio.Future[T] = self._loop.create_future()

        def answer() -> None:
            try:
                result = call()
            except zenoh.ZError as exc:
                tell_loop(self._loop, _fail, future, exc)
            else:
                tell_loop(self._loop, _succeed, future, result)

        self._calls.put(answer)
        return future

    def end(self) -> None:
        """Let the thread end after the calls that are waiting."""
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call()
            except zenoh.ZError as exc:
                logger.warning("zenoh_call_failed error=%s", exc)


def _succeed(future: "asyncio.Future[T]", result: T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: "asyncio.Future[T]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
