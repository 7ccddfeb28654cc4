"""The pump: when messages were settled, admits others from backlogs and lets the egresses send, until nothing is left.

Every caller that settles something tells the pump. Sending may settle more messages; these are handled in the same turn, not
by a nested call.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Protocol

from streamer.clock import Clock


class Sends(Protocol):
    """An egress, as far as the pump knows it."""

    def pump(self, now_ms: int) -> None:
        """Send what may be sent now."""
        ...


class Admits(Protocol):
    """An ingress, as far as the pump knows it."""

    @property
    def has_backlog(self) -> bool:
        """Whether messages wait outside full queues."""
        ...

    def admit_backlog(self) -> None:
        """Let in what has room now."""
        ...


class Pump:
    """All egresses of a router, which register themselves here, and those of its ingresses that have a backlog.

    ``is_suspended``: no egress sends anything, because older messages are still being put into the lanes.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._egresses: list[Sends] = []
        self._with_backlog: dict[Admits, None] = {}
        self._marked: dict[Sends, None] = {}
        self._is_running = False
        self.is_suspended = False
        self._awaited: asyncio.Event | None = None  # set once something may have been settled

    def add_egress(self, egress: Sends) -> None:
        """Have one more egress send."""
        self._egresses.append(egress)

    def remove_egress(self, egress: Sends) -> None:
        """Have an egress send no more."""
        self._egresses.remove(egress)
        self._marked.pop(egress, None)

    def add_backlog_of(self, ingress: Admits) -> None:
        """An ingress has a backlog: let it in as room comes."""
        self._with_backlog[ingress] = None

    def remove_ingress(self, ingress: Admits) -> None:
        """Let in nothing more of an ingress."""
        self._with_backlog.pop(ingress, None)

    def mark(self, egress: Sends) -> None:
        """Have an egress send in this turn, or the next one."""
        self._marked[egress] = None

    def settled(self, egress: Sends, is_sending: bool = False) -> None:
        """Something may have been settled: let in what was held back, and send. Sending may settle more: go on.

        ``is_sending``: the egress is about to send all that it may anyway.
        """
        awaited = self._awaited
        if awaited is not None:
            self._awaited = None
            awaited.set()
        if is_sending and not self._with_backlog and not self._marked:
            return
        self._marked[egress] = None
        if self._is_running:
            return
        self._is_running = True
        try:
            while self._marked:
                if self._with_backlog:
                    self._admit()
                now_ms = self._clock.wall_ms()
                marked, self._marked = self._marked, {}
                for each in marked:
                    each.pump(now_ms)
        finally:
            self._is_running = False

    def _admit(self) -> None:
        for ingress in list(self._with_backlog):
            if ingress.has_backlog:
                ingress.admit_backlog()
                self._marked.update(dict.fromkeys(self._egresses))
            if not ingress.has_backlog:
                self._with_backlog.pop(ingress, None)

    def send(self) -> None:
        """Have the marked egresses send."""
        now_ms = self._clock.wall_ms()
        marked, self._marked = self._marked, {}
        for egress in marked:
            egress.pump(now_ms)

    def run(self) -> None:
        """Send what may be sent, everywhere."""
        now_ms = self._clock.wall_ms()
        self._marked.clear()
        for egress in self._egresses:
            egress.pump(now_ms)

    async def until(self, condition: Callable[[], bool], within_s: float) -> None:
        """Wait for a condition on what is settled, for so long at most. Whoever ticks the router goes on doing so."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while not condition():
                    if self._awaited is None:
                        self._awaited = asyncio.Event()
                    await self._awaited.wait()
