"""``streamer tap``: how a message is printed, whatever it contains, and what is refused before anybody is asked."""

import json
from pathlib import Path
from typing import Any

import pytest

from streamer.main import _parser
from streamer.tools import tap
from streamer.tools.running import DaemonAddress
from streamer.tools.tap import _line, _watched
from streamer.tools.text import lines_out
from tests.ports import free_port
from tests.unit.tools.commands import GOOD, answering, response, status_of

SHOWN: dict[str, Any] = {
    "t": "2023-11-14T22:13:20.000Z",
    "route": "up",
    "ingress": "vehicle",
    "egress": "cloud",
    "type": "publish",
    "source": "//veh1/A8000/2/8A50",
    "sink": None,
    "id": "018bcfe5-6800-7054-a531-18f60a3a12c0",
    "outcome": "delivered",
    "code": "OK",
    "text": "",
    "in_daemon_s": 0.0123,
    "bytes": 4,
    "payload": {"text": "fast"},
    "cut_bytes": 0,
}
HOSTILE = "\x1b[2J\n\r\u202e\ud800"


def test_a_message_is_one_line() -> None:
    assert _line("message", SHOWN, as_json=False) == (
        "2023-11-14T22:13:20.000Z  delivered      up (vehicle → cloud)  publish  //veh1/A8000/2/8A50"
        "  018bcfe5-6800-7054-a531-18f60a3a12c0  12.3 ms  4 B  fast"
    )


def test_a_failure_has_its_reason() -> None:
    failed = SHOWN | {"outcome": "rejected", "code": "NOT_FOUND", "text": "no route", "egress": "", "sink": "//cloud/C0/1/0"}
    line = _line("message", failed | {"payload": {"hex": "ff"}, "cut_bytes": 7}, as_json=False)
    assert "rejected       up (vehicle → nowhere)  publish  //veh1/A8000/2/8A50 → //cloud/C0/1/0" in line
    assert line.endswith("NOT_FOUND: no route  ff  (and 7 B more)")


@pytest.mark.parametrize("key", [*SHOWN, "unknown"])
def test_nothing_in_a_message_is_obeyed_by_a_terminal(key: str, capsys: pytest.CaptureFixture[str]) -> None:
    values: list[Any] = [HOSTILE, {"text": HOSTILE}, {"json": {HOSTILE: [HOSTILE]}}, {"hex": 5}, None, [], -1, 1e300]
    for value in values:
        for as_json in (False, True):
            lines_out([_line("message", SHOWN | {key: value}, as_json)])
            printed = capsys.readouterr().out
            assert printed.endswith("\n")
            assert printed[:-1].isprintable()
            printed.encode()


def test_what_was_left_out_is_said() -> None:
    assert _line("left_out", {"messages": 7, "since": "then"}, as_json=False) == "... 7 messages left out"
    assert json.loads(_line("left_out", {"messages": 7, "since": "then"}, as_json=True)) == {"left_out": 7, "since": "then"}
    assert _line("left_out", {"messages": HOSTILE}, as_json=False) == f"... {HOSTILE} messages left out"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ((), "watching all messages at gw; Ctrl-C ends it"),
        (("--route", "up", "--count", "1"), "watching messages of route up at gw; ends after --count 1, or at Ctrl-C"),
    ],
)
def test_what_it_waits_for_is_said(words: tuple[str, ...], line: str) -> None:
    assert _watched(_parser().parse_args(["tap", *words]), DaemonAddress("http://gw", "gw", lambda: None)) == line


def test_without_a_daemon_it_ends_with_the_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "streamer.yaml"
    path.write_text(GOOD.replace("metrics: null", f'metrics: {{listen: "127.0.0.1:{free_port()}"}}'))
    assert status_of("tap", "--config", str(path)) == 1
    assert "no streamer answers there" in capsys.readouterr().err


def test_no_messages_at_all_is_wrong_usage(tmp_path: Path) -> None:
    assert status_of("tap", "--config", str(tmp_path / "streamer.yaml"), "--count", "0") == 2


def test_it_goes_on_after_a_tap_that_ends_or_has_no_room_but_not_after_a_refusal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tap, "_AGAIN_S", 0.0)
    (tmp_path / "token").write_text("0123456789abcdef0123")
    shown = response("200 OK", f"event: message\ndata: {json.dumps(SHOWN)}\n\n", "text/event-stream")
    busy, refused = response("503 Busy", '{"error": "full"}'), response("401 No", '{"error": "no"}')
    with answering(shown, busy, busy, shown, refused) as (port, asked):
        words = ("--url", f"http://127.0.0.1:{port}", "--token-file", str(tmp_path / "token"))
        assert status_of("tap", *words) == 1
    out, err = capsys.readouterr()
    assert (len(asked), len(out.splitlines())) == (5, 2)
    told = ["watching", "the streamer has ended", "the streamer answers again", "the streamer has ended", "no; the token"]
    assert [line[: len(start)] for line, start in zip(err.splitlines(), told, strict=True)] == told


def test_one_that_has_no_room_at_first_ends_with_the_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "token").write_text("0123456789abcdef0123")
    with answering(response("503 Busy", '{"error": "full"}')) as (port, _):
        assert status_of("tap", "--url", f"http://127.0.0.1:{port}", "--token-file", str(tmp_path / "token")) == 1
    assert capsys.readouterr().err == "full\n"
