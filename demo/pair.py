"""The story of the demonstrated pair: the active streamer is killed, the standby takes over, the killed one comes back.

Each step waits for a condition; none of them waits for a length of time but the first, which lets messages pass.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from demo import scenario
from demo.ledger import Ledger
from demo.metrics import PairRole, Snapshot
from demo.processes import START_S, DemoDaemon, DemoProcesses, until
from demo.timing import now_s, wait

SECONDS = 20.0
"""How long the demonstration of a pair lasts, if nobody says."""

_UNKNOWN = PairRole(is_active=False, epoch=0, problem="it does not answer")


class StoryEvent(NamedTuple):
    """Something that happened to a streamer."""

    at_s: float
    streamer: str
    text: str


class PairStory:
    """The story of the two daemons of ``processes``. ``is_heard``: whether both hear the vehicle."""

    def __init__(self, processes: DemoProcesses, ledger: Ledger, is_heard: Callable[[], bool]) -> None:
        self.events: list[StoryEvent] = []
        self.problems: list[str] = []
        self._processes = processes
        self._ledger = ledger
        self._is_heard = is_heard
        self._begun_s = now_s()

    def roles(self) -> list[tuple[str, str, str]]:
        """Return for each daemon its name, its role, and what there is to say of it."""
        found = []
        for daemon in self._processes.daemons:
            role = self._role_of(daemon)
            known = "unknown" if role is _UNKNOWN else "active" if role.is_active else "standby"
            ready = f"works, in epoch {role.epoch}" if role.is_active else "has a copy of everything, and could take over"
            found.append((daemon.name, "killed", "") if daemon.is_killed else (daemon.name, known, role.problem or ready))
        return found

    def why_unprotected(self) -> str:
        """Return why a failure of one of the two could lose something now; empty if it could not."""
        active, standby = self._by_role()
        if active is None or standby is None:
            return "not one of the two is active, and one on standby"
        for daemon in (active, standby):
            if problem := self._role_of(daemon).problem:
                return f"{daemon.name}: {problem}"
            needed = ("vehicle", "cloud") if daemon is active else ("vehicle",)
            if down := [name for name in needed if not self._snapshot_of(daemon).is_up(name)]:
                return f"{daemon.name} is not connected: {', '.join(down)}"
        return "" if self._is_heard() else "one of the two does not hear the vehicle"

    async def begin(self) -> bool:
        """Wait for a protected pair. False: it is not one in time."""
        is_protected = await until(lambda: not self.why_unprotected(), START_S)
        self._begun_s = now_s()
        if is_protected:
            self._tell_protected()
        return is_protected

    async def run(self, seconds: float, stop: asyncio.Event) -> None:
        """Kill the active one in the middle of ``seconds``, unless ``stop`` comes before that, and see it come back."""
        await wait(stop, seconds / 2)
        if stop.is_set():
            return
        try:
            await self._fail_over(stop)
        except TimeoutError as exc:
            self.problems.append(f"{exc} within {START_S:.0f} s")
        await wait(stop, max(0.0, seconds - (now_s() - self._begun_s)))

    async def _fail_over(self, stop: asyncio.Event) -> None:
        await self._until(lambda: not self.why_unprotected(), "the pair was not protected")
        killed, other = self._by_role()
        if killed is None or other is None:
            raise AssertionError("a protected pair has an active one and one on standby")
        arrived = {name: self._ledger.flows[name].arrived for name in (scenario.SPEED_FLOW, scenario.CLIMATE_FLOW)}
        await killed.kill()
        self._tell(killed, "is killed (SIGKILL)")
        await self._until(lambda: self._role_of(other).is_active, f"{other.name} did not take over")
        await self._until(
            lambda: stop.is_set() or all(self._ledger.flows[name].arrived > before for name, before in arrived.items()),
            f"{other.name} did not deliver in both directions",
        )
        self._tell(other, "has taken over, and delivers in both directions")
        await killed.start()
        self._tell(killed, "is started again")
        await self._until(lambda: not self.why_unprotected(), "the pair was not protected again")
        self._tell_protected()

    async def _until(self, condition: Callable[[], bool], otherwise: str) -> None:
        """Wait for a condition. Raises `TimeoutError`, with ``otherwise`` and the state of the pair."""
        if not await until(condition, START_S):
            raise TimeoutError(f"{otherwise} ({self.why_unprotected()})")

    def _tell(self, daemon: DemoDaemon, text: str) -> None:
        self.events.append(StoryEvent(now_s() - self._begun_s, daemon.name, text))

    def _tell_protected(self) -> None:
        _, standby = self._by_role()
        if standby is not None:
            self._tell(standby, "is on standby, with a copy of everything")

    def _by_role(self) -> tuple[DemoDaemon | None, DemoDaemon | None]:
        """Return the active daemon and the one on standby; None, twice: it is not so."""
        alive = [daemon for daemon in self._processes.daemons if self._snapshot_of(daemon).role is not None]
        active = [daemon for daemon in alive if self._role_of(daemon).is_active]
        standby = [daemon for daemon in alive if daemon not in active]
        return (active[0], standby[0]) if len(active) == len(standby) == 1 else (None, None)

    def _snapshot_of(self, daemon: DemoDaemon) -> Snapshot:
        return self._processes.latest[daemon.name] or Snapshot()

    def _role_of(self, daemon: DemoDaemon) -> PairRole:
        return self._snapshot_of(daemon).role or _UNKNOWN
