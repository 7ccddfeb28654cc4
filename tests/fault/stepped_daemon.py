"""A daemon in this process whose wall clock a test steps. No tests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from streamer.clock import SystemClock
from streamer.config.models import Config
from streamer.daemon import Daemon
from streamer.transports.base import LinkState
from streamer.transports.memory import MemoryReceived, MemoryTransport
from streamer.uprotocol.message import Options, UMessage, notification
from streamer.uprotocol.uri import UUri
from tests.fault.clock_steps import HOUR_MS
from tests.flow.harness import DEAD_LETTERS
from tests.waiting import until


class SteppedClock(SystemClock):
    """The machine's clocks, of which the test steps the one on the wall."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms


class Running:
    """A daemon in this process, between a memory network (``vehicle``) and a real one (``far``)."""

    def __init__(self, daemon: Daemon, clock: SteppedClock) -> None:
        self.daemon = daemon
        self.clock = clock
        self.received: list[MemoryReceived] = []

    @property
    def vehicle(self) -> MemoryTransport:
        transport = self.daemon.transports["vehicle"]
        assert isinstance(transport, MemoryTransport)
        return transport

    async def until_far(self, state: LinkState) -> None:
        await until(lambda: self.daemon.transports["far"].state is state, within_s=20, what=f"far to be {state}")

    def send(self, *texts: str, **options: Any) -> None:
        now_ms = self.clock.wall_ms()
        batch = [
            MemoryReceived(
                notification(now_ms, UUri("veh1", 1, 1, 0x8000), UUri("far", 2, 1, 0), text.encode(), Options(**options))
            )
            for text in texts
        ]
        self.received += batch
        self.vehicle.inject(*batch)

    def outcomes(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for account in self.daemon.router.accounts():
            if account.name == "vehicle-far":
                for (outcome, _), number in account.stats.outcomes.items():
                    found[outcome.value] = number
        return found

    def dead_letters(self) -> list[UMessage]:
        return [message for message in self.vehicle.sent if message.attributes.source == DEAD_LETTERS]

    def check(self) -> None:
        """The books balance, and no latency is negative or an hour."""
        for account in self.daemon.router.accounts():
            assert account.stats.accepted == account.stats.settled + account.queued, account
            assert account.stats.end_to_end.sum >= 0
            assert 0 <= account.stats.in_daemon.sum < HOUR_MS / 1000


@asynccontextmanager
async def running(config: Config, clock: SteppedClock) -> AsyncIterator[Running]:
    daemon = Daemon(config, clock=clock)
    working = asyncio.create_task(daemon.run())
    try:
        yield Running(daemon, clock)
    finally:
        daemon.stop()
        await working
