"""A reload meets messages that are in no queue: they wait for room outside, or are dead letters that are redriven."""

import asyncio
from pathlib import Path

import pytest

from streamer.uprotocol.status import UCode, UStatusError
from streamer.uprotocol.uri import UUri
from tests.flow.harness import RouterHarness, configuration, three_networks
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
        await harness.router.reload(configuration(endpoints=MOVED, routes=routes, queue_policy=NARROW))
        harness.transports["cloud"].restore_link()
        harness.pass_time(50)
        assert harness.sent("cloud") == sent[:1]
        assert harness.outcomes("none") == {"rejected": 1}
        assert harness.router.notices.dead_letters == {("", UCode.UNAUTHENTICATED): 1}
        assert all(received.acknowledged for received in batch)


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
        reloading = asyncio.create_task(router.reload(three_networks(routes=[UP, FROM_PHONE]), {"phone": phone}))
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
