"""An endpoint that is up, has messages in flight and makes no progress is found, and no other."""

import pytest

from streamer.delivery.lifecycle.watchdog import Watchdog
from streamer.transports.memory import MemoryTransport
from streamer.uprotocol.message import publish
from tests.flow.harness import SPEED, RouterHarness, configuration

STALL_S = 60.0


@pytest.fixture(autouse=True)
def stalls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryTransport, "stall_s", STALL_S)


def harness() -> RouterHarness:
    return RouterHarness(configuration(queue_policy={"window": 4}))


def fill(h: RouterHarness, number: int = 10) -> None:
    for _ in range(number):
        h.arrive("vehicle", publish(h.clock.wall_ms(), SPEED, b"x"))


def stalled(h: RouterHarness, watchdog: Watchdog) -> list[str]:
    return watchdog.stalled(h.clock.monotonic_s())


async def test_it_is_found_once_the_time_is_over_and_then_only_after_as_long_again() -> None:
    async with harness() as h:
        watchdog = Watchdog(h.router)
        h.transports["cloud"].is_withholding = True
        fill(h)
        assert stalled(h, watchdog) == []
        h.clock.advance(59_999)
        assert stalled(h, watchdog) == []
        h.clock.advance(1)
        assert stalled(h, watchdog) == ["cloud"]
        assert stalled(h, watchdog) == []
        h.clock.advance(60_000)
        assert stalled(h, watchdog) == ["cloud"]


async def test_a_window_of_many_flows_that_is_full_is_found_too() -> None:
    async with harness() as h:
        watchdog = Watchdog(h.router)
        h.transports["cloud"].is_withholding = True
        for number in range(8):
            h.arrive("vehicle", publish(h.clock.wall_ms(), SPEED._replace(resource=0x8000 + number), b"x"))
        assert h.router.egresses["cloud"].in_flight == 4
        assert stalled(h, watchdog) == []
        h.clock.advance(60_000)
        assert stalled(h, watchdog) == ["cloud"]


async def test_any_result_is_progress() -> None:
    async with harness() as h:
        watchdog, cloud = Watchdog(h.router), h.transports["cloud"]
        cloud.is_withholding = True
        fill(h)
        for _ in range(3):
            assert stalled(h, watchdog) == []
            h.clock.advance(59_999)
            cloud.release_withheld(1)
        assert stalled(h, watchdog) == []


async def test_an_endpoint_with_nothing_to_do_is_no_stall() -> None:
    async with harness() as h:
        watchdog = Watchdog(h.router)
        fill(h, 3)
        assert stalled(h, watchdog) == []
        h.clock.advance(100_000)
        assert stalled(h, watchdog) == []


async def test_a_link_that_is_down_is_no_stall() -> None:
    async with harness() as h:
        watchdog = Watchdog(h.router)
        h.transports["cloud"].is_withholding = True
        fill(h)
        assert stalled(h, watchdog) == []
        h.transports["cloud"].lose_link()
        h.clock.advance(100_000)
        assert stalled(h, watchdog) == []


async def test_a_transport_that_ends_such_connections_itself_is_not_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(MemoryTransport, "stall_s")
    async with harness() as h:
        watchdog = Watchdog(h.router)
        h.transports["cloud"].is_withholding = True
        fill(h)
        assert stalled(h, watchdog) == []
        h.clock.advance(10**9)
        assert stalled(h, watchdog) == []
