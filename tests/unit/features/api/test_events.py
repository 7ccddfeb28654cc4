"""`GET /api/v1/events`, asked over HTTP."""

import asyncio
from typing import Any

import aiohttp
import pytest

from streamer.config.shown import fingerprint
from streamer.features.api import rates, streams
from streamer.features.api.events import LETTERS_PER_S, MAX_BYTES, MAX_EVENTS, Listener
from streamer.features.api.rates import Rates
from streamer.features.api.streams import MAX_ANONYMOUS, MAX_STREAMS, event
from streamer.routing.pause_rules import PauseRule
from tests.flow.harness import CLOUD_APP, SPEED, RouterHarness, configuration
from tests.sse import next_event, until_event
from tests.unit.features.api.live import BEARER, LiveHarness
from tests.waiting import until

Pages = tuple[LiveHarness, aiohttp.ClientSession]


async def test_every_state_is_told_at_the_beginning_and_then_what_changes(pages: Pages) -> None:
    live, http = pages
    async with http.get("/api/v1/events?kinds=state") as answer:
        assert answer.headers["Content-Type"] == "text/event-stream"
        first = [await next_event(answer) for _ in range(3)]
        assert first == [
            ("state", {"what": "endpoint", "name": "vehicle", "state": "up", "problems": []}),
            ("state", {"what": "endpoint", "name": "cloud", "state": "up", "problems": []}),
            ("state", {"what": "ready", "name": "", "state": "ready", "problems": []}),
        ]
        live.flow.transports["cloud"].lose_link()
        live.tick(1000)
        assert await until_event(answer, "state", name="cloud") == {
            "what": "endpoint",
            "name": "cloud",
            "state": "down",
            "problems": [],
        }
        assert (await until_event(answer, "state", what="ready"))["state"] == "not ready"


async def test_rates_are_told_once_a_second_of_routes_that_change_or_hold_something(pages: Pages) -> None:
    live, http = pages
    async with http.get("/api/v1/events?kinds=rates") as answer:
        live.tick(1000)
        assert (await until_event(answer, "rates"))["routes"] == {}
        live.flow.arrive("vehicle", *(live.flow.speed() for _ in range(30)))
        live.tick(2000)
        told = await until_event(answer, "rates")
        route = {"accepted_per_s": 15.0, "delivered_per_s": 15.0, "failed_per_s": 0.0, "queued": 0, "oldest_age_s": None}
        assert told["routes"] == {"vehicle-cloud": route}
        assert told["endpoints"]["vehicle"] == {"received_per_s": 15.0, "in_flight": 0, "backlog": 0, "state": "up"}
        live.tick(1000)
        assert (await until_event(answer, "rates"))["routes"] == {}  # nothing has moved since
        live.flow.transports["cloud"].lose_link()
        live.flow.arrive("vehicle", live.flow.speed())
        live.tick(1000)
        waiting = (await until_event(answer, "rates"))["routes"]["vehicle-cloud"]
        assert (waiting["queued"], waiting["oldest_age_s"]) == (1, 1.0)


async def test_rates_are_read_only_while_somebody_wants_them_and_begin_anew(
    pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    live, http = pages
    read: list[float] = []
    real = Rates.read

    async def counted(rates: Rates, now_s: float) -> dict[str, Any]:
        read.append(now_s)
        return await real(rates, now_s)

    monkeypatch.setattr(Rates, "read", counted)
    async with http.get("/api/v1/events?kinds=state"):
        async with http.get("/api/v1/events?kinds=rates") as answer:
            live.tick(1000)
            await until_event(answer, "rates")
        await until(lambda: len(live.live._events._listeners) == 1)
        live.flow.arrive("vehicle", *(live.flow.speed() for _ in range(30)))
        for _ in range(3):
            live.tick(1000)
        assert len(read) == 1
        async with http.get("/api/v1/events?kinds=rates") as answer:
            live.tick(1000)
            assert (await until_event(answer, "rates"))["routes"] == {}  # what was meanwhile is no rate
            live.flow.arrive("vehicle", live.flow.speed())
            live.tick(1000)
            assert (await until_event(answer, "rates"))["routes"]["vehicle-cloud"]["accepted_per_s"] == 1.0


async def test_no_turn_of_the_event_loop_reads_more_than_some_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "ROUTES_PER_ITERATION", 1)
    async with RouterHarness() as flow:
        flow.arrive("vehicle", flow.speed())
        flow.arrive("cloud", flow.ask())
        reading = asyncio.create_task(Rates(flow.router).read(1.0))
        turns = 0
        while not reading.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns > sum(queue.stats.accepted > 0 for queue in flow.router.queues()) >= 2
        assert "vehicle" in (await reading)["endpoints"]


async def test_dead_letters_are_told_and_beyond_a_bound_counted(pages: Pages) -> None:
    live, http = pages
    async with http.get("/api/v1/events?kinds=dead_letter") as answer:
        stranger = live.flow.notify(b"12345", source=SPEED._replace(authority="nobody"))
        await until(lambda: live.has_reader)
        live.flow.arrive("vehicle", stranger)
        told = await until_event(answer, "dead_letter")
        assert (told["type"], told["source"], told["sink"]) == (
            "notification",
            str(stranger.attributes.source),
            str(CLOUD_APP),
        )
        assert (told["size"], told["number"]) == (5, None)
        live.flow.arrive(
            "vehicle", *(live.flow.notify(source=SPEED._replace(authority="nobody")) for _ in range(LETTERS_PER_S + 6))
        )
        live.tick(1000)
        assert await until_event(answer, "dead_letter", left_out=7) == {"left_out": 7}


async def test_another_configuration_and_other_rules_are_told(pages: Pages) -> None:
    live, http = pages
    async with http.get("/api/v1/events?kinds=config,paused") as answer:
        live.tick(1000)
        live.config = configuration(authority="other")
        live.flow.router.pause_rules.add(PauseRule.parse(str(SPEED)))
        live.tick(1000)
        assert await next_event(answer) == ("config", {"fingerprint": fingerprint(live.config)})
        assert await next_event(answer) == ("paused", {})


async def test_nothing_is_watched_while_nobody_listens(pages: Pages) -> None:
    live, http = pages
    async with http.get("/api/v1/events") as answer:
        await next_event(answer)
        assert live.has_reader
    await until(lambda: not live.has_reader)


async def test_there_are_only_so_many_streams(pages: Pages) -> None:
    _, http = pages
    answers = [await http.get("/api/v1/events", headers=BEARER) for _ in range(MAX_STREAMS)]
    async with http.get("/api/v1/events") as answer:
        assert answer.status == 503
        assert "streams already" in (await answer.json())["error"]
    answers.pop().close()

    async def has_room() -> bool:
        async with http.get("/api/v1/events", headers=BEARER) as answer:
            return answer.status == 200

    while not await has_room():
        pass
    for each in answers:
        each.close()


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong-wrong-wrong"}])
async def test_whoever_has_no_token_leaves_room_for_those_who_have(pages: Pages, headers: dict[str, str]) -> None:
    _, http = pages
    strangers = [await http.get("/api/v1/events", headers=headers) for _ in range(MAX_ANONYMOUS)]
    async with http.get("/api/v1/events", headers=headers) as answer:
        assert answer.status == 503
    others = [await http.get("/api/v1/events", headers=BEARER) for _ in range(MAX_STREAMS - MAX_ANONYMOUS)]
    assert {each.status for each in (*strangers, *others)} == {200}
    for each in (*strangers, *others):
        each.close()


async def test_a_stream_ends_when_its_token_is_changed_and_those_without_one_go_on(
    pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "_AUTHENTICATED_S", 0.0)
    live, http = pages
    async with (
        http.get("/api/v1/events?kinds=config", headers=BEARER) as known,
        http.get("/api/v1/events?kinds=config") as stranger,
    ):
        live.write_token("another-token-0123456789")
        with pytest.raises(EOFError):
            await next_event(known)
        live.config = configuration(queue_policy={"window": 3})
        live.tick(1000)
        assert (await next_event(stranger))[0] == "config"


async def test_unknown_kinds_are_refused_with_those_that_there_are(pages: Pages) -> None:
    async with pages[1].get("/api/v1/events?kinds=rates,payloads") as answer:
        assert answer.status == 400
        assert "'payloads': expected state, dead_letter" in (await answer.json())["error"]


async def test_streams_end_when_the_daemon_stops(pages: Pages) -> None:
    live, http = pages
    async with http.get("/api/v1/events?kinds=config") as answer:
        live.live.close()
        with pytest.raises(EOFError):
            await next_event(answer)
    async with http.get("/api/v1/events") as answer:
        assert answer.status == 503


def test_a_reader_that_stalls_loses_events_and_is_told_how_many() -> None:
    listener = Listener(["rates"])
    for number in range(MAX_EVENTS + 5):
        listener.offer("rates", event("rates", number))
    listener.offer("state", event("state", "nobody asked"))
    data = listener.take()
    assert data.count(b"event: rates") == MAX_EVENTS
    assert data.endswith(event("left_out", {"events": 5}))
    assert listener.take() == b""


def test_what_waits_for_a_reader_is_bounded_in_bytes() -> None:
    listener = Listener(["rates"])
    for _ in range(10):
        listener.offer("rates", b"x" * (MAX_BYTES // 4))
    assert len(listener.take()) == MAX_BYTES + len(event("left_out", {"events": 6}))
