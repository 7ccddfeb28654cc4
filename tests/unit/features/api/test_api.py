"""The administration API of a whole daemon, held against the document that describes it."""

import json
import random
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from streamer import __version__
from streamer.features.api.metrics import Exposition
from streamer.features.api.port import AdminPort
from streamer.journal.moments import as_moment
from streamer.uprotocol.form import FORM
from streamer.uprotocol.message import publish
from tests.clock import START_MS, FakeClock
from tests.flow.harness import CLIMATE, CLOUD_APP, SPEED
from tests.unit.features.api.daemon import DaemonHarness, running
from tests.unit.features.api.played import SECRET, document_of, now_ms, play
from tests.waiting import until

NEEDS_PAGES = pytest.mark.needs("judge", "live_audit", "pair", "pause", "probation", "tap", "usubscription", "utwin")
"""The document describes the pages of all features."""


def test_the_document_is_one_of_openapi() -> None:
    from openapi_spec_validator import validate  # noqa: PLC0415  # as above

    validate(yaml.safe_load((files("streamer.features.api") / "openapi.yaml").read_text()))


@NEEDS_PAGES
async def test_every_page_is_in_the_document_and_no_other(served: DaemonHarness) -> None:
    document = await document_of(served)
    described = {(method, path) for path, item in document.data["paths"].items() for method in item}
    assert served.daemon._admin._server is not None
    pages = {(route.method.lower(), route.path) for route in served.daemon._admin._server._pages}
    assert {(method, path) for method, path in pages if path.startswith("/api/")} == described


@NEEDS_PAGES
async def test_what_needs_permission_is_what_the_document_says(served: DaemonHarness) -> None:
    document = await document_of(served)
    for path, item in document.data["paths"].items():
        for method, operation in item.items():
            if path.endswith("/events"):
                continue  # it would not end
            asked = await served.ask(path.replace("{number}", "1"), method=method.upper(), headers={})
            assert (asked.status == 401) == bool(operation.get("security")), path
            document.check(method, path, asked)


@NEEDS_PAGES
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
            {"type": "publish", "source": str(SPEED), "why_not": "cloud-vehicle"},
            {"type": "publish", "source": str(SPEED), "why_not": "nowhere"},
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
    assert statuses == {200, 400, 404}  # the last: it is not one of a pair


@pytest.mark.needs("judge")
async def test_itself_and_its_journal(served: DaemonHarness) -> None:
    await play(served)
    told = (await served.ask("/api/v1")).json
    assert (told["name"], told["authority"], told["form"], told["console"]) == ("ustreamer", "gateway.veh1", "pure", True)
    links = {each["name"]: each for each in (await served.ask("/api/v1/endpoints")).json["endpoints"]}
    assert (told["ready"], told["reasons"]) == (False, [f"endpoint cloud (memory) {links['cloud']['why']}"])
    assert (told["journal"]["path"], told["journal"]["state"], told["journal"]["dead_letters"]) == (
        str(served.journal),
        "ok",
        3,
    )
    assert told["config_fingerprint"] == (await served.ask("/api/v1/config")).json["fingerprint"]


async def test_the_form_is_told_wherever_the_version_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with running(tmp_path) as harness:
        assert f"starting version={__version__} form={FORM} authority=gateway.veh1" in caplog.text
        labels = f'authority="gateway.veh1",form="{FORM}",version="{__version__}"'
        assert f"ustreamer_build_info{{{labels}}} 1.0" in (await harness.ask("/metrics")).text


@pytest.mark.parametrize("step_ms", [50 * 365 * 86_400_000, -3_600_000], ids=["set for the first time", "an hour back"])
async def test_the_time_that_it_has_run_does_not_jump_with_the_clock(tmp_path: Path, step_ms: int) -> None:
    clock = FakeClock()
    async with running(tmp_path, clock=clock) as harness:
        clock.ms += step_ms
        clock.advance(1500)
        told = (await harness.ask("/api/v1")).json
    assert (told["started"], told["uptime_s"]) == (as_moment(START_MS), 1.5)


@pytest.mark.needs("judge")
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


@pytest.mark.needs("judge", "pause")
@pytest.mark.parametrize(
    ("query", "total"),
    [
        ({}, 3),
        ({"state": "waiting"}, 3),
        ({"state": "paused"}, 1),
        ({"state": "absent"}, 0),
        ({"state": "all"}, 8),  # with those of dead letters, error responses and what has expired
        ({"state": "all", "endpoint": "cloud"}, 6),
        ({"state": "all", "endpoint": "vehicle"}, 8),
        ({"endpoint": "core"}, 0),
        ({"route": "cloud-vehicle"}, 0),
        ({"source": str(SPEED), "sink": str(CLOUD_APP)}, 1),
    ],
)
async def test_flows_are_selected_by_state_route_and_endpoint(
    served: DaemonHarness, query: dict[str, Any], total: int
) -> None:
    await play(served)
    served.arrive("vehicle", publish(now_ms(served), SPEED._replace(ue_id=0xB, version=1), b""))  # is paused
    flows = (await served.ask("/api/v1/flows", **query)).json
    assert (flows["total"], len(flows["flows"])) == (total, total)


@pytest.mark.needs("judge")
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


@pytest.mark.needs("usubscription")
@pytest.mark.parametrize(
    ("usubscription", "where"),
    [(None, "none"), ({}, "here"), ({"external": {"service": "//veh1/0/3/0"}}, "external")],
    ids=["none", "here", "external"],
)
async def test_where_the_subscription_service_is(tmp_path: Path, usubscription: object, where: str) -> None:
    async with running(tmp_path, usubscription=usubscription) as served:
        assert (await served.ask("/api/v1/subscriptions")).json["service"] == where


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
        (await served.ask("/api/v1/dead-letters/purge", method="DELETE"), 405),
        (await served.ask("/api/v1/dead-letters/purge", raw=b"x" * 100_000), 413),
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
        assert isinstance(served.daemon.exposition, Exposition)
        assert not served.token_file.exists()
        await until(lambda: served.daemon.router is not None)
