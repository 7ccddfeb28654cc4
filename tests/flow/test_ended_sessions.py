"""A changed endpoint that goes on with another session: the earlier transport is asked to end its own, once it can."""

import asyncio

import pytest

from streamer.config.models import Config
from streamer.delivery.lifecycle.reload import Reload
from streamer.transports.base import LinkState, UTransport
from streamer.transports.claims import Claim
from streamer.transports.memory import MemoryOptions, MemoryReceived, MemoryTransport
from tests.flow.harness import CLOUD_APP, SPEED, RouterHarness, configuration
from tests.waiting import until

BOTH_WAYS = [{"from": "vehicle", "to": "cloud"}, {"from": "cloud", "to": "vehicle"}]


def config() -> Config:
    return configuration(routes=BOTH_WAYS)


class Asked:
    """What a transport was asked: its successor, and whether that was up then. ``gate`` holds back its answer."""

    def __init__(self, transport: MemoryTransport, monkeypatch: pytest.MonkeyPatch) -> None:
        self.successors: list[tuple[UTransport, LinkState]] = []
        self.is_cancelled = False
        self.gate = asyncio.Event()
        self.gate.set()
        monkeypatch.setattr(transport, "end_session", self.end_session)

    async def end_session(self, successor: UTransport) -> None:
        self.successors.append((successor, successor.state))
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.is_cancelled = True
            raise


async def test_it_is_asked_once_its_successor_has_started_and_what_it_brings_is_delivered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with RouterHarness(config()) as harness:
        old = harness.transports["vehicle"]
        asked = Asked(old, monkeypatch)
        asked.gate.clear()
        new = harness.other_transport("vehicle")
        reloading = asyncio.create_task(Reload(harness.router, config(), {"vehicle": new}).run())
        await until(lambda: asked.successors, "the question")
        assert (asked.successors, reloading.done()) == ([(new, LinkState.UP)], False)
        kept = [MemoryReceived(harness.notify(b"%d" % number, sink=CLOUD_APP, source=SPEED)) for number in range(3)]
        old.inject(*kept)
        assert harness.sent("cloud") == [received.message for received in kept]
        assert all(received.acknowledged for received in kept)
        asked.gate.set()
        await reloading


async def test_one_that_is_not_changed_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async with RouterHarness(config()) as harness:
        asked = Asked(harness.transports["cloud"], monkeypatch)
        await Reload(harness.router, config(), {"vehicle": harness.other_transport("vehicle")}).run()
        assert asked.successors == []


@pytest.mark.parametrize("bus", ["the session", "another"])
async def test_a_session_that_another_endpoint_has_now_is_not_ended(monkeypatch: pytest.MonkeyPatch, bus: str) -> None:
    changed = config()
    async with RouterHarness(changed) as harness:
        vehicle, cloud = harness.transports["vehicle"], harness.transports["cloud"]
        taken = {id(vehicle.options): "the session", id(cloud.options): bus}

        def claims(options: MemoryOptions, authority: str) -> list[Claim]:
            return [Claim((), taken.get(id(options), "a new one"))]

        monkeypatch.setattr(MemoryOptions, "claims", claims)
        asked = Asked(vehicle, monkeypatch)
        await Reload(harness.router, changed, {"vehicle": harness.other_transport("vehicle")}).run()
        assert len(asked.successors) == (0 if bus == "the session" else 1)


async def test_a_stop_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with RouterHarness(config()) as harness:
        asked = Asked(harness.transports["vehicle"], monkeypatch)
        asked.gate.clear()
        reloading = asyncio.create_task(
            Reload(harness.router, config(), {"vehicle": harness.other_transport("vehicle")}).run()
        )
        await until(lambda: asked.successors, "the question")
        harness.router.is_draining = True
        harness.router.tick()
        await asyncio.sleep(0)
        assert not reloading.done()
        asked.gate.set()
        await asyncio.wait_for(reloading, 10)
        assert not asked.is_cancelled


async def test_a_transport_that_fails_at_it_costs_nobody_the_reload(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(successor: UTransport) -> None:
        raise ZeroDivisionError

    async with RouterHarness(config()) as harness:
        monkeypatch.setattr(harness.transports["vehicle"], "end_session", fail)
        new = harness.other_transport("vehicle")
        await Reload(harness.router, config(), {"vehicle": new}).run()
        assert new.state is LinkState.UP
    assert "end_session_failed endpoint=vehicle" in caplog.text
