"""What the network of an endpoint has carried, in place of the kernel's counters. No tests."""

from pathlib import Path

import pytest

from streamer.features.budget.feature import BudgetFeature
from streamer.transports.base import ByteCounts, Report
from tests.hosted import one_of
from tests.unit.features.api.daemon import DaemonHarness


def feature(served: DaemonHarness) -> BudgetFeature:
    return one_of(served.daemon.features, BudgetFeature)


class Carried:
    """The bytes of one daemon's endpoint `cloud`, since that daemon has started."""

    def __init__(self, served: DaemonHarness, patch: pytest.MonkeyPatch) -> None:
        self._served = served
        self._patch = patch
        self.total = 0
        self.count(0)

    def count(self, more: int) -> int | None:
        """Carry more bytes, and let the next second of the tick come; return what is used of the budget."""
        self.total += more
        report = Report((), (), (), wire_bytes=ByteCounts(self.total, 0))
        self._patch.setattr(self._served.transport("cloud"), "report", lambda: report)
        feature(self._served)._look()
        return feature(self._served).uses["cloud"].used


def endpoints(folder: Path, budget: object) -> dict[str, object]:
    return {
        "vehicle": {"transport": "memory", "authorities": ["veh1"], "options": {"bus": f"{folder}-v"}},
        "cloud": {"transport": "memory", "authorities": ["*"], "options": {"bus": f"{folder}-c"}, "budget": budget},
    }
