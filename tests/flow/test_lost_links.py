"""A link that is lost while many messages are unconfirmed: a batch comes back as a whole, and none of it was delivered."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from streamer.uprotocol.message import UMessage, UPriority
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from tests.flow.harness import CLIMATE, RouterHarness, configuration
from tests.flow.journaled_run import journaled_run, order

ROUTE = "vehicle-cloud"
OPEN = 16
"""Confirmations after which a flow has as many messages unconfirmed at a time."""


def topic(number: int) -> UUri:
    return UUri("veh1", 0xE0 + number, 1, 0x8000)


def open_window(harness: RouterHarness, source: UUri) -> list[UMessage]:
    """Have a flow deliver messages until its window has room for many at a time."""
    messages = [harness.speed(b"before", source=source) for _ in range(OPEN)]
    harness.arrive("vehicle", *messages)
    assert harness.sent("cloud")[-OPEN:] == messages
    return messages


def several_flows(harness: RouterHarness) -> list[UMessage]:
    """Three messages on each of five flows, taken in turns."""
    return [harness.speed(b"%d" % number, source=topic(flow)) for number in range(3) for flow in range(5)]


def by_flow(messages: Sequence[UMessage]) -> dict[UUri, list[UMessage]]:
    flows: dict[UUri, list[UMessage]] = {}
    for message in messages:
        flows.setdefault(message.attributes.source, []).append(message)
    return flows


async def test_a_lost_batch_of_one_flow_is_delivered_once_and_in_order_after_the_link_is_back() -> None:
    async with RouterHarness() as harness:
        cloud = harness.transports["cloud"]
        before = open_window(harness, topic(0))
        cloud.is_withholding = True
        messages = [harness.speed(bytes([n]), source=topic(0)) for n in range(OPEN)]
        harness.arrive("vehicle", *messages)
        cloud.lose_link()
        harness.pass_time(1000)
        assert harness.outcomes(ROUTE) == {"delivered": OPEN}
        assert harness.queued(ROUTE) == OPEN
        cloud.is_withholding = False
        cloud.restore_link()
        harness.check_books()
        assert harness.sent("cloud") == [*before, *messages]
        assert harness.outcomes(ROUTE) == {"delivered": 2 * OPEN}


async def test_a_lost_batch_of_several_flows_comes_back_to_every_one_of_them() -> None:
    async with RouterHarness() as harness:
        cloud = harness.transports["cloud"]
        cloud.is_withholding = True
        messages = several_flows(harness)
        harness.arrive("vehicle", *messages)
        cloud.lose_link()
        harness.pass_time(1000)
        assert (harness.outcomes(ROUTE), harness.queued(ROUTE)) == ({}, 15)
        cloud.is_withholding = False
        cloud.restore_link()
        harness.check_books()
        assert by_flow(harness.sent("cloud")) == by_flow(messages)
        assert harness.outcomes(ROUTE) == {"delivered": 15}


async def test_of_a_batch_that_was_confirmed_in_part_only_the_rest_comes_back() -> None:
    async with RouterHarness() as harness:
        cloud = harness.transports["cloud"]
        before = open_window(harness, topic(0))
        cloud.is_withholding = True
        messages = [harness.speed(bytes([n]), source=topic(0)) for n in range(OPEN)]
        harness.arrive("vehicle", *messages)
        cloud.release_withheld(5)
        cloud.lose_link()
        harness.pass_time(1000)
        assert harness.outcomes(ROUTE) == {"delivered": OPEN + 5}
        cloud.is_withholding = False
        cloud.restore_link()
        harness.check_books()
        assert harness.sent("cloud") == [*before, *messages]


async def test_a_batch_that_is_lost_again_and_again_is_delivered_once() -> None:
    async with RouterHarness(configuration(queue_policy={"retry": {"attempts": 1}})) as harness:
        cloud = harness.transports["cloud"]
        open_window(harness, topic(0))
        cloud.is_withholding = True
        messages = [harness.speed(bytes([n]), source=topic(0)) for n in range(OPEN)]
        harness.arrive("vehicle", *messages)
        for _ in range(4):
            cloud.lose_link()
            harness.pass_time(10_000)
            cloud.restore_link()
            harness.check_books()
            assert (harness.outcomes(ROUTE), harness.queued(ROUTE)) == ({"delivered": OPEN}, OPEN)
        cloud.release_withheld()
        harness.check_books()
        assert harness.sent("cloud")[OPEN:] == messages
        assert harness.dead_letters("vehicle") == []


async def test_classes_of_a_lost_batch_keep_their_rank() -> None:
    async with RouterHarness() as harness:
        cloud = harness.transports["cloud"]
        for number in range(2):
            open_window(harness, topic(number))
        cloud.is_withholding = True
        low = [harness.speed(b"low", source=topic(0), priority=UPriority.CS0) for _ in range(4)]
        high = [harness.speed(b"high", source=topic(1), priority=UPriority.CS6) for _ in range(4)]
        harness.arrive("vehicle", *low, *high)
        cloud.lose_link()
        harness.pass_time(1000)
        cloud.is_withholding = False
        cloud.restore_link()
        harness.check_books()
        assert harness.sent("cloud")[2 * OPEN :] == [*high, *low]


async def test_a_request_that_was_lost_with_its_batch_is_answered_when_its_ttl_is_over() -> None:
    async with RouterHarness() as harness:
        vehicle = harness.transports["vehicle"]
        vehicle.is_withholding = True
        callers = [UUri("cloud", 0xC0 + n, 1, 0) for n in range(4)]
        harness.arrive("cloud", *(harness.ask(caller, CLIMATE, ttl=1000) for caller in callers))
        vehicle.lose_link()
        harness.pass_time(1001)
        answers = [message.attributes for message in harness.sent("cloud")]
        told = [(answer.sink, answer.commstatus) for answer in answers]
        assert told == [(each, UCode.DEADLINE_EXCEEDED) for each in callers]
        assert harness.outcomes("cloud-vehicle") == {"expired": 4}


@pytest.mark.parametrize("is_flushed", [True, False])
async def test_a_batch_that_was_lost_before_a_crash_is_delivered_after_it(tmp_path: Path, is_flushed: bool) -> None:
    async with journaled_run(tmp_path / "j.db") as run:
        vehicle = run.harness.transports["vehicle"]
        first = [order(run.harness, b"before") for _ in range(OPEN)]
        run.harness.arrive("cloud", *first)
        run.hold()
        messages = [order(run.harness, b"%d" % number) for number in range(OPEN)]
        received = run.harness.arrive("cloud", *messages)
        if is_flushed:
            await run.flush()
        vehicle.lose_link()
        run.harness.pass_time(1000)
        await run.flush()
        assert all(each.acknowledged for each in received)
    async with journaled_run(tmp_path / "j.db") as run:
        assert run.harness.sent("vehicle") == messages


async def test_the_source_of_a_lost_batch_is_not_acknowledged_before_it_is_safe(tmp_path: Path) -> None:
    async with journaled_run(tmp_path / "j.db") as run:
        vehicle = run.harness.transports["vehicle"]
        run.harness.arrive("cloud", *(order(run.harness, b"before") for _ in range(OPEN)))
        run.hold()
        received = run.harness.arrive("cloud", *(order(run.harness, b"%d" % number) for number in range(OPEN)))
        vehicle.lose_link()
        assert not any(each.acknowledged for each in received)
        await run.flush()
        assert all(each.acknowledged for each in received)
