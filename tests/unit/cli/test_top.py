"""``streamer top``: what it makes of the pages of a gateway, and what it says if there are none."""

import errno
import io
import json
import math
import os
import pty
import socket
import sys
import termios
import threading
import time

import pytest
from rich.console import Console

from streamer.cli.running import NotAskedError
from streamer.cli.top import Gateway, _finite, _keys, _span
from streamer.cli.top_view import draw
from tests.unit.cli.commands import answering, response, status_of

METRICS = """\
# TYPE ustreamer_build_info gauge
ustreamer_build_info{{version="0.1.0"}} 1
# TYPE process_start_time_seconds gauge
process_start_time_seconds {started}
# TYPE ustreamer_endpoint_up gauge
ustreamer_endpoint_up{{endpoint="cloud",transport="mqtt5"}} 1
# TYPE ustreamer_accepted_messages counter
ustreamer_accepted_messages_total{{route="up",ingress="vehicle",egress="cloud"}} {accepted}
"""
FLOW = {
    "route": "up",
    "endpoint": "cloud",
    "source": "//veh1/A/1/8000",
    "sink": None,
    "waiting": 7,
    "oldest_age_s": 1.5,
    "held": ["absent"],
}


class Pages:
    """The pages of a gateway; what is not there is refused."""

    def __init__(self) -> None:
        self.there: dict[str, str] = {}

    def __call__(self, page: str) -> bytes:
        for name, text in self.there.items():
            if page.startswith(name):
                return text.encode()
        raise NotAskedError(f"{page}: no answer")

    def metrics(self, accepted: int, started: int = 1000) -> None:
        self.there["/metrics"] = METRICS.format(accepted=accepted, started=started)


@pytest.fixture
def pages() -> Pages:
    return Pages()


def test_a_gateway_that_goes_away_and_comes_back_is_shown_all_the_time(pages: Pages) -> None:
    gateway = Gateway("gw", pages)
    gateway.look()
    picture = gateway.picture(0)
    assert (picture.problems, picture.routes) == (["/metrics: no answer"], [])
    pages.metrics(100)
    gateway.look()
    pages.metrics(150)
    gateway.look()
    picture = gateway.picture(gateway.samples[-1].at_s)
    assert picture.problems == []
    assert picture.routes[0].accepted_per_s > 0
    del pages.there["/metrics"]
    gateway.look()
    picture = gateway.picture(gateway.samples[-1].at_s + 12)
    assert picture.problems == ["/metrics: no answer"]
    assert len(picture.routes) == 1  # the last that is known, and how old it is
    assert picture.notes[0].endswith("as of 12 s ago")
    pages.metrics(5, started=2000)  # another process
    gateway.look()
    assert (gateway.picture(0).problems, gateway.picture(0).routes[0].accepted_per_s) == ([], 0.0)


def test_flows_that_wait_are_shown_where_the_gateway_tells(pages: Pages) -> None:
    pages.metrics(1)
    gateway = Gateway("gw", pages)
    gateway.look()
    assert gateway.picture(0).flows is None
    pages.there["/api/v1/flows?state=waiting"] = json.dumps({"flows": [FLOW], "next": None, "total": 12})
    gateway.look()
    picture = gateway.picture(0)
    assert picture.flows is not None
    assert [(flow.source, flow.waiting, flow.held) for flow in picture.flows] == [("//veh1/A/1/8000", 7, ("absent",))]
    assert picture.flows_in_all == 12


@pytest.mark.parametrize(("state", "why"), [("down", "cloud is down"), ("alone", "cloud is alone"), ("up", "other flows")])
def test_a_flow_whose_endpoint_is_not_up_does_not_wait_for_its_turn(pages: Pages, state: str, why: str) -> None:
    pages.metrics(1)
    pages.there["/api/v1/endpoints"] = json.dumps({"endpoints": [{"name": "cloud", "state": state}]})
    pages.there["/api/v1/flows?state=waiting"] = json.dumps({"flows": [FLOW | {"held": []}], "next": None, "total": 1})
    gateway = Gateway("gw", pages)
    gateway.look()
    drawn = io.StringIO()
    Console(file=drawn, width=132).print(draw(gateway.picture(0), 132, None))
    assert {each for each in ("cloud is down", "cloud is alone", "other flows") if each in drawn.getvalue()} == {why}


def test_the_metrics_say_that_an_endpoint_is_not_up_where_nothing_else_does(pages: Pages) -> None:
    pages.metrics(1)
    pages.there["/metrics"] = pages.there["/metrics"].replace('transport="mqtt5"} 1', 'transport="mqtt5"} 0')
    pages.there["/api/v1/flows?state=waiting"] = json.dumps({"flows": [FLOW], "next": None, "total": 1})
    gateway = Gateway("gw", pages)
    gateway.look()
    flows = gateway.picture(0).flows
    assert flows is not None
    assert flows[0].held == ("cloud is not up", "absent")


def test_the_state_of_an_endpoint_is_the_one_that_the_gateway_tells(pages: Pages) -> None:
    pages.metrics(1)
    gateway = Gateway("gw", pages)
    gateway.look()
    assert [each.state for each in gateway.picture(0).endpoints] == ["up"]
    pages.there["/api/v1/endpoints"] = json.dumps({"endpoints": [{"name": "cloud", "state": "alone"}, {"name": "new"}]})
    gateway.look()
    assert [each.state for each in gateway.picture(0).endpoints] == ["alone"]
    pages.there["/api/v1/endpoints"] = '{"endpoints": [1]}'
    gateway.look()
    assert [each.state for each in gateway.picture(0).endpoints] == ["up"]


@pytest.mark.parametrize(
    "answer", ["", "[]", "{}", '{"flows": [1], "total": 1}', '{"flows": [{}], "total": 1}', '{"flows": {"a": 1}}']
)
def test_other_answers_are_no_flows(pages: Pages, answer: str) -> None:
    pages.metrics(1)
    pages.there["/api/v1/flows"] = answer
    gateway = Gateway("gw", pages)
    gateway.look()
    assert gateway.picture(0).flows is None
    assert not gateway.problem


@pytest.mark.parametrize("text", ["", "<html>", "# TYPE other gauge\nother 1\n", "ustreamer_endpoint_up{ 1"])
def test_what_is_no_streamer_is_said(pages: Pages, text: str) -> None:
    pages.there["/metrics"] = text
    gateway = Gateway("gw", pages)
    gateway.look()
    assert gateway.problem == "gw: what answers there is not a streamer"


def test_what_is_kept_is_bounded(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = Gateway("gw", pages)
    now_s = iter(range(1000))
    monkeypatch.setattr("streamer.cli.top.time.monotonic", lambda: float(next(now_s)))
    for number in range(100):
        pages.metrics(number)
        gateway.look()
    assert len(gateway.samples) < 20


def test_a_document_has_no_number_that_json_lacks() -> None:
    assert _finite({"a": [1.5, math.inf], "b": (math.nan, "x", None), "c": 2}) == {
        "a": [1.5, None],
        "b": [None, "x", None],
        "c": 2,
    }


def test_as_a_document_it_has_all_figures(capsys: pytest.CaptureFixture[str]) -> None:
    endpoints = json.dumps({"endpoints": [{"name": "cloud", "state": "down"}]})
    flows = json.dumps({"flows": [FLOW], "total": 1})
    bodies = [METRICS.format(accepted=7, started=1000), endpoints, flows] * 2
    with answering(*(response("200 OK", body) for body in bodies)) as (port, _):
        assert status_of("top", "--once", "--json", "--interval", "0.1", "--url", f"http://127.0.0.1:{port}") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["gateway"], found["version"], found["flows_total"]) == (f"127.0.0.1:{port}", "0.1.0", 1)
    assert [(each["name"], each["state"]) for each in found["endpoints"]] == [("cloud", "down")]
    assert [(each["name"], each["in_daemon_s"]) for each in found["routes"]] == [("up", [None, None])]
    assert found["flows"][0] == {
        "route": "up",
        "source": "//veh1/A/1/8000",
        "sink": "",
        "waiting": 7,
        "oldest_s": 1.5,
        "held": ["cloud is down", "absent"],
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


async def test_in_the_background_of_a_terminal_it_goes_without_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is not in the terminal's foreground may not change it."""

    def refuse(number: int) -> None:
        raise termios.error(errno.EIO, os.strerror(errno.EIO))

    master, slave = pty.openpty()
    with os.fdopen(master, "wb"), os.fdopen(slave) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        with _keys(lambda keys: None):
            assert not termios.tcgetattr(slave)[3] & termios.ICANON
        assert termios.tcgetattr(slave)[3] & termios.ICANON
        monkeypatch.setattr("streamer.cli.top.tty.setcbreak", refuse)
        with _keys(lambda keys: None):
            assert termios.tcgetattr(slave)[3] & termios.ICANON


def test_a_journal_that_fails_is_a_problem(pages: Pages) -> None:
    pages.metrics(1)
    pages.there["/metrics"] += "# TYPE ustreamer_journal_up gauge\nustreamer_journal_up 0\n"
    gateway = Gateway("gw", pages)
    gateway.look()
    assert gateway.picture(0).problems == ["nothing gets into the journal; /readyz says why"]


PAIR = "".join(
    f"# TYPE ustreamer_pair_{name} gauge\nustreamer_pair_{name} {{{name}}}\n"
    for name in ("active", "epoch", "link_up", "protected", "differs")
)


@pytest.mark.parametrize(
    ("values", "problem", "line"),
    [
        ((1, 3, 1, 1, 0), "", "pair: active, epoch 3, protected"),
        ((0, 3, 1, 1, 0), None, "pair: standby, epoch 3, protected"),  # the API does not answer
        ((1, 4, 0, 0, 0), None, "pair: active, epoch 4, not protected, no link to the other one"),
        (
            (0, 4, 1, 0, 1),
            "another\x1b configuration",
            "! pair: standby, epoch 4, not protected, the configurations differ: another\ufffd configuration",
        ),
    ],
)
def test_one_of_a_pair_says_its_role_and_what_is_wrong(
    pages: Pages, values: tuple[int, ...], problem: str | None, line: str
) -> None:
    pages.metrics(1)
    names = ("active", "epoch", "link_up", "protected", "differs")
    pages.there["/metrics"] += PAIR.format(**dict(zip(names, values, strict=True)))
    if problem is not None:
        pages.there["/api/v1/pair"] = json.dumps({"problem": problem})
    gateway = Gateway("gw", pages)
    gateway.look()
    console = Console(file=io.StringIO(), width=200)
    console.print(draw(gateway.picture(0), 200, None))
    assert line in [each.rstrip() for each in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    role, epoch = ("active" if values[0] else "standby"), float(values[1])
    expected = {"role": role, "epoch": epoch, "protected": bool(values[3]), "problem": problem or ""}
    assert gateway.document()["pair"] == expected


def test_one_that_works_alone_says_nothing_of_a_pair(pages: Pages) -> None:
    pages.metrics(1)
    pages.there["/api/v1/pair"] = json.dumps({"problem": "x"})
    gateway = Gateway("gw", pages)
    gateway.look()
    assert gateway.document()["pair"] is None
    assert len(gateway.picture(0).notes) == 1
    assert gateway.picture(0).problems == []


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


def test_without_rich_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delitem(sys.modules, "streamer.cli.top_view", raising=False)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert status_of("top", "--url", "http://127.0.0.1:1") == 1
    assert "pip install 'uprotocol-ustreamer[top]'" in capsys.readouterr().err


def test_a_port_that_is_not_known_is_a_matter_of_the_configuration(good: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("top", "--config", good, "--once") == 78
    assert "metrics: null" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("span_s", "text"), [(-1, "0 s"), (59, "59 s"), (61, "1 min 1 s"), (7260, "2 h 1 min"), (200_000, "2 d 7 h")]
)
def test_how_long_it_has_run_is_told_in_two_units(span_s: float, text: str) -> None:
    assert _span(span_s) == text


def test_why_an_endpoint_is_not_up_is_said_at_the_top(pages: Pages) -> None:
    pages.metrics(1)
    error = {"reason": "refused", "text": "connection refused", "address": "b:1883", "when": "2026-01-01T00:00:00.000Z"}
    why = "is not connected since 2025-12-31T23:00:00.000Z: b:1883: closed by the broker; now b:1883: connection refused"
    ends: dict[str, object] = {"connected_to": [], "next_attempt": "2026-01-01T00:00:04.000Z"}
    cloud = {"name": "cloud", "state": "down", "why": why, "first_error": error, "last_error": error, **ends}
    pages.there["/api/v1/endpoints"] = json.dumps({"endpoints": [cloud]})
    gateway = Gateway("gw", pages)
    gateway.look()
    assert gateway.picture(0).problems == [
        f"cloud {why} (refused, at 2026-01-01T00:00:00.000Z, next attempt 2026-01-01T00:00:04.000Z)"
    ]
    pages.there["/api/v1/endpoints"] = json.dumps({"endpoints": [cloud | {"state": "up"}]})
    gateway.look()
    assert gateway.picture(0).problems == []


def test_of_many_endpoints_that_are_not_up_the_first_are_named(pages: Pages) -> None:
    pages.metrics(1)
    line = 'ustreamer_endpoint_up{endpoint="e%d",transport="mqtt5"} 0\n'
    pages.there["/metrics"] += "# TYPE ustreamer_endpoint_up gauge\n" + "".join(line % number for number in range(8))
    error = {"reason": "other", "text": "x", "address": "", "when": "then"}
    known: dict[str, object] = {"first_error": error, "last_error": error, "next_attempt": None, "connected_to": []}
    all_down = [{"name": f"e{number}", "state": "down", "why": "is not connected: x", **known} for number in range(8)]
    pages.there["/api/v1/endpoints"] = json.dumps({"endpoints": all_down})
    gateway = Gateway("gw", pages)
    gateway.look()
    assert gateway.picture(0).problems == [
        *(f"e{number} is not connected: x (other, at then)" for number in range(5)),
        "and 3 more endpoints",
    ]


def test_where_endpoints_are_connected_since_when_and_the_form_are_shown(pages: Pages) -> None:
    pages.metrics(1)
    pages.there["/metrics"] = pages.there["/metrics"].replace('version="0.1.0"', 'version="0.1.0",form="pure"')
    since_s = time.time() - 7200
    pages.there["/metrics"] += (
        "# TYPE ustreamer_endpoint_state_since_timestamp_seconds gauge\n"
        f'ustreamer_endpoint_state_since_timestamp_seconds{{endpoint="cloud",transport="mqtt5"}} {since_s}\n'
    )
    known = {"why": None, "first_error": None, "last_error": None, "next_attempt": None}
    cloud = {"name": "cloud", "state": "up", "connected_to": ["two.example:8883"], **known}
    pages.there["/api/v1/endpoints"] = json.dumps({"endpoints": [cloud]})
    gateway = Gateway("gw", pages)
    gateway.look()
    console = Console(file=io.StringIO(), width=152)
    console.print(draw(gateway.picture(0), 152, None))
    text = console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO
    assert "version 0.1.0, pure" in text
    assert "two.example:8883" in text
    assert "2 h" in text
    (endpoint,) = gateway.document()["endpoints"]
    assert endpoint["connected_to"] == ["two.example:8883"]
    assert endpoint["state_age_s"] > 7000
    assert gateway.document()["form"] == "pure"
