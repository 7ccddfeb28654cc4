"""The end of a daemon whose services, or whose journal, are still at work."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from streamer.delivery.inbound.ingress import IngressState
from streamer.delivery.lifecycle.departure import Drain
from streamer.features.host.state import Statement
from streamer.transports.base import LinkState
from streamer.transports.errors import MayHaveArrivedError
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.well_known import LOCAL_ENDPOINT
from tests.flow.devices import Device, Devices
from tests.flow.harness import RouterHarness, configuration
from tests.flow.journaled_run import journaled_run
from tests.flow.uentities import SUBSCRIBED, Client
from tests.unit.delivery.custody_harness import FleetingReceived
from tests.unit.delivery.lifecycle.departure_harness import LeftRouter
from tests.waiting import until

TOPIC = UUri("dev1", 0xB, 1, 0x8001)


class SlowDisk:
    """In front of a device's file: a write waits until it may go on. ``asked`` counts them."""

    def __init__(self, device: Device) -> None:
        self.asked = 0
        self.may_go_on = asyncio.Event()
        self._write = device.service_host.state.write
        device.service_host.state.write = self.write  # type: ignore[method-assign]

    async def write(self, statements: Sequence[Statement], most_s: float | None = None) -> None:
        self.asked += 1
        await self.may_go_on.wait()
        await self._write(statements)


class DrainHarness:
    """A device and a client that has asked something; the answer waits for the disk."""

    def __init__(self, device: Device, client: Client) -> None:
        self.device = device
        self.disk = SlowDisk(device)
        self.asking = asyncio.create_task(client.subscribe(TOPIC))


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[DrainHarness]:
    async with Devices(tmp_path) as devices:
        scene = DrainHarness(await devices.device(1), await devices.client(1, 0xA))
        await until(lambda: scene.disk.asked, "the request")
        yield scene
        scene.asking.cancel()
        scene.disk.may_go_on.set()
        await asyncio.gather(scene.asking, return_exceptions=True)


async def test_an_answer_that_is_ready_only_after_the_networks_are_closed_is_given(scene: DrainHarness) -> None:
    router = scene.device.router
    draining = asyncio.create_task(Drain(router).run(5))
    await until(
        lambda: all(router.ingresses[name].state is IngressState.CLOSED for name in ("near", "far")), "the end of listening"
    )
    assert not draining.done()
    scene.disk.may_go_on.set()
    assert await draining == 0
    assert await scene.asking == SUBSCRIBED
    assert router.ingresses[LOCAL_ENDPOINT].state is IngressState.CLOSED


async def test_a_service_that_is_never_done_does_not_keep_the_daemon(scene: DrainHarness) -> None:
    router = scene.device.router
    assert await Drain(router).run(0) == 1
    assert all(ingress.state is IngressState.CLOSED for ingress in router.ingresses.values())


@pytest.mark.parametrize(("kind", "given_up"), [(FleetingReceived, 5), (MemoryReceived, 0)])
async def test_what_the_journal_has_in_hand_and_cannot_write_becomes_a_dead_letter_unless_its_source_retransmits_it(
    tmp_path: Path, kind: type[MemoryReceived], given_up: int
) -> None:
    async with journaled_run(tmp_path / "journal.db") as run:
        harness, router = run.harness, run.harness.router
        harness.transports["cloud"].set_state(LinkState.DOWN)
        run.journal.is_killed = True
        for is_busy in (False, True):
            router.ingresses["vehicle"].on_receive_batch([kind(harness.speed()) for _ in range(3 - is_busy)])
            router.custody.late_flush_s = 0
            router.custody.flush()
            run.journal.is_busy = True
        assert await Drain(router).run(0) == 5
        assert await Drain(router).give_up_unwritten() == given_up
        assert len(router.custody.unwritten()) == 5 - given_up
        assert harness.queued("vehicle-cloud") == 5 - given_up
        run.journal.is_busy = False


# -- what the destination has perhaps, and did not confirm


def send_unconfirmed(harness: RouterHarness, kind: type[MemoryReceived] = FleetingReceived) -> None:
    """Send a message to a broker that does not confirm it before the link is lost."""
    cloud = harness.transports["cloud"]
    cloud.is_withholding, cloud.loss = True, MayHaveArrivedError()
    harness.transports["vehicle"].inject(kind(harness.speed(b"sent")))


def check_only_letter(harness: RouterHarness) -> None:
    (letter,) = harness.dead_letters("vehicle")
    assert letter.message.payload == b"sent"
    assert letter.status.message.endswith("; it may have arrived")
    assert (harness.outcomes("vehicle-cloud"), harness.queued("vehicle-cloud")) == ({"dead_lettered": 1}, 0)


async def test_what_may_have_arrived_and_cannot_be_written_at_the_stop_becomes_a_dead_letter(tmp_path: Path) -> None:
    async with journaled_run(tmp_path / "journal.db") as run:
        run.journal.is_killed = run.journal.is_busy = True
        send_unconfirmed(run.harness)
        assert await Drain(run.harness.router).run(0) == 1
        assert await Drain(run.harness.router).give_up_unwritten() == 1
        check_only_letter(run.harness)
        run.journal.is_busy = False


async def test_without_a_journal_what_may_have_arrived_becomes_a_dead_letter_at_the_stop() -> None:
    async with RouterHarness() as harness:
        send_unconfirmed(harness)
        assert await Drain(harness.router).run(0) == 1
        check_only_letter(harness)


async def test_what_may_have_arrived_at_an_endpoint_that_is_removed_becomes_a_dead_letter() -> None:
    async with RouterHarness() as harness:
        send_unconfirmed(harness)
        harness.transports["cloud"].lose_link()
        assert await LeftRouter(harness).leaving().give_up() == 1
        check_only_letter(harness)


async def test_what_may_have_arrived_and_is_evicted_from_a_full_queue_becomes_a_dead_letter() -> None:
    queue = {"messages": 1, "on_full": "evict"}
    async with RouterHarness(configuration(queue_policy={"queue": queue})) as harness:
        send_unconfirmed(harness)
        harness.transports["cloud"].lose_link()
        harness.arrive("vehicle", harness.speed(b"younger"))
        (letter,) = harness.dead_letters("vehicle")
        assert (letter.message.payload, letter.status.message.split("; ")[-1]) == (b"sent", "it may have arrived")
