"""What becomes of the messages that an endpoint still has when it is removed."""

import asyncio
from typing import Any

import pytest

from streamer.delivery.custody import unconfirmed as unconfirmed_module
from streamer.delivery.lifecycle import departure
from streamer.delivery.lifecycle.departure import unpack_all
from streamer.journal.entries import JournalError
from streamer.routing.pause_rules import PauseRule
from streamer.transports.base import Presence
from tests.flow.harness import ORDERS, VEHICLE_APP, RouterHarness
from tests.flow.journaled_run import order
from tests.unit.delivery.lifecycle.departure_harness import FakeCustody, LeftRouter


def wait_for_nobody(harness: RouterHarness, count: int) -> None:
    harness.transports["cloud"].lose_link()
    harness.arrive("vehicle", *(harness.speed() for _ in range(count)))


async def test_what_is_left_is_given_up_as_one_letter_each() -> None:
    async with RouterHarness() as harness:
        wait_for_nobody(harness, 250)
        assert await LeftRouter(harness).leaving().give_up() == 250
        letters = harness.dead_letters("vehicle")
        assert (len(letters), harness.queued("vehicle-cloud")) == (250, 0)
        assert {letter.status.code for letter in letters} == {14}
        assert all("endpoint was removed" in letter.status.message for letter in letters)
        (queue,) = (queue for queue in harness.router.queues() if queue.name == "vehicle-cloud")
        assert [lane.waiting_messages for lane in queue.lanes.values()] == [0]


@pytest.mark.parametrize(("has_journal", "given_up"), [(True, 100), (False, 250)])
async def test_a_daemon_that_ends_leaves_the_rest_to_its_journal(has_journal: bool, given_up: int) -> None:
    async with RouterHarness() as harness:
        wait_for_nobody(harness, 250)
        router = LeftRouter(harness, has_journal)
        router.is_draining = True
        assert await router.leaving().give_up() == given_up
        assert harness.queued("vehicle-cloud") == 250 - given_up


async def test_nothing_is_given_up_while_the_journal_has_many_letters_to_write() -> None:
    async with RouterHarness() as harness:
        wait_for_nobody(harness, 3)
        custody = FakeCustody(turns=2)
        assert await LeftRouter(harness, True, custody).leaving().give_up() == 3
        assert len(custody.turned) == 2
        custody = FakeCustody(turns=2)
        router = LeftRouter(harness, True, custody)
        router.is_draining = True
        wait_for_nobody(harness, 3)
        assert await router.leaving().give_up() == 0
        assert (custody.turned, harness.queued("vehicle-cloud")) == ([], 3)


async def test_the_others_go_on_while_much_is_given_up_and_what_was_settled_meanwhile_is_not_settled_twice() -> None:
    async with RouterHarness() as harness:
        wait_for_nobody(harness, 250)
        egress, turns, others = harness.router.egresses["cloud"], list[int](), list[int]()
        queue = next(queue for queue in egress.queues if queue.name == "vehicle-cloud")

        def turn() -> None:
            turns.append(queue.messages)
            asyncio.get_running_loop().call_soon(others.append, len(turns))
            if len(turns) == 1:  # somebody else settles the youngest one
                egress.evict(list(queue.waiting())[-1], departure._CAME_FROM_REMOVED)

        assert await LeftRouter(harness, run=turn).leaving().give_up() == 250
        assert (turns, others) == ([150, 49, 0], [1, 2])
        assert harness.outcomes("vehicle-cloud") == {"dead_lettered": 249, "rejected": 1}


async def test_what_comes_while_the_rest_is_given_up_is_given_up_too() -> None:
    async with RouterHarness() as harness:
        wait_for_nobody(harness, 1)
        late = [harness.speed()]
        router = LeftRouter(harness, run=lambda: late and harness.arrive("vehicle", late.pop()))
        assert await router.leaving().give_up() == 2
        assert harness.outcomes("vehicle-cloud") == {"dead_lettered": 2}


# -- what is packed


async def sent_and_returned(harness: RouterHarness) -> None:
    """One order was sent and is unconfirmed; nobody has heard another one, which is to be sent again."""
    harness.arrive("cloud", order(harness, b"sent"))
    other = VEHICLE_APP._replace(ue_id=0xB)
    harness.arrive("cloud", harness.notify(b"returned", sink=other, source=ORDERS))
    harness.router.custody.flush()
    harness.transports["vehicle"].set_presence(ORDERS, other, Presence.ABSENT)


async def test_however_much_was_to_be_sent_again_all_of_it_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unconfirmed_module, "_UNPACKED_MESSAGES", 1)
    async with RouterHarness(unconfirmed_s=10) as harness:
        for _ in range(3):
            harness.arrive("cloud", order(harness))
            harness.router.custody.flush()  # each in a batch of its own
        harness.router.pause_rules.add(PauseRule(ORDERS))
        harness.router.apply_pause_rules()
        harness.transports["vehicle"].set_presence(ORDERS, VEHICLE_APP, Presence.ABSENT)
        assert await LeftRouter(harness).leaving("vehicle").give_up() == 3
        assert harness.outcomes("cloud-vehicle") == {"unconfirmed": 3}


@pytest.mark.parametrize("has_to_stop", [True, False])
async def test_what_cannot_be_unpacked_now_is_tried_again_unless_the_daemon_ends(
    has_to_stop: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(departure, "_TRY_AGAIN_S", 0.0)
    async with RouterHarness(unconfirmed_s=10) as harness:
        await sent_and_returned(harness)
        tries: list[object] = []

        def unreadable(egress: Any) -> None:
            tries.append(egress)
            if len(tries) < 3 or has_to_stop:
                raise JournalError("locked")
            unpack_all(egress)

        monkeypatch.setattr(departure, "unpack_all", unreadable)
        router = LeftRouter(harness)
        router.is_draining = has_to_stop
        assert await router.leaving("vehicle").give_up() == (0 if has_to_stop else 1)
        assert (len(tries), caplog.text.count("batch_not_read endpoint=vehicle error=locked")) == (
            (1, 1) if has_to_stop else (3, 2)
        )
