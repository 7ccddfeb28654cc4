"""`GET /api/v1/tap`, asked over HTTP."""

import json
import logging
from typing import Any, Literal

import aiohttp
import pytest

from streamer.delivery.lifecycle.reload import Reload
from streamer.features.api import streams
from streamer.features.api.streams import MAX_ANONYMOUS, event
from streamer.features.tap.page import MAX_TAPS, _some
from streamer.logs import audit
from streamer.uprotocol.message import Options, UPayloadFormat, publish
from streamer.uprotocol.payload import payload_as
from streamer.uprotocol.uuid import format_id
from tests.flow.harness import CLIMATE, CLOUD_APP, SPEED, configuration
from tests.sse import next_event, until_event
from tests.unit.features.api.live import BEARER, LiveHarness
from tests.waiting import until

Pages = tuple[LiveHarness, aiohttp.ClientSession]


async def tap(http: aiohttp.ClientSession, **query: str) -> aiohttp.ClientResponse:
    """A tap that sees everything from now on."""
    answer = await http.get("/api/v1/tap", params=query, headers=BEARER)
    assert answer.status == 200, await answer.text()
    return answer


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"route": "vehicle-clout"}, "route: 'vehicle-clout': expected one of "),
        ({"endpoint": "vehicel"}, "endpoint: 'vehicel': expected one of "),
    ],
)
async def test_a_route_or_an_endpoint_that_does_not_exist_is_refused_with_the_known_ones(
    pages: Pages, query: dict[str, str], expected: str
) -> None:
    _, http = pages
    answer = await http.get("/api/v1/tap", params=query, headers=BEARER)
    error = (await answer.json())["error"]
    assert answer.status == 400
    assert error.startswith(expected)
    assert "cloud" in error
    assert error.endswith("; did you mean 'vehicle-cloud'?" if "route" in query else "; did you mean 'vehicle'?")


async def test_what_no_route_takes_has_a_name_too(pages: Pages) -> None:
    answer = await tap(pages[1], route="none")
    answer.close()


def test_many_names_are_not_all_listed() -> None:
    assert _some([f"r{number:03}" for number in range(60)]).endswith("r048, r049 and 10 more")
    assert _some({"b", "a"}) == "a, b"


async def test_a_message_is_shown_with_what_became_of_it(pages: Pages) -> None:
    live, http = pages
    answer = await tap(http, route="vehicle-cloud", payload="text")
    message = live.flow.speed(b"fast", ttl=5000, payload_format=UPayloadFormat.TEXT)
    live.flow.arrive("vehicle", message)
    kind, shown = await next_event(answer)
    assert kind == "message"
    assert shown == {
        "t": "2023-11-14T22:13:20.000Z",
        "route": "vehicle-cloud",
        "ingress": "vehicle",
        "egress": "cloud",
        "type": "publish",
        "source": str(SPEED),
        "sink": None,
        "id": format_id(message.id),
        "priority": "CS1",
        "ttl_ms": 5000,
        "outcome": "delivered",
        "code": "OK",
        "text": "",
        "attempts": 0,
        "in_daemon_s": 0.0,
        "bytes": 4,
        "payload_format": "text",
        "payload": {"text": "fast"},
        "cut_bytes": 0,
    }
    answer.close()


async def test_what_is_turned_away_is_shown_with_the_reason_and_without_token(pages: Pages) -> None:
    live, http = pages
    answer = await tap(http, outcome="rejected,duplicate", payload="hex")
    message = live.flow.ask(token="top-secret", payload=b"\x00\xff")
    live.flow.arrive("cloud", message, message)
    stranger = live.flow.notify(source=SPEED._replace(authority="nobody"), token="top-secret")
    live.flow.arrive("vehicle", stranger)
    live.flow.pass_time(2000)
    seen: list[Any] = [await until_event(answer, "message") for _ in range(2)]
    assert [each["outcome"] for each in seen] == ["duplicate", "rejected"]
    assert (seen[0]["route"], seen[0]["sink"], seen[0]["payload"]) == ("none", str(CLIMATE), {"hex": "00ff"})
    assert (seen[1]["code"], seen[1]["egress"]) == ("UNAUTHENTICATED", "")
    assert "top-secret" not in json.dumps(seen)
    answer.close()


async def test_only_what_was_asked_for_is_shown(pages: Pages) -> None:
    live, http = pages
    answer = await tap(http, type="request", source="//cloud/FFFF00C0/FF/FFFF", sink=str(CLIMATE), endpoint="vehicle")
    live.flow.arrive("vehicle", live.flow.speed(), live.flow.notify())
    live.flow.arrive("cloud", live.flow.notify(source=SPEED._replace(authority="cloud")), live.flow.ask())
    _, shown = await next_event(answer)
    assert (shown["type"], shown["source"]) == ("request", str(CLOUD_APP))
    assert "payload" not in shown  # its length is told unless more is asked for
    answer.close()


async def test_beyond_the_rate_messages_are_left_out_and_counted(pages: Pages) -> None:
    live, http = pages
    answer = await tap(http, rate="1")
    live.flow.arrive("vehicle", *(live.flow.speed() for _ in range(50)))
    live.flow.clock.advance(1000)
    assert (await until_event(answer, "message"))["source"] == str(SPEED)
    left_out = await until_event(answer, "left_out")
    assert left_out == {"messages": 49, "since": "2023-11-14T22:13:20.000Z"}
    answer.close()


async def test_acts_are_audited_with_the_filters(pages: Pages, caplog: pytest.LogCaptureFixture) -> None:
    live, http = pages
    caplog.set_level(logging.INFO, "streamer.audit")
    answer = await tap(http, route="vehicle-cloud", payload="hex")
    live.flow.arrive("vehicle", live.flow.speed())
    await next_event(answer)
    answer.close()
    await until(lambda: any("tap_ended" in each.getMessage() for each in caplog.records))
    began, ended = (each.getMessage() for each in caplog.records if "tap_" in each.getMessage())
    assert began == "tap_began who=http where=127.0.0.1 filters=route=vehicle-cloud payload=hex"
    assert ended == "tap_ended who=http where=127.0.0.1 filters=route=vehicle-cloud payload=hex messages=1 left_out=0"


async def test_a_tap_goes_on_when_its_route_goes_and_comes_back(pages: Pages) -> None:
    live, http = pages
    answer = await tap(http, route="vehicle-cloud", payload="text")
    await Reload(live.flow.router, configuration(routes=[{"from": "cloud", "to": "vehicle"}])).run()
    live.flow.arrive("vehicle", live.flow.speed(b"nowhere"))
    await Reload(live.flow.router, live.config).run()
    live.flow.arrive("vehicle", live.flow.speed(b"there"))
    assert (await until_event(answer, "message"))["payload"] == {"text": "there"}
    answer.close()


@pytest.mark.parametrize("token", ["another-token-0123456789", "short"])
async def test_a_tap_ends_when_its_token_is_changed(
    pages: Pages, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    monkeypatch.setattr(streams, "_AUTHENTICATED_S", 0.0)
    monkeypatch.setattr(audit, "_denials", audit.denials())  # those of other tests may have used up the lines
    caplog.set_level(logging.INFO, "streamer.audit")
    live, http = pages
    answer = await tap(http)
    live.flow.arrive("vehicle", live.flow.speed(b"before"))
    await until_event(answer, "message")
    live.write_token(token)
    with pytest.raises(EOFError):
        await until_event(answer, "never")
    await until(lambda: not live.has_reader)
    began, denied, ended = (each.getMessage() for each in caplog.records if each.name == "streamer.audit")
    assert (began.split()[0], ended.split()[0]) == ("tap_began", "tap_ended")
    assert denied.startswith("denied who=http where=127.0.0.1 reason=the token was changed")
    answer.close()


async def test_nothing_is_told_to_taps_that_are_gone(pages: Pages) -> None:
    live, http = pages
    answer = await tap(http)
    assert live.has_reader
    answer.close()
    await until(lambda: not live.has_reader)


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong-wrong-wrong"}])
async def test_without_the_token_nothing_is_shown(pages: Pages, headers: dict[str, str]) -> None:
    live, http = pages
    async with http.get("/api/v1/tap", headers=headers) as answer:
        assert answer.status == 401
        assert "expected Authorization: Bearer" in (await answer.json())["error"]
    assert not live.has_reader


@pytest.mark.parametrize("http_control", ["loopback", "any"])
async def test_nobody_elsewhere_sees_messages_whatever_is_allowed(
    pages: Pages, monkeypatch: pytest.MonkeyPatch, http_control: Literal["loopback", "any"]
) -> None:
    live, http = pages
    live.server.use(live.metrics, live.config.control.model_copy(update={"http": http_control}))
    monkeypatch.setattr("streamer.features.api.access._ends", lambda request: (("192.0.2.7", 50000), ("192.0.2.1", 9464)))
    async with http.get("/api/v1/tap", headers=BEARER) as answer:
        assert answer.status == 403
        assert (await answer.json())["error"] == "accepted only from this machine"
    async with http.get("/api/v1/events?kinds=state") as answer:  # no payloads
        assert answer.status == 200


async def test_streams_without_a_token_keep_no_tap_out(pages: Pages) -> None:
    _, http = pages
    strangers = [await http.get("/api/v1/events") for _ in range(MAX_ANONYMOUS)]
    answer = await tap(http)
    for each in (answer, *strangers):
        each.close()


async def test_there_are_only_so_many_taps(pages: Pages) -> None:
    _, http = pages
    answers = [await tap(http) for _ in range(MAX_TAPS)]
    async with http.get("/api/v1/tap", headers=BEARER) as answer:
        assert answer.status == 503
        assert "taps already" in (await answer.json())["error"]
    for each in answers:
        each.close()


@pytest.mark.parametrize(
    ("query", "complaint"),
    [
        ({"rote": "x"}, "'rote': expected route, endpoint"),
        ({"source": "veh1"}, "source: 'veh1': expected up://"),
        ({"sink": "/A/1/1"}, "sink: /A/1/1: expected an authority"),
        ({"type": "publish,post"}, "type: 'post': expected publish, request"),
        ({"outcome": "lost"}, "outcome: 'lost': expected sent, delivered"),
        ({"payload": "xml"}, "payload: 'xml': expected none, length"),
        ({"rate": "0"}, "rate: expected 1 to 1000"),
        ({"rate": "1e3"}, "rate: expected 1 to 1000"),
        ({"rate": "1001"}, "rate: expected 1 to 1000"),
    ],
)
async def test_what_cannot_be_understood_is_refused(pages: Pages, query: dict[str, str], complaint: str) -> None:
    async with pages[1].get("/api/v1/tap", params=query, headers=BEARER) as answer:
        assert answer.status == 400
        assert complaint in (await answer.json())["error"]


@pytest.mark.parametrize(("begin", "end"), [("[", "]"), ('{"":', "}")])
def test_json_as_deep_as_it_gets_can_be_sent_and_read(begin: str, end: str) -> None:
    for levels in (1, 100, 101, *range(300, 1024)):
        payload = f"{begin * levels}1{end * levels}".encode()
        shown = json.loads(event("message", {"payload": payload_as(payload, "json")}).partition(b"data: ")[2])
        assert list(shown["payload"]) == ["json" if levels <= 100 else "text"]


async def test_hostile_payloads_stay_one_line(pages: Pages) -> None:
    live, http = pages
    answer = await tap(http, payload="text")
    hostile = b"\n\nevent: message\ndata: {}\n\n\r\x1b[2J"
    live.flow.arrive("vehicle", publish(live.flow.clock.ms, SPEED, hostile, Options()))
    _, shown = await next_event(answer)
    assert shown["payload"] == {"text": hostile.decode()}
    answer.close()
