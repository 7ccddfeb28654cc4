"""``streamer top``: what it makes of the answers of a gateway, and what it says if there are none."""

import json
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from streamer.tools import top
from streamer.tools.running import DaemonAddress, NotAskedError
from streamer.tools.top import Gateway
from tests.unit.tools.commands import answering, response, status_of

PAIR = {"role": "active", "epoch": 3, "protected": True, "alike": True, "link": {"up": True, "problem": ""}, "problem": ""}
FLOW = {
    "route": "up",
    "endpoint": "cloud",
    "endpoint_state": "up",
    "source": "//veh1/A/1/8000",
    "sink": None,
    "waiting": 7,
    "oldest_age_s": 1.5,
    "held": ["absent"],
}


def streamer(**more: Any) -> dict[str, Any]:
    return {
        "name": "ustreamer",
        "version": "0.1.0",
        "form": "pure",
        "started": "2026-01-01T00:00:00.000Z",
        "uptime_s": 7260.0,
        "ready": True,
        "reasons": [],
        "notes": [],
        "journal": {"dead_letters": 5},
        "pair": None,
    } | more


def endpoint(name: str = "cloud", **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "transport": "mqtt5",
        "state": "up",
        "since": "2026-01-01T00:00:01.000Z",
        "connected_to": ["two.example:8883"],
        "next_attempt": None,
        "received_messages": 0,
        "in_flight": 0,
        "backlog": 0,
        "wire_bytes": {"sent": 0, "received": 0},
    } | more


def route(name: str = "up", **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "ingress": "vehicle",
        "egress": "cloud",
        "accepted": 0,
        "outcomes": {},
        "queued": 0,
        "oldest_age_s": 0.0,
        "latency": {"in_daemon": {"p99_s": None}, "end_to_end": {"p99_s": 0.25}},
    } | more


class Pages:
    """The pages of a gateway, and the clock of the one who reads them; a second goes by between two readings."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.problem = ""
        self.streamer = streamer()
        self.endpoints = [endpoint()]
        self.routes = [route()]
        self.flows: list[dict[str, Any]] = []

    def ask(self, daemon: DaemonAddress, page: str, read: Callable[[Any], Any], **_: Any) -> Any:
        if self.problem:
            raise NotAskedError(self.problem)
        flows = {"flows": self.flows, "total": len(self.flows) and 12}
        pages = {"": self.streamer, "/endpoints": {"endpoints": self.endpoints}, "/routes": {"routes": self.routes}}
        return read(pages.get(page, flows))

    def monotonic(self) -> float:
        return self.now_s

    def read(self, gateway: Gateway) -> list[str]:
        self.now_s += 1
        gateway.read()
        return list(gateway.lines())


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> Pages:
    found = Pages()
    monkeypatch.setattr(top, "ask", found.ask)
    monkeypatch.setattr("streamer.tools.top.time.monotonic", found.monotonic)
    return found


@pytest.fixture
def gateway() -> Gateway:
    return Gateway("gw", DaemonAddress("http://gw", "gw", lambda: None))


def row(lines: list[str], start: str) -> list[str]:
    """The cells of the first line that begins like this, below the head of its table."""
    return next(line for line in lines if line.startswith(start)).split()


def test_rates_are_the_growth_between_two_readings(pages: Pages, gateway: Gateway) -> None:
    pages.routes = [route(accepted=100, outcomes={"delivered": 90, "expired": 4, "rejected": 3, "dead_lettered": 2})]
    assert row(pages.read(gateway), "up ")[4:9] == ["0", "0", "4", "3", "2"]
    pages.routes = [route(accepted=150, outcomes={"delivered": 130, "expired": 4, "rejected": 3, "dead_lettered": 2})]
    pages.endpoints = [endpoint(received_messages=7, wire_bytes={"sent": 300, "received": 20})]
    lines = pages.read(gateway)
    assert row(lines, "up ")[4:9] == ["50", "40", "4", "3", "2"]
    assert row(lines, "cloud ")[4:7] == ["7", "20", "300"]
    assert gateway.document["routes"][0]["accepted_per_s"] == 50.0
    assert gateway.document["endpoints"][0]["sent_bytes_per_s"] == 300.0


def test_a_gateway_that_was_started_anew_has_no_rates_at_first(pages: Pages, gateway: Gateway) -> None:
    pages.routes = [route(accepted=10)]
    pages.read(gateway)
    pages.streamer = streamer(started="2026-01-01T00:00:05.000Z")
    pages.routes = [route(accepted=1000)]
    pages.read(gateway)
    assert gateway.document["routes"][0]["accepted_per_s"] == 0.0


def test_an_endpoint_that_a_reload_has_replaced_never_receives_less_than_nothing(pages: Pages, gateway: Gateway) -> None:
    pages.endpoints = [endpoint(received_messages=10), endpoint("phone", received_messages=1)]
    pages.read(gateway)
    pages.endpoints = [endpoint(received_messages=3), endpoint("new", received_messages=3, wire_bytes=None)]
    pages.read(gateway)
    assert [each["received_per_s"] for each in gateway.document["endpoints"]] == [0.0, 0.0]


def test_while_a_gateway_is_away_its_last_figures_stay_with_their_age(pages: Pages, gateway: Gateway) -> None:
    pages.problem = "no answer"
    assert pages.read(gateway) == ["! no answer"]
    pages.problem = ""
    pages.routes = [route(accepted=100)]
    known = pages.read(gateway)
    pages.problem = "no answer"
    pages.now_s += 11
    assert pages.read(gateway) == ["! no answer; as of 12 s ago:", *known]
    pages.problem = ""
    assert pages.read(gateway) == known


def test_flows_that_wait_are_shown_with_the_reason_most_messages_first(pages: Pages, gateway: Gateway) -> None:
    pages.flows = [
        FLOW | {"waiting": 1, "held": []},
        FLOW,
        FLOW | {"waiting": 3, "held": [], "endpoint_state": "down", "sink": "//c/1/1/1"},
    ]
    lines = pages.read(gateway)
    start = lines.index(next(line for line in lines if line.startswith("flow ")))
    assert [line.split() for line in lines[start + 1 :]] == [
        ["//veh1/A/1/8000", "up", "7", "1.5", "s", "absent"],
        ["//veh1/A/1/8000", "→", "//c/1/1/1", "up", "3", "1.5", "s", "cloud", "is", "down"],
        ["//veh1/A/1/8000", "up", "1", "1.5", "s", "other", "flows"],
        ["...", "and", "9", "more", "flows"],
    ]


def test_routes_with_the_longest_queue_come_first_and_unused_ones_of_its_own_are_left_out(
    pages: Pages, gateway: Gateway
) -> None:
    own = route("core", ingress="core", egress="cloud")
    pages.routes = [route("quiet"), route("busy", queued=2), own, own | {"accepted": 1, "name": "used"}]
    pages.read(gateway)
    assert [each["name"] for each in gateway.document["routes"]] == ["busy", "quiet", "used"]


def test_why_it_is_not_ready_and_the_next_attempt_are_shown(pages: Pages, gateway: Gateway) -> None:
    pages.streamer = streamer(reasons=["endpoint cloud (mqtt5) is not connected since then"], notes=["a note"])
    pages.endpoints = [endpoint(state="down", connected_to=[], next_attempt="2026-01-01T00:00:04.000Z")]
    lines = pages.read(gateway)
    assert lines[0] == "uStreamer gw  version 0.1.0, pure  up 2h  dead letters in the journal: 5"
    assert lines[1:3] == ["! endpoint cloud (mqtt5) is not connected since then", "- a note"]
    assert row(lines, "cloud ")[2] == "down"
    assert row(lines, "cloud ")[-3:] == ["next", "attempt", "2026-01-01T00:00:04.000Z"]


@pytest.mark.parametrize(
    ("journal", "text"), [(None, ""), ({"dead_letters": None}, "  dead letters in the journal: unknown")]
)
def test_dead_letters_that_nobody_can_count_are_unknown(
    pages: Pages, gateway: Gateway, journal: dict[str, Any] | None, text: str
) -> None:
    pages.streamer = streamer(journal=journal)
    assert pages.read(gateway)[0] == f"uStreamer gw  version 0.1.0, pure  up 2h{text}"


@pytest.mark.parametrize(
    ("pair", "line"),
    [
        (PAIR, "pair: active, epoch 3, protected"),
        (PAIR | {"role": "standby"}, "pair: standby, epoch 3, protected"),
        (
            PAIR | {"protected": False, "link": {"up": False, "problem": "x"}, "problem": "it is gone"},
            "! pair: active, epoch 3, not protected, no link to the other streamer: it is gone",
        ),
        (PAIR | {"alike": False}, "pair: active, epoch 3, protected, the configurations differ"),
    ],
)
def test_one_of_a_pair_says_its_role_and_what_is_wrong(
    pages: Pages, gateway: Gateway, pair: dict[str, Any], line: str
) -> None:
    pages.streamer = streamer(pair=pair)
    assert pages.read(gateway)[1] == line
    assert gateway.document["pair"] == pair


@pytest.mark.parametrize("page", [{}, {"endpoints": 1}, {"endpoints": [1]}, {"endpoints": [{"name": "cloud"}]}])
def test_what_is_no_streamer_is_said(page: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    bodies = [streamer(), page, {"routes": []}, {"flows": [], "total": 0}]
    asked = bodies if page.get("endpoints") not in (None, 1) else bodies[:2]
    with answering(*(response("200 OK", json.dumps(body)) for body in asked)) as (port, _):
        assert status_of("top", "--once", "--url", f"http://127.0.0.1:{port}") == 1
    assert capsys.readouterr().err == f"127.0.0.1:{port}: what answers there is not a streamer\n"


def test_as_a_document_it_has_all_that_the_pages_have(capsys: pytest.CaptureFixture[str]) -> None:
    bodies = [streamer(), {"endpoints": [endpoint()]}, {"routes": [route()]}, {"flows": [FLOW], "total": 1}]
    with answering(*(response("200 OK", json.dumps(body)) for body in bodies * 2)) as (port, asked):
        assert status_of("top", "--once", "--json", "--interval", "0.1", "--url", f"http://127.0.0.1:{port}") == 0
    assert not any("Authorization" in each for each in asked)
    rates = {"received_per_s": 0.0, "received_bytes_per_s": 0.0, "sent_bytes_per_s": 0.0}
    assert json.loads(capsys.readouterr().out) == {
        "gateway": f"127.0.0.1:{port}",
        **streamer(),
        "endpoints": [endpoint() | rates],
        "routes": [route() | {"accepted_per_s": 0.0, "delivered_per_s": 0.0}],
        "flows": [FLOW],
        "flows_total": 1,
    }


@pytest.mark.parametrize(
    ("words", "status", "complaint"),
    [
        (("--url", "127.0.0.1:9464"), 2, "expected http://host:port"),
        (("--once",), 2, "no configuration file: --config is not given"),
        (("--url", "http://me:hunter2@127.0.0.1:1"), 2, "expected http://host:port"),
        (("--url", "http://127.0.0.1:1?token=hunter2"), 2, "expected http://host:port"),
        (("--url", "http://127.0.0.1:hunter2"), 2, "expected http://host:port"),
        (("--url", "http://[::1"), 2, "expected http://host:port"),
        (("--url", "http://127.0.0.1:0"), 2, "expected http://host:port"),
        (("--url", "http://127.0.0.1:1", "--once"), 1, "no streamer answers there"),
        (("--url", "http://127.0.0.1:1", "--interval", "0"), 2, "expected 0.1 to 3600"),
    ],
)
def test_what_it_cannot_do_it_says(
    words: tuple[str, ...], status: int, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of("top", *words) == status
    said = capsys.readouterr().err
    assert complaint in said
    assert "hunter2" not in said


def test_a_port_that_closes_the_connection_may_speak_tls(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)

        thread = threading.Thread(target=hang_up)
        thread.start()
        assert status_of("top", "--url", f"http://127.0.0.1:{server.getsockname()[1]}", "--once") == 1
        thread.join()
    assert "does it speak TLS, https://?" in capsys.readouterr().err


def test_a_port_that_is_not_known_is_a_matter_of_the_configuration(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("top", "--config", good, "--once") == 78
    assert "metrics: null" in capsys.readouterr().err
