"""Where the message of a dead letter goes when it is sent again: where it has failed, and nowhere else."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from streamer.delivery.inbound import ingress
from streamer.delivery.lifecycle.reload import Reload
from streamer.routing.interest import EVERY_MESSAGE
from streamer.transports.errors import PermanentError
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import everything_at
from tests.flow.harness import SPEED, three_networks
from tests.flow.interested import want
from tests.flow.journaled_run import journaled_run
from tests.flow.letters import gladly, never, stored

TWO_ROUTES = [{"from": "vehicle", "to": to, "publish": ["//veh1/FFFFFFFF/FF/FFFF"]} for to in ("cloud", "phone")]
RENAMED = [route | {"name": f"new-{route['to']}"} for route in TWO_ROUTES]


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
