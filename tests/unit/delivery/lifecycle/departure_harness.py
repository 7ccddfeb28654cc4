"""The router of a `RouterHarness`, as `Leaving` and `Drain` use it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from streamer.delivery.lifecycle.departure import Leaving
from tests.flow.harness import RouterHarness
from tests.waiting import until


class FakeCustody:
    """A custody with too many letters until it was flushed a number of times."""

    def __init__(self, turns: int = 0) -> None:
        self.turns_left = turns
        self.turned: list[float] = []

    def has_many_letters(self, many: int) -> bool:
        return self.turns_left > 0

    async def until_flushed(self, within_s: float) -> None:
        self.turned.append(within_s)
        self.turns_left -= 1
        await asyncio.sleep(0)


class RunPump:
    """The pump of a router, which calls a function instead of having all egresses send."""

    def __init__(self, harness: RouterHarness, run: Callable[[], object]) -> None:
        self.run = run
        self._pump = harness.router.pump

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pump, name)


class LeftRouter:
    """The router of a harness: as if it had a journal, and with another custody, if a test says so."""

    def __init__(
        self,
        harness: RouterHarness,
        has_journal: bool = False,
        custody: FakeCustody | None = None,
        run: Callable[[], object] | None = None,
    ) -> None:
        self.router = harness.router
        self.is_draining = False
        self.journal = object() if has_journal else None
        self.custody = custody or harness.router.custody
        self.pump: Any = harness.router.pump if run is None else RunPump(harness, run)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.router, name)

    def leaving(self, name: str = "cloud", within_s: float = 3600) -> Leaving:
        router: Any = self
        return Leaving(name, router, within_s)

    def drain(self) -> None:
        """Ask the daemon to end. Settled messages then wake waiting coroutines."""
        self.is_draining = True
        self.pump.go_on(self.egresses["cloud"])

    async def waits(self, leaving: Awaitable[object]) -> "asyncio.Future[object]":
        """Begin to leave, which has to wait for a condition."""
        task = asyncio.ensure_future(leaving)
        await until(lambda: task.done() or self.pump._awaited is not None, "the wait")
        assert not task.done()
        return task


async def ends(task: "asyncio.Future[Any]") -> Any:
    return await asyncio.wait_for(task, 10)
