"""Steps of the wall clock, and what must hold for a router on memory networks whatever the clock does."""

from collections.abc import Callable

import pytest

from streamer.transports.base import Presence
from tests.flow.harness import ORDERS, VEHICLE_APP, RouterHarness

HOUR_MS = 3_600_000
ROUTE = "cloud-vehicle"
SHORT_MS, LONG_MS = 10_000, 2 * HOUR_MS
RETRY_MS = 500
ABSENT_MS = 60_000
STEPS = pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS], ids=["an hour ahead", "an hour back"])


def nobody_listens(harness: RouterHarness) -> Callable[[], None]:
    harness.transports["vehicle"].set_presence(ORDERS, VEHICLE_APP, Presence.ABSENT)
    return lambda: harness.transports["vehicle"].set_presence(ORDERS, VEHICLE_APP, Presence.PRESENT)


def payloads(harness: RouterHarness) -> list[bytes | None]:
    return [message.payload for message in harness.sent("vehicle")]


def check_latencies(harness: RouterHarness) -> None:
    """Nothing took less than no time, and nothing took an hour by the monotonic clock."""
    for account in harness.router.accounts():
        stats = account.stats
        assert stats.end_to_end.sum >= 0
        assert 0 <= stats.in_daemon.sum < HOUR_MS / 1000
        assert sum(stats.end_to_end.counts) == sum(stats.in_daemon.counts)
