"""The wall clock is stepped by an hour: what waits on the monotonic clock, and the ids and numbers that the daemon makes."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from streamer.journal import journal
from streamer.journal.entries import Batch
from streamer.transports.errors import RefusedError
from streamer.uprotocol.message import UMessage, UMessageType
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uuid import check_id, created_ms
from tests.fault.clock_steps import ABSENT_MS, HOUR_MS, RETRY_MS, ROUTE, STEPS, check_latencies, nobody_listens, payloads
from tests.flow.life import life, order
from tests.flow.stage import CLIMATE, Stage
from tests.unit.journal.actors import Desk, row

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
    async with Stage(unconfirmed_s=10) as stage:
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
    async with Stage(unconfirmed_s=10) as stage:
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
