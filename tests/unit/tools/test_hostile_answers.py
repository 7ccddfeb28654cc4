"""What answers at the port may be anybody: a terminal obeys nothing of it, and it ends no command with a traceback."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import inf
from pathlib import Path
from typing import Any

import pytest

from tests.unit.tools.commands import status_of

HOSTILE = "\x1b]0;owned\x07\x9b31m\u202e\u2028"
ID = "018bcfe5-6800-7054-a531-18f60a3a12c0"
LETTER: dict[str, Any] = {
    **dict.fromkeys(("when", "reason", "text", "outcome", "route", "ingress", "egress", "first", "type", "source"), "x"),
    **dict.fromkeys(("sink", "redrive", "redrive_ttl_ms")),
    **dict.fromkeys(("number", "age_s", "size", "attempts"), 1),
    "id": ID,
}
CONTENT: dict[str, Any] = {
    **dict.fromkeys(("created", "priority", "payload_format"), "x"),
    **dict.fromkeys(("deadline", "permission_level", "commstatus", "reqid", "traceparent", "token", "ttl_ms")),
    "payload_bytes": 1,
    "payload": {"text": "x", "left_out_bytes": 0},
}


@contextmanager
def answering(page_of: dict[str, bytes], status: int = 200) -> Iterator[str]:
    """A server that answers with the page whose path is the end of the one that is asked for, else with the one of ""."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            page = next((page for end, page in page_of.items() if end and path.endswith(end)), page_of[""])
            self.send_response(status)
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            serving.join()


@pytest.fixture
def token(tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "token").write_text("0123456789abcdef0123")
    return "--token-file", str(tmp_path / "token")


def with_hostile(told: dict[str, Any], name: str) -> dict[str, Any]:
    return told | {name: HOSTILE}


@pytest.mark.needs("pause")
@pytest.mark.parametrize("name", ["topic", "sink", "flows", "messages"])
def test_nothing_in_the_list_of_what_is_paused_is_obeyed_by_a_terminal(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    rule = with_hostile({"topic": "x", "sink": "x", "flows": 1, "messages": 1}, name)
    with answering({"": json.dumps({"paused": [rule]}).encode()}) as url:
        assert status_of("pause", "--url", url) == 0
    out, err = capsys.readouterr()
    assert out.count("owned") == 1
    assert err == ""
    assert all(line.isprintable() for line in out.split("\n"))


@pytest.mark.parametrize(
    ("part", "name"), [("letter", "attempts"), ("letter", "source"), ("content", "payload_bytes"), ("content", "priority")]
)
def test_nothing_in_a_dead_letter_is_obeyed_by_a_terminal(
    capsys: pytest.CaptureFixture[str], token: tuple[str, str], part: str, name: str
) -> None:
    letter = with_hostile(LETTER, name) if part == "letter" else LETTER
    content = with_hostile(CONTENT, name) if part == "content" else CONTENT
    pages = {"/1": letter | {"content": content, "problem": None}, "": {"dead_letters": [letter], "next": None}}
    with answering({path: json.dumps(page).encode() for path, page in pages.items()}) as url:
        assert status_of("dead-letters", "show", "--url", url, *token, ID) == 0
    out, _ = capsys.readouterr()
    assert out.count("owned") == 1
    assert all(line.isprintable() for line in out.split("\n"))


@pytest.mark.parametrize("answer", [{"error": HOSTILE}, {"error": "x", "problems": [HOSTILE]}], ids=" ".join)
def test_nothing_in_a_refusal_is_obeyed_by_a_terminal(
    capsys: pytest.CaptureFixture[str], token: tuple[str, str], answer: dict[str, Any]
) -> None:
    with answering({"": json.dumps(answer).encode()}, 422) as url:
        assert status_of("reload", "--url", url, *token) != 0
    err = capsys.readouterr().err
    assert err.count("owned") == 1
    assert all(line.isprintable() for line in err.split("\n"))


@pytest.mark.needs("pause")
@pytest.mark.parametrize(
    ("words", "pages"),
    [
        (("dead-letters", "list"), {"": {"dead_letters": [{"number": 1}], "next": None}}),
        (("dead-letters", "list"), {"": {"dead_letters": [LETTER | {"source": 5}], "next": None}}),
        (("dead-letters", "list"), {"": {"dead_letters": [LETTER | {"age_s": inf}], "next": None}}),
        (("dead-letters", "show", ID), {"": {"dead_letters": [LETTER], "next": None}, "/1": {"number": 1, "content": None}}),
        (("dead-letters", "purge", "--all"), {"": {"purged": inf}}),
        (("pause",), {"": {"paused": [{"topic": 5, "sink": None, "flows": 1, "messages": 1}]}}),
    ],
)
def test_an_answer_in_which_something_is_missing_or_of_another_kind_is_none_of_a_streamer(
    capsys: pytest.CaptureFixture[str], token: tuple[str, str], words: tuple[str, ...], pages: dict[str, Any]
) -> None:
    with answering({path: json.dumps(page).encode() for path, page in pages.items()}) as url:
        assert status_of(*words, "--url", url, *token) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith("what answers there is not a streamer\n")


TOP = {
    "": {"version": HOSTILE, "form": "", "started": "", "uptime_s": 1, "reasons": [HOSTILE], "notes": [], "pair": None}
    | {"journal": {"dead_letters": 1}},
    "/endpoints": {"endpoints": []},
    "/routes": {"routes": []},
}
WAITING: dict[str, Any] = {
    "route": "up",
    "source": HOSTILE,
    "sink": None,
    "endpoint": "x",
    "endpoint_state": "up",
    "held": [],
}


@pytest.mark.parametrize("flow", [{"waiting": inf}, {"waiting": 10**400}, {"waiting": 1, "oldest_age_s": 10**400}, {}])
def test_a_gateway_with_figures_that_cannot_be_is_not_a_streamer(
    capsys: pytest.CaptureFixture[str], flow: dict[str, Any]
) -> None:
    pages = TOP | {"/flows": {"flows": [WAITING | {"oldest_age_s": 1} | flow], "total": 1}}
    with answering({path: json.dumps(page).encode() for path, page in pages.items()}) as url:
        assert status_of("top", "--once", "--interval", "0.1", "--url", url) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith("what answers there is not a streamer\n")


def test_nothing_in_the_tables_of_a_gateway_is_obeyed_by_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    pages = TOP | {"/flows": {"flows": [WAITING | {"oldest_age_s": 1, "waiting": 1}], "total": 1}}
    with answering({path: json.dumps(page).encode() for path, page in pages.items()}) as url:
        assert status_of("top", "--once", "--interval", "0.1", "--url", url) == 0
    out = capsys.readouterr().out
    assert out.count("owned") == 3
    assert all(line.isprintable() for line in out.split("\n"))


DEEP = b'{"paused": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.mark.parametrize("status", [200, 400])
@pytest.mark.parametrize(
    "words",
    [("pause",), ("pause", "--topic", "//veh1/A8000/2/8A50"), ("dead-letters", "list"), ("top", "--once")],
    ids=" ".join,
)
def test_an_answer_that_is_nested_too_deeply_is_none_of_a_streamer(
    capsys: pytest.CaptureFixture[str], token: tuple[str, str], words: tuple[str, ...], status: int
) -> None:
    with answering({"": DEEP}, status) as url:
        assert status_of(*words, "--url", url, *token) != 0
    out, err = capsys.readouterr()
    assert "streamer" in (out + err)


@pytest.mark.needs("tap")
def test_an_event_that_is_nested_too_deeply_is_passed_over(
    capsys: pytest.CaptureFixture[str], token: tuple[str, str]
) -> None:
    events = b"event: message\ndata: " + DEEP + b'\n\nevent: message\ndata: {"t": "now"}\n\n'
    with answering({"": events}) as url:
        assert status_of("tap", "--url", url, *token, "--count", "1", "--json") == 0
    assert capsys.readouterr().out == '{"t": "now"}\n'
