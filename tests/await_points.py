"""Every place where a coroutine, or a task that it starts, waits: for tests that do something at each of them."""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any

Point = tuple[str, int]
"""File and line of our code that wait there."""

_SOURCES = str(Path(__file__).parent.parent / "streamer")


class AwaitPoints:
    """``visit`` is called for each wait of what runs in `watch`, and in tasks that it starts."""

    def __init__(self, visit: Callable[[Point], None]) -> None:
        self._visit = visit
        self._is_watched: ContextVar[bool] = ContextVar("is_watched", default=False)

    @contextmanager
    def watched_tasks(self) -> Generator[None]:
        """Watch also the tasks that are started by what is watched."""
        loop = asyncio.get_running_loop()

        def make(loop: asyncio.AbstractEventLoop, coroutine: Any, **more: Any) -> asyncio.Task[Any]:
            watched = self._step(coroutine) if self._is_watched.get() else coroutine
            return asyncio.Task(watched, loop=loop, **more)

        loop.set_task_factory(make)
        try:
            yield
        finally:
            loop.set_task_factory(None)

    async def watch(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Await it."""
        self._is_watched.set(True)
        return await self._step(coroutine)

    async def _step(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return await _Steps(coroutine, self._visit)


class _Steps:
    def __init__(self, coroutine: Coroutine[Any, Any, Any], visit: Callable[[Point], None]) -> None:
        self._coroutine = coroutine
        self._visit = visit

    def __await__(self) -> Generator[Any, Any, Any]:
        step = partial(self._coroutine.send, None)
        while True:
            try:
                waits_for = step()
            except StopIteration as done:
                return done.value
            point = _point(self._coroutine)
            if point is not None:
                self._visit(point)
            try:
                step = partial(self._coroutine.send, (yield waits_for))
            except BaseException as exc:  # noqa: BLE001 - a cancellation, too, goes where it belongs
                step = partial(self._coroutine.throw, exc)


def _point(coroutine: Any) -> Point | None:
    """The innermost of our lines that waits."""
    found = None
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None)
        if frame is not None and frame.f_code.co_filename.startswith(_SOURCES):
            found = frame.f_code.co_filename.removeprefix(_SOURCES + "/"), frame.f_lineno
        coroutine = getattr(coroutine, "cr_await", None)
    return found
