"""``streamer dead-letters redrive`` and ``purge``, over a real journal, with the daemon's side of it running or not."""

import json
import os
import pty
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamer.cli.main import main
from streamer.journal.entries import Letter
from streamer.logs.output import audit_log
from tests.unit.cli.commands import Run
from tests.unit.cli.letters import (
    CALLER,
    DOORS,
    IDS,
    LETTERS,
    SPEED,
    config_with,
)
from tests.unit.journal.harness import JournalHarness, execute, letters_in

# purge


def test_purge_deletes_what_matches(dead_letters: Run, journal: Path) -> None:
    assert dead_letters("purge", "--older-than", "30m") == (0, "2 dead letters deleted\n", "")
    assert letters_in(journal) == [(3, "vehicle-phone")]
    assert dead_letters("purge", "--all") == (0, "1 dead letter deleted\n", "")
    assert dead_letters("purge", "--all") == (1, "", "found no dead letter\n")


def test_purge_of_everything_needs_all(dead_letters: Run, journal: Path) -> None:
    assert dead_letters("purge") == (2, "", "purge: expected a filter, or --all for all of them\n")
    assert len(letters_in(journal)) == 3


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Makes standard input a terminal; types a line there."""
    master, slave = pty.openpty()
    with os.fdopen(master, "w") as typed, os.fdopen(slave) as read:
        monkeypatch.setattr(sys, "stdin", read)
        yield lambda line: print(line, end="", file=typed, flush=True)


@pytest.mark.parametrize(("action", "verb", "past"), [("redrive", "redrive", "redriven"), ("purge", "delete", "deleted")])
def test_an_act_on_everything_is_asked_for_on_a_terminal(
    dead_letters: Run, journal: Path, terminal: Callable[[str], None], action: str, verb: str, past: str
) -> None:
    for answer in ("\n", "no\n", "\x04"):  # the last one: the end of the input
        terminal(answer)
        assert dead_letters(action, "--all") == (1, "", f"{verb} all 3 dead letters? [y/N] nothing {past}\n")
    assert len(letters_in(journal)) == 3
    assert "to be redriven" not in dead_letters("list")[1]
    terminal("y\n")
    status, _, err = dead_letters(action, "--all")
    assert (status, err) == (0, f"{verb} all 3 dead letters? [y/N] ")


@pytest.mark.parametrize("words", [("redrive", "--yes"), ("redrive", "--all", "--yes"), ("redrive", "--id", IDS[0])])
def test_yes_and_a_filter_need_no_answer(dead_letters: Run, terminal: Callable[[str], None], words: tuple[str, ...]) -> None:
    status, _, err = dead_letters(*words)
    assert (status, err) == (0, "")


def test_without_letters_nothing_is_asked(dead_letters: Run, terminal: Callable[[str], None]) -> None:
    assert dead_letters("purge", "--all", "--yes")[0] == 0
    assert dead_letters("redrive") == (1, "", "found no dead letter\n")


# redrive


def test_redrive_of_everything_needs_all_or_yes_where_nobody_can_answer(dead_letters: Run) -> None:
    assert dead_letters("redrive") == (2, "", "redrive: expected a filter, or --all for all of them\n")
    assert "to be redriven" not in dead_letters("list")[1]
    assert dead_letters("redrive", "--yes")[0] == 0


def test_redrive_goes_out_at_the_next_start(dead_letters: Run, journal: Path) -> None:
    status, out, _ = dead_letters("redrive", "--route", "vehicle-phone")
    assert (status, out) == (0, "1 dead letter to be redriven when the daemon starts; it is not running\n")
    desk, redriven = _daemon(journal)
    desk.loop.run_until(lambda: bool(redriven))
    desk.close()
    assert redriven == [(LETTERS[2], None)]
    assert "; 1 to be redriven" in dead_letters("list")[1]  # the router deletes the letter, not the command


@pytest.mark.parametrize("action", ["redrive", "purge"])
def test_the_file_of_a_running_daemon_that_has_no_port_is_only_read(dead_letters: Run, journal: Path, action: str) -> None:
    desk, redriven = _daemon(journal)
    refused = f"{journal}: the running daemon writes it: set metrics.port to reach the daemon, or stop it\n"
    assert dead_letters(action, "--all") == (1, "", refused)
    assert "3 dead letters" in dead_letters("list")[1]
    desk.close()
    assert (redriven, len(letters_in(journal))) == ([], 3)


def test_marking_twice_sends_once_with_the_last_ttl(dead_letters: Run, journal: Path) -> None:
    dead_letters("redrive", "--id", IDS[2])
    dead_letters("redrive", "--id", IDS[2], "--ttl", "1h")
    desk, redriven = _daemon(journal)
    desk.loop.run_until(lambda: bool(redriven))
    desk.close()
    assert redriven == [(LETTERS[2], 3_600_000)]


def test_what_has_expired_needs_a_ttl(dead_letters: Run, journal: Path) -> None:
    status, out, _ = dead_letters("redrive", "--all")
    assert status == 0
    assert out.splitlines() == [
        f"not redriven: {IDS[1]} {DOORS}: expired 59m ago, needs another TTL",
        "2 dead letters to be redriven when the daemon starts; it is not running",
    ]
    assert dead_letters("redrive", "--id", IDS[1])[0] == 1
    assert dead_letters("redrive", "--id", IDS[1], "--ttl", "0")[0] == 0


def test_a_request_cannot_live_for_ever(dead_letters: Run) -> None:
    status, out, err = dead_letters("redrive", "--id", IDS[2], "--ttl", "0")
    assert (status, err) == (1, "nothing to redrive\n")
    assert out == f"not redriven: {IDS[2]} {CALLER}: a Request needs a TTL above 0\n"


def test_a_damaged_letter_is_not_sent(dead_letters: Run, journal: Path) -> None:
    execute(journal, "UPDATE letters SET body = x'00' WHERE number = 1")
    status, out, _ = dead_letters("redrive", "--id", IDS[0])
    assert (status, out) == (1, f"not redriven: {IDS[0]} {SPEED}: its body was changed\n")


@pytest.mark.parametrize("ttl", ["5", "0s", "60d", "never"])
def test_a_wrong_ttl_is_explained(dead_letters: Run, ttl: str) -> None:
    status, _, err = dead_letters("redrive", "--ttl", ttl)
    assert status == 2
    assert f"--ttl: '{ttl}': expected" in err


def _daemon(journal: Path) -> tuple[JournalHarness, list[tuple[Letter, int | None]]]:
    redriven: list[tuple[Letter, int | None]] = []
    desk = JournalHarness(journal).open(lambda letters, ttls: redriven.extend(zip(letters, ttls, strict=True)))
    return desk, redriven


# the audit log


@pytest.mark.parametrize(("action", "event"), [("redrive", "redriven"), ("purge", "purged")])
def test_acts_are_in_the_audit_log_with_the_user(
    journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: str, event: str
) -> None:
    monkeypatch.setenv("SUDO_USER", "alice")
    log, config = tmp_path / "audit.log", config_with(tmp_path, f"{{path: {journal}}}\nlog: {{audit: {tmp_path}/audit.log}}")
    try:
        assert main(["dead-letters", action, "--config", str(config), "--id", IDS[2]]) == 0
        (line,) = (json.loads(text) for text in log.read_text().splitlines())
    finally:
        audit_log(None)
    assert (line["event"], line["where"], line["letters"]) == (event, "command line", 1)
    assert line["who"].endswith(" for alice")


@pytest.mark.parametrize("action", ["redrive", "purge"])
def test_what_cannot_be_recorded_is_not_done(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], action: str
) -> None:
    config = config_with(tmp_path, f"{{path: {journal}}}\nlog: {{audit: {tmp_path}/nowhere/audit.log}}")
    assert main(["dead-letters", action, "--config", str(config), "--all"]) == 74
    assert "log.audit: " in capsys.readouterr().err
    assert main(["dead-letters", "list", "--config", str(config)]) == 0
    assert "3 dead letters" in capsys.readouterr().out
