"""Two daemons in the test's own process, one active and one on standby, on memory endpoints. No tests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streamer.features.pair.lease import Timing
from streamer.features.pair.view import PairView
from tests.ports import HOST, free_port
from tests.unit.features.api.daemon import DaemonHarness
from tests.unit.features.pair.found import pair_of
from tests.waiting import until

KEY = "k" * 40


class PairHarness:
    """The one that listens, which is the first to be active, and the other one."""

    def __init__(self, folder: Path, changes: dict[str, dict[str, Any]]) -> None:
        key, port = folder / "key", free_port()
        key.write_text(KEY)
        key.chmod(0o600)
        self.harnesses: list[DaemonHarness] = []
        self.tasks: list[asyncio.Task[int]] = []
        for name, where in (("a", "listen"), ("b", "connect")):
            own = folder / name
            own.mkdir()
            pair = {where: f"{HOST}:{port}", "key_file": str(key), **changes.get(f"{name}_pair", {})}
            self.harnesses.append(DaemonHarness(own, {"pair": pair, **changes.get(name, {})}))

    @property
    def active(self) -> DaemonHarness:
        return next(each for each in self.harnesses if view_of(each).is_active)

    @property
    def standby(self) -> DaemonHarness:
        return next(each for each in self.harnesses if not view_of(each).is_active)

    def start(self) -> None:
        self.tasks = [asyncio.create_task(each.daemon.run()) for each in self.harnesses]

    async def until_ready(self) -> None:
        """One is active, and the other one could take over."""

        def is_ready() -> bool:
            for task in self.tasks:
                if task.done():
                    task.result()
            views = [view_of(each) for each in self.harnesses]
            has_started = any(each.daemon.has_started for each in self.harnesses)
            return has_started and not any(view.problem for view in views)

        await until(is_ready, "both are ready", within_s=60)

    async def start_anew(self, index: int) -> None:
        """Start one of the two once it has ended to start anew, as the program does."""
        await self.tasks[index]
        assert self.harnesses[index].daemon.must_restart
        self.harnesses[index].build()
        self.tasks[index] = asyncio.create_task(self.harnesses[index].daemon.run())

    async def stop(self) -> None:
        for each in self.harnesses:
            each.daemon.stop()
        await asyncio.gather(*self.tasks)


def view_of(harness: DaemonHarness) -> PairView:
    return pair_of(harness.daemon.features).view


@asynccontextmanager
async def pair(folder: Path, **changes: dict[str, Any]) -> AsyncIterator[PairHarness]:
    """Both, once they are ready. ``a`` and ``b`` change their configurations, ``a_pair`` and ``b_pair`` the section `pair`.

    No role changes because the event loop, which they share, is held up for some seconds.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamer.features.pair.paired.Timing", partial(Timing, relies_s=40, longest_relies_s=40, pause_s=30))
        found = PairHarness(folder, changes)
    found.start()
    try:
        await found.until_ready()
        yield found
    finally:
        await found.stop()
