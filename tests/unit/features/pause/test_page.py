"""The pages `pause` and `resume`, asked over HTTP."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from unittest.mock import Mock

import aiohttp
import pytest
from aiohttp import StreamReader, web
from aiohttp.test_utils import make_mocked_request

from streamer.config.metrics import MetricsConfig
from streamer.features.api import listener
from streamer.features.api.access import access
from streamer.features.api.metrics import Exposition
from streamer.features.api.server import AdminServer
from streamer.features.pause.page import PausePages
from streamer.files import Files
from streamer.routing.pause_rules import MAX_RULES, PauseRule
from streamer.uprotocol.uri import UUri
from tests.flow.harness import RouterHarness, configuration
from tests.ports import free_port
from tests.unit.features.pause.pausing import BEARER, SINK, TOPIC, AdminHarness


async def test_pause_list_and_resume_over_http(admin: AdminHarness, http: aiohttp.ClientSession) -> None:
    async with http.get("/api/v1/paused") as answer:
        assert (answer.status, await answer.json()) == (200, {"paused": []})
    async with http.post("/api/v1/pause", json={"topic": TOPIC}) as answer:
        assert (answer.status, await answer.json()) == (200, {"changed": True})
    async with http.post("/api/v1/pause", json={"topic": TOPIC, "sink": SINK}) as answer:
        assert answer.status == 200
    admin.harness.arrive(
        "vehicle", admin.harness.speed(), admin.harness.speed(), admin.harness.notify(sink=UUri.parse(SINK))
    )
    async with http.get("/api/v1/paused") as answer:
        assert await answer.json() == {
            "paused": [
                {"topic": TOPIC, "sink": None, "flows": 2, "messages": 3, "until": None, "left_s": None},
                {"topic": TOPIC, "sink": SINK, "flows": 1, "messages": 1, "until": None, "left_s": None},
            ]
        }
    async with http.post("/api/v1/pause", json={"topic": TOPIC, "sink": None}) as answer:
        assert (answer.status, await answer.json()) == (200, {"changed": False})
    async with http.post("/api/v1/resume", json={"topic": TOPIC}) as answer:
        assert (answer.status, await answer.json()) == (200, {"changed": True})
    assert len(admin.harness.sent("cloud")) == 2
    assert admin.harness.router.pause_rules.rules == (PauseRule.parse(TOPIC, SINK),)


async def test_a_rule_with_an_end_shows_when_that_is(admin: AdminHarness, http: aiohttp.ClientSession) -> None:
    async with http.post("/api/v1/pause", json={"topic": TOPIC, "for_s": 7200}) as answer:
        assert (answer.status, await answer.json()) == (200, {"changed": True})
    admin.harness.clock.advance(1000)
    async with http.get("/api/v1/paused") as answer:
        (rule,) = (await answer.json())["paused"]
    assert (rule["until"], rule["left_s"]) == ("2023-11-15T00:13:20.000Z", 7199.0)


@pytest.mark.parametrize("for_s", [0, -1, "2h", True, [], 31_622_401, 1e308])
async def test_an_end_that_is_no_time_is_refused(admin: AdminHarness, http: aiohttp.ClientSession, for_s: object) -> None:
    async with http.post("/api/v1/pause", json={"topic": TOPIC, "for_s": for_s}) as answer:
        assert answer.status == 400
        assert "body: for_s: expected a number of seconds" in (await answer.json())["error"]
    assert admin.harness.router.pause_rules.rules == ()


async def test_resume_of_an_unknown_rule_is_not_found(http: aiohttp.ClientSession) -> None:
    async with http.post("/api/v1/resume", json={"topic": TOPIC}) as answer:
        assert answer.status == 404
        assert TOPIC in (await answer.json())["error"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("", "body: not JSON; expected an object"),
        ("{", "body: not JSON; expected an object"),
        ("[" * 2000, "body: not JSON; expected an object"),
        ("[]", "body: expected a JSON object"),
        ("{}", "body: topic: expected a text such as"),
        ('{"topic": 7}', "body: topic: expected a text such as"),
        ('{"topic": "//a/1/1/8000", "sink": 7}', "body: sink: expected a text such as"),
        ('{"topic": "//a/1/1/8000", "sinc": "//b/1/1/0"}', "body: unknown key 'sinc'; expected topic, sink"),
        ('{"topic": "//a/1/1/7"}', "a method is a sink"),
        ('{"topic": "nonsense"}', "topic 'nonsense': expected up://"),
        ('{"topic": "//a/1/1/8000", "sink": "//b/1/1/8000"}', "sink //b/1/1/8000: expected a uEntity"),
    ],
)
@pytest.mark.parametrize("page", ["/api/v1/pause", "/api/v1/resume"])
async def test_a_bad_body_is_answered_with_what_was_expected(
    admin: AdminHarness, http: aiohttp.ClientSession, page: str, body: str, expected: str
) -> None:
    async with http.post(page, data=body, headers={"Content-Type": "application/json"}) as answer:
        assert answer.status == 400
        assert expected in (await answer.json())["error"]
    assert admin.harness.router.pause_rules.rules == ()


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
async def test_a_post_that_a_foreign_page_could_send_is_refused(
    admin: AdminHarness, http: aiohttp.ClientSession, content_type: str
) -> None:
    body = json.dumps({"topic": TOPIC})
    async with http.post("/api/v1/pause", data=body, headers={"Content-Type": content_type}) as answer:
        assert answer.status == 415
        assert "application/json" in (await answer.json())["error"]
    assert admin.harness.router.pause_rules.rules == ()


@pytest.mark.parametrize("is_chunked", [False, True], ids=["length", "chunked"])
async def test_large_bodies_are_not_read(admin: AdminHarness, http: aiohttp.ClientSession, is_chunked: bool) -> None:
    body = json.dumps({"topic": TOPIC, "sink": " " * 70_000}).encode()

    async def chunks() -> AsyncIterator[bytes]:
        yield body

    headers = {"Content-Type": "application/json"}
    async with http.post("/api/v1/pause", data=chunks() if is_chunked else body, headers=headers) as answer:
        assert answer.status == 413
    assert admin.harness.router.pause_rules.rules == ()


HALF = f"""POST /api/v1/pause HTTP/1.1\r
Host: localhost\r
Authorization: {BEARER["Authorization"]}\r
Content-Type: application/json\r
Content-Length: 100\r
Expect: 100-continue\r
\r
{{""".encode()


@pytest.mark.parametrize("who", ["the client", "the bound in time"])
async def test_a_connection_that_ends_within_a_body_is_no_fault_of_ours(
    admin: AdminHarness, who: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener, "CONNECTION_TIMEOUT_S", 0.1 if who == "the bound in time" else 600)
    reader, writer = await asyncio.open_connection("127.0.0.1", admin.port)
    writer.write(HALF)
    assert await reader.readline() == b"HTTP/1.1 100 Continue\r\n"  # the page waits for the rest
    if who == "the client":
        writer.transport.abort()
    else:
        await reader.read()
        writer.close()
    await admin.server.stop()  # which waits for its pages
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "PATCH"])
@pytest.mark.parametrize("page", ["/api/v1/pause", "/api/v1/resume"])
async def test_only_a_post_changes_anything(
    admin: AdminHarness, http: aiohttp.ClientSession, page: str, method: str
) -> None:
    async with http.request(method, page, json={"topic": TOPIC}) as answer:
        assert (answer.status, answer.headers["Allow"]) == (405, "POST")
    assert admin.harness.router.pause_rules.rules == ()


async def test_too_many_rules_and_a_failing_disk_are_told_apart(admin: AdminHarness, http: aiohttp.ClientSession) -> None:
    admin.state.fails = True
    async with http.post("/api/v1/pause", json={"topic": TOPIC}) as answer:
        assert answer.status == 503
    for number in range(MAX_RULES):
        admin.harness.router.pause_rules.add(PauseRule(UUri("veh2", number, 1, 0x8000)))
    async with http.post("/api/v1/pause", json={"topic": TOPIC}) as answer:
        assert answer.status == 429
        assert "1000 rules" in (await answer.json())["error"]


async def test_without_control_there_are_no_such_pages() -> None:
    harness, port = RouterHarness(configuration()), free_port()
    server = AdminServer(harness.router, Exposition(harness.router), MetricsConfig(listen=f"127.0.0.1:{port}"))
    await server.start()
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session, session.get("/api/v1/paused") as answer:
        assert answer.status == 404
    await server.stop()


# who may


def remote(body: object, peer: str, own: str) -> web.Request:
    """A POST from one address to another."""
    payload = StreamReader(Mock(_reading_paused=False), 2**16)
    payload.feed_data(json.dumps(body).encode())
    payload.feed_eof()
    ends = {"peername": (peer, 50000), "sockname": (own, 9464)}
    transport = Mock(get_extra_info=lambda name, default=None: ends.get(name, default))
    given = {"Content-Type": "application/json", "Host": "192.0.2.1:9464", **BEARER}
    return make_mocked_request("POST", "/api/v1/pause", given, transport=transport, payload=payload)


async def posted(admin: AdminHarness, request: web.Request) -> tuple[int, str]:
    """Status and body of the page's answer."""
    (page,) = (each for each in PausePages(admin.control).routes() if each.path == request.path)
    try:
        answer = await access(lambda: (MetricsConfig(), admin.options), Files())(request, page.handler)
    except web.HTTPException as exc:
        return exc.status, exc.text or ""
    assert isinstance(answer, web.Response)
    return answer.status, answer.text or ""


@pytest.mark.parametrize(
    ("peer", "own", "admin", "status"),
    [
        ("192.0.2.7", "192.0.2.1", "loopback", 403),
        ("2001:db8::7", "2001:db8::1", "loopback", 403),
        ("172.17.0.1", "172.17.0.2", "loopback", 403),  # a port that Docker has published
        ("192.0.2.1", "192.0.2.1", "loopback", 200),
        ("127.0.0.1", "127.0.0.1", "loopback", 200),
        ("127.9.9.9", "127.0.0.1", "loopback", 200),
        ("::1", "::1", "loopback", 200),
        ("192.0.2.7", "192.0.2.1", "any", 200),
    ],
    indirect=["admin"],
)
async def test_a_post_is_taken_from_this_machine_or_as_configured(
    admin: AdminHarness, peer: str, own: str, status: int
) -> None:
    found, text = await posted(admin, remote({"topic": TOPIC}, peer, own))
    assert (found, len(admin.harness.router.pause_rules.rules)) == (status, int(status == 200))
    assert ("accepted only from this machine, unless control.http is any" in text) == (status == 403)


@pytest.mark.parametrize("page", ["/api/v1/pause", "/api/v1/resume"])
@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Origin": "http://127.0.0.1:9464"}, "refused to pages of other origins"),
        ({"Origin": "null"}, "refused to pages of other origins"),
        ({"Host": "evil.example:9464"}, "expected an IP address or localhost as Host"),
        ({"Host": "127.0.0.1.evil.example"}, "expected an IP address or localhost as Host"),
        ({"Host": "127.1"}, "expected an IP address or localhost as Host"),
        ({"Host": ":9464"}, "expected an IP address or localhost as Host"),
    ],
)
@pytest.mark.parametrize("admin", ["loopback", "any"], indirect=True)
async def test_a_page_in_a_browser_can_neither_pause_nor_resume_anything(
    admin: AdminHarness, http: aiohttp.ClientSession, page: str, headers: dict[str, str], expected: str
) -> None:
    rule = PauseRule(UUri("veh2", 1, 1, 0x8000))
    admin.harness.router.pause_rules.add(rule)
    topic = str(rule.source) if page.endswith("start") else TOPIC
    async with http.post(page, json={"topic": topic}, headers=headers) as answer:
        assert answer.status == 403
        assert expected in (await answer.json())["error"]
    assert admin.harness.router.pause_rules.rules == (rule,)


async def test_a_name_that_the_configuration_lists_is_not_foreign(admin: AdminHarness, http: aiohttp.ClientSession) -> None:
    async with http.post("/api/v1/pause", json={"topic": TOPIC}, headers={"Host": "streamer:9464"}) as answer:
        assert (answer.status, await answer.json()) == (200, {"changed": True})
