"""The wall clock is stepped by an hour while messages wait: for the link, in back-off, for somebody who listens."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from streamer.config import Config
from streamer.config_file import load
from streamer.daemon import Daemon
from streamer.journal import journal
from streamer.journal.entries import Batch
from streamer.router.clock import SystemClock
from streamer.transports.base import LinkState, Reach
from streamer.transports.errors import RefusedError
from streamer.transports.memory import MemoryReceived, MemoryTransport
from streamer.uprotocol.message import Options, UMessage, UMessageType, notification
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.uuid import check_id, created_ms
from tests.brokers import Mosquitto, needs_mosquitto
from tests.flow.life import life
from tests.flow.stage import CLIMATE, DEAD_LETTERS, ORDERS, VEHICLE_APP, Stage, configuration
from tests.independent import MqttSide, ZenohSide, until
from tests.unit.journal.actors import Desk, row
from tests.zenoh_peers import free_endpoint

HOUR_MS = 3_600_000
ROUTE = "cloud-vehicle"
SHORT_MS, LONG_MS = 10_000, 2 * HOUR_MS
RETRY_MS = 500
ABSENT_MS = 60_000
STEPS = pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS], ids=["an hour ahead", "an hour back"])


# -- how a message can be kept waiting, and how that ends

Wait = Callable[[Stage], Callable[[], None]]


def link_is_down(stage: Stage) -> Callable[[], None]:
    stage.transports["vehicle"].lose_link()
    return stage.transports["vehicle"].restore_link


def receiver_refuses(stage: Stage) -> Callable[[], None]:
    vehicle = stage.transports["vehicle"]
    vehicle.refuse = lambda message: RefusedError(UCode.UNAVAILABLE, "not now")

    def relent() -> None:
        vehicle.refuse = lambda message: None
        stage.pass_time(RETRY_MS)

    return relent


def nobody_listens(stage: Stage) -> Callable[[], None]:
    stage.transports["vehicle"].set_reach(ORDERS, VEHICLE_APP, Reach.NOBODY)
    return lambda: stage.transports["vehicle"].set_reach(ORDERS, VEHICLE_APP, Reach.SOMEBODY)


def queue_is_full(stage: Stage) -> Callable[[], None]:
    """All but the first are not even in the queue."""
    vehicle = stage.transports["vehicle"]
    vehicle.hold = True
    return vehicle.release_held


WAITS = pytest.mark.parametrize("wait", [link_is_down, receiver_refuses, nobody_listens, queue_is_full])


def stage_for(wait: Wait) -> Stage:
    if wait is queue_is_full:
        return Stage(configuration(dispatch={"queue": {"messages": 1}, "retry": {"jitter": 0}}))
    return Stage(unsure_s=10 if wait is nobody_listens else 0)


def order(stage: Stage, text: bytes = b"", **options: object) -> UMessage:
    return stage.notify(text, sink=VEHICLE_APP, source=ORDERS, **options)


def payloads(stage: Stage) -> list[bytes | None]:
    return [message.payload for message in stage.sent("vehicle")]


def check_latencies(stage: Stage) -> None:
    """Nothing took less than no time, and nothing took an hour by the monotonic clock."""
    for account in stage.router.accounts():
        stats = account.stats
        assert stats.end_to_end.sum >= 0
        assert 0 <= stats.in_daemon.sum < HOUR_MS / 1000
        assert sum(stats.end_to_end.counts) == sum(stats.in_daemon.counts)


# -- TTLs


@WAITS
@pytest.mark.parametrize("ticks", [False, True], ids=["no tick before it goes on", "a tick in between"])
async def test_what_has_expired_by_the_new_clock_is_not_sent(wait: Wait, ticks: bool) -> None:
    async with stage_for(wait) as stage:
        go_on = wait(stage)
        head, short, long = order(stage, b"head"), order(stage, b"short", ttl=SHORT_MS), order(stage, b"long", ttl=LONG_MS)
        (_, received, _) = stage.arrive("cloud", head, short, long)
        stage.clock.ms += HOUR_MS
        if ticks:
            stage.router.tick()
        go_on()
        assert payloads(stage) == [b"head", b"long"]
        (letter,) = stage.dead_letters("cloud")
        assert letter.message.payload == b"short"
        assert received.acknowledged
        stage.pass_time(20_000)  # with nobody who confirms, until it is certain
        stage.router.custody.flush()
        stage.pass_time(20_000)
        assert sum(account.queued for account in stage.router.accounts()) == 0
        check_latencies(stage)


@WAITS
async def test_clock_set_back_expires_nothing_early_and_everything_in_its_time(wait: Wait) -> None:
    async with stage_for(wait) as stage:
        wait(stage)
        stage.arrive("cloud", order(stage, b"head"), order(stage, b"short", ttl=SHORT_MS))
        stage.clock.ms -= HOUR_MS
        late = order(stage, b"late", ttl=SHORT_MS)
        stage.arrive("cloud", late)
        stage.router.tick()
        assert stage.dead_letters("cloud") == []
        stage.clock.ms += SHORT_MS + 1
        for _ in range(20):  # what is held back is not looked at with every tick
            stage.router.tick()
        assert [letter.message.payload for letter in stage.dead_letters("cloud")] == [b"late"]
        stage.clock.ms += HOUR_MS
        for _ in range(20):
            stage.router.tick()
        assert [letter.message.payload for letter in stage.dead_letters("cloud")] == [b"late", b"short"]


@WAITS
async def test_clock_set_back_lets_everything_pass(wait: Wait) -> None:
    async with stage_for(wait) as stage:
        go_on = wait(stage)
        stage.arrive("cloud", *(order(stage, text, ttl=SHORT_MS) for text in (b"1", b"2", b"3")))
        stage.clock.ms -= HOUR_MS
        stage.router.tick()
        stage.arrive("cloud", order(stage, b"4", ttl=SHORT_MS))
        go_on()
        assert payloads(stage) == [b"1", b"2", b"3", b"4"]
        check_latencies(stage)


async def test_there_and_back_again_is_as_if_nothing_had_been() -> None:
    async with Stage() as stage:
        go_on = link_is_down(stage)
        stage.arrive("cloud", order(stage, b"short", ttl=SHORT_MS))
        stage.clock.ms -= HOUR_MS
        stage.router.tick()
        stage.clock.ms += HOUR_MS
        stage.router.tick()
        go_on()
        assert payloads(stage) == [b"short"]


@WAITS
async def test_sender_whose_clock_is_an_hour_ahead_is_heard_and_its_messages_do_not_expire_early(wait: Wait) -> None:
    async with stage_for(wait) as stage:
        go_on = wait(stage)
        source = MessagesFrom(stage.clock.ms + HOUR_MS)
        stage.arrive("cloud", *(source.order(text, ttl=1000) for text in (b"1", b"2")))
        stage.pass_time(30_000)
        assert stage.dead_letters("cloud") == []
        go_on()
        if wait is receiver_refuses:
            stage.pass_time(30_000)
        assert payloads(stage) == [b"1", b"2"]
        check_latencies(stage)


class MessagesFrom:
    """A sender with a clock of its own."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms

    def order(self, text: bytes, **options: Any) -> UMessage:
        return notification(self.now_ms, ORDERS, VEHICLE_APP, text, Options(**options))


# -- what waits on the monotonic clock


@STEPS
async def test_back_off_goes_on_as_before(step_ms: int) -> None:
    async with Stage() as stage:
        attempts: list[bytes | None] = []

        def refuse(message: UMessage) -> RefusedError:
            attempts.append(message.payload)
            return RefusedError(UCode.UNAVAILABLE, "not now")

        stage.transports["vehicle"].refuse = refuse
        stage.arrive("cloud", order(stage, b"x"))
        for wait_ms in (RETRY_MS, 2 * RETRY_MS):
            before = len(attempts)
            stage.clock.ms += step_ms
            stage.pass_time(wait_ms - 1)
            assert len(attempts) == before
            stage.pass_time(2)
            assert len(attempts) == before + 1
        assert stage.queued(ROUTE) == 1


@STEPS
async def test_absence_is_given_up_when_its_time_has_come_and_not_before(step_ms: int) -> None:
    async with Stage(unsure_s=10) as stage:
        nobody_listens(stage)
        stage.arrive("cloud", order(stage))
        stage.clock.ms += step_ms
        stage.pass_time(ABSENT_MS - 1)
        assert stage.dead_letters("cloud") == []
        stage.pass_time(2)
        (letter,) = stage.dead_letters("cloud")
        assert letter.status.code == UCode.UNAVAILABLE


@STEPS
async def test_what_nobody_confirms_is_certain_when_its_time_has_come_and_not_before(step_ms: int) -> None:
    async with Stage(unsure_s=10) as stage:
        stage.arrive("cloud", order(stage))
        stage.router.custody.flush()
        stage.clock.ms += step_ms
        stage.pass_time(9_900)
        assert stage.outcomes(ROUTE) == {}
        stage.pass_time(200)
        assert stage.outcomes(ROUTE) == {"delivered": 1}


@STEPS
async def test_second_copies_are_still_recognised(step_ms: int) -> None:
    async with Stage() as stage:
        message = order(stage)
        stage.arrive("cloud", message)
        stage.clock.ms += step_ms
        stage.router.tick()
        stage.arrive("cloud", message)
        assert stage.outcomes("none") == {"duplicate": 1}
        assert len(stage.sent("vehicle")) == 1


# -- what the daemon makes itself


@STEPS
async def test_ids_that_the_daemon_makes_are_valid_and_of_the_new_time(step_ms: int) -> None:
    async with Stage() as stage:
        stage.clock.ms += step_ms
        stage.transports["vehicle"].refuse = lambda message: RefusedError(UCode.UNAVAILABLE, "not now")
        request = stage.ask(method=CLIMATE, ttl=1000)
        stage.arrive("cloud", request)
        stage.pass_time(1001)
        made = stage.transports["cloud"].sent
        assert {message.attributes.type for message in made} == {UMessageType.PUBLISH, UMessageType.RESPONSE}
        for message in made:
            assert created_ms(check_id(message.id)) == stage.clock.ms


@STEPS
async def test_journal_is_recovered_in_order_and_goes_on_behind_it(tmp_path: Path, step_ms: int) -> None:
    path = tmp_path / "j.db"
    async with life(path) as first:
        first.hold()
        first.stage.arrive("cloud", *(order(first.stage, b"%d" % n) for n in range(3)))
        await first.flush()
        clock = first.stage.clock
    clock.ms += step_ms
    clock.s = 5.0  # another boot
    async with life(path, clock=clock) as second:
        second.stage.transports["vehicle"].lose_link()
        second.stage.arrive("cloud", *(order(second.stage, b"%d" % n) for n in range(3, 5)))
        await second.flush()
        second.stage.transports["vehicle"].restore_link()
        assert payloads(second.stage) == [b"%d" % n for n in range(5)]
        check_latencies(second.stage)


@STEPS
def test_numbers_of_the_journal_rise_also_if_it_opens_late_and_the_clock_was_set(
    tmp_path: Path, step_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A journal that cannot be opened yet numbers by the clock."""
    real = journal.time
    path = tmp_path / "not yet" / "journal" / "j.db"
    for life_number, now_ms in enumerate((2 * HOUR_MS, 2 * HOUR_MS + step_ms, 4 * HOUR_MS)):
        fake = SimpleNamespace(**{name: getattr(real, name) for name in ("monotonic", "perf_counter", "sleep")})
        fake.time_ns = lambda at_ms=now_ms: at_ms * 1_000_000
        monkeypatch.setattr(journal, "time", fake)
        desk = Desk(path)
        early = desk.number()
        if life_number == 0:
            desk.start()
            path.parent.parent.mkdir()
            desk.loop.run_until(lambda: bool(desk.opened))  # noqa: B023  # within this round
        else:
            desk.open()
        found = [each.number for each in desk.journal.rows()]
        assert len(found) == 2 * life_number
        assert found == sorted(found)
        assert not found or found[-1] < early
        late = desk.number()
        assert early < late
        desk.write(Batch(rows=[row(early, b"early"), row(late, b"late")]))
        desk.close()


# -- with a real broker and real Zenoh


class SteppedClock(SystemClock):
    """The machine's clocks, of which the test steps the one on the wall."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms


class Running:
    """A daemon in this process, between a memory network (``vehicle``) and a real one (``far``)."""

    def __init__(self, daemon: Daemon, clock: SteppedClock) -> None:
        self.daemon = daemon
        self.clock = clock
        self.received: list[MemoryReceived] = []

    @property
    def vehicle(self) -> MemoryTransport:
        transport = self.daemon.transports["vehicle"]
        assert isinstance(transport, MemoryTransport)
        return transport

    async def until_far(self, state: LinkState) -> None:
        await until(lambda: self.daemon.transports["far"].state is state, 20, f"far to be {state}")

    def send(self, *texts: str, **options: Any) -> None:
        now_ms = self.clock.wall_ms()
        batch = [
            MemoryReceived(
                notification(now_ms, UUri("veh1", 1, 1, 0x8000), UUri("far", 2, 1, 0), text.encode(), Options(**options))
            )
            for text in texts
        ]
        self.received += batch
        self.vehicle.inject(*batch)

    def outcomes(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for account in self.daemon.router.accounts():
            if account.name == "vehicle-far":
                for (outcome, _), number in account.stats.outcomes.items():
                    found[outcome.value] = number
        return found

    def dead_letters(self) -> list[UMessage]:
        return [message for message in self.vehicle.sent if message.attributes.source == DEAD_LETTERS]

    def check(self) -> None:
        """The books balance, and no latency is negative or an hour."""
        for account in self.daemon.router.accounts():
            assert account.stats.accepted == account.stats.settled + account.queued, account
            assert account.stats.end_to_end.sum >= 0
            assert 0 <= account.stats.in_daemon.sum < HOUR_MS / 1000


@asynccontextmanager
async def running(config: Config, clock: SteppedClock) -> AsyncIterator[Running]:
    daemon = Daemon(config, clock=clock)
    working = asyncio.create_task(daemon.run())
    try:
        yield Running(daemon, clock)
    finally:
        daemon.stop()
        await working


def configured(directory: Path, far: dict[str, Any]) -> Config:
    path = directory / "streamer.yaml"
    config = {
        "authority": "gateway.veh1",
        "endpoints": {
            "vehicle": {"transport": "memory", "authorities": ["veh1"], "options": {"bus": str(directory)}},
            "far": {"authorities": ["far"], **far},
        },
        "routes": [{"from": "vehicle", "to": "far"}, {"from": "far", "to": "vehicle"}],
        "journal": {"path": str(directory / "journal.db")},
        "metrics": None,
        "shutdown": {"drain_s": 1},
    }
    path.write_text(yaml.safe_dump(config))
    return load(path)


def through_mqtt(broker: Mosquitto) -> dict[str, Any]:
    options = {"broker": broker.url, "topics": "in-vehicle", "reconnect": {"initial_ms": 50, "max_ms": 100}}
    return {"transport": "mqtt5", "options": options}


@pytest.mark.mosquitto
@needs_mosquitto
@STEPS
async def test_mqtt_broker_that_comes_back_after_the_clock_was_stepped_gets_what_has_not_expired(
    tmp_path: Path, step_ms: int
) -> None:
    clock = SteppedClock()
    with Mosquitto(persistence=True) as broker:
        config = configured(tmp_path, through_mqtt(broker))
        async with MqttSide(broker.port, "in-vehicle", ["veh1/#"]) as app, running(config, clock) as now:
            await now.until_far(LinkState.UP)
            broker.stop()
            await now.until_far(LinkState.DOWN)
            now.send("a", "b")
            now.send("short", ttl=600_000)
            now.send("long", ttl=LONG_MS)
            clock.ahead_ms = step_ms
            now.send("new", ttl=600_000)
            expected = ["a", "b", "long", "new"] if step_ms > 0 else ["a", "b", "short", "long", "new"]
            broker.start()
            await app.reconnect()
            await until(lambda: len(app.arrived) >= len(expected), 20, "arrival")
            await until(lambda: sum(now.outcomes().values()) == 5, 20, "an outcome of everything")
            assert [message.payload.decode() for message in app.arrived] == expected
            assert len(now.dead_letters()) == 5 - len(expected)
            assert now.outcomes() == ({"delivered": 4, "expired": 1} if step_ms > 0 else {"delivered": 5})
            assert all(received.acknowledged for received in now.received)
            now.check()


@pytest.mark.mosquitto
@needs_mosquitto
async def test_restart_with_the_clock_set_back_sends_the_old_before_the_new(tmp_path: Path) -> None:
    clock = SteppedClock()
    with Mosquitto(persistence=True) as broker:
        config = configured(tmp_path, through_mqtt(broker))
        async with MqttSide(broker.port, "in-vehicle", ["veh1/#"]) as app:
            broker.stop()
            async with running(config, clock) as first:
                await until(lambda: first.vehicle.state is LinkState.UP, what="the memory network")
                first.send("1", "2", "3", ttl=LONG_MS)
            clock.ahead_ms = -HOUR_MS
            async with running(config, clock) as second:
                await until(lambda: second.vehicle.state is LinkState.UP, what="the memory network")
                second.send("4", "5", ttl=LONG_MS)
                broker.start()
                await app.reconnect()
                await until(lambda: len(app.arrived) >= 5, 20, "arrival")
                assert [message.payload.decode() for message in app.arrived] == ["1", "2", "3", "4", "5"]
                second.check()


@STEPS
async def test_zenoh_receiver_that_comes_after_the_clock_was_stepped_gets_what_has_not_expired(
    tmp_path: Path, step_ms: int
) -> None:
    clock = SteppedClock()
    here = free_endpoint()
    far = {"transport": "zenoh", "options": {"mode": "peer", "listen": [here], "uncertain_s": 1}}
    async with running(configured(tmp_path, far), clock) as now:
        await now.until_far(LinkState.ALONE)
        now.send("short", ttl=600_000)
        now.send("long", ttl=LONG_MS)
        clock.ahead_ms = step_ms
        expected = ["long"] if step_ms > 0 else ["short", "long"]
        async with ZenohSide(connect=[here]) as app:
            await until(lambda: len(app.arrived) >= len(expected), 20, "arrival")
            await until(lambda: sum(now.outcomes().values()) == 2, 20, "an outcome of everything")
            assert [message.payload.decode() for message in app.arrived] == expected
        now.check()
