"""Dead letters that the journal keeps are sent again, as the messages that they were, to where they have failed."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from streamer.delivery.inbound import ingress
from streamer.delivery.lifecycle.reload import Reload
from streamer.journal.letters import LetterChange
from streamer.routing.interest import EVERY_MESSAGE
from streamer.transports.base import Presence
from streamer.transports.errors import PermanentError
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri, everything_at
from tests.flow.harness import ORDERS, SPEED, VEHICLE_APP, three_networks
from tests.flow.interested import want
from tests.flow.journaled_run import DOWN, journaled_run, order
from tests.flow.letters import gladly, mark, never, stored
from tests.flow.pausing import UP, pause, resume
from tests.waiting import until

TWO_ROUTES = [{"from": "vehicle", "to": to, "publish": ["//veh1/FFFFFFFF/FF/FFFF"]} for to in ("cloud", "phone")]
RENAMED = [route | {"name": f"new-{route['to']}"} for route in TWO_ROUTES]


async def test_a_dead_letter_is_kept_and_can_be_sent_again_with_its_id_and_attributes(tmp_path: Path) -> None:
    async with journaled_run(tmp_path / "j.db") as run:
        vehicle = run.harness.transports["vehicle"]
        vehicle.refuse = lambda message: PermanentError(UCode.PERMISSION_DENIED, "no")
        message = order(run.harness, b"again", ttl=60_000)
        run.harness.arrive("cloud", message)
        await run.flush()
        assert run.journal.bytes > 0
        assert run.harness.outcomes(DOWN) == {"dead_lettered": 1}
        vehicle.refuse = lambda message: None
        run.harness.router.redrive.take(run.letters, [None])
        run.harness.router.redrive.take(run.letters, [None])
        assert run.harness.sent("vehicle") == [message]
        await run.flush()
        assert run.journal.bytes == 0


@pytest.mark.parametrize(("ttl_ms", "leaves_with"), [(None, None), (5_000, 65_000), (0, 0)])
async def test_an_expired_one_is_sent_again_only_with_a_new_ttl(
    tmp_path: Path, ttl_ms: int | None, leaves_with: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    async with journaled_run(tmp_path / "j.db") as run:
        vehicle = run.harness.transports["vehicle"]
        vehicle.refuse = lambda message: PermanentError(UCode.PERMISSION_DENIED, "no")
        message = order(run.harness, b"again", ttl=30_000)
        run.harness.arrive("cloud", message)
        await run.flush()
        vehicle.refuse = lambda message: None
        run.harness.pass_time(60_000)
        before = stored(tmp_path / "j.db")
        run.harness.router.redrive.take(run.letters[:1], [ttl_ms])
        await run.flush()
        if leaves_with is None:
            assert run.harness.sent("vehicle") == []
            assert stored(tmp_path / "j.db") == before
            (said,) = [record.message for record in caplog.records if "redrive_kept" in record.message]
            assert "reason=its TTL has passed; a redrive can give it another one letters=" in said
        else:
            (left,) = run.harness.sent("vehicle")
            assert (left.id, left.payload, left.attributes.ttl) == (message.id, b"again", leaves_with)


async def test_one_without_interest_stays_and_can_be_redriven_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "j.db"
    async with journaled_run(path, routes=[{"from": "vehicle", "to": "cloud"}, {"from": "cloud", "to": "vehicle"}]) as run:
        cloud, redrive = run.harness.transports["cloud"], run.harness.router.redrive
        await want(run.harness, SPEED, {"backend": EVERY_MESSAGE})
        cloud.refuse = lambda message: PermanentError(UCode.PERMISSION_DENIED, "no")
        message = run.harness.speed(b"again")
        run.harness.arrive("vehicle", message)
        await run.flush()
        cloud.refuse = lambda message: None
        await want(run.harness, SPEED, {})
        (before,) = stored(path)

        mark(run)
        await until(lambda: bool(run.harness.due), within_s=10, what="the redrive")
        await run.flush()
        assert stored(path) == [before]  # and nobody asks for it any more
        assert (redrive.count, cloud.sent[1:]) == (0, [])
        assert [record.message for record in caplog.records if "redrive_kept" in record.message] == [
            f"redrive_kept reason=nobody wants it now letters=1 first_id={message.id.hex()}"
        ]

        await want(run.harness, SPEED, {"backend": EVERY_MESSAGE})
        mark(run)
        await until(lambda: bool(run.harness.sent("cloud")), within_s=10, what="the second redrive")
        await run.flush()
        assert (redrive.count, run.harness.sent("cloud"), stored(path)) == (1, [message], [])


async def test_one_whose_sink_is_where_it_came_from_stays_a_letter(tmp_path: Path) -> None:
    async with journaled_run(tmp_path / "j.db") as run:
        run.harness.transports["cloud"].refuse = lambda message: PermanentError(UCode.PERMISSION_DENIED, "no")
        run.harness.arrive("vehicle", run.harness.notify(b"to the cloud"))
        await run.flush()
        letters = run.letters
    moved = {
        "vehicle": {"transport": "memory", "authorities": ["veh1", "cloud"]},
        "cloud": {"transport": "memory", "authorities": ["*"]},
    }
    async with journaled_run(tmp_path / "j.db", endpoints=moved) as run:
        run.harness.router.redrive.take(letters, [None])
        await run.flush()
        assert run.harness.router.redrive.count == 0
    assert [letter.number for letter in stored(tmp_path / "j.db")] == [letters[0].number]


@pytest.mark.parametrize("changes", [{"body": b"\xff"}, {"ingress": "gone"}], ids=["unreadable", "no-such-endpoint"])
async def test_one_that_cannot_be_redriven_stays_and_its_mark_is_removed(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = tmp_path / "j.db"
    async with journaled_run(path) as run:
        run.harness.transports["vehicle"].refuse = lambda message: PermanentError(UCode.PERMISSION_DENIED, "no")
        run.harness.arrive("cloud", order(run.harness))
        await run.flush()
        mark(run)
        (letter,) = run.letters
        run.harness.router.redrive.take([letter._replace(**changes)], [None])
        await run.flush()
        assert [each.redrive_ms for each in stored(path)] == [None]


@pytest.mark.parametrize("on_full", ["backpressure", "reject", "evict"])
@pytest.mark.parametrize("why", ["paused", "full", "expired", "share"])
async def test_one_that_cannot_go_now_stays_the_letter_of_a_message_that_was_accepted(
    tmp_path: Path, why: str, on_full: str
) -> None:
    """What was never accepted, anybody may push out."""
    path = tmp_path / "j.db"
    queue = {"messages": 20, "on_full": on_full, "per_authority": 0.1 if why == "share" else None}
    async with journaled_run(path, queue_policy={"queue": queue}) as run:
        vehicle, harness = run.harness.transports["vehicle"], run.harness
        vehicle.refuse = never
        ids = set()
        for number in range(60):
            harness.arrive("cloud", message := order(harness, b"%d" % number, ttl=1000 if why == "expired" else None))
            ids.add(message.id)
            await run.flush()
        before = {letter.id: letter.outcome for letter in stored(path)}
        assert (before.keys(), set(before.values())) == (ids, {"dead_lettered"})
        vehicle.refuse, vehicle.is_withholding = gladly, True
        if why == "paused":
            pause(harness.router, ORDERS)
        elif why == "expired":
            harness.pass_time(1001)
        harness.router.redrive.take(run.letters, [None] * 60)
        await run.flush()
        queued = harness.queued(DOWN)
        kept = {letter.id: letter.outcome for letter in stored(path)}
        assert len(kept) == 60 - queued
        assert kept.items() <= before.items()
        assert (queued == 0) is (why == "expired")
        if why == "paused":
            resume(harness.router, ORDERS)
        for _ in range(60):
            vehicle.release_withheld()
            harness.pass_time(1000)
            vehicle.release_withheld()
            await run.flush()
        left = {letter.id for letter in stored(path)}
        sent = Counter(message.id for message in harness.sent("vehicle"))
        assert left == (ids if why == "expired" else set())
        assert sent == Counter(ids - left)


async def test_those_of_a_flow_go_in_the_order_in_which_they_failed_also_if_only_a_later_one_fits(tmp_path: Path) -> None:
    queue = {"messages": 1000, "bytes": 20_000}
    async with journaled_run(tmp_path / "j.db", queue_policy={"queue": queue}) as run:
        harness, vehicle = run.harness, run.harness.transports["vehicle"]
        vehicle.refuse = never
        large, small, last = (order(harness, text) for text in (b"1" * 9000, b"2", b"3" * 9000))
        other_flow = harness.notify(b"4", sink=VEHICLE_APP, source=UUri("cloud", 0xC1, 1, 0x9000))
        for message in (large, small, last, other_flow):
            harness.arrive("cloud", message)
            await run.flush()
        vehicle.refuse, vehicle.is_withholding = gladly, True
        harness.arrive("cloud", in_the_way := order(harness, b"0" * 15_000))
        harness.router.redrive.take(run.letters, [None] * 4)
        assert harness.router.redrive.count == 1  # the one of the other flow
        vehicle.is_withholding = False
        for _ in range(3):
            vehicle.release_withheld()
            harness.pass_time(1000)
        assert [each for each in harness.sent("vehicle") if each != other_flow] == [in_the_way, large, small, last]


async def test_one_that_nobody_listens_to_becomes_a_letter_again(tmp_path: Path) -> None:
    """Other Publishes that nobody listens to are of no interest to anybody. Of this one somebody has said otherwise."""
    async with journaled_run(tmp_path / "j.db") as run:
        cloud, redrive = run.harness.transports["cloud"], run.harness.router.redrive
        cloud.refuse = never
        run.harness.arrive("vehicle", message := run.harness.speed(b"x"))
        await run.flush()
        cloud.refuse = gladly
        cloud.set_presence(SPEED, None, Presence.ABSENT)
        redrive.take(run.letters, [None])
        run.harness.pass_time(100)
        await run.flush()
        (letter,) = stored(tmp_path / "j.db")
        assert (letter.id, letter.outcome, letter.route) == (message.id, "dead_lettered", UP)
        cloud.set_presence(SPEED, None, Presence.PRESENT)
        redrive.take(run.letters[-1:], [None])
        await run.flush()
        assert run.harness.sent("cloud") == [message]
        assert stored(tmp_path / "j.db") == []


async def test_a_letter_goes_in_the_transaction_in_which_its_message_is_written(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    async with journaled_run(path) as run:
        custody, vehicle = run.harness.router.custody, run.harness.transports["vehicle"]
        vehicle.refuse = never
        run.harness.arrive("cloud", message := order(run.harness))
        await run.flush()
        vehicle.refuse = gladly
        vehicle.lose_link()
        custody.late_flush_s = 0.05
        run.harness.router.redrive.take(run.letters, [None])
        custody.flush()  # that other traffic has asked for
        await until(lambda: not run.journal.is_busy, within_s=10, what="the commit")
        run.journal.is_killed = True
    assert stored(path) == []
    async with journaled_run(path) as run:
        run.harness.router.pump.run()
        assert run.harness.sent("vehicle") == [message]


async def test_one_that_is_purged_while_it_waits_is_not_sent(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    async with journaled_run(path, queue_policy={"queue": {"messages": 1}}) as run:
        vehicle = run.harness.transports["vehicle"]
        vehicle.refuse = never
        for text in (b"first", b"second"):
            run.harness.arrive("cloud", order(run.harness, text))
            await run.flush()
        vehicle.refuse, vehicle.is_withholding = gladly, True
        run.harness.router.redrive.take(run.letters, [None, None])
        await run.flush()
        assert run.journal.change_letters(LetterChange([letter.number for letter in stored(path)])) == 1
        for _ in range(3):
            vehicle.release_withheld()
            run.harness.pass_time(1000)
            vehicle.release_withheld()
        assert [message.payload for message in run.harness.sent("vehicle")] == [b"first"]
        assert not run.harness.router.redrive.is_waiting


@pytest.mark.parametrize(
    ("failed", "today", "sent"),
    [
        (["cloud"], TWO_ROUTES, {"cloud": 1, "phone": 0}),
        (["cloud", "phone"], TWO_ROUTES, {"cloud": 1, "phone": 1}),
        (["phone"], RENAMED, {"cloud": 0, "phone": 1}),
        (["cloud"], TWO_ROUTES[1:], {"cloud": 0, "phone": 1}),  # the only one that there is today
    ],
)
async def test_a_letter_is_redriven_on_the_route_where_its_message_failed(
    tmp_path: Path, failed: list[str], today: list[dict[str, Any]], sent: dict[str, int]
) -> None:
    config = three_networks(routes=TWO_ROUTES)
    networks = config.model_dump(mode="json", by_alias=True)["endpoints"]
    async with journaled_run(tmp_path / "j.db", endpoints=networks, routes=TWO_ROUTES) as run:
        for name in failed:
            run.harness.transports[name].refuse = never
        run.harness.arrive("vehicle", message := run.harness.speed(b"x"))
        await run.flush()
        for name in failed:
            run.harness.transports[name].refuse = gladly
        before = {name: run.harness.sent(name).count(message) for name in sent}
        await Reload(run.harness.router, three_networks(routes=today)).run()
        run.harness.router.redrive.take(run.letters, [None] * len(failed))
        await run.flush()
        assert {name: run.harness.sent(name).count(message) - before[name] for name in sent} == sent


async def test_a_letter_says_whose_copy_failed_and_only_that_one_is_sent_again(tmp_path: Path) -> None:
    networks = {
        "vehicle": {"transport": "memory", "authorities": ["veh1"]},
        "cloud": {"transport": "memory", "authorities": ["c1", "c2", "c3"], "options": {"sink_authority": True}},
    }
    routes = [{"from": "vehicle", "to": "cloud", "publish": ["//veh1/FFFFFFFF/FF/FFFF"], "publish_to": ["c1", "c2", "c3"]}]
    async with journaled_run(tmp_path / "j.db", ("cloud",), endpoints=networks, routes=routes) as run:
        cloud = run.harness.transports["cloud"]

        def for_c3_only(message: UMessage) -> PermanentError | None:
            sink = message.attributes.sink
            assert sink is not None
            return None if sink.authority == "c3" else PermanentError(UCode.PERMISSION_DENIED, sink.authority)

        cloud.refuse = for_c3_only
        run.harness.arrive("vehicle", message := run.harness.speed(b"x"))
        await run.flush()
        letters = stored(tmp_path / "j.db")
        assert sorted((letter.sink, letter.text) for letter in letters) == [
            (f"//{name}/FFFFFFFF/FF/FFFF", name) for name in ("c1", "c2")
        ]
        cloud.refuse = gladly
        run.harness.router.redrive.take(run.letters, [None, None])
        await run.flush()
        sent = Counter((each.id, each.attributes.sink.authority) for each in run.harness.sent("cloud"))  # type: ignore[union-attr]
        assert sent == {(message.id, name): 1 for name in ("c1", "c2", "c3")}
        assert stored(tmp_path / "j.db") == []


MIXED = {
    "vehicle": {"transport": "memory", "authorities": ["veh1"]},
    "cloud": {"transport": "memory", "authorities": ["c1", "c2"], "options": {"sink_authority": True}},
    "phone": {"transport": "memory", "authorities": ["phone1"]},
}


PATTERN = ["//veh1/FFFFFFFF/FF/FFFF"]


TO_BOTH = [
    {"from": "vehicle", "to": "cloud", "publish": PATTERN, "publish_to": ["c1", "c2"]},
    {"from": "vehicle", "to": "phone", "publish": PATTERN},
]


async def test_a_message_that_no_route_has_had_goes_over_all_of_them(tmp_path: Path) -> None:
    async with journaled_run(tmp_path / "j.db", ("cloud",), endpoints=MIXED, routes=TO_BOTH) as run:
        message = run.harness.speed(b"x", ttl=10)
        run.harness.clock.advance(100)
        run.harness.arrive("vehicle", message)
        await run.flush()
        run.harness.router.redrive.take(run.letters, [60_000])
        await run.flush()
        assert {name: len(run.harness.sent(name)) for name in ("cloud", "phone")} == {"cloud": 2, "phone": 1}
        assert stored(tmp_path / "j.db") == []


async def test_a_message_that_is_refused_before_any_route_has_it_has_a_letter_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One patient queue is full, and the backlog as well."""
    monkeypatch.setattr(ingress, "_MAX_BACKLOG_MESSAGES", 0)
    policy = {"queue": {"messages": 1, "stalled_factor": 0}}
    async with journaled_run(tmp_path / "j.db", ("cloud",), endpoints=MIXED, routes=TO_BOTH, queue_policy=policy) as run:
        harness, phone = run.harness, run.harness.transports["phone"]
        phone.is_withholding = True
        harness.arrive("vehicle", harness.speed(b"in the way"))
        harness.arrive("vehicle", message := harness.speed(b"x"))
        await run.flush()
        assert len(stored(tmp_path / "j.db")) == 3
        phone.release_withheld()
        for _ in range(3):
            harness.pass_time(1000)
            await run.flush()
        harness.router.redrive.take(run.letters, [None] * 3)
        for _ in range(3):
            harness.pass_time(1000)
            await run.flush()
        assert {name: sum(each.id == message.id for each in harness.sent(name)) for name in ("cloud", "phone")} == {
            "cloud": 2,
            "phone": 1,
        }


async def test_what_was_queued_for_an_endpoint_that_is_gone_after_a_restart_goes_there_and_nowhere_else(
    tmp_path: Path,
) -> None:
    path = tmp_path / "j.db"
    async with journaled_run(path, ("cloud",), endpoints=MIXED, routes=TO_BOTH) as run:
        run.harness.transports["cloud"].lose_link()
        run.harness.arrive("vehicle", message := run.harness.speed(b"x"))
        await run.flush()
        assert len(run.harness.sent("phone")) == 1
    without_cloud = {name: MIXED[name] for name in ("vehicle", "phone")}
    async with journaled_run(path, endpoints=without_cloud, routes=TO_BOTH[1:]) as run:
        await run.flush()
        letters = run.letters
        assert sorted((each.route, each.target, each.sink) for each in letters) == [
            ("vehicle-cloud", "cloud", str(everything_at(name))) for name in ("c1", "c2")
        ]
    async with journaled_run(path, ("cloud",), endpoints=MIXED, routes=TO_BOTH) as run:
        run.harness.router.redrive.take(letters, [None, None])
        await run.flush()
        assert {each.attributes.sink for each in run.harness.sent("cloud")} == {everything_at("c1"), everything_at("c2")}
        assert {each.id for each in run.harness.sent("cloud")} == {message.id}
        assert run.harness.sent("phone") == []
        assert stored(path) == []


async def test_a_copy_for_somebody_who_has_not_subscribed_now_stays_a_letter(tmp_path: Path) -> None:
    routes = [{"from": "vehicle", "to": "cloud"}, {"from": "cloud", "to": "vehicle"}]
    networks = {name: MIXED[name] for name in ("vehicle", "cloud")}
    async with journaled_run(tmp_path / "j.db", ("cloud",), endpoints=networks, routes=routes) as run:
        cloud, redrive = run.harness.transports["cloud"], run.harness.router.redrive
        await want(run.harness, SPEED, {"c1": EVERY_MESSAGE, "c2": EVERY_MESSAGE})
        cloud.refuse = lambda message: never(message) if message.attributes.sink == everything_at("c1") else None
        run.harness.arrive("vehicle", run.harness.speed(b"x"))
        await run.flush()
        cloud.refuse = gladly
        await want(run.harness, SPEED, {"c2": EVERY_MESSAGE})
        redrive.take(run.letters, [None])
        await run.flush()
        assert [message.attributes.sink for message in run.harness.sent("cloud")] == [everything_at("c2")]
        assert len(stored(tmp_path / "j.db")) == 1
        await want(run.harness, SPEED, {"c1": EVERY_MESSAGE, "c2": EVERY_MESSAGE})
        redrive.take(run.letters, [None])
        await run.flush()
        assert [message.attributes.sink for message in run.harness.sent("cloud")[1:]] == [everything_at("c1")]
        assert stored(tmp_path / "j.db") == []
