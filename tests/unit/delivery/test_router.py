"""The router: which queue a route has through reloads and restarts, and which of its parts are told of events."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from streamer.delivery import router as router_module
from streamer.delivery.custody.custody import LATE_FLUSH_S
from streamer.delivery.inbound.ingress import Ingress
from streamer.delivery.inbound.transport_events import CountingEvents
from streamer.delivery.lanes.queue import RouteQueue
from streamer.delivery.lifecycle.reload import Reload
from streamer.journal.entries import JournalError
from streamer.transports.base import LinkState
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from tests.flow.harness import CLOUD_METHOD, ORDERS, SPEED, VEHICLE_APP, RouterHarness, bad_request, configuration
from tests.flow.journaled_run import journaled_run, order

UP: dict[str, Any] = {"from": "vehicle", "to": "cloud", "publish": ["//veh1/FFFFFFFF/FF/FFFF"]}
DOWN: dict[str, Any] = {"from": "cloud", "to": "vehicle"}
ROUTES = {("vehicle-cloud", "vehicle", "cloud"), ("cloud-vehicle", "cloud", "vehicle")}
SELDOM_MS = 500
"""How often a tick does what need not be done at every tick."""


def queue_of(harness: RouterHarness, name: str, endpoint: str = "cloud") -> RouteQueue:
    (queue,) = (queue for queue in harness.router.egresses[endpoint].queues if queue.name == name)
    return queue


def route_names(harness: RouterHarness) -> set[tuple[str, str, str]]:
    """The routes that have an account."""
    accounts = harness.router.accounts()
    return {(each.name, each.source, each.target) for each in accounts if each.source and each.target}


async def link(harness: RouterHarness, endpoint: str, state: LinkState) -> None:
    harness.transports[endpoint].set_state(state)


# queues


async def test_every_route_has_a_queue_with_its_policy_at_the_endpoint_to_which_it_leads() -> None:
    async with RouterHarness(configuration(routes=[UP | {"window": 7}, DOWN])) as harness:
        assert route_names(harness) == ROUTES
        assert queue_of(harness, "vehicle-cloud").policy.window == 7
        assert queue_of(harness, "cloud-vehicle", "vehicle").owner is harness.router.egresses["vehicle"]


async def test_a_source_that_may_be_waiting_is_found_wherever_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    async with RouterHarness() as harness:
        has_waiting_source = harness.router.custody.has_waiting_source
        for transport in harness.transports.values():
            monkeypatch.setattr(transport, "source_retransmits", False)
        assert not has_waiting_source(1.0)
        asked: list[float] = []

        def watch(now_s: float) -> bool:
            asked.append(now_s)
            return True

        monkeypatch.setattr(harness.transports["vehicle"], "awaits_acknowledgements", watch)
        assert has_waiting_source(2.0)
        assert asked == [2.0]


async def test_a_source_that_waits_hurries_custody_unless_its_endpoint_is_gone(tmp_path: Path) -> None:
    async with journaled_run(tmp_path / "journal.db", unconfirmed_s=10) as run:
        harness = run.harness
        custody = harness.router.custody
        custody.has_waiting_source = lambda now_s: False
        custody.late_flush_s = LATE_FLUSH_S
        (received,) = harness.arrive("cloud", order(harness))
        harness.due.clear()
        CountingEvents("gone", harness.router.ingresses.get, lambda: harness.router.settler.log).acknowledgements_awaited()
        assert harness.due == []
        harness.transports["cloud"].context.events.acknowledgements_awaited()
        await run.flush()
        assert received.acknowledged


async def test_every_account_is_listed_also_those_of_notices_and_of_messages_without_a_route() -> None:
    async with RouterHarness() as harness:
        others = [account for account in harness.router.accounts() if not (account.source and account.target)]
        assert sorted((each.name, each.source, each.target) for each in others) == [
            ("dead-letter/cloud", "", "cloud"),
            ("dead-letter/vehicle", "", "vehicle"),
            ("none", "cloud", ""),
            ("none", "vehicle", ""),
            ("rpc-error/cloud", "", "cloud"),
            ("rpc-error/vehicle", "", "vehicle"),
        ]


async def test_a_removed_route_takes_nothing_new_delivers_what_it_holds_and_goes() -> None:
    async with RouterHarness() as harness:
        cloud = harness.transports["cloud"]
        cloud.is_withholding = True
        held = harness.speed()
        harness.arrive("vehicle", held)
        await Reload(harness.router, configuration(routes=[DOWN])).run()
        harness.arrive("vehicle", harness.speed())
        harness.pass_time(50)
        assert harness.queued("vehicle-cloud") == 1
        cloud.release_withheld()
        assert harness.sent("cloud") == [held]
        harness.pass_time(50)
        assert route_names(harness) == {("cloud-vehicle", "cloud", "vehicle")}
        assert "vehicle-cloud" not in [queue.name for queue in harness.router.egresses["cloud"].queues]


async def test_a_removed_route_stays_while_something_is_unconfirmed() -> None:
    async with RouterHarness(unconfirmed_s=10) as harness:
        harness.arrive("cloud", harness.notify(sink=VEHICLE_APP, source=ORDERS))
        await Reload(harness.router, configuration(routes=[UP])).run()
        harness.pass_time(50)
        assert harness.queued("cloud-vehicle") == harness.router.unsettled() == 1
        harness.router.custody.flush()
        harness.pass_time(10_001)
        assert route_names(harness) == {("vehicle-cloud", "vehicle", "cloud")}


async def test_a_reload_gives_failure_notices_other_options() -> None:
    async with RouterHarness() as harness:
        await Reload(harness.router, configuration(dead_letter={"endpoints": ["cloud"]})).run()
        harness.arrive("vehicle", harness.speed(ttl=1))
        harness.clock.advance(10)
        harness.arrive("vehicle", replace(harness.speed(ttl=1), id=bytes(6) + harness.speed().id[6:]))
        assert len(harness.dead_letters("cloud")) == 1
        assert harness.dead_letters("vehicle") == []


async def test_without_a_journal_unconfirmed_messages_hold_up_nothing() -> None:
    async with RouterHarness(unconfirmed_s=10) as harness:
        store = harness.router.egresses["vehicle"].store
        assert store is not None
        assert (store.blocks_when_full, store.max_bytes) == (False, 64 << 20)
        assert harness.router.egresses["cloud"].store is None


async def test_unconfirmed_messages_may_take_half_of_the_journal_and_then_are_waited_for(tmp_path: Path) -> None:
    async with journaled_run(tmp_path / "journal.db", max_bytes=8 << 20, unconfirmed_s=10) as run:
        store = run.harness.router.egresses["vehicle"].store
        assert store is not None
        assert (store.blocks_when_full, store.max_bytes) == (True, 4 << 20)


# the queue of a message that an earlier process has accepted


async def test_a_recovered_message_has_the_queue_of_its_route() -> None:
    async with RouterHarness() as harness:
        assert harness.router._queue_for("vehicle-cloud", "vehicle", "cloud") is queue_of(harness, "vehicle-cloud")
        notices = queue_of(harness, "dead-letter/cloud")
        assert harness.router._queue_for("dead-letter/cloud", "", "cloud") is notices


async def test_a_recovered_message_of_a_removed_route_has_the_queue_of_one_with_the_same_endpoints_or_name() -> None:
    async with RouterHarness() as harness:
        queue = queue_of(harness, "vehicle-cloud")
        assert harness.router._queue_for("formerly", "vehicle", "cloud") is queue
        assert harness.router._queue_for("vehicle-cloud", "formerly", "cloud") is queue


async def test_a_recovered_message_of_a_route_that_is_unlike_any_has_a_queue_of_its_own_until_it_is_settled() -> None:
    async with RouterHarness(configuration(queue_policy={"window": 3})) as harness:
        queue = harness.router._queue_for("formerly", "elsewhere", "cloud")
        assert queue is not None
        assert queue.policy.window == 3
        assert harness.router._queue_for("formerly", "elsewhere", "cloud") is queue
        assert ("formerly", "elsewhere", "cloud") in route_names(harness)
        harness.pass_time(50)
        assert route_names(harness) == ROUTES


async def test_a_recovered_message_for_an_endpoint_that_is_gone_has_no_queue() -> None:
    async with RouterHarness() as harness:
        assert harness.router._queue_for("vehicle-cloud", "vehicle", "formerly") is None


class FakeRecovery:
    """Needs a second attempt, of two slices."""

    is_complete = has_passed = False
    entries, latest_ms = 1, 0

    def __init__(self, *parts: object) -> None:
        self.attempts = 0

    def slices(self) -> Iterator[None]:
        self.attempts += 1
        yield
        if self.attempts == 1:
            raise JournalError("the disk cannot be read")
        yield
        self.is_complete = True


async def test_recovery_goes_on_until_it_is_complete(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with RouterHarness() as harness:
        monkeypatch.setattr(router_module, "Recovery", FakeRecovery)
        monkeypatch.setattr(harness.router, "journal", SimpleNamespace(entries_found=2))
        harness.router.start_recovery()
        told = [harness.router.recovery_progress for _ in harness.router.recover()]
        assert told == ["recovering 1 of 2 journal entries"]
        assert harness.router.recovery_progress == told[0]
        assert len(list(harness.router.recover())) == 2
        assert harness.router.recovery_progress == ""
        assert list(harness.router.recover()) == []
        said = [record.getMessage() for record in caplog.records if record.name == "ustreamer.router"]
        assert said == ["recovery_interrupted error=the disk cannot be read"]


async def test_nothing_is_sent_while_older_messages_are_not_in_their_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    async with RouterHarness() as harness:
        monkeypatch.setattr(router_module, "Recovery", FakeRecovery)
        monkeypatch.setattr(harness.router, "journal", SimpleNamespace(entries_found=2, tick=lambda: None))
        harness.router.start_recovery()
        new = harness.notify()
        for _ in harness.router.recover():
            harness.arrive("vehicle", new)
            harness.pass_time(SELDOM_MS)
            assert harness.sent("cloud") == []
        assert harness.sent("cloud") == [new]
        slices = harness.router.recover()
        next(slices)
        slices.close()  # a stop: what is in the lanes may leave
        harness.arrive("vehicle", later := harness.notify())
        assert harness.sent("cloud") == [new, later]


async def test_others_are_sent_while_only_dead_letters_are_left_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    async with RouterHarness() as harness:
        monkeypatch.setattr(FakeRecovery, "has_passed", True)
        monkeypatch.setattr(router_module, "Recovery", FakeRecovery)
        monkeypatch.setattr(harness.router, "journal", SimpleNamespace(entries_found=2))
        harness.router.start_recovery()
        sent = []
        for _ in harness.router.recover():
            sent.append(harness.notify())
            harness.arrive("vehicle", sent[-1])
            assert harness.sent("cloud") == sent


# interest


async def test_a_topic_is_forwarded_within_a_cycle_of_the_loop_after_somebody_is_interested() -> None:
    async with RouterHarness(configuration(routes=[UP | {"publish": []}, DOWN])) as harness:
        harness.arrive("vehicle", harness.speed())
        harness.router.set_interest(SPEED, {"fleet": 0}, "test")
        await asyncio.sleep(0)
        await harness.router.listening.catch_up()
        wanted = harness.speed()
        harness.arrive("vehicle", wanted)
        assert harness.sent("cloud") == [wanted]


async def test_many_changes_of_interest_in_a_cycle_are_used_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with RouterHarness() as harness:
        told: list[list[UUri]] = []
        listening = SimpleNamespace(interest_changed=lambda topics: told.append(list(topics)))
        vehicle = harness.router.ingresses["vehicle"]
        harness.router.ingresses["vehicle"] = cast(Ingress, listening)
        topics = [SPEED._replace(resource=0x9000 + number) for number in range(3)]
        for topic in (*topics, topics[0]):
            harness.router.set_interest(topic, {"fleet": 0}, "test")
        await asyncio.sleep(0)
        harness.router.set_interest(topics[0], {"fleet": 0}, "test")  # nothing new
        await asyncio.sleep(0)
        harness.router.set_interest(topics[0], {}, "test")
        await asyncio.sleep(0)
        assert told == [topics, topics[:1]]
        harness.router.ingresses["vehicle"] = vehicle


# events


async def test_a_link_that_comes_up_has_its_own_queues_sent() -> None:
    async with RouterHarness() as harness:
        for endpoint in ("vehicle", "cloud"):
            await link(harness, endpoint, LinkState.DOWN)
        up, down = harness.speed(), harness.notify(sink=VEHICLE_APP, source=ORDERS)
        harness.arrive("vehicle", up)
        harness.arrive("cloud", down)
        await link(harness, "cloud", LinkState.UP)
        assert (harness.sent("cloud"), harness.sent("vehicle")) == ([up], [])


async def test_the_nodes_of_a_network_matter_to_what_was_sent_there() -> None:
    async with RouterHarness(unconfirmed_s=10) as harness:
        order = harness.notify(sink=VEHICLE_APP, source=ORDERS)
        harness.arrive("cloud", order)
        harness.router.node_changed("cloud", False)
        harness.router.node_changed("vehicle", False)
        harness.router.node_changed("cloud", True)
        assert harness.sent("vehicle") == [order]
        harness.router.node_changed("vehicle", True)
        assert harness.sent("vehicle") == [order, order]


async def test_a_large_backlog_is_searched_for_expired_messages_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router_module, "_SMALL_BACKLOG_MESSAGES", 1)
    async with RouterHarness(configuration(queue_policy={"queue": {"messages": 1}})) as harness:
        harness.transports["cloud"].is_withholding = True
        harness.arrive("vehicle", *(harness.speed(ttl=10) for _ in range(3)))
        harness.pass_time(SELDOM_MS - 1)
        assert len(harness.router.ingresses["vehicle"].backlog) == 2
        harness.pass_time(2)
        assert len(harness.router.ingresses["vehicle"].backlog) == 0


async def test_a_small_backlog_is_searched_for_expired_messages_at_every_tick() -> None:
    async with RouterHarness(configuration(queue_policy={"queue": {"messages": 1}})) as harness:
        harness.transports["cloud"].is_withholding = True
        harness.arrive("vehicle", *(harness.speed(ttl=10) for _ in range(3)))
        harness.pass_time(11)
        assert len(harness.router.ingresses["vehicle"].backlog) == 0


async def test_redrive_goes_on_with_the_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    async with RouterHarness() as harness:
        asked: list[str] = []
        monkeypatch.setattr(harness.router.redrive, "go_on", lambda: asked.append("go on"))
        harness.pass_time(SELDOM_MS - 1)
        assert asked == []
        harness.pass_time(1)
        harness.pass_time(1)
        assert asked == ["go on"]


async def test_whatever_waits_keeps_the_router_from_resting() -> None:
    async with RouterHarness(configuration(queue_policy={"queue": {"messages": 1}})) as harness:
        router, cloud = harness.router, harness.transports["cloud"]
        assert router.rest_s() == 1.0
        cloud.is_withholding = True
        harness.arrive("vehicle", harness.speed())
        assert router.rest_s() == 0.0  # in flight
        harness.arrive("vehicle", harness.speed())
        cloud.lose_link()
        assert router.rest_s() == 0.0  # queued, and in the backlog
        cloud.is_withholding = False
        await cloud.start()
        assert router.rest_s() == 1.0
        harness.arrive("vehicle", harness.notify(sink=VEHICLE_APP, source=ORDERS))
        assert router.rest_s() == 0.0  # a misrouted copy, until its grace is over
        harness.pass_time(1100)
        assert router.rest_s() == 1.0
        router.is_draining = True
        assert router.rest_s() == 0.0


async def test_with_unconfirmed_messages_alone_the_router_looks_up_now_and_then() -> None:
    async with RouterHarness(unconfirmed_s=10) as harness:
        router = harness.router
        harness.arrive("cloud", harness.notify(sink=VEHICLE_APP, source=ORDERS))
        assert router.unsettled() == 1
        assert router.rest_s() == 0.1
        (lane,) = (lane for queue in router.egresses["vehicle"].queues for lane in queue.lanes.values())
        store = router.egresses["vehicle"].store
        assert store is not None
        store.redeliver(lane, harness.clock.s)
        assert router.rest_s() == 0.0  # packed in its batch, and to be sent again
        harness.pass_time(1)
        assert router.rest_s() == 0.1
        for _ in range(2):  # the open batch is closed first
            harness.pass_time(10_000)
        assert router.rest_s() == 1.0


# accounts


async def test_the_account_of_an_endpoint_says_what_it_received_and_holds() -> None:
    async with RouterHarness(configuration(queue_policy={"queue": {"messages": 2}})) as harness:
        harness.transports["cloud"].is_withholding = True
        harness.arrive("vehicle", *(harness.speed() for _ in range(3)))
        vehicle, cloud = harness.router.endpoint_accounts()
        assert (vehicle.name, vehicle.transport, vehicle.stats.received, vehicle.backlog) == ("vehicle", "memory", 3, 1)
        assert (cloud.name, cloud.backlog, cloud.in_flight, cloud.link.state) == ("cloud", 0, 1, LinkState.UP)
        assert harness.router.unsettled() == 2


async def test_the_account_of_the_router_says_what_it_remembers() -> None:
    async with RouterHarness() as harness:
        harness.arrive("vehicle", harness.speed())
        harness.router.set_interest(SPEED, {"fleet": 0}, "test")
        harness.arrive("vehicle", bad_request(harness.ask(VEHICLE_APP, CLOUD_METHOD)))
        account = harness.router.account()
        assert (account.remembered_ids, account.interest_topics, account.pause_rules) == (len(harness.router.seen), 1, 0)
        assert account.dead_letters == 1
        assert harness.router.ingresses["vehicle"].unrouted.dead_letters == {UCode.INVALID_ARGUMENT: 1}
