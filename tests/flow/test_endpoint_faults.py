"""Endpoints that change or go while something is wrong: transports that fail or hang, a journal that is busy or unreadable.

Nothing that a transport does may end the daemon, hold up the others for ever, or leave anything behind.
"""

import asyncio
import contextlib
import gc
import sqlite3
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamer.config.models import Config
from streamer.delivery.lifecycle.reload import Reload
from streamer.journal.entries import JournalError
from streamer.transports.base import LinkState, Presence
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import UUri
from tests.flow.harness import CLOUD_METHOD, ORDERS, VEHICLE_APP, RouterHarness, three_networks
from tests.flow.journaled_run import journaled_run
from tests.waiting import until

LARGE = 10_000
PHONE_APP = UUri("phone1", 0xF, 1, 0)
BOTH_WAYS = [{"from": "vehicle", "to": "cloud"}, {"from": "cloud", "to": "vehicle"}]


def with_phone(**changes: Any) -> Config:
    return three_networks(**{"routes": [*BOTH_WAYS, {"from": "cloud", "to": "phone"}]} | changes)


def only(config: Config, *names: str) -> Config:
    """Without the other endpoints and their routes."""
    raw = config.model_dump(by_alias=True, exclude_unset=True)
    raw["endpoints"] = {name: each for name, each in raw["endpoints"].items() if name in names}
    raw["routes"] = [each for each in raw["routes"] if {each["from"], each["to"]} <= set(names)]
    return type(config).model_validate(raw)


def raising(exc: Exception) -> Callable[..., Any]:
    async def fail(*args: object) -> None:
        raise exc

    return fail


async def hanging(*args: object) -> None:
    await asyncio.Event().wait()


# nothing is left behind


async def test_nothing_keeps_an_endpoint_that_is_gone() -> None:
    async with RouterHarness(with_phone()) as harness:
        harness.arrive("cloud", harness.notify(b"", sink=PHONE_APP, source=ORDERS))
        gone = weakref.ref(harness.transports["phone"])  # which its ingress and its egress have as well
        await Reload(harness.router, only(harness.config, "vehicle", "cloud")).run()
        del harness.transports["phone"]
        harness.router.custody.flush()
        gc.collect()
        assert gone() is None


async def test_nothing_keeps_the_transport_that_another_has_replaced() -> None:
    async with RouterHarness(with_phone()) as harness:
        harness.arrive("cloud", harness.notify(b"", sink=PHONE_APP, source=ORDERS))
        old = weakref.ref(harness.transports["phone"])
        await Reload(harness.router, harness.config, {"phone": harness.other_transport("phone")}).run()
        gc.collect()
        assert old() is None


async def test_nothing_keeps_an_endpoint_that_was_refused() -> None:
    async with RouterHarness(only(with_phone(), "vehicle", "cloud")) as harness:
        before = len(harness.router.seen.before_forgetting)
        deaf = harness.other_transport("phone")
        deaf.register_listener = raising(UStatusError(UCode.RESOURCE_EXHAUSTED, "no room"))  # type: ignore[method-assign]
        with pytest.raises(UStatusError):
            await Reload(harness.router, with_phone(), {"phone": deaf}).run()
        assert len(harness.router.seen.before_forgetting) == before


# endpoints that go together


@pytest.mark.parametrize("slow", ["vehicle", "phone"])
async def test_endpoints_that_go_together_are_waited_for_together(slow: str) -> None:
    async with RouterHarness(with_phone(shutdown={"drain_s": 3600})) as harness:
        leaving = {name: harness.transports[name] for name in ("vehicle", "phone")}
        for transport in leaving.values():
            transport.is_withholding = True
        harness.arrive("cloud", *(harness.notify(b"", sink=sink, source=ORDERS) for sink in (VEHICLE_APP, PHONE_APP)))
        reloading = asyncio.create_task(Reload(harness.router, only(harness.config, "cloud")).run())
        await until(lambda: "phone" not in harness.router.table.authorities, "the new table")
        quick = leaving[next(name for name in leaving if name != slow)]
        quick.release_withheld()
        await until(lambda: quick.state is LinkState.DOWN, "the end of the other one")
        assert (leaving[slow].state, reloading.done()) == (LinkState.UP, False)
        leaving[slow].release_withheld()
        await reloading


async def test_what_fails_between_endpoints_that_go_together_is_settled() -> None:
    config = three_networks(
        routes=[*BOTH_WAYS, {"from": "vehicle", "to": "phone"}, {"from": "phone", "to": "vehicle"}],
        dead_letter={"endpoints": ["origin", "cloud"]},
    )
    async with RouterHarness(config) as harness:
        for name in ("vehicle", "phone"):
            harness.transports[name].lose_link()
        there = [harness.notify(b"%d" % n, sink=PHONE_APP, source=UUri("veh1", 0xB, 1, 0x8000)) for n in range(3)]
        back = [harness.notify(b"%d" % n, sink=VEHICLE_APP, source=UUri("phone1", 0xF, 1, 0x8000)) for n in range(3)]
        batches = harness.arrive("vehicle", *there) + harness.arrive("phone", *back)
        egresses = [harness.router.egresses[name] for name in ("vehicle", "phone")]
        await Reload(harness.router, only(config, "cloud").model_copy(update={"dead_letter": config.dead_letter})).run()
        assert [egress.unsettled() for egress in egresses] == [0, 0]
        assert all(received.acknowledged for received in batches)
        assert len(harness.dead_letters("cloud")) == 6


# transports that fail


@pytest.mark.parametrize("call", ["authenticate", "register_listener"])
async def test_a_transport_that_fails_before_anything_is_left_is_refused(call: str) -> None:
    async with RouterHarness(only(with_phone(), "vehicle", "cloud")) as harness:
        broken = harness.other_transport("phone")
        setattr(broken, call, raising(RuntimeError("a bug")))
        new = {"vehicle": harness._transport("vehicle"), "phone": broken}
        old = harness.transports["vehicle"]
        with pytest.raises(UStatusError) as caught:
            await Reload(harness.router, with_phone(), new).run()
        assert caught.value.message == "a transport failed: RuntimeError"
        assert set(harness.router.transports) - {"core"} == {"vehicle", "cloud"}
        harness.arrive("cloud", harness.notify(b"", sink=VEHICLE_APP, source=ORDERS))
        assert len(old.sent) == 1


@pytest.mark.parametrize("call", ["start", "stop"])
async def test_a_transport_that_fails_later_holds_up_nothing(call: str) -> None:
    async with RouterHarness(with_phone()) as harness:
        old, new = harness.transports["phone"], harness.other_transport("phone")
        setattr(old if call == "stop" else new, call, raising(RuntimeError("a bug")))
        vehicle = harness.other_transport("vehicle")
        await Reload(harness.router, with_phone(), {"phone": new, "vehicle": vehicle}).run()
        assert vehicle.state is LinkState.UP
        assert harness.router.transports["phone"] is new


@pytest.mark.parametrize("call", ["stop", "start", "stop_receiving"])
async def test_a_transport_that_hangs_is_given_up(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamer.delivery.lifecycle.departure.TRANSPORT_CALL_S", 0.01)
    async with RouterHarness(with_phone()) as harness:
        old, new = harness.transports["phone"], harness.other_transport("phone")
        old.source_retransmits = call != "stop_receiving"
        setattr(new if call == "start" else old, call, hanging)
        vehicle = harness.other_transport("vehicle")
        await asyncio.wait_for(Reload(harness.router, with_phone(), {"phone": new, "vehicle": vehicle}).run(), 10)
        assert vehicle.state is LinkState.UP


async def test_a_listener_that_cannot_be_unregistered_ends_nothing() -> None:
    async with RouterHarness(with_phone()) as harness:
        vehicle = harness.transports["vehicle"]
        harness.transports["vehicle"].unregister_listener = raising(RuntimeError("a bug"))  # type: ignore[method-assign]
        await Reload(harness.router, only(harness.config, "vehicle", "cloud")).run()
        assert "phone" not in harness.router.transports
        harness.arrive("cloud", harness.notify(b"", sink=VEHICLE_APP, source=ORDERS))
        assert len(vehicle.sent) == 1


# the journal


@pytest.mark.parametrize("has_to_stop", [False, True], ids=["it heals", "SIGTERM"])
async def test_what_is_packed_and_cannot_be_read_now_is_waited_for_unless_the_daemon_stops(
    tmp_path: Path, has_to_stop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamer.delivery.lifecycle.departure._TRY_AGAIN_S", 0.01)
    async with journaled_run(tmp_path / "journal.db", unconfirmed_s=10, shutdown={"drain_s": 0}) as run:
        harness = run.harness
        harness.arrive("cloud", harness.notify(b"", sink=VEHICLE_APP, source=ORDERS))
        await run.flush()
        read, tried = run.journal.segment_body, asyncio.Event()

        def unreadable(number: int) -> bytes:
            tried.set()
            raise JournalError("locked")

        monkeypatch.setattr(run.journal, "segment_body", unreadable)
        harness.transports["vehicle"].set_presence(ORDERS, VEHICLE_APP, Presence.ABSENT)
        reloading = asyncio.create_task(Reload(harness.router, only(harness.config, "cloud")).run())
        await asyncio.wait_for(tried.wait(), 10)
        assert not reloading.done()
        if has_to_stop:
            harness.router.is_draining = True
        else:
            monkeypatch.setattr(run.journal, "segment_body", read)
        traced = harness.ledger.counted.copy()
        await asyncio.wait_for(reloading, 10)
        ended = [key[3] for key in harness.ledger.counted - traced if key[2] == "vehicle"]
        assert ended == ([] if has_to_stop else ["unconfirmed"])


async def test_what_is_given_up_never_has_more_bytes_of_letters_than_may_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamer.delivery.custody.new_letters._MAX_LETTER_BYTES", 10 * LARGE)
    async with journaled_run(tmp_path / "journal.db", shutdown={"drain_s": 0}) as run:
        harness = run.harness
        harness.transports["vehicle"].lose_link()
        harness.arrive("cloud", *(harness.notify(bytes(LARGE), sink=VEHICLE_APP, source=ORDERS) for _ in range(50)))
        await run.flush()
        reloading = asyncio.create_task(Reload(harness.router, only(harness.config, "cloud")).run())
        while not reloading.done():
            await asyncio.sleep(0)
            await run.flush()
        await reloading
        await run.flush()
        assert (len(run.letters), harness.router.custody.letters_dropped) == (50, 0)


@pytest.mark.parametrize("has_to_stop", [False, True], ids=["it heals", "SIGTERM"])
async def test_what_is_given_up_waits_for_a_journal_that_hangs(
    tmp_path: Path, has_to_stop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More dead letters than may wait in memory: none is dropped, and until they are written the messages are there."""
    monkeypatch.setattr("streamer.delivery.lifecycle.departure._MESSAGES_PER_LOOP_CYCLE", 5)
    monkeypatch.setattr("streamer.delivery.lifecycle.departure._MAX_WAITING_LETTERS", 5)
    monkeypatch.setattr("streamer.delivery.custody.new_letters._MAX_LETTERS", 10)
    monkeypatch.setattr("streamer.delivery.lifecycle.departure._TRY_AGAIN_S", 0.01)
    async with journaled_run(tmp_path / "journal.db", shutdown={"drain_s": 0}) as run:
        harness = run.harness
        harness.transports["vehicle"].lose_link()
        harness.arrive("cloud", *(harness.notify(b"%d" % n, sink=VEHICLE_APP, source=ORDERS) for n in range(50)))
        await run.flush()
        reloading = asyncio.create_task(Reload(harness.router, only(harness.config, "cloud")).run())
        await until(lambda: len(run.letters) == 5, "the first letters")
        assert not reloading.done()
        if has_to_stop:
            harness.router.is_draining = True
        while not reloading.done():
            await asyncio.sleep(0)
            if not has_to_stop:
                await run.flush()
        await reloading
        await run.flush()
        assert (len(run.letters), harness.router.custody.letters_dropped) == (5 if has_to_stop else 50, 0)
        with contextlib.closing(sqlite3.connect(run.journal.path)) as file:
            assert file.execute("SELECT count(*) FROM rows").fetchone() == (45 if has_to_stop else 0,)


@pytest.mark.parametrize("seconds", [0, 30])
async def test_after_a_kill_no_letter_of_an_endpoint_that_is_gone_is_dropped(
    tmp_path: Path, seconds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restart meets more messages without an endpoint than letters may wait in memory: the rest stays in the journal."""
    monkeypatch.setattr("streamer.delivery.inbound.recovery._MAX_WAITING_LETTERS", 5)
    monkeypatch.setattr("streamer.delivery.custody.new_letters._MAX_LETTERS", 10)
    path = tmp_path / "journal.db"
    async with journaled_run(path) as run:
        run.harness.transports["vehicle"].lose_link()
        run.harness.arrive("cloud", *(run.harness.notify(b"%d" % n, sink=VEHICLE_APP, source=ORDERS) for n in range(50)))
        await run.flush()
    cloud = {"cloud": {"transport": "memory", "authorities": ["*"]}}
    async with journaled_run(path, endpoints=cloud, routes=[]) as run:
        for _ in range(seconds):
            run.harness.pass_time(1000)
            run.recover()
            await run.flush()
        await run.flush()
        assert run.harness.router.custody.letters_dropped == 0
        with contextlib.closing(sqlite3.connect(path)) as file:
            left = [file.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("rows", "letters")]
        assert left == ([0, 50] if seconds else [45, 5])


async def test_after_a_kill_no_letter_is_dropped_because_the_messages_are_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamer.delivery.custody.new_letters._MAX_LETTER_BYTES", 10 * LARGE)
    path = tmp_path / "journal.db"
    async with journaled_run(path) as run:
        run.harness.transports["vehicle"].lose_link()
        harness = run.harness
        harness.arrive("cloud", *(harness.notify(bytes(LARGE), sink=VEHICLE_APP, source=ORDERS) for _ in range(20)))
        await run.flush()
    async with journaled_run(path, endpoints={"cloud": {"transport": "memory", "authorities": ["*"]}}, routes=[]) as run:
        for _ in range(10):
            run.harness.pass_time(1000)
            run.recover()
            await run.flush()
        assert (len(run.letters), run.harness.router.custody.letters_dropped) == (20, 0)
        assert not list(run.journal.rows())


@pytest.mark.parametrize("is_request", [True, False], ids=["request", "notification"])
async def test_notices_for_an_endpoint_that_is_being_given_up_are_given_up_as_well(
    tmp_path: Path, is_request: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came from there expires elsewhere meanwhile. Nothing of it may stay in the journal."""
    monkeypatch.setattr("streamer.delivery.lifecycle.departure._MAX_WAITING_LETTERS", 5)
    monkeypatch.setattr("streamer.delivery.lifecycle.departure._TRY_AGAIN_S", 0.01)
    config = with_phone(routes=[*BOTH_WAYS, {"from": "cloud", "to": "phone"}, {"from": "phone", "to": "cloud"}])
    raw = config.model_dump(mode="json", by_alias=True, include={"endpoints", "routes"})
    async with journaled_run(tmp_path / "journal.db", **raw, shutdown={"drain_s": 0}) as run:
        harness = run.harness
        harness.transports["phone"].lose_link()
        harness.transports["cloud"].lose_link()
        harness.arrive("cloud", *(harness.notify(b"%d" % n, sink=PHONE_APP, source=ORDERS) for n in range(20)))
        if is_request:
            harness.arrive("phone", harness.ask(source=PHONE_APP, method=CLOUD_METHOD, ttl=1000))
        else:
            harness.arrive("phone", harness.notify(source=PHONE_APP._replace(resource=0x8001), ttl=1000))
        await run.flush()
        reloading = asyncio.create_task(Reload(harness.router, only(harness.config, "cloud", "vehicle")).run())
        await until(lambda: len(run.letters) == 5, "the first letters, which wait for the journal")
        harness.pass_time(2000)
        while not reloading.done():
            await run.flush()
            await asyncio.sleep(0)
        await run.flush()
        assert len(run.letters) == 21
        with contextlib.closing(sqlite3.connect(run.journal.path)) as file:
            assert file.execute("SELECT number FROM rows WHERE target = 'phone'").fetchall() == []


@pytest.mark.parametrize("is_request", [True, False], ids=["request", "notification"])
async def test_so_are_notices_that_the_last_run_of_the_pump_brings(
    tmp_path: Path, is_request: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What came from there has expired elsewhere, and that is found only then: until now the socket there was full."""
    config = with_phone(routes=[*BOTH_WAYS, {"from": "cloud", "to": "phone"}, {"from": "phone", "to": "cloud"}])
    raw = config.model_dump(mode="json", by_alias=True, include={"endpoints", "routes"})
    async with journaled_run(tmp_path / "journal.db", **raw, shutdown={"drain_s": 0}) as run:
        harness = run.harness
        phone, cloud = harness.transports["phone"], harness.transports["cloud"]
        phone.lose_link()
        harness.arrive("cloud", harness.notify(sink=PHONE_APP, source=ORDERS))
        options, cloud.options = cloud.options, cloud.options.model_copy(update={"window": 0})
        if is_request:
            harness.arrive("phone", harness.ask(source=PHONE_APP, method=CLOUD_METHOD, ttl=1000))
        else:
            harness.arrive("phone", harness.notify(source=PHONE_APP._replace(resource=0x8001), ttl=1000))
        await run.flush()
        stop = phone.stop

        async def stop_later() -> None:
            await stop()
            harness.clock.advance(2000)
            cloud.options = options

        monkeypatch.setattr(phone, "stop", stop_later)
        await Reload(harness.router, only(harness.config, "cloud", "vehicle")).run()
        await run.flush()
        assert len(run.letters) == 2
        with contextlib.closing(sqlite3.connect(run.journal.path)) as file:
            assert file.execute("SELECT number FROM rows WHERE target = 'phone'").fetchall() == []


async def test_a_stop_does_not_wait_until_all_letters_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a journal the next start makes them."""
    monkeypatch.setattr("streamer.delivery.lifecycle.departure._MESSAGES_PER_LOOP_CYCLE", 5)
    async with journaled_run(tmp_path / "journal.db") as run:
        harness = run.harness
        harness.transports["vehicle"].lose_link()
        harness.arrive("cloud", *(harness.notify(b"%d" % n, sink=VEHICLE_APP, source=ORDERS) for n in range(50)))
        await run.flush()
        harness.router.is_draining = True
        await Reload(harness.router, only(harness.config, "cloud")).run()
        await run.flush()
        assert (len(run.letters), harness.router.unsettled()) == (5, 0)
