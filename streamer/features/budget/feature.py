"""The record of budgets: an endpoint whose bytes of a period are used up sends only urgent messages until the next one."""

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from streamer.features.budget.config import BudgetConfig
from streamer.features.budget.service import Budgets, BudgetUse
from streamer.features.host.service import Service
from streamer.features.host.state import StateFile
from streamer.features.record import Feature, Metrics, RunningStreamer, ServiceParts
from streamer.journal.moments import as_moment

_LOOK_S = 1.0

logger = logging.getLogger("ustreamer.budget")


class BudgetFeature(Feature):
    """The budgets of the endpoints. ``uses``: of those that have one, as of the last second."""

    KEYS = {"endpoints.*.budget": BudgetConfig}
    TABLES = Budgets.TABLES
    budgets: Budgets
    uses: Mapping[str, BudgetUse] = MappingProxyType({})
    _running: RunningStreamer | None = None
    _due_s = 0.0

    def serve(self, parts: ServiceParts) -> Service:
        self.budgets = Budgets(parts.state, self.clock)
        return self.budgets

    def start(self, running: RunningStreamer) -> None:
        self._running = running

    def opened(self, state: StateFile) -> None:
        self._look()

    def started(self) -> None:
        self._look()

    def tick(self, now_s: float) -> None:
        if now_s >= self._due_s:
            self._due_s = now_s + _LOOK_S
            self._look()

    async def reloaded(self) -> None:
        self._look(has_changed=True)

    def families(self) -> Metrics:
        from streamer.features.budget.page import families  # noqa: PLC0415

        return families(self.uses)

    def state(self) -> dict[str, Any]:
        from streamer.features.budget.page import as_json  # noqa: PLC0415

        return {"budgets": {name: as_json(use) for name, use in self.uses.items()}}

    def notes(self) -> list[str]:
        return [_note(name, use) for name, use in self.uses.items() if use.is_held]

    def _look(self, has_changed: bool = False) -> None:
        """Count what the endpoints have carried, and pause what may not be sent; ``has_changed``: after a reload."""
        wanted = {name: each.section(BudgetConfig) for name, each in self.config.endpoints.items()}
        if self._running is None or not (self.uses or any(wanted.values())):
            return
        router, before = self._running.router, self.uses
        carried = {account.name: account.wire_bytes for account in router.endpoint_accounts()}
        found = ((name, options) for name, options in wanted.items() if options is not None)
        self.uses = {name: self.budgets.count(name, options, carried.get(name)) for name, options in found}
        for name in sorted(before.keys() | self.uses.keys()):
            level, was = _paused_below(self.uses.get(name)), _paused_below(before.get(name))
            if name in router.egresses and (level != was or has_changed):
                router.egresses[name].pause_below(level)
            if level != was:
                text = _note(name, self.uses[name]) if level else f"endpoint {name}: everything is sent again"
                logger.warning("budget_changed text=%s", text)


def _paused_below(use: BudgetUse | None) -> int:
    return int(use.options.reserve[2:]) if use is not None and use.is_held else 0


def _note(name: str, use: BudgetUse) -> str:
    until = as_moment(use.period.end_ms)
    return f"endpoint {name}: its budget is used up, messages below {use.options.reserve} are paused until {until}"
