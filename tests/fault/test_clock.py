"""The wall clock is stepped by an hour: what waits on the monotonic clock, and the ids and numbers that the daemon makes."""

import time
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
from tests.flow.harness import CLIMATE, RouterHarness
from tests.flow.journaled_run import journaled_run, order
from tests.unit.journal.harness import JournalHarness, row

# -- what waits on the monotonic clock


@STEPS
async def test_back_off_goes_on_as_before(step_ms: int) -> None:
    async with RouterHarness() as harness:
        attempts: list[bytes | None] = []

        def refuse(message: UMessage) -> RefusedError:
            attempts.append(message.payload)
            return RefusedError(UCode.UNAVAILABLE, "not now")

        harness.transports["vehicle"].refuse = refuse
        harness.arrive("cloud", order(harness, b"x"))
        for wait_ms in (RETRY_MS, 2 * RETRY_MS):
            before = len(attempts)
            harness.clock.ms += step_ms
            harness.pass_time(wait_ms - 1)
            assert len(attempts) == before
            harness.pass_time(2)
            assert len(attempts) == before + 1
        assert harness.queued(ROUTE) == 1


@STEPS
async def test_absent_receiver_is_given_up_when_its_time_has_come_and_not_before(step_ms: int) -> None:
    async with RouterHarness(unconfirmed_s=10) as harness:
        nobody_listens(harness)
        harness.arrive("cloud", order(harness))
        harness.clock.ms += step_ms
        harness.pass_time(ABSENT_MS - 1)
        assert harness.dead_letters("cloud") == []
        harness.pass_time(2)
        (letter,) = harness.dead_letters("cloud")
        assert letter.status.code == UCode.UNAVAILABLE


@STEPS
async def test_unconfirmed_message_counts_as_delivered_when_its_time_has_come_and_not_before(step_ms: int) -> None:
    async with RouterHarness(unconfirmed_s=10) as harness:
        harness.arrive("cloud", order(harness))
        harness.router.custody.flush()
        harness.clock.ms += step_ms
        harness.pass_time(9_900)
        assert harness.outcomes(ROUTE) == {}
        harness.pass_time(200)
        assert harness.outcomes(ROUTE) == {"delivered": 1}


@STEPS
async def test_second_copies_are_still_recognised(step_ms: int) -> None:
    async with RouterHarness() as harness:
        message = order(harness)
        harness.arrive("cloud", message)
        harness.clock.ms += step_ms
        harness.router.tick()
        harness.arrive("cloud", message)
        assert harness.outcomes("none") == {"duplicate": 1}
        assert len(harness.sent("vehicle")) == 1


# -- what the daemon makes itself


@STEPS
async def test_ids_that_the_daemon_makes_are_valid_and_of_the_new_time(step_ms: int) -> None:
    async with RouterHarness() as harness:
        harness.clock.ms += step_ms
        harness.transports["vehicle"].refuse = lambda message: RefusedError(UCode.UNAVAILABLE, "not now")
        request = harness.ask(method=CLIMATE, ttl=1000)
        harness.arrive("cloud", request)
        harness.pass_time(1001)
        made = harness.transports["cloud"].sent
        assert {message.attributes.type for message in made} == {UMessageType.PUBLISH, UMessageType.RESPONSE}
        for message in made:
            assert created_ms(check_id(message.id)) == harness.clock.ms


@STEPS
async def test_journal_is_recovered_in_order_before_newer_messages(tmp_path: Path, step_ms: int) -> None:
    path = tmp_path / "j.db"
    async with journaled_run(path) as first:
        first.hold()
        first.harness.arrive("cloud", *(order(first.harness, b"%d" % n) for n in range(3)))
        await first.flush()
        clock = first.harness.clock
    clock.ms += step_ms
    clock.s = 5.0  # another boot
    async with journaled_run(path, clock=clock) as second:
        second.harness.transports["vehicle"].lose_link()
        second.harness.arrive("cloud", *(order(second.harness, b"%d" % n) for n in range(3, 5)))
        await second.flush()
        second.harness.transports["vehicle"].restore_link()
        assert payloads(second.harness) == [b"%d" % n for n in range(5)]
        check_latencies(second.harness)


@STEPS
def test_numbers_of_the_journal_rise_also_if_it_opens_late_and_the_clock_was_set(
    tmp_path: Path, step_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A journal that cannot be opened yet numbers by the clock."""
    path = tmp_path / "not yet" / "journal" / "j.db"
    for life_number, now_ms in enumerate((2 * HOUR_MS, 2 * HOUR_MS + step_ms, 4 * HOUR_MS)):
        fake = SimpleNamespace(**{name: getattr(time, name) for name in ("monotonic", "perf_counter", "sleep")})
        fake.time_ns = lambda at_ms=now_ms: at_ms * 1_000_000
        monkeypatch.setattr(journal, "time", fake)
        harness = JournalHarness(path)
        early = harness.number()
        if life_number == 0:
            harness.start()
            path.parent.parent.mkdir()
            harness.loop.run_until(lambda: bool(harness.opened))  # noqa: B023  # within this round
        else:
            harness.open()
        found = [each.number for each in harness.journal.rows()]
        assert len(found) == 2 * life_number
        assert found == sorted(found)
        assert not found or found[-1] < early
        late = harness.number()
        assert early < late
        harness.write(Batch(rows=[row(early, b"early"), row(late, b"late")]))
        harness.close()
