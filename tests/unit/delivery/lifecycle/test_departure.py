"""How an endpoint is left: what it waits for, what ends the wait, what is logged, and what becomes of its messages."""

import asyncio
import json
from typing import Any

import pytest

from streamer.delivery.custody import unconfirmed as unconfirmed_module
from streamer.delivery.inbound.ingress import Ingress, IngressState
from streamer.delivery.lifecycle import departure
from streamer.delivery.lifecycle.departure import (
    attempt,
    excludes,
    may_exclude,
    movable,
    stop_all,
    stop_receiving,
    unpack_all,
)
from streamer.delivery.outcomes.settle import UNREADABLE
from streamer.journal.entries import JournalError
from streamer.logs.lines import JsonFormatter
from streamer.routing.pause_rules import PauseRule
from streamer.transports.base import LinkState, Presence
from streamer.transports.claims import Claim
from streamer.transports.errors import ConfigurationError
from streamer.transports.memory import MemoryOptions
from tests.flow.harness import ORDERS, SPEED, VEHICLE_APP, RouterHarness, configuration
from tests.flow.journaled_run import order
from tests.unit.delivery.custody_harness import FleetingReceived
from tests.unit.delivery.fake_transport import FakeTransport
from tests.unit.delivery.lifecycle.departure_harness import FakeCustody, LeftRouter, ends


async def refuse() -> None:
    raise ConfigurationError("broker", "cannot be used")


async def break_down() -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize("what", ["start", "stop", "stop_receiving"])
async def test_a_failure_is_an_event_of_its_own_with_the_endpoint(what: str, caplog: pytest.LogCaptureFixture) -> None:
    for endpoint, call in (("vehicle", refuse), ("cloud", break_down)):
        await attempt(call, what, endpoint)
    lines = [json.loads(JsonFormatter().format(record)) for record in caplog.records]
    assert [(line["level"], line["event"], line["endpoint"]) for line in lines] == [
        ("error", f"{what}_failed", "vehicle"),
        ("error", f"{what}_failed", "cloud"),
    ]
    assert (lines[0]["key"], lines[0]["reason"]) == ("broker", "cannot be used")
    # The log tells kinds of lines apart by the event and its first value.
    assert {(record.msg.split(" ")[0], record.args[0]) for record in caplog.records if isinstance(record.args, tuple)} == {
        (f"{what}_failed", "vehicle"),
        (f"{what}_failed", "cloud"),
    }


class Last(FakeTransport):
    """Its link is closed when all others have begun to close theirs."""

    def __init__(self, meeting: asyncio.Barrier) -> None:
        super().__init__()
        self.has_stopped = False
        self._meeting = meeting

    async def stop(self) -> None:
        await self._meeting.wait()
        self.has_stopped = True


class Broken(FakeTransport):
    """It cannot be stopped."""

    async def stop(self) -> None:
        await break_down()


async def test_links_are_closed_at_once_and_none_waits_for_another() -> None:
    meeting = asyncio.Barrier(5)
    transports = {f"broker{number}": Last(meeting) for number in range(5)}
    await asyncio.wait_for(stop_all({"broken": Broken(), **transports}), 10)
    assert all(transport.has_stopped for transport in transports.values())


ONE = {"queue": {"messages": 1}}

# -- what excludes what


class ClaimingOptions(MemoryOptions):
    """Options of a transport that needs a port, and a session at a server, which may have several names."""

    session: str
    server: str
    port: int

    def claims(self, authority: str) -> list[Claim]:
        name = f"{self.session} of {authority}"
        return [Claim((), f"port {self.port}"), Claim((), f"{name} at {self.server}", behind_any_address=name)]


def claiming(session: str, server: str, port: int) -> FakeTransport:
    transport = FakeTransport()
    transport.options = ClaimingOptions(session=session, server=server, port=port)
    return transport


@pytest.mark.parametrize(
    ("other", "may", "does"),
    [
        (("one", "a", 2), True, True),
        (("one", "b", 2), True, False),
        (("two", "a", 2), False, False),
        (("two", "b", 1), True, True),
    ],
)
def test_a_transport_excludes_one_with_the_same_session_or_port(other: tuple[str, str, int], may: bool, does: bool) -> None:
    here, others = claiming("one", "a", 1), [FakeTransport(), claiming(*other), claiming("three", "c", 3)]
    assert (may_exclude(here, others), excludes(here, others)) == (may, does)


# -- the network


class LeftTransport(FakeTransport):
    """``aside``: how many misrouted messages were set aside at an ingress whenever receiving was stopped."""

    def __init__(self, ingress: Ingress, source_retransmits: bool) -> None:
        super().__init__()
        self.source_retransmits = source_retransmits
        self.aside: list[int] = []
        self._ingress = ingress

    async def stop_receiving(self) -> None:
        self.aside.append(len(self._ingress.misrouted))


@pytest.mark.parametrize("has_journal", [True, False])
@pytest.mark.parametrize("keeps", [True, False])
async def test_a_network_that_does_not_retransmit_is_emptied_and_one_that_does_is_closed(
    keeps: bool, has_journal: bool
) -> None:
    async with RouterHarness(configuration(queue_policy=ONE)) as harness:
        harness.transports["cloud"].set_state(LinkState.DOWN)
        harness.transports["vehicle"].inject(*(FleetingReceived(harness.speed()) for _ in range(3)))
        ingress = harness.router.ingresses["vehicle"]
        ingress.misrouted.take(FleetingReceived(harness.speed()), UNREADABLE, harness.clock.s)
        left = LeftTransport(ingress, keeps)
        await stop_receiving(ingress, left, has_journal)
        assert (ingress.state is IngressState.CLOSED, left.aside, len(ingress.misrouted)) == (keeps, [] if keeps else [1], 0)
        # What is not kept by its source enters a queue that may be written to the journal.
        assert harness.router.queues()[0].messages == (3 if has_journal and not keeps else 1)


# -- the waits


class Kept(FleetingReceived):
    source_retransmits = True


@pytest.mark.parametrize("is_draining", [True, False])
async def test_what_finds_no_room_in_time_is_rejected_or_left_to_its_source(is_draining: bool) -> None:
    async with RouterHarness(configuration(queue_policy=ONE)) as harness:
        harness.transports["cloud"].set_state(LinkState.DOWN)
        batch = [FleetingReceived(harness.speed()), FleetingReceived(harness.speed()), Kept(harness.speed())]
        harness.transports["vehicle"].inject(*batch)
        router = LeftRouter(harness)
        if is_draining:
            task = await router.waits(router.leaving("vehicle").stop_receiving())
            router.drain()
            await ends(task)
        else:
            await router.leaving("vehicle", 0).stop_receiving()
        assert harness.outcomes("vehicle-cloud") == {"rejected": 1}
        assert (harness.queued("vehicle-cloud"), batch[2].acknowledged) == (1, False)
        assert not harness.router.ingresses["vehicle"].has_backlog


@pytest.mark.parametrize("end", ["confirmed", "link lost", "daemon ends"])
async def test_an_endpoint_that_will_be_back_sends_nothing_more_and_waits_for_confirmations(
    end: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with RouterHarness() as harness:
        cloud = harness.transports["cloud"]
        cloud.is_withholding = True
        harness.arrive("vehicle", harness.speed(b"before"))
        router = LeftRouter(harness)
        task = await router.waits(router.leaving().pause())
        assert "endpoint_drain_began endpoint=cloud drain_s=3600 waits_for=1" in caplog.text
        harness.arrive("vehicle", harness.speed(b"after"))
        if end == "confirmed":
            cloud.release_withheld()
        elif end == "link lost":
            cloud.lose_link()
        else:
            router.drain()
        await ends(task)
        assert [message.payload for message in harness.sent("cloud")] == ([b"before"] if end == "confirmed" else [])
        assert harness.queued("vehicle-cloud") == (1 if end == "confirmed" else 2)


async def test_a_network_that_confirms_nothing_is_waited_for_until_all_counts_as_delivered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    async with RouterHarness(unconfirmed_s=10) as harness:
        harness.arrive("cloud", order(harness), order(harness))
        router = LeftRouter(harness)
        task = await router.waits(router.leaving("vehicle").pause())
        assert "endpoint_drain_began endpoint=vehicle drain_s=3600 waits_for=2" in caplog.text
        for _ in range(2):  # its batch is closed, and counts as delivered
            harness.pass_time(11_000)
        await ends(task)
        assert harness.outcomes("cloud-vehicle") == {"delivered": 2}


async def test_an_endpoint_without_anything_unconfirmed_is_not_waited_for() -> None:
    async with RouterHarness(unconfirmed_s=10) as harness:
        router = LeftRouter(harness)
        for name in ("vehicle", "cloud"):
            await ends(asyncio.ensure_future(router.leaving(name).pause()))


@pytest.mark.parametrize("keeps", [True, False])
async def test_an_endpoint_is_left_once_it_receives_no_more(keeps: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async with RouterHarness() as harness:
        cloud = harness.transports["cloud"]
        left = LeftTransport(harness.router.ingresses["cloud"], keeps)
        monkeypatch.setattr(cloud, "source_retransmits", keeps)
        monkeypatch.setattr(cloud, "stop_receiving", left.stop_receiving)
        cloud.is_withholding = True
        harness.arrive("vehicle", harness.speed())
        await LeftRouter(harness).leaving().leave()
        assert left.aside == ([] if keeps else [0])
        assert (cloud.state, harness.router.egresses["cloud"].in_flight) == (LinkState.DOWN, 0)
        assert harness.queued("vehicle-cloud") == 1


# -- the session of an endpoint that has another transport now


class EndingTransport(FakeTransport):
    """Its session is ended when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.options = ClaimingOptions(session="one", server="a", port=1)
        self.successors: list[object] = []
        self.has_ended = asyncio.Event()
        self.was_cancelled = False

    async def end_session(self, successor: object) -> None:
        self.successors.append(successor)
        try:
            await self.has_ended.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise


class Session:
    """An endpoint that was left and has a successor."""

    def __init__(self, harness: RouterHarness) -> None:
        self.transport, self.successor = EndingTransport(), claiming("one", "a", 1)
        self.router = LeftRouter(harness)
        transports: dict[str, Any] = dict(harness.router.transports, cloud=self.transport)
        self._set(transports)
        self.leaving = self.router.leaving()
        self.at_once = self.router.leaving(within_s=0)
        self._set(transports | {"cloud": self.successor})

    def _set(self, transports: dict[str, Any]) -> None:
        self.router.__dict__["transports"] = transports


async def test_the_end_of_a_session_ends_the_wait_for_it() -> None:
    async with RouterHarness() as harness:
        session = Session(harness)
        task = await session.router.waits(session.leaving.end_session(session.successor))
        session.transport.has_ended.set()
        await ends(task)
        assert not session.transport.was_cancelled


async def test_a_session_that_does_not_end_in_time_is_left_to_its_broker() -> None:
    async with RouterHarness() as harness:
        session = Session(harness)
        await ends(asyncio.ensure_future(session.at_once.end_session(session.successor)))
        assert session.transport.was_cancelled or not session.transport.successors


# -- what can be delivered


async def test_only_what_moves_is_waited_for_before_an_endpoint_goes() -> None:
    async with RouterHarness(unconfirmed_s=10) as harness:
        harness.router.pause_rules.add(PauseRule(SPEED))
        vehicle, cloud = harness.router.egresses["vehicle"], harness.router.egresses["cloud"]
        harness.transports["cloud"].is_withholding = True
        paused, moving = harness.speed(), harness.notify(source=SPEED._replace(resource=0x8A51))
        harness.arrive("vehicle", paused, moving)
        assert (movable(cloud), cloud.unsettled()) == (1, 2)
        harness.transports["cloud"].lose_link()
        assert movable(cloud) == 0
        harness.transports["vehicle"].set_presence(ORDERS, VEHICLE_APP, Presence.UNKNOWN)
        harness.arrive("cloud", order(harness))
        assert movable(vehicle) == 1  # it will be known in a moment whether anybody listens
        harness.transports["vehicle"].set_presence(ORDERS, VEHICLE_APP, Presence.ABSENT)
        assert (movable(vehicle), vehicle.unsettled()) == (0, 1)


@pytest.mark.parametrize("end", ["delivered", "daemon ends"])
async def test_what_can_be_delivered_is_waited_for_and_then_the_link_is_closed(
    end: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with RouterHarness() as harness:
        cloud = harness.transports["cloud"]
        cloud.is_withholding = True
        harness.arrive("vehicle", harness.speed())
        router = LeftRouter(harness)
        task = await router.waits(router.leaving().deliver())
        assert "endpoint_drain_began endpoint=cloud drain_s=3600 waits_for=1" in caplog.text
        assert cloud.state is LinkState.UP
        if end == "delivered":
            cloud.release_withheld()
        else:
            router.drain()
        await ends(task)
        assert cloud.state is LinkState.DOWN
        assert harness.queued("vehicle-cloud") == (0 if end == "delivered" else 1)


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
