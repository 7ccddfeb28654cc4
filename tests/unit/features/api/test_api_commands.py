"""The commands that are clients of the administration API, against a daemon that runs; and with its port away."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from streamer.config import token as token_module
from streamer.logs.audit import NAME
from streamer.main import main
from streamer.tools.running import user
from tests.flow.harness import SPEED
from tests.ports import free_port
from tests.unit.features.api.daemon import DaemonHarness
from tests.unit.features.api.played import SECRET, TRACE, play
from tests.unit.tools.commands import status_of


async def run(served: DaemonHarness, *words: str) -> int:
    """A command with the daemon's file, in a thread: the daemon is in this one."""
    first = 2 if words[0] == "dead-letters" else 1
    return await asyncio.to_thread(main, [*words[:first], "--config", str(served.file), *words[first:]])


def audited(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines of the audit log."""
    return [record.getMessage() for record in caplog.records if record.name == NAME]


async def test_dead_letters_are_told_alike_by_the_daemon_and_the_file(
    served: DaemonHarness, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for their ages, which go on."""
    monkeypatch.setattr("streamer.tools.dead_letters.as_span", lambda ms: "SPAN")
    ids = await play(served)
    commands = [("list",), ("list", "--source", "//veh1/FFFFFFFF/FF/8A50"), *(("show", each) for each in ids)]
    told: dict[str, list[str]] = {}
    for who, port in (("daemon", served.port), ("file", 0)):
        served.raw["metrics"]["listen"] = f"127.0.0.1:{port}"
        served.write()
        for command in commands:
            assert await run(served, "dead-letters", *command) == 0
        told[who] = capsys.readouterr().out.splitlines()
    assert told["daemon"] == told["file"]
    assert SECRET not in str(told)
    assert any(TRACE in line for line in told["daemon"])


async def test_acts_are_the_daemons_and_have_the_users_name(
    served: DaemonHarness, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    ids = await play(served)
    caplog.clear()
    assert await run(served, "dead-letters", "redrive", "--id", ids[0]) == 1
    assert "s ago, needs another TTL\n" in capsys.readouterr().out
    assert await run(served, "dead-letters", "redrive", "--id", ids[0], "--ttl", "1h") == 0
    assert capsys.readouterr().out == "1 dead letter to be redriven now, by the running daemon\n"
    assert await run(served, "dead-letters", "show", ids[1]) == 0
    number = json.loads((await served.ask("/api/v1/dead-letters", id=ids[1])).text)["dead_letters"][0]["number"]
    assert await run(served, "dead-letters", "purge", "--id", ids[1]) == 0
    assert await run(served, "dead-letters", "purge", "--id", ids[1]) == 1
    assert await run(served, "dead-letters", "purge") == 2
    who = f"who={user()} where=command line"
    assert audited(caplog) == [
        f"redriven {who} letters=1",
        f"payload_shown {who} letter={number} id={ids[1]}",
        f"purged {who} letters=1",
    ]


@pytest.mark.needs("judge", "pause")
async def test_a_daemon_elsewhere_is_asked_by_url_with_a_token(
    served: DaemonHarness, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    url, token = ("--url", served.url), ("--token-file", str(served.token_file))
    assert await asyncio.to_thread(main, ["pause", *url, "--topic", str(SPEED)]) == 1
    told = "expected Authorization: Bearer, with the streamer's token; none was sent: --token-file names the file with it"
    assert told in capsys.readouterr().err
    (tmp_path / "other").write_text("another-token-0123456789")
    other = ("--token-file", str(tmp_path / "other"))
    assert await asyncio.to_thread(main, ["pause", *url, *other, "--topic", str(SPEED)]) == 1
    assert f"the token in {tmp_path / 'other'} is not the one of this streamer" in capsys.readouterr().err
    assert await asyncio.to_thread(main, ["pause", *url, *token, "--topic", str(SPEED)]) == 0
    assert await asyncio.to_thread(main, ["dead-letters", "list", *url]) == 1
    assert await asyncio.to_thread(main, ["config", *url]) == 0
    assert await asyncio.to_thread(main, ["reload", *url, *token]) == 0
    assert await asyncio.to_thread(main, ["explain", *url, "--type", "publish", "--source", str(SPEED)]) == 0
    assert "it is paused (streamer pause) by //veh1/A8000/2/8A50" in capsys.readouterr().out
    assert await asyncio.to_thread(status_of, "pause") == 2
    assert await asyncio.to_thread(main, ["pause", "--url", "ftp://x"]) == 2
    assert "a daemon elsewhere is reached with --url" in capsys.readouterr().err


@pytest.mark.needs("judge", "pause")
async def test_a_token_that_was_deleted_is_told_with_its_file_and_made_anew_at_a_reload(
    served: DaemonHarness, capsys: pytest.CaptureFixture[str]
) -> None:
    served.token_file.unlink()
    assert await run(served, "pause", "--topic", str(SPEED)) == 1
    told = f"none was sent: {served.token_file}: no such file; the streamer makes it at its start, and at SIGHUP"
    assert told in capsys.readouterr().err
    assert await served.daemon.reload("SIGHUP", "process") == []
    assert await run(served, "pause", "--topic", str(SPEED)) == 0


@pytest.mark.needs("judge")
async def test_a_file_that_needs_a_restart_first_is_told_where_the_daemon_or_its_token_is_not_found(
    served: DaemonHarness, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    good = dict(served.raw)
    restart = "; a streamer that was started with {} has to be restarted to use this file\n"
    port = free_port()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "journal-token").write_text("another-token-0123456789")
    cases = [
        ({"metrics": {"listen": f"127.0.0.1:{port}"}}, "(Connection refused)", "another metrics.listen"),
        ({"journal": {"path": str(tmp_path / "new.db")}}, "new-token: no such file", "another authority or journal.path"),
        (
            {"journal": {"path": str(tmp_path / "other" / "journal.db")}},
            "is not the one",
            "another authority or journal.path",
        ),
    ]
    for changed, told, other in cases:
        served.raw = good | changed
        served.write()
        assert await run(served, "reload") == 1
        said = capsys.readouterr().err
        assert told in said
        assert said.endswith(restart.format(other)), said
    assert await asyncio.to_thread(main, ["reload", "--url", f"http://127.0.0.1:{port}"]) == 1
    assert "restarted" not in capsys.readouterr().err  # nobody said that it is there
    served.raw = good
    served.write()
    assert await run(served, "reload", "--token-file", str(tmp_path / "other" / "journal-token")) == 1
    assert "restarted" not in capsys.readouterr().err  # whoever names the token has to know which one it is


@pytest.mark.needs("pause")
async def test_a_user_whose_name_no_header_can_hold_is_not_named(
    served: DaemonHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("Ωmega", "a\r\nHost: evil", "x=y"):
        monkeypatch.setenv("SUDO_USER", name)
        caplog.clear()
        assert await run(served, "pause", "--topic", str(SPEED)) == 0
        assert await run(served, "resume", "--topic", str(SPEED)) == 0
        assert [line.split()[1:3] for line in audited(caplog)] == [["who=http", "where=127.0.0.1"]] * 2


@pytest.mark.needs("judge")
async def test_explain_tells_what_the_daemon_knows_or_what_the_file_says(
    served: DaemonHarness, capsys: pytest.CaptureFixture[str]
) -> None:
    question = ("explain", "--type", "publish", "--source", str(SPEED))
    assert await run(served, *question) == 0
    from_file = capsys.readouterr().out
    assert await run(served, *question, "--running") == 0
    assert capsys.readouterr().out == from_file
    assert await run(served, "explain", "--running", "--type", "publish", "--source", "/1/1/8000") == 2
    assert "a source without authority" in capsys.readouterr().err
    assert await run(served, *question, "--running", "--from", "nowhere") == 2


@pytest.mark.needs("pause")
async def test_who_may_not_read_the_token_is_told_who_may(
    served: DaemonHarness, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("streamer.tools.running.read_token", read)
    assert await run(served, "pause", "--topic", str(SPEED)) == 1
    owner = "root" if os.getuid() == 0 else f"root and {user()}"
    assert f"{served.token_file}: only {owner} may read it" in capsys.readouterr().err
    assert await run(served, "pause") == 0  # to read needs none
    assert token_module.who_may_read(Path("/nothing/there")) == "root and the user who runs the daemon"
