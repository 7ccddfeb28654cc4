"""Runs the Zenoh calls that can block (open, declare, undeclare, close) on one thread, in the order of the requests.

The thread is a daemon thread and not an executor's: an event loop waits at its end for the threads of its executor, and
Zenoh takes 10 s to close a session while a receiver does not read.
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
    """Schedule ``callback`` on the loop, from any thread. Return False if the loop is closed."""
    try:
        loop.call_soon_threadsafe(callback, *args)
    except RuntimeError:  # the loop is closed
        return False
    return True


class ControlThread:
    """A thread with a queue of calls."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self._loop = loop
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=self._run, name=f"{name}-control", daemon=True).start()

    def post(self, call: Callable[[], None]) -> None:
        """Queue a call without a result. Its errors are logged."""
        self._calls.put(call)

    def ask(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        """Queue a call, and return a future with its result or exception."""
        future: asyncio.Future[T] = self._loop.create_future()

        def answer() -> None:
            try:
                result = call()
            except BaseException as exc:  # noqa: BLE001  # the future gets it; a panic in Zenoh is not an Exception
                tell_loop(self._loop, _fail, future, exc)
            else:
                tell_loop(self._loop, _succeed, future, result)

        self._calls.put(answer)
        return future

    def end(self) -> None:
        """End the thread after the queued calls."""
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call()
            except zenoh.ZError as exc:
                logger.warning("zenoh_call_failed error=%s", exc)
            except BaseException:  # the thread has to serve all other calls
                logger.exception("zenoh_call_failed")


def _succeed(future: "asyncio.Future[T]", result: T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: "asyncio.Future[T]", error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
