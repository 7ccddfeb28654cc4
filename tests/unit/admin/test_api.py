"""The administration API of a whole daemon, held against the document that describes it."""

import asyncio
import json
import random
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from streamer.admin.metrics import Exposition
from streamer.admin.port import AdminPort
from streamer.uprotocol.message import Options, UMessage, UPayloadFormat, notification, publish, request
from streamer.uprotocol.uuid import format_id
from tests.flow.harness import CLIMATE, CLOUD_APP, SPEED
from tests.unit.admin.daemon import Asked, DaemonHarness, running
from tests.waiting import until

DOORS = SPEED._replace(ue_id=0xA8001)
CALLER = SPEED._replace(resource=0)
METHOD = CLOUD_APP._replace(resource=9)
SECRET = "hunter2hunter2"
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[DaemonHarness]:
    async with running(tmp_path) as harness:
        yield harness


class Document:
    """The description that the daemon serves."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data

    def check(self, method: str, path: str, asked: Asked) -> Any:
        """Whether an answer is as the document says; its JSON."""
        responses = self.data["paths"][path][method]["responses"]
        response = responses.get(str(asked.status), responses["default"])
        if reference := response.get("$ref"):
            response = self.data["components"]["responses"][reference.rpartition("/")[2]]
        kind = asked.headers["Content-Type"].partition(";")[0]
        schema = response["content"][kind]["schema"]
        data = json.loads(asked.text)
        from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # noqa: PLC0415  # loads for two seconds

        # What a schema refers to is found in the document that it stands in.
        checker = Draft202012Validator(
            {**schema, "components": self.data["components"]}, format_checker=Draft202012Validator.FORMAT_CHECKER
        )
        assert [f"{error.json_path}: {error.message}" for error in checker.iter_errors(data)] == []
        return data


async def document_of(served: DaemonHarness) -> Document:
    return Document((await served.ask("/api/v1/openapi.json")).json)


def now_ms(served: DaemonHarness) -> int:
    return served.daemon.router.clock.wall_ms()


def speed(served: DaemonHarness, payload: bytes = b"fast", **options: Any) -> UMessage:
    return publish(now_ms(served), SPEED, payload, Options(**options))


async def play(served: DaemonHarness) -> list[str]:
    """Something of everything: delivered, waiting, refused, dead, paused. The ids of the dead letters, oldest first."""
    served.arrive("vehicle", speed(served))
    served.transport("cloud").lose_link()
    served.arrive("vehicle", *(speed(served) for _ in range(3)))
    served.arrive("vehicle", notification(now_ms(served), SPEED, CLOUD_APP, b"x"))
    assert (await served.ask("/api/v1/pause", {"topic": "//veh1/B/1/FFFF", "sink": None})).status == 200
    late_ms = now_ms(served) - 10_000
    dead = [
        publish(late_ms, DOORS, b'{"a": 1}', Options(ttl=5, payload_format=UPayloadFormat.JSON, token=SECRET)),
        request(late_ms, CALLER, METHOD, 5, b"\xff\x00", Options(token=SECRET)),
        publish(late_ms, DOORS._replace(ue_id=1), b"", Options(ttl=5, traceparent=TRACE)),
    ]
    served.arrive("vehicle", *dead)
    await until_letters(served, len(dead))
    return [format_id(message.id) for message in dead]


async def until_letters(served: DaemonHarness, number: int) -> None:
    async with asyncio.timeout(15):
        while (await served.ask("/api/v1/dead-letters", limit=1)).json["total"] != number:
            await asyncio.sleep(0.01)


def test_the_document_is_one_of_openapi() -> None:
    from openapi_spec_validator import validate  # noqa: PLC0415  # as above

    validate(yaml.safe_load((files("streamer.admin") / "openapi.yaml").read_text()))


async def test_every_page_is_in_the_document_and_no_other(served: DaemonHarness) -> None:
    document = await document_of(served)
    described = {(method, path) for path, item in document.data["paths"].items() for method in item}
    assert served.daemon._admin._server is not None
    pages = {(route.method.lower(), route.path) for route in served.daemon._admin._server._pages}
    assert {(method, path) for method, path in pages if path.startswith("/api/")} == described


async def test_what_needs_permission_is_what_the_document_says(served: DaemonHarness) -> None:
    document = await document_of(served)
    for path, item in document.data["paths"].items():
        for method, operation in item.items():
            if path.endswith("/events"):
                continue  # it would not end
            asked = await served.ask(path.replace("{number}", "1"), method=method.upper(), headers={})
            assert (asked.status == 401) == bool(operation.get("security")), path
            document.check(method, path, asked)


async def test_every_answer_is_as_described(served: DaemonHarness) -> None:
    await play(served)
    document = await document_of(served)
    (number, *_) = (each["number"] for each in (await served.ask("/api/v1/dead-letters")).json["dead_letters"])
    queries: dict[str, list[dict[str, Any]]] = {
        "/api/v1/flows": [{}, {"state": "all", "limit": 2}, {"source": "//veh1/FFFFFFFF/FF/FFFF"}, {"state": "none"}],
        "/api/v1/dead-letters": [{}, {"limit": 1}, {"reason": "DEADLINE_EXCEEDED"}, {"older_than": "soon"}],
        "/api/v1/explain": [
            {"type": "publish", "source": str(SPEED)},
            {"type": "request", "source": str(CLOUD_APP), "sink": str(CLIMATE), "permission_level": 3},
            {"type": "request", "source": str(CLOUD_APP)},
            {"type": "publish", "source": "//nobody/A/1/8000", "from": "vehicle"},
            {},
        ],
        "/api/v1/subscriptions": [{}, {"topic": str(SPEED)}, {"after": "nonsense"}],
    }
    statuses = set()
    for path, item in document.data["paths"].items():
        if "get" not in item or path.endswith(("/events", "/tap")):
            continue
        for query in queries.get(path, [{}]):
            asked = await served.ask(path.replace("{number}", str(number)), **query)
            document.check("get", path, asked)
            statuses.add(asked.status)
    assert statuses == {200, 400}


async def test_itself_and_its_journal(served: DaemonHarness) -> None:
    await play(served)
    told = (await served.ask("/api/v1")).json
    assert (told["name"], told["authority"], told["form"], told["console"]) == ("ustreamer", "gateway.veh1", "pure", True)
    assert (told["ready"], told["reasons"]) == (False, ["endpoint cloud (memory) is not connected"])
    assert (told["journal"]["path"], told["journal"]["state"], told["journal"]["dead_letters"]) == (
        str(served.journal),
        "ok",
        3,
    )
    assert told["config_fingerprint"] == (await served.ask("/api/v1/config")).json["fingerprint"]


async def test_routes_queues_endpoints_and_flows_tell_the_same(served: DaemonHarness) -> None:
    await play(served)
    routes = {route["name"]: route for route in (await served.ask("/api/v1/routes")).json["routes"]}
    up = routes["vehicle-cloud"]
    assert (up["accepted"], up["queued"], up["outcomes"]) == (5, 4, {"delivered": 1})
    assert up["codes"] == [{"outcome": "delivered", "code": "OK", "count": 1}]
    assert (up["latency"]["in_daemon"]["count"], up["latency"]["in_daemon"]["p50_s"] is None) == (1, False)
    (queue,) = (each for each in (await served.ask("/api/v1/queues")).json["queues"] if each["route"] == "vehicle-cloud")
    assert (queue["messages"], queue["per_priority"], queue["max_messages"]) == (4, {"CS1": 4}, 10_000)
    flows = (await served.ask("/api/v1/flows", route="vehicle-cloud")).json
    assert [(flow["source"], flow["sink"], flow["waiting"]) for flow in flows["flows"]] == [
        (str(SPEED), None, 3),
        (str(SPEED), str(CLOUD_APP), 1),
    ]
    assert (flows["total"], flows["next"]) == (2, None)
    states = {each["name"]: each for each in (await served.ask("/api/v1/endpoints")).json["endpoints"]}
    assert (states["cloud"]["state"], states["vehicle"]["received_messages"]) == ("down", 8)
    assert states["vehicle"]["authorities"] == ["veh1"]


@pytest.mark.parametrize("limit", [1, 7, 1000])
async def test_each_flow_is_on_exactly_one_page(served: DaemonHarness, limit: int) -> None:
    served.transport("cloud").lose_link()
    topics = [SPEED._replace(ue_id=number, resource=0x8000 + number % 3) for number in range(1, 60)]
    random.Random(7).shuffle(topics)
    served.arrive("vehicle", *(publish(now_ms(served), topic, b"") for topic in topics))
    seen: list[str] = []
    query: dict[str, Any] = {"limit": limit}
    while True:
        page = (await served.ask("/api/v1/flows", **query)).json
        assert page["total"] == len(topics)
        seen += [flow["source"] for flow in page["flows"]]
        if page["next"] is None:
            break
        query["after"] = page["next"]
        topics = topics if len(topics) > 70 else [*topics, SPEED._replace(ue_id=0x100 + len(topics), authority="veh1")]
        served.arrive("vehicle", publish(now_ms(served), topics[-1], b""))
    assert seen == sorted(set(seen), key=lambda text: [int(part, 16) for part in text.split("/")[3:]])
    assert set(seen) >= {str(topic) for topic in topics[:59]}


# dead letters


@pytest.mark.parametrize("limit", [1, 2, 3, 4])
async def test_each_dead_letter_is_on_exactly_one_page(served: DaemonHarness, limit: int) -> None:
    ids = await play(served)
    seen: list[str] = []
    query: dict[str, Any] = {"limit": limit}
    while True:
        page = (await served.ask("/api/v1/dead-letters", **query)).json
        assert page["total"] == 3
        seen += [letter["id"] for letter in page["dead_letters"]]
        if page["next"] is None:
            break
        query["after"] = page["next"]
    assert seen == ids


async def test_filters_select_as_the_command_line_does(served: DaemonHarness) -> None:
    ids = await play(served)
    cases: list[tuple[dict[str, Any], list[int]]] = [
        ({"id": ids[1]}, [1]),
        ({"reason": "DEADLINE_EXCEEDED"}, [0, 1, 2]),
        ({"source": "//veh1/FFFFFFFF/FF/8A50"}, [0, 2]),
        ({"sink": str(METHOD)}, [1]),
        ({"route": "vehicle-cloud"}, []),
        ({"older_than": "1h"}, []),
        ({"newer_than": "1h", "source": str(CALLER)}, [1]),
        ({"newer_than": "999999999999999999w"}, [0, 1, 2]),
        ({"order": "oldest"}, [0, 1, 2]),
        ({"order": "newest"}, [2, 1, 0]),
        ({"order": "newest", "source": "//veh1/FFFFFFFF/FF/8A50"}, [2, 0]),
    ]
    for query, expected in cases:
        page = (await served.ask("/api/v1/dead-letters", **query)).json
        assert [letter["id"] for letter in page["dead_letters"]] == [ids[number] for number in expected], query
        assert page["total"] == len(expected)


async def test_the_newest_dead_letters_come_first_by_pages(served: DaemonHarness) -> None:
    ids = await play(served)
    first = (await served.ask("/api/v1/dead-letters", order="newest", limit=2)).json
    assert [letter["id"] for letter in first["dead_letters"]] == [ids[2], ids[1]]
    last = (await served.ask("/api/v1/dead-letters", order="newest", limit=2, after=first["next"])).json
    assert ([letter["id"] for letter in last["dead_letters"]], last["next"]) == ([ids[0]], None)
    refused = await served.ask("/api/v1/dead-letters", order="latest")
    assert (refused.status, refused.json["error"]) == (400, "query: order: 'latest': expected oldest, newest")


async def test_a_dead_letter_is_shown_without_its_token(served: DaemonHarness) -> None:
    await play(served)
    document = await document_of(served)
    shown = []
    for letter in (await served.ask("/api/v1/dead-letters")).json["dead_letters"]:
        asked = await served.ask(f"/api/v1/dead-letters/{letter['number']}")
        shown.append(document.check("get", "/api/v1/dead-letters/{number}", asked)["content"])
        assert SECRET not in asked.text
    assert [each["payload"] for each in shown] == [
        {"text": '{"a": 1}', "left_out_bytes": 0},
        {"hex": "ff00", "left_out_bytes": 0},
        {"text": "", "left_out_bytes": 0},
    ]
    assert [each["token"] for each in shown] == ["present, not shown", "present, not shown", None]
    for number in ("7777777", "0x1", "-", "9" * 30, quote("%00", safe="")):
        assert (await served.ask(f"/api/v1/dead-letters/{number}")).status == 404


async def test_a_dead_letter_from_before_a_file_was_set_aside_is_shown(served: DaemonHarness) -> None:
    await play(served)
    with closing(sqlite3.connect(served.journal)) as file, file:
        file.execute("UPDATE letters SET number = -number")
    for letter in (await served.ask("/api/v1/dead-letters")).json["dead_letters"]:
        assert letter["number"] < 0
        assert (await served.ask(f"/api/v1/dead-letters/{letter['number']}")).json["id"] == letter["id"]


async def test_redrive_and_purge(served: DaemonHarness) -> None:
    ids = await play(served)
    document = await document_of(served)
    numbers = [letter["number"] for letter in (await served.ask("/api/v1/dead-letters")).json["dead_letters"]]
    asked = await served.ask("/api/v1/dead-letters/redrive", {"filter": {"id": ids[1]}, "ttl_ms": 0})
    told = document.check("post", "/api/v1/dead-letters/redrive", asked)
    assert told == {
        "redriven": 0,
        "not_redriven": [
            {"number": numbers[1], "id": ids[1], "source": str(CALLER), "why": "a Request needs a TTL above 0"}
        ],
        "not_redriven_total": 1,
    }
    asked = await served.ask("/api/v1/dead-letters/purge", {"numbers": numbers[:1]})
    assert document.check("post", "/api/v1/dead-letters/purge", asked) == {"purged": 1}
    asked = await served.ask("/api/v1/dead-letters/redrive", {"filter": {"id": ids[2]}, "ttl_ms": 0})
    assert document.check("post", "/api/v1/dead-letters/redrive", asked)["redriven"] == 1
    asked = await served.ask("/api/v1/dead-letters/purge", {"all": True})
    assert document.check("post", "/api/v1/dead-letters/purge", asked)["purged"] >= 1
    await until_letters(served, 0)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, "body: expected one of filter, all, numbers"),
        ({"all": True, "numbers": [1]}, "body: expected one of filter, all, numbers"),
        ({"all": "yes"}, "body: all: expected true"),
        ({"all": 1}, "body: all: expected true"),
        ({"numbers": []}, "body: numbers: expected 1 to 1000 numbers"),
        ({"numbers": [1.5]}, "body: numbers: expected 1 to 1000 numbers"),
        ({"numbers": [True]}, "body: numbers: expected 1 to 1000 numbers"),
        ({"numbers": [1 << 63]}, "body: numbers: expected 1 to 1000 numbers"),
        ({"filter": {}}, "body: filter: expected an object with some of id, route"),
        ({"filter": {"rout": "x"}}, "body: filter: unknown key 'rout'; expected id, route"),
        ({"filter": {"id": "x"}}, "body: filter: id: 'x': expected the id of a message"),
        ({"filter": {"older_than": 5}}, "body: filter: older_than: expected a text"),
        ({"filter": {"older_than": "5"}}, "body: filter: older_than: '5': expected a number and a unit"),
        ({"filter": {"reason": "BAD"}}, "body: filter: reason: 'BAD': expected one of CANCELLED"),
        ({"filter": {"source": "veh1"}}, "body: filter: source: 'veh1': expected"),
        ({"ALL": True}, "body: unknown key 'ALL'; expected filter, all, numbers"),
    ],
)
@pytest.mark.parametrize("page", ["redrive", "purge"])
async def test_a_selection_says_where_it_is_wrong(
    served: DaemonHarness, page: str, body: dict[str, Any], expected: str
) -> None:
    asked = await served.ask(f"/api/v1/dead-letters/{page}", body)
    assert (asked.status, asked.json["error"][: len(expected)]) == (400, expected)


async def test_a_body_that_is_not_compressed_as_it_says_is_a_bad_request(served: DaemonHarness) -> None:
    headers = {**served.bearer, "Content-Encoding": "gzip"}
    asked = await served.ask("/api/v1/pause", raw=b"no gzip", headers=headers)
    assert (asked.status, asked.json["error"]) == (400, "body: not JSON; expected an object")


async def test_without_a_journal_dead_letters_are_a_conflict(tmp_path: Path) -> None:
    token = tmp_path / "journal-token"
    token.write_text("0123456789abcdef")
    async with running(tmp_path, journal=None, control={"http_token_file": str(token)}) as served:
        document = await document_of(served)
        asked = await served.ask("/api/v1/dead-letters")
        assert asked.status == 409
        document.check("get", "/api/v1/dead-letters", asked)
        assert (await served.ask("/api/v1")).json["journal"] is None


async def test_a_journal_that_cannot_be_read_is_503(served: DaemonHarness) -> None:
    document = await document_of(served)
    served.journal.rename(served.journal.with_name("away"))
    asked = await served.ask("/api/v1/dead-letters")
    assert asked.status == 503
    document.check("get", "/api/v1/dead-letters", asked)
    assert (await served.ask("/api/v1")).json["journal"]["dead_letters"] is None
    served.journal.with_name("away").rename(served.journal)


# hostile requests

_ODD = ["", "x", "\0", "\udced\udca0\udc80", "🚗", "[]", "null", "-1", "1e999", "9" * 5000, "//", "../.."]
"""One of them is no UTF-8."""


async def test_no_query_and_no_body_is_a_fault_of_ours(served: DaemonHarness) -> None:
    document = await document_of(served)
    chance = random.Random(11)
    names = ["route", "endpoint", "source", "sink", "state", "limit", "after", "id", "reason", "older_than", "type", "from"]
    for path, item in document.data["paths"].items():
        if path.endswith(("/events", "/tap")):
            continue
        for _ in range(12):
            if "get" in item:
                given = {chance.choice(names): chance.choice(_ODD) for _ in range(chance.randrange(1, 4))}
                query = "&".join(f"{name}={quote(value, errors='surrogateescape')}" for name, value in given.items())
                where = path.replace("{number}", quote(chance.choice(_ODD)[:40] or "0", safe="", errors="surrogateescape"))
                asked = await served.ask(f"{where}?{query}")
                assert asked.status < 500, (where, query, asked.text)
            else:
                asked = await served.ask(path, raw=_body(chance))
                assert asked.status in (400, 404, 422) or path.endswith("/reload"), asked.text
                document.check("post", path, asked)


def _body(chance: random.Random) -> bytes:
    values: list[Any] = [None, True, 0, -1, 1.5, 1 << 70, "", "x", [], {}, [[]], {"a": 1}, "\ud800", "//a/1/1/8000"]
    keys = ["topic", "sink", "filter", "numbers", "ttl_ms", "a", "\ud800"]
    whole = [b"", b"{", b"[", b"NaN", b'{"topic": Infinity}', b"\xff", b"[" * 5000, b'"x"', b"7"]
    if chance.random() < 0.3:
        return chance.choice(whole)
    return json.dumps({chance.choice(keys): chance.choice(values) for _ in range(3)}).encode()


async def test_an_unknown_page_and_a_wrong_method_are_errors_in_json(served: DaemonHarness) -> None:
    for asked, status in (
        (await served.ask("/api/v1/nothing"), 404),
        (await served.ask("/api/v2/routes"), 404),
        (await served.ask("/api/v1/routes", method="DELETE"), 405),
        (await served.ask("/api/v1/pause"), 405),
        (await served.ask("/api/v1/pause", raw=b"x" * 100_000), 413),
    ):
        assert (asked.status, list(asked.json)) == (status, ["error"])


async def test_a_fault_of_a_page_is_logged_and_tells_nothing(
    served: DaemonHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise RuntimeError(SECRET)

    monkeypatch.setattr(served.daemon.router, "endpoint_accounts", fail)
    asked = await served.ask("/api/v1/endpoints")
    assert (asked.status, asked.json) == (500, {"error": "the page failed; the log has the reason"})
    assert "admin_page_failed path=/api/v1/endpoints" in caplog.text
    monkeypatch.undo()


async def test_the_port_may_be_off(tmp_path: Path) -> None:
    async with running(tmp_path, metrics=None) as served:
        assert isinstance(served.daemon._admin, AdminPort)
        assert isinstance(served.daemon._exposition, Exposition)
        assert not served.token_file.exists()
        await until(lambda: served.daemon.router is not None)
