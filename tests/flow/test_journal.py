"""What the journal is for: whatever was acknowledged survives the process, and goes out in order when it is back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.journal.entries import Letter
from streamer.journal.journal import Journal, JournalState
from streamer.router.queue import OVERHEAD_BYTES
from streamer.transports.base import Reach
from streamer.transports.errors import PermanentError
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from tests.flow.stage import CLIMATE, CLOUD_APP, ORDERS, VEHICLE_APP, Stage, WoundClock, configuration
from tests.independent import until

MIB = 1 << 20
DOWN = "cloud-vehicle"


class Life:
    """One life of the daemon's router, on the journal's file."""

    def __init__(self, stage: Stage, journal: Journal) -> None:
        self.stage = stage
        self.journal = journal
        self.letters: list[Letter] = []  # that the journal was given
        custody = stage.router.custody
        keep = custody.letter

        def letter(letter: Letter) -> None:
            self.letters.append(letter)
            keep(letter)

        custody.letter = letter  # type: ignore[method-assign]

    async def flush(self) -> None:
        """Write what is due, and all that comes of it."""
        while self.stage.due or self.journal.is_busy:
            due = list(self.stage.due)
            self.stage.due.clear()
            for flush in due:
                flush()
            await until(lambda: not self.journal.is_busy, 10, "the commit")
        self.stage.check_books()

    def hold(self, endpoint: str = "vehicle") -> None:
        self.stage.transports[endpoint].hold = True


@asynccontextmanager
async def life(
    path: Path,
    max_bytes: int = 64 * MIB,
    memory: int = 64 * MIB,
    unsure_s: float = 0,
    clock: WoundClock | None = None,
    **changes: object,
) -> AsyncIterator[Life]:
    """A router on ``path`` that has recovered what was there. At the end it is gone, without a farewell."""
    config = configuration(journal={"path": str(path), "max_bytes": max_bytes, "memory": memory}, **changes)
    journal = Journal(path, max_bytes, 1000, max_bytes // 4, asyncio.get_running_loop().call_soon_threadsafe)
    opened = asyncio.Event()
    journal.start(opened.set)
    await asyncio.wait_for(opened.wait(), 10)
    try:
        async with Stage(config, unsure_s=unsure_s, journal=journal, clock=clock) as stage:
            stage.router.recover()
            journal.on_redrive = stage.router.redrive.take
            yield Life(stage, journal)
            stage.router.custody.flush = lambda: None  # type: ignore[method-assign]  # nothing is written after the end
            stage.due.clear()
    finally:
        assert await asyncio.to_thread(journal.stop, 10)


def order(stage: Stage, text: bytes = b"", **options: object) -> UMessage:
    return stage.notify(text, sink=VEHICLE_APP, source=ORDERS, **options)


async def test_what_is_confirmed_before_the_flush_never_touches_the_disk(tmp_path: Path) -> None:
    async with life(tmp_path / "j.db") as now:
        (received,) = now.stage.arrive("cloud", order(now.stage))
        assert received.acknowledged
        await now.flush()
        assert (now.journal.rows_written, now.journal.bytes) == (0, 0)


async def test_the_source_is_told_once_the_message_is_on_the_disk_and_not_before(tmp_path: Path) -> None:
    async with life(tmp_path / "j.db") as now:
        now.hold()
        (received,) = now.stage.arrive("cloud", order(now.stage))
        for flush in now.stage.due:
            flush()
        assert not received.acknowledged
        await until(lambda: not now.journal.is_busy, 10, "the commit")
        assert received.acknowledged
        assert now.journal.rows_written == 1


async def test_a_row_goes_only_after_the_confirmation(tmp_path: Path) -> None:
    async with life(tmp_path / "j.db") as now:
        now.hold()
        now.stage.arrive("cloud", order(now.stage))
        await now.flush()
        assert now.journal.bytes > 0
        now.stage.transports["vehicle"].release_held()
        await now.flush()
        assert now.journal.bytes == 0


async def test_after_a_crash_what_was_acknowledged_goes_first_and_in_order(tmp_path: Path) -> None:
    async with life(tmp_path / "j.db") as now:
        now.hold()
        waiting = [order(now.stage, b"%d" % number, ttl=60_000) for number in range(50)]
        now.stage.arrive("cloud", *waiting)
        await now.flush()
    async with life(tmp_path / "j.db") as now:
        newer = order(now.stage, b"newer")
        now.stage.arrive("cloud", newer)
        now.stage.router.pump()
        assert now.stage.sent("vehicle") == [*waiting, newer]
        await now.flush()
        assert now.journal.bytes == 0
        assert now.stage.outcomes(DOWN) == {"delivered": 51}


async def test_what_the_source_delivers_again_after_a_crash_is_known(tmp_path: Path) -> None:
    async with life(tmp_path / "j.db") as now:
        now.hold()
        message = order(now.stage)
        now.stage.arrive("cloud", message)
        await now.flush()
    async with life(tmp_path / "j.db") as now:
        now.stage.arrive("cloud", message)
        assert now.stage.sent("vehicle") == [message]
        assert now.stage.outcomes("none") == {"duplicate": 1}


async def test_what_left_unconfirmed_is_sent_again_after_a_crash_before_what_waited(tmp_path: Path) -> None:
    async with life(tmp_path / "j.db", unsure_s=10) as now:
        left = [order(now.stage, b"%d" % number) for number in range(5)]
        now.stage.arrive("cloud", *left)
        await now.flush()
        now.stage.transports["vehicle"].set_reach(ORDERS, VEHICLE_APP, Reach.UNKNOWN)
        waiting = [order(now.stage, b"%d" % number) for number in range(5, 8)]
        received = now.stage.arrive("cloud", *waiting)
        await now.flush()
        assert all(each.acknowledged for each in received)
    async with life(tmp_path / "j.db", unsure_s=10) as now:
        assert now.stage.queued(DOWN) == 8
        now.stage.pass_time(50)
        assert now.stage.sent("vehicle") == left + waiting
        now.stage.pass_time(50)
        await now.flush()
        now.stage.pass_time(10_050)
        await now.flush()
        assert now.stage.outcomes(DOWN) == {"delivered": 8}
        assert now.journal.bytes == 0


async def test_a_route_that_is_gone_still_delivers_what_it_accepted(tmp_path: Path) -> None:
    async with life(tmp_path / "j.db") as now:
        now.hold()
        message = order(now.stage)
        now.stage.arrive("cloud", message)
        await now.flush()
    async with life(tmp_path / "j.db", routes=[{"from": "vehicle", "to": "cloud"}]) as now:
        assert now.stage.sent("vehicle") == [message]
        await now.flush()
        assert now.journal.bytes == 0


async def test_an_endpoint_that_is_gone_makes_dead_letters_of_what_it_was_to_have(tmp_path: Path) -> None:
    async with life(tmp_path / "j.db") as now:
        now.hold()
        now.stage.arrive("cloud", order(now.stage))
        await now.flush()
    changes = {
        "endpoints": {
            "phone": {"transport": "memory", "authorities": ["phone1"]},
            "cloud": {"transport": "memory", "authorities": ["*"]},
        },
        "routes": [{"from": "phone", "to": "cloud"}],
    }
    async with life(tmp_path / "j.db", **changes) as now:
        assert [letter.status.code for letter in now.stage.dead_letters("cloud")] == [UCode.UNAVAILABLE]
        await now.flush()
    async with life(tmp_path / "j.db", **changes) as now:
        assert now.stage.dead_letters("cloud") == []


async def test_with_the_journal_at_its_bound_sources_are_not_told_until_there_is_room(tmp_path: Path) -> None:
    async with life(tmp_path / "j.db", max_bytes=8 * 1024) as now:
        now.hold()
        received = now.stage.arrive("cloud", *(order(now.stage, bytes(1000)) for _ in range(20)))
        await now.flush()
        told = [each.acknowledged for each in received]
        assert 0 < sum(told) < 20
        assert told == sorted(told, reverse=True)
        now.stage.transports["vehicle"].release_held()
        await now.flush()
        assert all(each.acknowledged for each in received)
        assert now.stage.outcomes(DOWN) == {"delivered": 20}
        now.hold()
        (again,) = now.stage.arrive("cloud", order(now.stage, bytes(1000)))
        await now.flush()
        assert again.acknowledged


async def test_a_starved_message_is_written_when_another_one_has_left(tmp_path: Path) -> None:
    async with life(tmp_path / "j.db", max_bytes=8 * 1024) as now:
        now.hold()
        received = now.stage.arrive("cloud", *(order(now.stage, bytes(1000)) for _ in range(20)))
        await now.flush()
        told = sum(each.acknowledged for each in received)
        now.stage.transports["vehicle"].release_held(3)
        await now.flush()
        assert sum(each.acknowledged for each in received) == told + 3


async def test_what_has_no_room_in_the_journal_keeps_the_rest_of_its_flow_out(tmp_path: Path) -> None:
    async with life(tmp_path / "j.db", max_bytes=8 * 1024) as now:
        now.hold()
        large, small = order(now.stage, bytes(10_000)), order(now.stage, b"small")
        other = now.stage.notify(b"other", sink=UUri("veh1", 0xC, 1, 0), source=ORDERS)
        received = now.stage.arrive("cloud", large, small, other)
        await now.flush()
        assert [each.acknowledged for each in received] == [False, False, True]


@pytest.mark.parametrize(("policy", "kept"), [("reject", "oldest"), ("evict", "newest")])
async def test_a_full_journal_follows_the_policy_of_the_route(tmp_path: Path, policy: str, kept: str) -> None:
    dispatch = {"queue": {"on_full": policy}, "window": 1, "retry": {"jitter": 0}}
    async with life(tmp_path / "j.db", max_bytes=8 * 1024, dispatch=dispatch) as now:
        now.hold()
        messages = [order(now.stage, bytes([number]) * 1000) for number in range(20)]
        received = now.stage.arrive("cloud", *messages)
        await now.flush()
        for _ in range(30):
            await now.flush()
        assert all(each.acknowledged for each in received)
        given_up = now.stage.outcomes(DOWN)["dead_lettered"]
        now.stage.transports["vehicle"].release_held()
        arrived = now.stage.sent("vehicle")
        assert len(arrived) + given_up == 20
        assert arrived[0] == messages[0]  # in flight, and never evicted
        assert (arrived[-1] == messages[-1]) is (kept == "newest")


async def test_a_queue_may_be_larger_than_memory(tmp_path: Path) -> None:
    async with life(tmp_path / "j.db", memory=10 * (1000 + OVERHEAD_BYTES)) as now:
        now.hold()
        now.stage.transports["vehicle"].lose_link()
        messages = [
            order(now.stage, number.to_bytes(2, "big") * 500, ttl=90_000 if number == 99 else None) for number in range(100)
        ]
        now.stage.arrive("cloud", *messages)
        await now.flush()
        assert now.stage.router.custody.spilled == 90
        now.stage.pass_time(90_050)
        assert [m.message.payload for m in now.stage.dead_letters("cloud")] == [messages[99].payload]
        now.stage.transports["vehicle"].hold = False
        now.stage.transports["vehicle"].restore_link()
        assert now.stage.sent("vehicle") == messages[:99]
        await now.flush()
        assert (now.stage.router.custody.spilled, now.stage.router.custody.in_memory, now.journal.rows_written) == (
            0,
            0,
            100,
        )


async def test_what_stands_still_costs_what_moves_no_room(tmp_path: Path) -> None:
    dispatch = {"queue": {"messages": 10, "stalled_factor": 3}, "retry": {"jitter": 0}}
    async with life(tmp_path / "j.db", dispatch=dispatch) as now:
        stage = now.stage
        stage.transports["vehicle"].set_reach(ORDERS, VEHICLE_APP, Reach.UNKNOWN)
        stuck = []
        for number in range(60):
            stuck += stage.arrive("cloud", order(stage, b"%d" % number))
            stage.pass_time(50)
            await now.flush()
        told = sum(each.acknowledged for each in stuck)
        assert told == 40  # three times the bound on top, and the bound itself: then the source waits
        stage.transports["vehicle"].set_reach(ORDERS, VEHICLE_APP, Reach.SOMEBODY)
        assert [int(message.payload or b"") for message in stage.sent("vehicle")] == list(range(60))
        assert all(each.acknowledged for each in stuck)


async def test_a_flow_that_stands_still_holds_up_no_other(tmp_path: Path) -> None:
    async with life(tmp_path / "j.db", dispatch={"queue": {"messages": 10}, "retry": {"jitter": 0}}) as now:
        stage = now.stage
        stage.transports["vehicle"].set_reach(ORDERS, VEHICLE_APP, Reach.UNKNOWN)
        for number in range(50):
            stage.arrive("cloud", order(stage, b"%d" % number))
            stage.pass_time(50)
            await now.flush()
        moving = stage.notify(b"moving", sink=UUri("veh1", 0xC, 1, 0), source=ORDERS)
        stage.arrive("cloud", moving)
        assert stage.sent("vehicle") == [moving]


async def test_an_endpoint_that_is_away_holds_up_no_other(tmp_path: Path) -> None:
    changes = {
        "endpoints": {
            "vehicle": {"transport": "memory", "authorities": ["veh1"]},
            "phone": {"transport": "memory", "authorities": ["phone1"]},
            "cloud": {"transport": "memory", "authorities": ["*"]},
        },
        "routes": [{"from": "cloud", "to": "vehicle"}, {"from": "cloud", "to": "phone"}],
        "dispatch": {"queue": {"messages": 10}, "retry": {"jitter": 0}},
    }
    async with life(tmp_path / "j.db", **changes) as now:
        stage = now.stage
        stage.transports["vehicle"].lose_link()
        for number in range(100):
            (received,) = stage.arrive("cloud", order(stage, b"%d" % number))
            stage.pass_time(50)
            await now.flush()
            assert received.acknowledged
        moving = stage.notify(b"moving", sink=UUri("phone1", 0xC, 1, 0), source=ORDERS)
        stage.arrive("cloud", moving)
        assert stage.sent("phone") == [moving]


async def test_a_dead_letter_is_kept_and_can_be_sent_again_with_its_id_and_attributes(tmp_path: Path) -> None:
    async with life(tmp_path / "j.db") as now:
        vehicle = now.stage.transports["vehicle"]
        vehicle.refuse = lambda message: PermanentError(UCode.PERMISSION_DENIED, "no")
        message = order(now.stage, b"again", ttl=60_000)
        now.stage.arrive("cloud", message)
        await now.flush()
        assert now.journal.bytes > 0
        assert now.stage.outcomes(DOWN) == {"dead_lettered": 1}
        vehicle.refuse = lambda message: None
        now.stage.router.redrive.take(now.letters, [None])
        now.stage.router.redrive.take(now.letters, [None])
        assert now.stage.sent("vehicle") == [message]
        await now.flush()
        assert now.journal.bytes == 0


@pytest.mark.parametrize(("ttl_ms", "leaves_with"), [(None, None), (5_000, 65_000), (0, 0)])
async def test_an_expired_one_is_sent_again_only_with_a_new_ttl(
    tmp_path: Path, ttl_ms: int | None, leaves_with: int | None
) -> None:
    async with life(tmp_path / "j.db") as now:
        vehicle = now.stage.transports["vehicle"]
        vehicle.refuse = lambda message: PermanentError(UCode.PERMISSION_DENIED, "no")
        message = order(now.stage, b"again", ttl=30_000)
        now.stage.arrive("cloud", message)
        await now.flush()
        vehicle.refuse = lambda message: None
        now.stage.pass_time(60_000)
        now.stage.router.redrive.take(now.letters[:1], [ttl_ms])
        await now.flush()
        if leaves_with is None:
            assert now.stage.sent("vehicle") == []
            assert [letter.outcome for letter in now.letters] == ["dead_lettered", "expired"]
        else:
            (left,) = now.stage.sent("vehicle")
            assert (left.id, left.payload, left.attributes.ttl) == (message.id, b"again", leaves_with)


async def test_an_rpc_answer_that_could_not_leave_before_a_crash_leaves_after_it(tmp_path: Path) -> None:
    async with life(tmp_path / "j.db") as now:
        now.hold("cloud")
        now.stage.transports["vehicle"].refuse = lambda message: PermanentError(UCode.PERMISSION_DENIED, "no")
        now.stage.arrive("cloud", now.stage.ask(CLOUD_APP, CLIMATE, ttl=60_000))
        await now.flush()
    async with life(tmp_path / "j.db") as now:
        codes = [m.attributes.commstatus for m in now.stage.sent("cloud")]
        assert codes == [UCode.PERMISSION_DENIED]
        assert len(now.stage.dead_letters("cloud")) == 1


async def test_after_the_drain_the_rest_is_in_the_journal(tmp_path: Path) -> None:
    async with life(tmp_path / "j.db") as now:
        now.stage.transports["vehicle"].lose_link()
        messages = [order(now.stage, b"%d" % number) for number in range(5)]
        now.stage.arrive("cloud", *messages)
        assert await now.stage.router.drain(0.05) == 5
        await now.flush()
        assert now.stage.dead_letters("cloud") == []
    async with life(tmp_path / "j.db") as now:
        assert now.stage.sent("vehicle") == messages


async def test_a_journal_that_cannot_be_used_makes_sources_wait_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "occupied").write_text("a file where the directory should be")
    journal = Journal(tmp_path / "occupied" / "j.db", MIB, 1000, MIB, asyncio.get_running_loop().call_soon_threadsafe)
    tried = journal.start(lambda: None)
    assert await asyncio.to_thread(tried.wait, 10)
    assert journal.state is JournalState.FAILING
    async with Stage(configuration(journal={"path": str(tmp_path / "occupied" / "j.db")}), journal=journal) as stage:
        (quick,) = stage.arrive("cloud", order(stage))
        assert quick.acknowledged
        stage.transports["vehicle"].hold = True
        (slow,) = stage.arrive("cloud", order(stage))
        for flush in stage.due:
            flush()
        assert not slow.acknowledged
        stage.transports["vehicle"].release_held()
        assert slow.acknowledged
    assert not await asyncio.to_thread(journal.stop, 0.1)


STEPS = ("send", "send", "flush", "hold", "free", "away", "back", "crash", "wait")


@settings(max_examples=40, deadline=None)
@given(steps=st.lists(st.sampled_from(STEPS), max_size=30), unsure_s=st.sampled_from([0, 10]))
def test_whatever_happens_nothing_acknowledged_is_lost_and_first_arrivals_are_in_order(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], unsure_s: int
) -> None:
    asyncio.run(_play(tmp_path_factory.mktemp("journal") / "j.db", steps, unsure_s))


async def _play(path: Path, steps: list[str], unsure_s: int) -> None:
    clock = WoundClock()
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
        async with life(path, unsure_s=unsure_s, clock=clock) as now:
            stage = now.stage
            network = stage.transports["vehicle"]
            network.refuse = arrived.append  # type: ignore[assignment]  # returns None: it refuses nothing
            for message in network.sent:  # while it was recovered
                arrived.append(message)
            given: list[tuple[UMessage, object]] = []
            for step in chapter:
                match step:
                    case "send":
                        batch = [order(stage, b"%d" % number) for number in range(count, count + 3)]
                        count += 3
                        given += zip(batch, stage.arrive("cloud", *batch), strict=True)
                    case "flush":
                        await now.flush()
                    case "hold":
                        network.hold = True
                    case "free":
                        network.release_held()
                    case "away":
                        network.set_reach(ORDERS, VEHICLE_APP, Reach.NOBODY)
                    case "back":
                        network.set_reach(ORDERS, VEHICLE_APP, Reach.SOMEBODY)
                    case "wait":
                        stage.pass_time(50)
                    case "long":
                        stage.pass_time(10_050)
                stage.check_books()
            acknowledged += [message for message, received in given if received.acknowledged]  # type: ignore[attr-defined]
            if chapter is chapters[-1]:
                assert now.journal.bytes == 0
    first = list(dict.fromkeys(arrived))
    assert set(acknowledged) <= set(first)
    numbers = [int(message.payload or b"") for message in first if message in set(acknowledged)]
    assert numbers == sorted(numbers)
