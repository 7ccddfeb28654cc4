"""Counts the bytes of each endpoint with a budget, by period, and says which priority classes wait for the next one.

- A byte belongs to the period that the wall clock names when it is counted. A clock that is set back finds the count of that
  period again; one that is wrong for a while spends the budget of another period.
- The tables have each count as it was a few seconds ago: a kill forgets the bytes of these seconds.
- The bytes are those on the wire, of the transport. Where it does not know them, the use is unknown, and nothing is paused.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from streamer.clock import Clock
from streamer.features.budget.config import BudgetConfig
from streamer.features.budget.period import Period, period_of
from streamer.features.host.service import Service
from streamer.features.host.state import StateError, StateFile, Statement
from streamer.transports.base import ByteCounts

SAVE_S = 10.0
_LAST_S = 3.0  # for the disk, here and of the standby
_KEPT_PERIODS = 24  # of an endpoint, in the file
_YOUNG_MS = 3_600_000  # a shorter part of a period says nothing about the rest

logger = logging.getLogger("ustreamer.budget")


class BudgetUse(NamedTuple):
    """The use of a budget, and when it is used up at the mean rate. None: it is unknown, or that is not in the period."""

    options: BudgetConfig
    period: Period
    used: int | None
    is_held: bool
    lasts_until_ms: int | None


@dataclass(slots=True)
class _Meter:
    """The bytes of an endpoint. ``by_start``: by the start of the period; ``seen``: of the transport, at the last look."""

    by_start: dict[int, int] = field(default_factory=dict)
    unsaved: set[int] = field(default_factory=set)
    seen: int = 0


class Budgets(Service):
    """The meters of all endpoints that have a budget."""

    TABLES: ClassVar[Mapping[str, str]] = {
        "budget_used": """CREATE TABLE budget_used (
            endpoint TEXT, start_ms INTEGER, bytes INTEGER NOT NULL, PRIMARY KEY (endpoint, start_ms)) STRICT"""
    }

    def __init__(self, state: StateFile, clock: Clock) -> None:
        self._state = state
        self._clock = clock
        self._meters = dict[str, _Meter]()

    def restore(self) -> None:
        """Add what was used before the start."""
        for endpoint, start_ms, used in self._state.read("SELECT endpoint, start_ms, bytes FROM budget_used", tuple):
            meter = self._meters.setdefault(endpoint, _Meter())
            meter.by_start[start_ms] = meter.by_start.get(start_ms, 0) + used

    async def run(self) -> None:
        """Write the counts every `SAVE_S`, until cancelled, and at the end."""
        try:
            while True:
                await asyncio.sleep(SAVE_S)
                await self.save()
        finally:
            await self.save()

    async def save(self) -> None:
        """Write the counts that have changed. If the disk fails, they are written the next time."""
        unsaved = [(name, meter, start_ms) for name, meter in self._meters.items() for start_ms in meter.unsaved]
        for meter in self._meters.values():
            meter.unsaved.clear()
        try:
            async with asyncio.timeout(_LAST_S):
                await self._state.write([each for found in unsaved for each in _statements(*found)])
        except (StateError, TimeoutError) as exc:
            logger.warning("budget_not_saved error=%s", exc)
            for _, meter, start_ms in unsaved:
                meter.unsaved.add(start_ms)

    def count(self, name: str, options: BudgetConfig, carried: ByteCounts | None) -> BudgetUse:
        """Count the bytes that an endpoint has carried since the last call; return what is used now."""
        now_ms = self._clock.wall_ms()
        period = period_of(options, now_ms)
        meter = self._meters.setdefault(name, _Meter())
        if carried is None and not meter.by_start:
            return BudgetUse(options, period, None, False, None)
        total = meter.seen if carried is None else carried.sent + carried.received
        more = max(0, total - meter.seen)
        meter.seen = total
        used = meter.by_start[period.start_ms] = meter.by_start.get(period.start_ms, 0) + more
        if more:
            meter.unsaved.add(period.start_ms)
        is_held = used * 100 >= options.bytes * options.hold_at
        elapsed_ms = now_ms - period.start_ms
        is_told = used and elapsed_ms >= _YOUNG_MS
        until_ms = period.start_ms + elapsed_ms * options.bytes // used if is_told else period.end_ms
        return BudgetUse(options, period, used, is_held, until_ms if until_ms < period.end_ms else None)


def _statements(name: str, meter: _Meter, start_ms: int) -> Iterator[Statement]:
    yield "INSERT OR REPLACE INTO budget_used VALUES (?, ?, ?)", (name, start_ms, meter.by_start[start_ms])
    newest = "SELECT start_ms FROM budget_used WHERE endpoint = ? ORDER BY start_ms DESC LIMIT ?"
    yield f"DELETE FROM budget_used WHERE endpoint = ? AND start_ms NOT IN ({newest})", (name, name, _KEPT_PERIODS)
