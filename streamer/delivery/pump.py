"""The pump: after messages were settled, admits others from backlogs and lets the egresses send, until nothing more can be.

Every caller that settles messages calls `Pump.go_on`; the ingress calls `Pump.send`. Sending may settle more messages: the
outermost call handles these as well, so calls do not nest.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import Protocol

from streamer.clock import Clock


class Sends(Protocol):
    """The interface of an egress that the pump needs."""

    def pump(self, now_ms: int) -> None:
        """Send the messages that may be sent now."""
        ...


class Admits(Protocol):
    """The interface of an ingress that the pump needs."""

    @property
    def has_backlog(self) -> bool:
        """Whether messages wait outside full queues."""
        ...

    def admit_backlog(self) -> None:
        """Put backlogged messages into queues that have room now."""
        ...


class Pump:
    """All egresses of a router, which register themselves here, and those of its ingresses that have a backlog.

    ``is_suspended``: no egress sends anything, because older messages are still being put into the lanes.
    """

    def __init__(self, clock: Clock, gates: Iterable[Callable[[], bool]] = ()) -> None:
        """``gates``: nothing is sent while one of them returns False."""
        self._clock = clock
        self._gates = tuple(gates)
        self._egresses: list[Sends] = []
        self._with_backlog: dict[Admits, None] = {}
        self._marked: dict[Sends, None] = {}
        self._is_running = False
        self.is_suspended = False
        self._awaited: asyncio.Event | None = None  # set once something may have been settled

    @property
    def is_held(self) -> bool:
        """Whether no egress may send anything now."""
        return self.is_suspended or (bool(self._gates) and not all(gate() for gate in self._gates))

    def add_egress(self, egress: Sends) -> None:
        """Register an egress."""
        self._egresses.append(egress)

    def remove_egress(self, egress: Sends) -> None:
        """Forget an egress."""
        self._egresses.remove(egress)
        self._marked.pop(egress, None)

    def add_backlog_of(self, ingress: Admits) -> None:
        """Admit the backlog of an ingress whenever there is room."""
        self._with_backlog[ingress] = None

    def remove_ingress(self, ingress: Admits) -> None:
        """Forget an ingress and its backlog."""
        self._with_backlog.pop(ingress, None)

    def mark(self, egress: Sends) -> None:
        """Have an egress send with the next `send`, or in the `go_on` that is running."""
        self._marked[egress] = None

    def go_on(self, egress: Sends, is_sending: bool = False) -> None:
        """Admit backlogs and send, after ``egress`` may have settled messages, until nothing more is settled.

        ``is_sending``: the egress is in the middle of sending everything that it may.
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
        """Have all egresses send."""
        now_ms = self._clock.wall_ms()
        self._marked.clear()
        for egress in self._egresses:
            egress.pump(now_ms)

    async def until(self, condition: Callable[[], bool], within_s: float) -> None:
        """Wait until a condition holds, checked whenever messages are settled, for at most ``within_s``.

        The router has to be ticked meanwhile.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while not condition():
                    if self._awaited is None:
                        self._awaited = asyncio.Event()
                    await self._awaited.wait()
