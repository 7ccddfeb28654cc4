"""What the journal is for: whatever was acknowledged survives the process, and goes out in order when it is back."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.delivery.lifecycle.departure import Drain
from streamer.journal.journal import Journal, JournalState
from streamer.journal.letters import LetterFilter, open_letters
from streamer.routing.pause_rules import PauseRule
from streamer.transports.base import Presence
from streamer.transports.errors import PermanentError
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from tests.clock import FakeClock
from tests.examples import examples
from tests.flow.harness import (
    CLIMATE,
    CLOUD_APP,
    CLOUD_METHOD,
    GATEWAY,
    ORDERS,
    SPEED,
    VEHICLE_APP,
    RouterHarness,
    configuration,
)
from tests.flow.journaled_run import DOWN, MIB, journaled_run, order
from tests.unit.journal.harness import BOUNDS
from tests.waiting import until


async def test_what_is_confirmed_before_the_flush_never_touches_the_disk(tmp_path: Path) -> None:
    async with journaled_run(tmp_path / "j.db") as run:
        (received,) = run.harness.arrive("cloud", order(run.harness))
        assert received.acknowledged
        await run.flush()
        assert (run.journal.rows_written, run.journal.bytes) == (0, 0)


async def test_the_source_is_acknowledged_once_the_message_is_on_the_disk_and_not_before(tmp_path: Path) -> None:
    async with journaled_run(tmp_path / "j.db") as run:
        run.hold()
        (received,) = run.harness.arrive("cloud", order(run.harness))
        for flush in run.harness.due:
            flush()
        assert not received.acknowledged
        await until(lambda: not run.journal.is_busy, within_s=10, what="the commit")
        assert received.acknowledged
        assert run.journal.rows_written == 1


@pytest.mark.parametrize("why", ["refused", "expired", "rejected", "full"])
async def test_the_source_of_a_message_that_fails_is_acknowledged_once_its_dead_letter_is_on_the_disk(
    tmp_path: Path, why: str
) -> None:
    """Else a kill in between would leave neither the message nor the letter."""
    path, policy = tmp_path / "j.db", {"queue": {"messages": 1, "on_full": "reject"}}
    async with journaled_run(path, queue_policy=policy) as run:
        harness, vehicle = run.harness, run.harness.transports["vehicle"]
        if why == "refused":
            vehicle.refuse = lambda message: PermanentError(UCode.PERMISSION_DENIED, "no")
        elif why == "full":
            vehicle.is_withholding = True
            harness.arrive("cloud", order(harness))
        message = order(harness, ttl=1)
        if why == "expired":
            harness.clock.advance(5)
        elif why == "rejected":
            message = replace(message, attributes=replace(message.attributes, sink=UUri(GATEWAY, 0x77, 1, 0)))
        (received,) = harness.arrive("cloud", message)
        assert len(run.letters) == 1
        assert not received.acknowledged
        run.journal.is_killed = True
    async with journaled_run(path) as run:
        assert run.letters == []
        run.harness.clock.advance(5)
        (received,) = run.harness.arrive("cloud", message)  # its source still has it
        if why in ("expired", "rejected"):
            assert not received.acknowledged
        await run.flush()
        assert received.acknowledged
        with open_letters(path) as file:
            stored = [letter.id for letter in file.find(LetterFilter())]
        assert stored == ([message.id] if why != "refused" else stored)


async def test_a_second_copy_of_a_message_that_fails_waits_for_the_same_dead_letter(tmp_path: Path) -> None:
    """Its source has sent it again after a reconnect, and can acknowledge only this one."""
    async with journaled_run(tmp_path / "j.db") as run:
        message = run.harness.notify(b"x", sink=UUri(GATEWAY, 0x77, 1, 0))
        (first,) = run.harness.arrive("vehicle", message)
        (second,) = run.harness.arrive("vehicle", message)
        assert (first.acknowledged, second.acknowledged) == (False, False)
        await run.flush()
        assert (first.acknowledged, second.acknowledged) == (True, True)
        (third,) = run.harness.arrive("vehicle", message)
        assert third.acknowledged
        assert len(run.letters) == 1


async def test_a_row_goes_only_after_the_confirmation(tmp_path: Path) -> None:
    async with journaled_run(tmp_path / "j.db") as run:
        run.hold()
        run.harness.arrive("cloud", order(run.harness))
        await run.flush()
        assert run.journal.bytes > 0
        run.harness.transports["vehicle"].release_withheld()
        await run.flush()
        assert run.journal.bytes == 0


async def test_after_a_crash_what_was_acknowledged_goes_first_and_in_order(tmp_path: Path) -> None:
    async with journaled_run(tmp_path / "j.db") as run:
        run.hold()
        waiting = [order(run.harness, b"%d" % number, ttl=60_000) for number in range(50)]
        run.harness.arrive("cloud", *waiting)
        await run.flush()
    async with journaled_run(tmp_path / "j.db") as run:
        newer = order(run.harness, b"newer")
        run.harness.arrive("cloud", newer)
        run.harness.router.pump.run()
        assert run.harness.sent("vehicle") == [*waiting, newer]
        await run.flush()
        assert run.journal.bytes == 0
        assert run.harness.outcomes(DOWN) == {"delivered": 51}


async def test_what_the_source_redelivers_after_a_crash_is_a_duplicate(tmp_path: Path) -> None:
    async with journaled_run(tmp_path / "j.db") as run:
        run.hold()
        message = order(run.harness)
        run.harness.arrive("cloud", message)
        await run.flush()
    async with journaled_run(tmp_path / "j.db") as run:
        run.harness.arrive("cloud", message)
        assert run.harness.sent("vehicle") == [message]
        assert run.harness.outcomes("none") == {"duplicate": 1}


async def test_what_the_source_redelivers_of_an_unconfirmed_batch_after_a_crash_is_a_duplicate(tmp_path: Path) -> None:
    async with journaled_run(tmp_path / "j.db", unconfirmed_s=10) as run:
        message, expiring = order(run.harness), order(run.harness, b"expiring", ttl=1000)
        run.harness.arrive("cloud", message, expiring)
        await run.flush()
    async with journaled_run(tmp_path / "j.db", unconfirmed_s=10) as run:
        run.harness.pass_time(2_000)
        run.harness.arrive("cloud", message, expiring)  # not reported as failed: it may have arrived
        run.harness.pass_time(50)
        assert run.harness.sent("vehicle") == [message]
        assert run.harness.outcomes("none") == {"duplicate": 2}


async def test_unconfirmed_messages_are_redelivered_after_a_crash_before_those_that_waited(tmp_path: Path) -> None:
    async with journaled_run(tmp_path / "j.db", unconfirmed_s=10) as run:
        left = [order(run.harness, b"%d" % number) for number in range(5)]
        run.harness.arrive("cloud", *left)
        await run.flush()
        run.harness.transports["vehicle"].set_presence(ORDERS, VEHICLE_APP, Presence.UNKNOWN)
        waiting = [order(run.harness, b"%d" % number) for number in range(5, 8)]
        received = run.harness.arrive("cloud", *waiting)
        await run.flush()
        assert all(each.acknowledged for each in received)
    async with journaled_run(tmp_path / "j.db", unconfirmed_s=10) as run:
        assert run.harness.queued(DOWN) == 8
        run.harness.pass_time(50)
        assert run.harness.sent("vehicle") == left + waiting
        run.harness.pass_time(50)
        await run.flush()
        run.harness.pass_time(10_050)
        await run.flush()
        assert run.harness.outcomes(DOWN) == {"delivered": 8}
        assert run.journal.bytes == 0


async def test_unconfirmed_messages_are_sent_again_over_a_network_that_confirms_now(tmp_path: Path) -> None:
    async with journaled_run(tmp_path / "j.db", unconfirmed_s=10) as run:
        left = [order(run.harness, b"%d" % number) for number in range(5)]
        run.harness.arrive("cloud", *left)
        await run.flush()
    async with journaled_run(tmp_path / "j.db") as run:
        assert run.harness.queued(DOWN) == 5
        run.harness.pass_time(50)
        assert run.harness.sent("vehicle") == left
        await run.flush()
        assert run.harness.outcomes(DOWN) == {"delivered": 5}
        assert run.journal.bytes == 0


async def test_a_route_that_is_gone_still_delivers_what_it_accepted(tmp_path: Path) -> None:
    async with journaled_run(tmp_path / "j.db") as run:
        run.hold()
        message = order(run.harness)
        run.harness.arrive("cloud", message)
        await run.flush()
    async with journaled_run(tmp_path / "j.db", routes=[{"from": "vehicle", "to": "cloud"}]) as run:
        assert run.harness.sent("vehicle") == [message]
        await run.flush()
        assert run.journal.bytes == 0


@pytest.mark.parametrize("unconfirmed_s", [0, 10], ids=["that waited", "unconfirmed"])
async def test_messages_for_an_endpoint_that_was_removed_become_dead_letters(tmp_path: Path, unconfirmed_s: int) -> None:
    async with journaled_run(tmp_path / "j.db", unconfirmed_s=unconfirmed_s) as run:
        if not unconfirmed_s:
            run.hold()
        run.harness.arrive("cloud", order(run.harness))
        await run.flush()
    changes: dict[str, Any] = {
        "endpoints": {
            "phone": {"transport": "memory", "authorities": ["phone1"]},
            "cloud": {"transport": "memory", "authorities": ["*"]},
        },
        "routes": [{"from": "phone", "to": "cloud"}],
    }
    async with journaled_run(tmp_path / "j.db", **changes) as run:
        assert [letter.status.code for letter in run.harness.dead_letters("cloud")] == [UCode.UNAVAILABLE]
        await run.flush()
    async with journaled_run(tmp_path / "j.db", **changes) as run:
        assert run.harness.dead_letters("cloud") == []


async def test_an_rpc_answer_that_could_not_leave_before_a_crash_leaves_after_it(tmp_path: Path) -> None:
    async with journaled_run(tmp_path / "j.db") as run:
        run.hold("cloud")
        run.harness.transports["vehicle"].refuse = lambda message: PermanentError(UCode.PERMISSION_DENIED, "no")
        run.harness.arrive("cloud", run.harness.ask(CLOUD_APP, CLIMATE, ttl=60_000))
        await run.flush()
    async with journaled_run(tmp_path / "j.db") as run:
        codes = [m.attributes.commstatus for m in run.harness.sent("cloud")]
        assert codes == [UCode.PERMISSION_DENIED]
        assert len(run.harness.dead_letters("cloud")) == 1


async def test_after_the_drain_the_rest_is_in_the_journal(tmp_path: Path) -> None:
    async with journaled_run(tmp_path / "j.db") as run:
        run.harness.transports["vehicle"].lose_link()
        messages = [order(run.harness, b"%d" % number) for number in range(5)]
        run.harness.arrive("cloud", *messages)
        assert await Drain(run.harness.router).run(0.05) == 5
        await run.flush()
        assert run.harness.dead_letters("cloud") == []
    async with journaled_run(tmp_path / "j.db") as run:
        assert run.harness.sent("vehicle") == messages


async def test_a_journal_that_cannot_be_used_makes_sources_wait_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "occupied").write_text("a file where the directory should be")
    journal = Journal(tmp_path / "occupied" / "j.db", MIB, BOUNDS, asyncio.get_running_loop().call_soon_threadsafe)
    tried = journal.start(lambda: None)
    assert await asyncio.to_thread(tried.wait, 10)
    assert journal.state is JournalState.FAILING
    async with RouterHarness(
        configuration(journal={"path": str(tmp_path / "occupied" / "j.db")}), journal=journal
    ) as harness:
        (quick,) = harness.arrive("cloud", order(harness))
        assert quick.acknowledged
        harness.transports["vehicle"].is_withholding = True
        (slow,) = harness.arrive("cloud", order(harness))
        for flush in harness.due:
            flush()
        assert not slow.acknowledged
        harness.transports["vehicle"].release_withheld()
        assert slow.acknowledged
    assert not await asyncio.to_thread(journal.stop, 0.1)


STEPS = ("send", "send", "flush", "hold", "free", "away", "back", "crash", "wait")


@settings(max_examples=examples(40), deadline=None)
@given(steps=st.lists(st.sampled_from(STEPS), max_size=30), unconfirmed_s=st.sampled_from([0, 10]))
def test_whatever_happens_nothing_acknowledged_is_lost_and_first_arrivals_are_in_order(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], unconfirmed_s: int
) -> None:
    asyncio.run(_play(tmp_path_factory.mktemp("journal") / "j.db", steps, unconfirmed_s))


async def _play(path: Path, steps: list[str], unconfirmed_s: int) -> None:
    clock = FakeClock()
    arrived: list[UMessage] = []
    acknowledged: list[UMessage] = []
    chapters: list[list[str]] = [[]]
    for step in steps:
        if step == "crash":
            chapters.append([])
        else:
            chapters[-1].append(step)
    chapters.append(["free", "back", "flush", "wait", "flush", "long", "flush"])
    count = 0
    for chapter in chapters:
        async with journaled_run(path, unconfirmed_s=unconfirmed_s, clock=clock) as run:
            harness = run.harness
            network = harness.transports["vehicle"]
            network.refuse = arrived.append  # returns None: it refuses nothing
            for message in network.sent:  # while it was recovered
                arrived.append(message)
            given: list[tuple[UMessage, object]] = []
            for step in chapter:
                match step:
                    case "send":
                        batch = [order(harness, b"%d" % number) for number in range(count, count + 3)]
                        count += 3
                        given += zip(batch, harness.arrive("cloud", *batch), strict=True)
                    case "flush":
                        await run.flush()
                    case "hold":
                        network.is_withholding = True
                    case "free":
                        network.release_withheld()
                    case "away":
                        network.set_presence(ORDERS, VEHICLE_APP, Presence.ABSENT)
                    case "back":
                        network.set_presence(ORDERS, VEHICLE_APP, Presence.PRESENT)
                    case "wait":
                        harness.pass_time(50)
                    case "long":
                        harness.pass_time(10_050)
                harness.check_books()
            acknowledged += [message for message, received in given if received.acknowledged]  # type: ignore[attr-defined]
            if chapter is chapters[-1]:
                assert run.journal.bytes == 0
    first = list(dict.fromkeys(arrived))
    assert set(acknowledged) <= set(first)
    numbers = [int(message.payload or b"") for message in first if message in set(acknowledged)]
    assert numbers == sorted(numbers)


@pytest.mark.parametrize("is_asked", [False, True], ids=["publish", "request"])
async def test_messages_from_an_endpoint_that_was_removed_fail_and_are_stored_without_a_notice(
    tmp_path: Path, is_asked: bool
) -> None:
    async with journaled_run(tmp_path / "j.db") as run:
        run.hold("cloud")
        harness = run.harness
        late = harness.ask(VEHICLE_APP, CLOUD_METHOD, ttl=1000) if is_asked else harness.speed(b"late", ttl=1000)
        harness.arrive("vehicle", late)
        await run.flush()
    renamed: dict[str, Any] = {
        "endpoints": {
            "car": {"transport": "memory", "authorities": ["veh1"]},
            "cloud": {"transport": "memory", "authorities": ["*"]},
        },
        "routes": [{"from": "car", "to": "cloud", "publish": ["//veh1/FFFFFFFF/FF/FFFF"]}, {"from": "cloud", "to": "car"}],
    }
    async with journaled_run(tmp_path / "j.db", pause_rules=[PauseRule(late.attributes.source)], **renamed) as run:
        harness = run.harness
        harness.pass_time(5000)
        harness.check_books()
        newer = harness.speed(b"newer", source=SPEED._replace(resource=0x8A51))
        harness.arrive("car", newer)
        assert harness.sent("cloud") == [newer]
        assert harness.transports["car"].sent == []
        assert [(letter.id, letter.ingress, letter.outcome) for letter in run.letters] == [(late.id, "vehicle", "expired")]


@pytest.mark.parametrize(
    ("source", "name"), [("vehicle", "up"), ("car", "vehicle-cloud")], ids=["the-route", "the-endpoint-it-came-from"]
)
async def test_waiting_messages_go_on_in_order_where_a_name_has_changed(tmp_path: Path, source: str, name: str) -> None:
    """In one queue with what comes now: else the order within a flow would be lost."""
    async with journaled_run(tmp_path / "j.db") as run:
        run.hold("cloud")
        before = [run.harness.speed(b"%d" % number) for number in range(3)]
        for message in before:
            run.harness.arrive("vehicle", message)
        await run.flush()
    changes: dict[str, Any] = {
        "endpoints": {
            source: {"transport": "memory", "authorities": ["veh1"]},
            "cloud": {"transport": "memory", "authorities": ["*"]},
        },
        "routes": [{"name": name, "from": source, "to": "cloud", "publish": ["//veh1/FFFFFFFF/FF/FFFF"]}],
    }
    async with journaled_run(tmp_path / "j.db", **changes) as run:
        newer = run.harness.speed(b"newer")
        run.harness.arrive(source, newer)
        assert run.harness.sent("cloud") == [*before, newer]
        assert {each.name: each.stats.accepted for each in run.harness.router.accounts() if each.stats.accepted} == {name: 4}


async def test_messages_between_endpoints_that_were_removed_are_stored(tmp_path: Path) -> None:
    async with journaled_run(tmp_path / "j.db") as run:
        run.hold("cloud")
        message = run.harness.speed(b"homeless")
        run.harness.arrive("vehicle", message)
        await run.flush()
    others = {name: {"transport": "memory", "authorities": [name]} for name in ("car", "office")}
    async with journaled_run(tmp_path / "j.db", endpoints=others, routes=[{"from": "car", "to": "office"}]) as run:
        await run.flush()
    with open_letters(tmp_path / "j.db") as file:
        found = file.find(LetterFilter())
    assert [(letter.id, letter.ingress, letter.code) for letter in found] == [(message.id, "vehicle", UCode.UNAVAILABLE)]
