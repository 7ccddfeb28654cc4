"""The end of a router: the order in which networks are left, what it waits for, and what becomes of the rest."""

import asyncio
import logging
from pathlib import Path

import pytest

from streamer.delivery.inbound.ingress import IngressState
from streamer.delivery.lifecycle import departure
from streamer.delivery.lifecycle.departure import Drain
from streamer.journal.journal import Journal
from streamer.routing.pause_rules import PauseRule
from streamer.transports.base import LinkState, Presence
from streamer.transports.errors import RefusedError
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.status import UCode
from tests.flow.harness import ORDERS, SPEED, VEHICLE_APP, RouterHarness, configuration
from tests.flow.journaled_run import MIB, journaled_run, order
from tests.unit.delivery.custody_harness import FleetingReceived
from tests.unit.journal.harness import BOUNDS
from tests.waiting import until


@pytest.fixture(autouse=True)
def _no_last_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for dead letters that cannot be sent."""
    monkeypatch.setattr(departure, "_LAST_NOTICES_S", 0.0)


async def test_a_drain_ends_when_everything_is_delivered() -> None:
    async with RouterHarness() as harness:
        harness.arrive("vehicle", harness.speed())
        assert await Drain(harness.router).run(3600) == 0


async def test_transports_that_have_not_confirmed_are_stopped_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with RouterHarness() as harness:
        meeting = asyncio.Barrier(2)
        for transport in harness.transports.values():
            transport.is_withholding = True
            monkeypatch.setattr(transport, "stop", meeting.wait)
        harness.arrive("vehicle", harness.speed())
        harness.arrive("cloud", harness.notify(b"order", sink=VEHICLE_APP, source=ORDERS))
        assert await asyncio.wait_for(Drain(harness.router).run(0), 10) == 2
        monkeypatch.undo()


async def test_without_a_journal_messages_in_our_custody_become_dead_letters_and_the_others_stay_with_their_source() -> None:
    async with RouterHarness(configuration(queue_policy={"queue": {"messages": 3}})) as harness:
        harness.transports["cloud"].set_state(LinkState.DOWN)
        kept, fleeting = MemoryReceived(harness.speed(b"kept")), FleetingReceived(harness.speed(b"fleeting"))
        taken = MemoryReceived(harness.speed(b"taken"))
        waiting, lost = MemoryReceived(harness.speed(b"waiting")), FleetingReceived(harness.speed(b"lost"))
        taken.take_custody()
        harness.transports["vehicle"].inject(kept, fleeting, taken, waiting, lost)
        assert await Drain(harness.router).run(0) == 5
        assert sorted(letter.message.payload for letter in harness.dead_letters("vehicle")) == [
            b"fleeting",
            b"lost",
            b"taken",
        ]
        assert [kept.acknowledged, waiting.acknowledged] == [False, False]
        assert harness.queued("vehicle-cloud") == 2


async def test_with_a_journal_everything_that_is_left_is_kept_also_the_backlog_that_no_source_retransmits(
    tmp_path: Path,
) -> None:
    async with journaled_run(tmp_path / "journal.db", queue_policy={"queue": {"messages": 1}}) as run:
        harness = run.harness
        harness.transports["cloud"].set_state(LinkState.DOWN)
        messages = [FleetingReceived(harness.speed(b"%d" % number)) for number in range(3)]
        harness.transports["vehicle"].inject(*messages)
        assert await Drain(harness.router).run(0) == 3
        assert harness.queued("vehicle-cloud") == 3
        await run.flush()
        assert all(received.acknowledged for received in messages)
        assert harness.dead_letters("vehicle") == []


async def test_with_a_journal_paused_flows_are_not_waited_for(tmp_path: Path) -> None:
    async with journaled_run(tmp_path / "journal.db", pause_rules=[PauseRule(SPEED)]) as run:
        run.harness.arrive("vehicle", run.harness.speed())
        assert await Drain(run.harness.router).run(3600) == 1


# -- what is on its way when the streamer is told to stop


def fleeting(harness: RouterHarness, count: int) -> list[FleetingReceived]:
    return [FleetingReceived(harness.speed(b"%d" % number)) for number in range(count)]


def bring_at_the_end(harness: RouterHarness, monkeypatch: pytest.MonkeyPatch, batch: list[FleetingReceived]) -> None:
    """The vehicle's network does not retransmit, and hands these messages over when it is left."""
    vehicle = harness.transports["vehicle"]

    async def stop_receiving() -> None:
        vehicle.inject(*batch)

    monkeypatch.setattr(vehicle, "source_retransmits", False)
    monkeypatch.setattr(vehicle, "stop_receiving", stop_receiving)


async def test_what_comes_after_the_end_is_rejected_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    async with RouterHarness() as harness:
        bring_at_the_end(harness, monkeypatch, [])
        assert await Drain(harness.router).run(0) == 0
        late, kept = FleetingReceived(harness.speed(b"late")), MemoryReceived(harness.speed(b"kept by its source"))
        harness.transports["vehicle"].inject(late, kept)
        assert [letter.message.payload for letter in harness.dead_letters("vehicle")] == [b"late"]
        assert not kept.acknowledged


async def test_a_transport_that_fails_to_leave_its_network_does_not_keep_the_others_from_being_drained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with RouterHarness() as harness:

        async def stop_receiving() -> None:
            raise ZeroDivisionError("the plugin has a fault")

        monkeypatch.setattr(harness.transports["vehicle"], "source_retransmits", False)
        monkeypatch.setattr(harness.transports["vehicle"], "stop_receiving", stop_receiving)
        assert await Drain(harness.router).run(0) == 0


@pytest.mark.parametrize("letters", [1, 2])
async def test_dead_letters_that_wait_may_make_room_for_those_of_what_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, letters: int
) -> None:
    """A disk that was too slow has written neither these nor the messages."""
    async with journaled_run(tmp_path / "journal.db", dead_letter={"queue": {"messages": letters}}) as run:
        harness = run.harness
        harness.transports["cloud"].set_state(LinkState.DOWN)
        harness.transports["vehicle"].lose_link()  # where dead letters go
        waiting = [FleetingReceived(harness.speed(b"waiting")) for _ in range(5)]
        late = [FleetingReceived(harness.speed(b"late", ttl=1)) for _ in range(letters)]
        harness.clock.advance(10)
        bring_at_the_end(harness, monkeypatch, [*waiting, *late])
        assert await Drain(harness.router).run(0) == 5 + letters
        assert await Drain(harness.router).give_up_unwritten() == 5
        harness.check_books()
        assert len(run.letters) == 5 + letters
        assert harness.queued("vehicle-cloud") == 0


# -- what is waited for


async def test_with_a_journal_nothing_is_waited_for_that_cannot_leave(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A link that is down, a receiver that is away, a destination that has refused."""
    caplog.set_level(logging.INFO)
    async with journaled_run(tmp_path / "journal.db", unconfirmed_s=10) as run:
        harness = run.harness
        harness.transports["cloud"].set_state(LinkState.DOWN)
        harness.arrive("vehicle", harness.speed())
        harness.transports["vehicle"].set_presence(ORDERS, VEHICLE_APP, Presence.ABSENT)
        harness.arrive("cloud", order(harness))
        assert await Drain(harness.router).run(3600) == 2
        assert "drain_began drain_s=3600 waits_for=nothing left_in_journal=vehicle:1 cloud:1" in caplog.text


async def test_with_a_journal_a_back_off_is_not_waited_for(tmp_path: Path) -> None:
    async with journaled_run(tmp_path / "journal.db") as run:
        harness = run.harness
        harness.transports["cloud"].refuse = lambda message: RefusedError(UCode.UNAVAILABLE, "not now")
        harness.arrive("vehicle", harness.speed())
        assert await Drain(harness.router).run(3600) == 1


async def test_with_a_journal_what_is_being_sent_is_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with journaled_run(tmp_path / "journal.db") as run:
        harness = run.harness
        harness.transports["vehicle"].lose_link()
        run.hold("cloud")
        harness.arrive("cloud", order(harness))
        harness.arrive("vehicle", harness.speed())
        draining = asyncio.create_task(Drain(harness.router).run(3600))
        await until(lambda: "drain_began" in caplog.text, "the beginning")
        assert "waits_for=cloud:1 left_in_journal=vehicle:1" in caplog.text
        assert not draining.done()
        harness.transports["cloud"].release_withheld()
        assert await draining == 1


async def test_with_a_journal_it_is_found_out_first_whether_anybody_listens(tmp_path: Path) -> None:
    async with journaled_run(tmp_path / "journal.db", unconfirmed_s=10) as run:
        harness = run.harness
        harness.transports["vehicle"].set_presence(ORDERS, VEHICLE_APP, Presence.UNKNOWN)
        harness.arrive("cloud", order(harness))
        draining = asyncio.create_task(Drain(harness.router).run(3600))
        await until(lambda: draining.done() or harness.router.pump._awaited is not None, "the wait")
        assert not draining.done()
        harness.transports["vehicle"].set_presence(ORDERS, VEHICLE_APP, Presence.ABSENT)
        harness.router.tick()
        assert await draining == 1


async def begin_to_drain(harness: RouterHarness) -> "asyncio.Task[int]":
    """A drain that has come to its first wait, or is over."""
    draining = asyncio.create_task(Drain(harness.router).run(3600))
    await until(lambda: draining.done() or harness.router.pump._awaited is not None, "the wait")
    return draining


async def test_with_a_journal_what_was_sent_is_waited_for_until_the_network_says_that_it_has_arrived(tmp_path: Path) -> None:
    async with journaled_run(tmp_path / "journal.db", unconfirmed_s=10) as run:
        harness, vehicle = run.harness, run.harness.transports["vehicle"]
        vehicle.arrived_s = harness.clock.s - 1
        harness.arrive("cloud", order(harness))
        assert harness.router.egresses["vehicle"].in_flight == 0
        draining = await begin_to_drain(harness)
        assert not draining.done()
        vehicle.arrived_s = harness.clock.s
        harness.router.tick()
        assert await draining == 0
        assert harness.outcomes("cloud-vehicle") == {"delivered": 1}


async def test_with_a_journal_nothing_is_waited_for_that_only_time_can_confirm(tmp_path: Path) -> None:
    async with journaled_run(tmp_path / "journal.db", unconfirmed_s=10) as run:
        run.harness.arrive("cloud", order(run.harness))
        assert await Drain(run.harness.router).run(3600) == 1  # it stays in the journal


async def test_with_a_journal_a_network_that_says_nothing_new_is_not_waited_for_long(tmp_path: Path) -> None:
    async with journaled_run(tmp_path / "journal.db", unconfirmed_s=10) as run:
        harness = run.harness
        harness.transports["vehicle"].arrived_s = harness.clock.s - 1
        harness.arrive("cloud", order(harness))
        draining = await begin_to_drain(harness)
        assert not draining.done()
        harness.clock.advance(round(departure._CONFIRMATIONS_S * 1000))
        harness.router.tick()
        assert await draining == 1


async def test_with_a_journal_networks_that_keep_nothing_are_left_when_what_was_taken_before_has_made_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with journaled_run(tmp_path / "journal.db") as run:
        harness, vehicle = run.harness, run.harness.transports["vehicle"]
        harness.transports["cloud"].is_withholding = True
        monkeypatch.setattr(vehicle, "source_retransmits", False)
        harness.arrive("vehicle", harness.speed(b"before"))
        draining = await begin_to_drain(harness)
        vehicle.inject(late := FleetingReceived(harness.speed(b"meanwhile")))
        await run.flush()
        assert late.acknowledged  # it is in the journal
        assert harness.router.ingresses["cloud"].state is IngressState.CLOSED  # the broker keeps what it sends
        harness.transports["cloud"].release_withheld()
        assert await draining == 0
        assert harness.outcomes("vehicle-cloud") == {"delivered": 2}


async def test_without_a_journal_everything_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with RouterHarness() as harness:
        harness.transports["cloud"].set_state(LinkState.DOWN)
        harness.arrive("vehicle", harness.speed())
        draining = asyncio.create_task(Drain(harness.router).run(3600))
        await until(lambda: "drain_began" in caplog.text, "the beginning")
        assert "waits_for=cloud:1 left_in_journal=nothing" in caplog.text
        assert not draining.done()
        harness.transports["cloud"].restore_link()
        assert await draining == 0


async def test_a_journal_that_cannot_be_written_is_none(tmp_path: Path) -> None:
    """Everything is waited for, and what is left becomes dead letters."""
    (tmp_path / "occupied").write_text("a file where the directory should be")
    journal = Journal(tmp_path / "occupied" / "j.db", MIB, BOUNDS, asyncio.get_running_loop().call_soon_threadsafe)
    tried = journal.start(lambda: None)
    assert await asyncio.to_thread(tried.wait, 10)
    async with RouterHarness(
        configuration(journal={"path": str(tmp_path / "occupied" / "j.db")}), journal=journal
    ) as harness:
        harness.transports["cloud"].set_state(LinkState.DOWN)
        kept = MemoryReceived(harness.speed(b"kept by its source"))
        harness.transports["vehicle"].inject(FleetingReceived(harness.speed(b"ours alone")), kept)
        draining = asyncio.create_task(Drain(harness.router).run(3600))
        await until(lambda: harness.router.ingresses["vehicle"].state is IngressState.CLOSED, "the beginning")
        harness.router.tick()
        assert not draining.done()
        draining.cancel()
        assert await Drain(harness.router).run(0) == 2
        assert await Drain(harness.router).give_up_unwritten() == 1
        assert [letter.message.payload for letter in harness.dead_letters("vehicle")] == [b"ours alone"]
        assert not kept.acknowledged
    await asyncio.to_thread(journal.stop, 0.1)
