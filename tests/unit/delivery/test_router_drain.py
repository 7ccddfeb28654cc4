"""The end of a router: in which order its ingresses close, how long it delivers, and what becomes of the rest."""

from collections.abc import Callable
from pathlib import Path

import pytest

from streamer.delivery import router as router_module
from streamer.delivery.router import Router
from streamer.routing.pause_rules import PauseRule
from streamer.transports.base import LinkState, Presence, TransportContext, UTransport
from streamer.transports.local import LocalTransport
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.well_known import LOCAL_ENDPOINT, USTREAMER
from tests.clock import FakeClock
from tests.flow.harness import GATEWAY, ORDERS, SPEED, VEHICLE_APP, RouterHarness, configuration
from tests.flow.journaled_run import journaled_run
from tests.unit.delivery.custody_harness import FleetingReceived
from tests.unit.delivery.fake_transport import FakeTransport


@pytest.fixture(autouse=True)
def _no_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for dead letters that cannot be sent."""
    monkeypatch.setattr(router_module, "_LAST_WORDS_S", 0.0)


class RecordingTransport(FakeTransport):
    """A network that keeps what is not acknowledged."""


class FleetingTransport(FakeTransport):
    """A network that does not."""

    keeps_unacknowledged = False


class Ending:
    """A router with its own services, and the waits of its drain: how long, and which ingresses were closed then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        transports: dict[str, UTransport] = {
            "vehicle": FleetingTransport(),
            "cloud": RecordingTransport(),
            LOCAL_ENDPOINT: LocalTransport(TransportContext(LOCAL_ENDPOINT, GATEWAY), (USTREAMER,)),
        }
        self.router = Router(configuration(), transports, FakeClock())
        self.waits: list[tuple[float, set[str]]] = []
        monkeypatch.setattr(self.router.pump, "until", self.until)

    async def until(self, condition: Callable[[], bool], within_s: float) -> None:
        self.waits.append((within_s, self.closed))

    @property
    def closed(self) -> set[str]:
        return {name for name, ingress in self.router.ingresses.items() if ingress.closed}


async def test_networks_that_keep_what_we_leave_are_closed_first_and_our_own_services_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ending = Ending(monkeypatch)
    assert await ending.router.drain(30) == 0
    assert ending.waits == [(2.0, {"cloud"}), (28.0, {"cloud", "vehicle"})]
    assert ending.closed == {"cloud", "vehicle", LOCAL_ENDPOINT}


async def test_a_short_drain_is_no_longer_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    ending = Ending(monkeypatch)
    await ending.router.drain(1)
    assert [within_s for within_s, _ in ending.waits] == [1, 0.0]


async def test_a_drain_ends_when_everything_is_delivered() -> None:
    async with RouterHarness() as harness:
        harness.arrive("vehicle", harness.speed())
        assert await harness.router.drain(3600) == 0


async def test_a_transport_that_has_not_confirmed_gives_its_messages_back() -> None:
    async with RouterHarness() as harness:
        harness.transports["cloud"].hold = True
        harness.arrive("vehicle", harness.speed())
        assert await harness.router.drain(0) == 1
        assert harness.transports["cloud"].state is LinkState.DOWN
        assert harness.transports["vehicle"].state is LinkState.UP
        assert harness.router.egresses["cloud"].in_flight == 0


async def test_without_a_journal_messages_in_our_custody_become_dead_letters_and_the_others_stay_with_their_source() -> None:
    async with RouterHarness(configuration(queue_policy={"queue": {"messages": 3}})) as harness:
        harness.transports["cloud"].set_state(LinkState.DOWN)
        kept, fleeting = MemoryReceived(harness.speed(b"kept")), FleetingReceived(harness.speed(b"fleeting"))
        taken = MemoryReceived(harness.speed(b"taken"))
        waiting, lost = MemoryReceived(harness.speed(b"waiting")), FleetingReceived(harness.speed(b"lost"))
        taken.keep()
        harness.transports["vehicle"].inject(kept, fleeting, taken, waiting, lost)
        assert await harness.router.drain(0) == 5
        assert sorted(letter.message.payload for letter in harness.dead_letters("vehicle")) == [
            b"fleeting",
            b"lost",
            b"taken",
        ]
        assert [kept.acknowledged, waiting.acknowledged] == [False, False]
        assert harness.queued("vehicle-cloud") == 2


async def test_unconfirmed_messages_that_were_to_be_sent_again_become_dead_letters_too() -> None:
    async with RouterHarness(unconfirmed_s=10) as harness:
        harness.arrive("cloud", harness.notify(b"order", sink=VEHICLE_APP, source=ORDERS))
        harness.router.custody.flush()
        harness.transports["vehicle"].set_presence(ORDERS, VEHICLE_APP, Presence.ABSENT)
        assert await harness.router.drain(0) == 1
        assert [letter.message.payload for letter in harness.dead_letters("cloud")] == [b"order"]


async def test_with_a_journal_everything_that_is_left_is_kept_also_the_backlog_that_its_source_does_not_keep(
    tmp_path: Path,
) -> None:
    async with journaled_run(tmp_path / "journal.db", queue_policy={"queue": {"messages": 1}}) as run:
        harness = run.harness
        harness.transports["cloud"].set_state(LinkState.DOWN)
        messages = [FleetingReceived(harness.speed(b"%d" % number)) for number in range(3)]
        harness.transports["vehicle"].inject(*messages)
        assert await harness.router.drain(0) == 3
        assert harness.queued("vehicle-cloud") == 3
        await run.flush()
        assert all(received.acknowledged for received in messages)
        assert harness.dead_letters("vehicle") == []


async def test_with_a_journal_paused_flows_are_not_waited_for(tmp_path: Path) -> None:
    async with journaled_run(tmp_path / "journal.db", pause_rules=[PauseRule(SPEED)]) as run:
        run.harness.arrive("vehicle", run.harness.speed())
        assert await run.harness.router.drain(3600) == 1
