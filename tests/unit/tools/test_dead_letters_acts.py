"""``streamer dead-letters redrive`` and ``purge``: what they ask of the daemon and the user, and say without a daemon."""

import json
import os
import pty
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.unit.journal.harness import letters_in
from tests.unit.tools.commands import Run, answering, response, status_of
from tests.unit.tools.letters import DOORS, IDS, config_with

TOKEN = "0123456789abcdef0123"
FOUND = {"dead_letters": [{"number": 1}, {"number": 2}, {"number": 3}], "next": None}
REDRIVEN = {"redriven": 2, "not_redriven": [], "not_redriven_total": 0}


@contextmanager
def daemon(tmp_path: Path, *answers: object) -> Iterator[tuple[Sequence[str], list[str]]]:
    """A daemon that gives these answers: the options that lead to it, and what it was asked."""
    (tmp_path / "token").write_text(TOKEN)
    with answering(*(response("200 OK", json.dumps(each)) for each in answers)) as (port, asked):
        yield ("--url", f"http://127.0.0.1:{port}", "--token-file", str(tmp_path / "token")), asked


def bodies(asked: list[str]) -> list[object]:
    return [json.loads(each.partition("\r\n\r\n")[2]) for each in asked if each.startswith("POST")]


@pytest.mark.parametrize(
    ("words", "body"),
    [
        (("--all",), {"all": True}),
        (("--id", IDS[2].upper()), {"filter": {"id": IDS[2]}}),
        (("--route", "up", "--older-than", "30m"), {"filter": {"route": "up", "older_than": "1800000ms"}}),
        (
            ("--reason", "unavailable", "--source", "up://veh1/A8000/2/FFFF", "--sink", str(DOORS), "--newer-than", "1s"),
            {
                "filter": {
                    "reason": "UNAVAILABLE",
                    "source": "//veh1/A8000/2/FFFF",
                    "sink": str(DOORS),
                    "newer_than": "1000ms",
                }
            },
        ),
    ],
)
@pytest.mark.parametrize("action", ["redrive", "purge"])
def test_a_selection_is_handed_to_the_daemon(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], action: str, words: tuple[str, ...], body: object
) -> None:
    answer = {"redrive": REDRIVEN, "purge": {"purged": 2}}[action]
    with daemon(tmp_path, answer) as (where, asked):
        assert status_of("dead-letters", action, *where, *words) == 0
    said = {"redrive": "2 dead letters to be redriven now, by the running daemon\n", "purge": "2 dead letters deleted\n"}
    assert capsys.readouterr() == (said[action], "")
    assert bodies(asked) == [body]
    assert f"Authorization: Bearer {TOKEN}" in asked[0]


@pytest.mark.parametrize(("ttl", "ttl_ms"), [("1h", 3_600_000), ("0", 0)])
def test_a_new_ttl_is_handed_to_the_daemon(tmp_path: Path, ttl: str, ttl_ms: int) -> None:
    with daemon(tmp_path, REDRIVEN) as (where, asked):
        assert status_of("dead-letters", "redrive", *where, "--all", "--ttl", ttl) == 0
    assert bodies(asked) == [{"all": True, "ttl_ms": ttl_ms}]


def test_what_stays_is_named_with_the_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    why = "expired 59m ago, needs\x1b another TTL"
    answer = {"redriven": 0, "not_redriven": [{"id": IDS[1], "source": str(DOORS), "why": why}], "not_redriven_total": 4}
    with daemon(tmp_path, answer) as (where, _):
        assert status_of("dead-letters", "redrive", *where, "--all") == 1
    assert capsys.readouterr() == (
        f"not redriven: {IDS[1]} {DOORS}: expired 59m ago, needs\ufffd another TTL\nnot redriven: 3 more like these\n",
        "nothing to redrive\n",
    )


@pytest.mark.parametrize(
    ("action", "answer"),
    [("purge", {"purged": 0}), ("redrive", {"redriven": 0, "not_redriven": [], "not_redriven_total": 0})],
)
def test_no_match_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str], action: str, answer: object) -> None:
    with daemon(tmp_path, answer) as (where, _):
        assert status_of("dead-letters", action, *where, "--all") == 1
    assert capsys.readouterr() == ("", "found no dead letter\n")


@pytest.mark.parametrize("action", ["redrive", "purge"])
def test_without_a_daemon_nothing_is_changed(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], action: str
) -> None:
    (tmp_path / "journal-token").write_text(TOKEN)
    before = journal.read_bytes()
    path = config_with(tmp_path, f"{{path: {journal}}}")
    path.write_text(path.read_text().replace("metrics: null", f'metrics: {{listen: "127.0.0.1:{free_port()}"}}'))
    assert status_of("dead-letters", action, "--config", str(path), "--all") == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "no streamer answers there (Connection refused)" in err
    assert err.endswith("; only a running daemon changes dead letters\n")
    assert journal.read_bytes() == before
    assert status_of("dead-letters", "list", "--config", str(path)) == 0
    assert len(letters_in(journal)) == 3


@pytest.mark.parametrize("action", ["redrive", "purge"])
def test_a_daemon_without_a_port_is_not_asked(dead_letters: Run, action: str) -> None:
    status, out, err = dead_letters(action, "--all")
    assert (status, out) == (78, "")
    assert err.endswith("streamer.yaml: metrics: null: commands need the daemon's HTTP port\n")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Makes standard input a terminal; types a line there."""
    master, slave = pty.openpty()
    with os.fdopen(master, "w") as typed, os.fdopen(slave) as read:
        monkeypatch.setattr(sys, "stdin", read)
        yield lambda line: print(line, end="", file=typed, flush=True)


@pytest.mark.parametrize(
    ("action", "verb", "past", "answer"),
    [("redrive", "redrive", "redriven", REDRIVEN), ("purge", "delete", "deleted", {"purged": 3})],
)
def test_an_act_on_everything_is_asked_for_on_a_terminal(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    terminal: Callable[[str], None],
    action: str,
    verb: str,
    past: str,
    answer: object,
) -> None:
    with daemon(tmp_path, *[FOUND] * 4, answer) as (where, asked):
        for typed in ("\n", "no\n", "\x04"):  # the last one: the end of the input
            terminal(typed)
            assert status_of("dead-letters", action, *where, "--all") == 1
            assert capsys.readouterr() == ("", f"{verb} all 3 dead letters? [y/N] nothing {past}\n")
        assert bodies(asked) == []
        terminal("y\n")
        assert status_of("dead-letters", action, *where, "--all") == 0
        assert capsys.readouterr().err == f"{verb} all 3 dead letters? [y/N] "
    assert bodies(asked) == [{"all": True}]


@pytest.mark.parametrize("words", [("redrive", "--yes"), ("redrive", "--all", "--yes"), ("redrive", "--id", IDS[0])])
def test_yes_and_a_filter_need_no_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], terminal: Callable[[str], None], words: tuple[str, ...]
) -> None:
    with daemon(tmp_path, REDRIVEN) as (where, _):
        assert status_of("dead-letters", words[0], *where, *words[1:]) == 0
    assert capsys.readouterr().err == ""


def test_without_letters_nothing_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], terminal: Callable[[str], None]
) -> None:
    with daemon(tmp_path, {"dead_letters": [], "next": None}, REDRIVEN | {"redriven": 0}) as (where, _):
        assert status_of("dead-letters", "redrive", *where) == 1
    assert capsys.readouterr().err == "found no dead letter\n"


def test_an_act_on_everything_needs_all_or_yes_where_nobody_can_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with daemon(tmp_path, REDRIVEN) as (where, _):
        assert status_of("dead-letters", "purge", *where) == 2
        assert status_of("dead-letters", "redrive", *where) == 2
        assert capsys.readouterr().err == "".join(
            f"{action}: expected a filter, or --all for all of them\n" for action in ("purge", "redrive")
        )
        assert status_of("dead-letters", "redrive", *where, "--yes") == 0


@pytest.mark.parametrize("ttl", ["5", "0s", "60d", "never"])
def test_a_wrong_ttl_is_explained(dead_letters: Run, ttl: str) -> None:
    status, _, err = dead_letters("redrive", "--ttl", ttl)
    assert status == 2
    assert f"--ttl: '{ttl}': expected" in err
