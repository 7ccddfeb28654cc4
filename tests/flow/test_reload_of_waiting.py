"""A reload meets messages that are in no queue: they wait for room outside, or are dead letters that are redriven."""

import asyncio
from pathlib import Path

import pytest

from streamer.delivery.lifecycle.reload import Reload
from streamer.routing.interest import EVERY_MESSAGE
from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import UUri
from tests.flow.harness import SPEED, RouterHarness, configuration, three_networks
from tests.flow.interested import want
from tests.flow.journaled_run import journaled_run
from tests.flow.letters import never, stored

EVERY_TOPIC = ["//veh1/FFFFFFFF/FF/FFFF"]
NARROW = {"queue": {"messages": 1, "stalled_factor": 0}}
MOVED = {
    "vehicle": {"transport": "memory", "authorities": ["trailer1"]},
    "cloud": {"transport": "memory", "authorities": ["*"]},
    "phone": {"transport": "memory", "authorities": ["veh1", "phone1"]},
}
PHONE_TOPIC = UUri("phone1", 0xF, 1, 0x8000)
UP = {"from": "vehicle", "to": "cloud"}
FROM_PHONE = {"from": "phone", "to": "cloud"}


@pytest.mark.parametrize("is_publish", [True, False], ids=["publish", "notification"])
async def test_what_waits_for_room_is_no_copy_of_itself_when_its_source_lives_elsewhere_now(is_publish: bool) -> None:
    """It came from where its source lived then, so it is known to have arrived at home."""
    async with RouterHarness(three_networks(routes=[UP | {"publish": EVERY_TOPIC}], queue_policy=NARROW)) as harness:
        harness.transports["cloud"].lose_link()
        sent = [harness.speed(text) if is_publish else harness.notify(text) for text in (b"queued", b"outside")]
        batch = harness.arrive("vehicle", *sent)
        routes = [FROM_PHONE | {"publish": EVERY_TOPIC}]
        await Reload(harness.router, configuration(endpoints=MOVED, routes=routes, queue_policy=NARROW)).run()
        harness.transports["cloud"].restore_link()
        harness.pass_time(50)
        assert harness.sent("cloud") == sent[:1]
        assert harness.outcomes("none") == {"rejected": 1}
        assert harness.router.ingresses["vehicle"].unrouted.dead_letters == {UCode.UNAUTHENTICATED: 1}
        assert all(received.acknowledged for received in batch)


async def test_what_waits_for_the_queue_of_a_route_that_its_flow_has_left_goes_before_newer_messages() -> None:
    """The new route has room, and the queue of the old one has none for as long as its endpoint is away."""
    networks = three_networks().model_dump(mode="json", by_alias=True)["endpoints"]
    to_phone = networks | {"cloud": {"transport": "memory", "authorities": ["*"]}}
    to_phone["phone"] = {"transport": "memory", "authorities": ["phone1", "cloud"]}
    routes = [UP, {"from": "vehicle", "to": "phone"}]
    async with RouterHarness(configuration(endpoints=networks, routes=routes, queue_policy=NARROW)) as harness:
        harness.transports["cloud"].lose_link()
        queued, *outside = [harness.notify(b"%d" % number) for number in range(3)]
        harness.arrive("vehicle", queued, *outside)
        reloading = configuration(endpoints=to_phone, routes=routes, queue_policy={"queue": {"messages": 10}})
        harness.router.use(reloading, harness.router.table_of(reloading, harness.transports))
        harness.arrive("vehicle", newer := harness.notify(b"newer"))
        harness.router.pump.run()
        assert harness.sent("phone") == [*outside, newer]
        harness.transports["cloud"].restore_link()
        assert harness.sent("cloud") == [queued]


@pytest.mark.parametrize("room", [10, 2], ids=["in the queue", "outside, too"])
@pytest.mark.parametrize("names", [["after"], ["between", "after"], ["after", "before", "after"]])
async def test_what_waits_on_a_route_that_gets_another_name_goes_before_newer_messages(room: int, names: list[str]) -> None:
    """A route is the way between two endpoints. Under its new name it accounts for what waits there."""
    policy = {"queue": {"messages": room, "stalled_factor": 0}}
    async with RouterHarness(three_networks(routes=[UP | {"name": "before"}], queue_policy=policy)) as harness:
        cloud = harness.transports["cloud"]
        cloud.is_withholding = True
        harness.arrive("vehicle", settled := harness.notify(b"settled"))
        cloud.release_withheld()
        cloud.is_withholding = True
        harness.arrive("vehicle", *(waiting := [harness.notify(b"%d" % number) for number in range(4)]))
        for name in names:
            await Reload(harness.router, three_networks(routes=[UP | {"name": name}], queue_policy=policy)).run()
        harness.arrive("vehicle", newer := harness.notify(b"newer"))
        for _ in range(5):
            cloud.release_withheld()
            harness.pass_time(50)
        assert harness.sent("cloud") == [settled, *waiting, newer]
        assert {account.name for account in harness.router.accounts()} & {"before", "between", "after"} == {"after"}
        assert harness.outcomes("after") == {"delivered": 5}


async def test_what_waits_for_a_subscriber_that_leaves_goes_before_newer_messages_to_the_others() -> None:
    routes = [UP | {"queue": {"messages": 1, "stalled_factor": 0}}, {"from": "vehicle", "to": "phone"}]
    async with RouterHarness(three_networks(routes=routes)) as harness:
        await want(harness, SPEED, {"backend": EVERY_MESSAGE, "phone1": EVERY_MESSAGE})
        harness.transports["cloud"].lose_link()
        sent = [harness.speed(b"%d" % number) for number in range(3)]
        harness.arrive("vehicle", *sent)
        await want(harness, SPEED, {"phone1": EVERY_MESSAGE})
        harness.arrive("vehicle", newer := harness.speed(b"newer"))
        assert harness.sent("phone") == [*sent, newer]
        assert not harness.router.ingresses["vehicle"].has_backlog


@pytest.mark.parametrize("is_refused", [False, True], ids=["used", "refused"])
async def test_a_letter_from_an_endpoint_that_comes_back_waits_until_that_is_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_refused: bool
) -> None:
    """Until then nothing is known about where its messages go."""
    networks = three_networks().model_dump(mode="json", by_alias=True)["endpoints"]
    asked, may_go_on = asyncio.Event(), asyncio.Event()
    async with journaled_run(tmp_path / "j.db", endpoints=networks, routes=[UP, FROM_PHONE]) as run:
        run.harness.transports["cloud"].refuse = never
        run.harness.arrive("phone", message := run.harness.notify(b"x", source=PHONE_TOPIC))
        await run.flush()
        letters = run.letters
    async with journaled_run(tmp_path / "j.db", routes=[UP]) as run:
        harness, router = run.harness, run.harness.router
        phone = harness.other_transport("phone")
        at_once = phone.authenticate

        async def authenticate(entity: UUri) -> None:
            asked.set()
            await may_go_on.wait()
            if is_refused:
                raise UStatusError(UCode.UNAUTHENTICATED, "no")
            await at_once(entity)

        monkeypatch.setattr(phone, "authenticate", authenticate)
        reloading = asyncio.create_task(Reload(router, three_networks(routes=[UP, FROM_PHONE]), {"phone": phone}).run())
        await asked.wait()
        router.redrive.take(letters, [None])
        harness.pass_time(500)
        assert router.redrive.is_waiting
        may_go_on.set()
        (failed,) = await asyncio.gather(reloading, return_exceptions=True)
        assert isinstance(failed, UStatusError) is is_refused
        harness.pass_time(500)
        await run.flush()
        assert not router.redrive.is_waiting
        assert harness.sent("cloud") == ([] if is_refused else [message])
        assert len(stored(tmp_path / "j.db")) == is_refused
