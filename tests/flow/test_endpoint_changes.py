"""Endpoints come, change and go with a reload, while the others go on. Nothing is lost, and all of it is accounted for."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from streamer.config.models import Config
from streamer.delivery.inbound.ingress import IngressState
from streamer.delivery.lifecycle.reload import Reload
from streamer.delivery.outbound.egress import Sending
from streamer.transports.base import LinkState, ListenerOptions, Presence, UTransport
from streamer.transports.claims import Claim
from streamer.transports.memory import MemoryOptions, MemoryReceived, MemoryTransport
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.well_known import LOCAL_ENDPOINT
from tests.flow.harness import CLOUD_APP, ORDERS, SPEED, VEHICLE_APP, RouterHarness, configuration, three_networks
from tests.flow.journaled_run import journaled_run
from tests.waiting import until

PHONE_APP = UUri("phone1", 0xF, 1, 0)
TO_PHONE = {"from": "cloud", "to": "phone"}
BOTH_WAYS = [{"from": "vehicle", "to": "cloud"}, {"from": "cloud", "to": "vehicle"}]
WAITING = 5


def with_phone(**changes: Any) -> Config:
    return three_networks(**{"routes": [*BOTH_WAYS, TO_PHONE, {"from": "phone", "to": "cloud"}]} | changes)


def without_phone(**changes: Any) -> Config:
    return configuration(**{"routes": BOTH_WAYS} | changes)


def orders(harness: RouterHarness, count: int, sink: UUri = VEHICLE_APP, **options: Any) -> list[UMessage]:
    return [harness.notify(b"%d" % number, sink=sink, source=ORDERS, **options) for number in range(count)]


def endpoints(harness: RouterHarness) -> set[str]:
    return {account.name for account in harness.router.endpoint_accounts()} - {LOCAL_ENDPOINT}


def routes_of(harness: RouterHarness, endpoint: str) -> set[str]:
    """The accounts that name an endpoint."""
    return {account.name for account in harness.router.accounts() if endpoint in (account.source, account.target)}


# added


async def test_an_added_endpoint_carries_messages_both_ways() -> None:
    async with RouterHarness(without_phone()) as harness:
        await Reload(harness.router, with_phone(), {"phone": harness.other_transport("phone")}).run()
        assert endpoints(harness) == {"vehicle", "cloud", "phone"}
        down, up = (
            orders(harness, 1, PHONE_APP),
            [harness.notify(b"up", sink=CLOUD_APP, source=UUri("phone1", 0xF, 1, 0x8000))],
        )
        harness.arrive("cloud", *down)
        harness.arrive("phone", *up)
        assert (harness.sent("phone"), harness.sent("cloud")) == (down, up)


@pytest.mark.parametrize("endpoint", ["phone", "vehicle"], ids=["added", "changed"])
async def test_the_new_transport_listens_to_what_somebody_has_subscribed_to_already(endpoint: str) -> None:
    topics = {"phone": UUri("phone1", 0xF, 1, 0x8001), "vehicle": UUri("veh1", 0xA8000, 2, 0x8001)}
    config = with_phone() if endpoint == "phone" else without_phone()
    async with RouterHarness(without_phone()) as harness:
        harness.router.set_interest(topics[endpoint], {"cloud": 0}, "test")
        await harness.router.listening.catch_up()
        await Reload(harness.router, config, {endpoint: harness.other_transport(endpoint)}).run()
        message = harness.speed(source=topics[endpoint])
        harness.arrive(endpoint, message)
        assert harness.sent("cloud") == [message]


async def test_if_a_new_transport_cannot_listen_nothing_has_changed() -> None:
    async with RouterHarness(without_phone()) as harness:
        deaf = harness.other_transport("phone", listeners=ListenerOptions(max_listeners=0))
        with pytest.raises(UStatusError) as caught:
            await Reload(harness.router, with_phone(), {"phone": deaf}).run()
        assert caught.value.code is UCode.RESOURCE_EXHAUSTED
        assert (endpoints(harness), routes_of(harness, "phone")) == ({"vehicle", "cloud"}, set())
        assert deaf.state is LinkState.DOWN
        harness.arrive("cloud", *orders(harness, 1))
        assert len(harness.sent("vehicle")) == 1
        await Reload(harness.router, with_phone(), {"phone": harness.other_transport("phone")}).run()
        assert endpoints(harness) == {"vehicle", "cloud", "phone"}


async def test_if_a_changed_transport_cannot_listen_the_old_one_goes_on() -> None:
    async with RouterHarness(without_phone()) as harness:
        old = harness.transports["vehicle"]
        deaf = harness._transport("vehicle", listeners=ListenerOptions(max_listeners=0))
        with pytest.raises(UStatusError):
            await Reload(harness.router, without_phone(), {"vehicle": deaf}).run()
        harness.arrive("cloud", *orders(harness, 1))
        assert (len(old.sent), len(deaf.sent)) == (1, 0)


# removed


async def test_an_endpoint_that_goes_is_confirmed_first_and_is_gone_from_all_accounts() -> None:
    async with RouterHarness(with_phone()) as harness:
        phone = harness.transports["phone"]
        phone.is_withholding = True
        harness.arrive("cloud", *orders(harness, 3, PHONE_APP))
        reloading = asyncio.create_task(Reload(harness.router, without_phone()).run())
        await until(lambda: harness.router.ingresses["phone"].state is IngressState.CLOSED, "the endpoint being left")
        await asyncio.sleep(0)
        assert (phone.state, reloading.done()) == (LinkState.UP, False)
        phone.release_withheld()
        await reloading
        assert (len(phone.sent), phone.state) == (3, LinkState.DOWN)
        harness.pass_time(2000)
        assert (endpoints(harness), routes_of(harness, "phone")) == ({"vehicle", "cloud"}, set())
        assert not harness.dead_letters("cloud")


async def test_what_cannot_leave_becomes_a_dead_letter_that_says_why() -> None:
    async with RouterHarness(with_phone()) as harness:
        harness.transports["phone"].lose_link()
        sent = orders(harness, WAITING, PHONE_APP)
        batch = harness.arrive("cloud", *sent)
        await Reload(harness.router, without_phone()).run()
        letters = harness.dead_letters("cloud")
        assert [letter.message.payload for letter in letters] == [message.payload for message in sent]
        assert {(letter.status.code, letter.status.message) for letter in letters} == {
            (UCode.UNAVAILABLE, "its endpoint was removed from the configuration before it could be delivered")
        }
        assert all(received.acknowledged for received in batch)
        assert harness.router.unsettled() == 0


async def test_what_is_paused_and_what_nobody_listens_to_is_not_waited_for() -> None:
    async with RouterHarness(with_phone()) as harness:
        harness.transports["phone"].set_presence(ORDERS, PHONE_APP, Presence.ABSENT)
        harness.arrive("cloud", *orders(harness, WAITING, PHONE_APP))
        await Reload(harness.router, without_phone()).run()
        assert len(harness.dead_letters("cloud")) == WAITING


async def test_what_a_reload_allows_or_revokes_does_not_wait_for_an_endpoint_that_is_left() -> None:
    async with RouterHarness(with_phone()) as harness:
        phone = harness.transports["phone"]
        phone.is_withholding = True
        harness.arrive("cloud", *orders(harness, 3, PHONE_APP))
        accepted: list[LinkState] = []
        reload = Reload(harness.router, without_phone(), {}, lambda: accepted.append(phone.state)).run()
        reloading = asyncio.create_task(reload)
        await until(lambda: harness.router.ingresses["phone"].state is IngressState.CLOSED, "the endpoint being left")
        assert (accepted, reloading.done()) == ([LinkState.UP], False)
        phone.release_withheld()
        await reloading
        assert accepted == [LinkState.UP]


async def test_a_reload_that_is_refused_allows_nothing() -> None:
    async with RouterHarness(without_phone()) as harness:
        deaf = harness.other_transport("phone", listeners=ListenerOptions(max_listeners=0))
        accepted: list[None] = []
        with pytest.raises(UStatusError):
            await Reload(harness.router, with_phone(), {"phone": deaf}, lambda: accepted.append(None)).run()
        assert accepted == []


async def test_other_endpoints_carry_messages_while_one_is_left() -> None:
    async with RouterHarness(with_phone()) as harness:
        phone = harness.transports["phone"]
        phone.is_withholding = True
        harness.arrive("cloud", *orders(harness, 1, PHONE_APP))
        reloading = asyncio.create_task(Reload(harness.router, without_phone()).run())
        await until(lambda: "phone" not in harness.router.table.authorities, "the new table")
        harness.arrive("cloud", *orders(harness, WAITING))
        assert (len(harness.sent("vehicle")), reloading.done()) == (WAITING, False)
        phone.release_withheld()
        await reloading


async def test_what_came_from_an_endpoint_that_goes_is_delivered() -> None:
    async with RouterHarness(with_phone()) as harness:
        harness.transports["cloud"].lose_link()
        up = [harness.notify(b"%d" % number, sink=CLOUD_APP, source=UUri("phone1", 0xF, 1, 0x8000)) for number in range(3)]
        harness.arrive("phone", *up)
        await Reload(harness.router, without_phone()).run()
        assert harness.queued("phone-cloud") == len(up)
        await harness.transports["cloud"].start()
        assert harness.sent("cloud") == up
        harness.pass_time(100)
        assert routes_of(harness, "phone") == set()


async def test_what_waits_for_room_stays_with_a_source_that_retransmits_it() -> None:
    """Its turn will not come in time: it is neither acknowledged nor reported."""
    narrow = {"messages": 2, "stalled_factor": 0}
    async with RouterHarness(with_phone(queue_policy={"queue": narrow}, shutdown={"drain_s": 0})) as harness:
        harness.transports["cloud"].lose_link()
        up = [harness.notify(b"%d" % number, sink=CLOUD_APP, source=UUri("phone1", 0xF, 1, 0x8000)) for number in range(5)]
        batch = harness.arrive("phone", *up)
        await Reload(harness.router, without_phone(queue_policy={"queue": narrow}, shutdown={"drain_s": 0})).run()
        await harness.transports["cloud"].start()
        harness.check_books()
        assert [received.acknowledged for received in batch] == [True, True, False, False, False]
        assert harness.sent("cloud") == up[:2]


async def test_an_endpoint_can_come_back_after_it_was_removed() -> None:
    async with RouterHarness(with_phone()) as harness:
        await Reload(harness.router, without_phone()).run()
        await Reload(harness.router, with_phone(), {"phone": harness.other_transport("phone")}).run()
        harness.arrive("cloud", *orders(harness, 2, PHONE_APP))
        assert len(harness.sent("phone")) == 2


async def test_what_cannot_be_confirmed_any_more_ends_as_unconfirmed_and_leaves_the_journal(tmp_path: Path) -> None:
    async with journaled_run(tmp_path / "journal.db", unconfirmed_s=10, routes=BOTH_WAYS) as run:
        harness = run.harness
        harness.arrive("cloud", *orders(harness, 3))
        await run.flush()
        lost = orders(harness, 2, UUri("veh1", 0xD, 1, 0))
        harness.arrive("cloud", *lost)
        await run.flush()
        harness.transports["vehicle"].set_presence(ORDERS, UUri("veh1", 0xD, 1, 0), Presence.ABSENT)
        only_cloud = type(harness.config).model_validate(
            harness.config.model_dump(by_alias=True, exclude={"endpoints", "routes"})
            | {"endpoints": {"cloud": {"transport": "memory", "authorities": ["*"]}}, "routes": []}
            | {"shutdown": {"drain_s": 0}}
        )
        counted = harness.ledger.counted.copy()
        await Reload(harness.router, only_cloud).run()
        await run.flush()
        new = harness.ledger.counted - counted
        assert {key[3]: number for key, number in new.items() if key[2] == "vehicle"} == {"unconfirmed": 5}
        assert run.letters == []
        assert not list(run.journal.rows())
        assert not list(run.journal.segments())


# changed


async def test_a_changed_endpoint_receives_until_what_it_sent_is_confirmed() -> None:
    """On a network that keeps nothing, whoever sends meanwhile would find nobody."""
    async with RouterHarness(without_phone()) as harness:
        old = harness.transports["vehicle"]
        old.source_retransmits = False
        old.is_withholding = True
        harness.arrive("cloud", *orders(harness, 1))
        new = harness.other_transport("vehicle")
        reloading = asyncio.create_task(Reload(harness.router, without_phone(), {"vehicle": new}).run())
        await until(lambda: harness.router.egresses["vehicle"].sending is Sending.SUSPENDED, "the drain")
        up = harness.notify(b"up", source=SPEED)
        old.inject(MemoryReceived(up))
        assert harness.sent("cloud") == [up]
        old.release_withheld()
        await reloading


async def test_an_endpoint_that_goes_holds_up_only_those_that_want_what_it_has() -> None:
    config = with_phone()
    async with RouterHarness(config) as harness:
        harness.transports["phone"].is_withholding = True
        harness.arrive("cloud", *orders(harness, 1, PHONE_APP))
        new = harness.other_transport("vehicle")
        reloading = asyncio.create_task(Reload(harness.router, without_phone(), {"vehicle": new}).run())
        await until(lambda: new.state is LinkState.UP, "the changed endpoint")
        assert not reloading.done()
        harness.arrive("cloud", *orders(harness, WAITING))
        assert len(harness.sent("vehicle")) == WAITING
        harness.transports["phone"].release_withheld()
        await reloading


@pytest.mark.parametrize("may_be_its", [True, False])
async def test_who_may_have_the_session_of_one_that_goes_starts_when_that_has_drained(
    monkeypatch: pytest.MonkeyPatch, may_be_its: bool
) -> None:
    """A broker that is reached by two addresses ends the old session at the new connection, with all that is in flight."""

    def claims(options: MemoryOptions, authority: str) -> list[Claim]:
        return [Claim((), f"the session at {id(options)}", behind_any_address="the session" if may_be_its else None)]

    monkeypatch.setattr(MemoryOptions, "claims", claims)
    async with RouterHarness(with_phone()) as harness:
        phone = harness.transports["phone"]
        phone.is_withholding = True
        harness.arrive("cloud", *orders(harness, 1, PHONE_APP))
        new = harness.other_transport("vehicle")
        start, found_there = new.start, []

        async def start_and_look() -> None:
            found_there.append("phone" in endpoints(harness))
            await start()

        monkeypatch.setattr(new, "start", start_and_look)
        reloading = asyncio.create_task(Reload(harness.router, without_phone(), {"vehicle": new}).run())
        await until(lambda: "phone" not in harness.router.table.authorities, "the new table")
        phone.release_withheld()
        await reloading
        assert found_there == [not may_be_its]


async def test_what_waits_goes_on_in_order_over_the_new_transport() -> None:
    async with RouterHarness(without_phone()) as harness:
        harness.transports["vehicle"].lose_link()
        sent = orders(harness, WAITING)
        harness.arrive("cloud", *sent)
        new = harness.other_transport("vehicle")
        await Reload(harness.router, without_phone(), {"vehicle": new}).run()
        assert (harness.sent("vehicle"), new.state) == (sent, LinkState.UP)
        up = harness.notify(b"up", source=SPEED)
        harness.arrive("vehicle", up)
        assert harness.sent("cloud") == [up]


async def test_what_is_in_flight_is_waited_for_and_nothing_more_is_sent_meanwhile(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with RouterHarness(without_phone()) as harness:
        old = harness.transports["vehicle"]
        old.is_withholding = True
        first, *rest = orders(harness, 3)
        harness.arrive("cloud", first)
        new = harness.other_transport("vehicle")
        reloading = asyncio.create_task(Reload(harness.router, without_phone(), {"vehicle": new}).run())
        await until(lambda: "endpoint_drain_began endpoint=vehicle drain_s=20 waits_for=1" in caplog.text, "the drain")
        assert harness.router.ingresses["vehicle"].state is IngressState.OPEN
        harness.arrive("cloud", *rest)
        assert (harness.sent("vehicle"), harness.router.egresses["vehicle"].in_flight) == ([], 1)
        old.release_withheld()
        await reloading
        assert harness.sent("vehicle") == [first, *rest]
        assert harness.outcomes("cloud-vehicle") == {"delivered": 3}


async def test_what_is_not_confirmed_in_time_is_sent_again() -> None:
    config = without_phone(shutdown={"drain_s": 0})
    async with RouterHarness(config) as harness:
        old = harness.transports["vehicle"]
        old.is_withholding = True
        sent = orders(harness, 3)
        harness.arrive("cloud", *sent)
        await Reload(harness.router, config, {"vehicle": harness.other_transport("vehicle")}).run()
        assert harness.sent("vehicle") == sent
        assert harness.outcomes("cloud-vehicle") == {"delivered": 3}


async def test_what_nobody_has_confirmed_on_a_network_without_confirmations_is_sent_again() -> None:
    config = without_phone(shutdown={"drain_s": 0})
    async with RouterHarness(config, unconfirmed_s=10) as harness:
        sent = orders(harness, 3)
        harness.arrive("cloud", *sent)
        await Reload(harness.router, config, {"vehicle": harness.other_transport("vehicle", unconfirmed_s=10)}).run()
        assert harness.sent("vehicle") == sent + sent


@pytest.mark.parametrize("unconfirmed_s", [0, 10], ids=lambda s: "confirming" if not s else "not confirming")
async def test_a_network_may_begin_or_cease_to_confirm(unconfirmed_s: float) -> None:
    config = without_phone(shutdown={"drain_s": 0})
    async with RouterHarness(config, unconfirmed_s=10 - unconfirmed_s) as harness:
        harness.arrive("cloud", *orders(harness, 2))
        await Reload(
            harness.router, config, {"vehicle": harness.other_transport("vehicle", unconfirmed_s=unconfirmed_s)}
        ).run()
        harness.arrive("cloud", *orders(harness, 3, UUri("veh1", 0xD, 1, 0)))
        harness.router.custody.flush()
        harness.pass_time(11_000)
        assert harness.outcomes("cloud-vehicle") == {"delivered": 5}
        assert harness.router.unsettled() == 0


async def test_whom_nobody_listened_to_is_asked_again() -> None:
    """The listeners of the old network say nothing about the new one."""
    async with RouterHarness(without_phone()) as harness:
        harness.transports["vehicle"].set_presence(ORDERS, VEHICLE_APP, Presence.ABSENT)
        sent = orders(harness, 2)
        harness.arrive("cloud", *sent)
        assert not harness.sent("vehicle")
        await Reload(harness.router, without_phone(), {"vehicle": harness.other_transport("vehicle")}).run()
        assert harness.sent("vehicle") == sent


async def test_a_stop_ends_the_waiting(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with RouterHarness(with_phone(shutdown={"drain_s": 3600})) as harness:
        harness.transports["phone"].is_withholding = True
        harness.arrive("cloud", *orders(harness, 1, PHONE_APP))
        reloading = asyncio.create_task(Reload(harness.router, without_phone(shutdown={"drain_s": 3600})).run())
        await until(lambda: harness.router.ingresses["phone"].state is IngressState.CLOSED, "the endpoint being left")
        harness.router.is_draining = True
        harness.router.tick()
        await asyncio.wait_for(reloading, 10)
        assert "endpoint_removed endpoint=phone dead_letters=1" in caplog.text


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
