"""``streamer reload`` and ``config --running`` against a daemon of its own, as an operator and systemd use them."""

import asyncio
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from tests.unit.memory_daemon import SECOND_ROUTE, Process, running


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Process]:
    async with running(Process(tmp_path)) as process:
        await process.ready()
        yield process


async def command(daemon: Process, *argv: str) -> "subprocess.CompletedProcess[str]":
    """A command of the command line, with the daemon's file."""
    line = [sys.executable, "-m", "streamer", argv[0], "--config", str(daemon.file), *argv[1:]]
    return await asyncio.to_thread(subprocess.run, line, capture_output=True, text=True, check=False)


def hash_of(text: str) -> int:
    found = re.search(r"fingerprint ([0-9a-f]{12})\n", text)
    assert found is not None
    return int(found[1], 16)


async def test_an_accepted_file_is_in_use_when_the_command_ends(daemon: Process) -> None:
    (before,) = daemon.samples("ustreamer_config_hash").values()
    (started_s,) = daemon.samples("ustreamer_config_last_reload_success_timestamp_seconds").values()
    daemon.file.write_text(daemon.file.read_text().replace("routes:\n", SECOND_ROUTE))
    answer = await command(daemon, "reload")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert "down" in await asyncio.to_thread(daemon.routes)
    (after,) = daemon.samples("ustreamer_config_hash").values()
    assert (hash_of(answer.stdout), before != after) == (after, True)
    assert set(daemon.samples("ustreamer_config_last_reload_successful").values()) == {1}
    (reloaded_s,) = daemon.samples("ustreamer_config_last_reload_success_timestamp_seconds").values()
    assert reloaded_s > started_s
    assert [line["who"] for line in daemon.events("reloaded")] == ["http"]


async def test_every_reason_is_printed_if_only_the_daemon_can_know_it(daemon: Process) -> None:
    text = daemon.file.read_text()
    daemon.file.write_text(text.replace("gateway.veh1", "gateway.veh2").replace("repeat_s: 0", "audit: audit.log"))
    answer = await command(daemon, "reload")
    assert (answer.returncode, answer.stdout) == (78, "")
    assert answer.stderr.splitlines() == [
        "authority: changed from gateway.veh1 to gateway.veh2; restart to use it",
        "log.audit: changed; restart to use it",
        "refused: nothing has changed",
    ]
    assert set(daemon.samples("ustreamer_config_last_reload_successful").values()) == {0}
    assert daemon.samples("ustreamer_reloads_total") == {("ok",): 0, ("refused",): 1}


async def test_a_file_with_mistakes_is_not_even_tried(daemon: Process) -> None:
    daemon.file.write_text(daemon.file.read_text().replace("to: cloud", "to: clod"))
    answer = await command(daemon, "reload")
    assert answer.returncode == 78
    assert "did you mean 'cloud'?" in answer.stderr
    assert daemon.samples("ustreamer_reloads_total") == {("ok",): 0, ("refused",): 0}


async def test_a_refused_hangup_shows_in_the_metrics_until_a_file_is_accepted(daemon: Process) -> None:
    good = daemon.file.read_text()
    daemon.file.write_text("nonsense")
    daemon.signal(signal.SIGHUP)
    await daemon.until(lambda: set(daemon.samples("ustreamer_config_last_reload_successful").values()) == {0})
    daemon.file.write_text(good)
    assert (await command(daemon, "reload")).returncode == 0
    assert set(daemon.samples("ustreamer_config_last_reload_successful").values()) == {1}


async def test_reloads_at_the_same_time_wait_for_each_other(daemon: Process) -> None:
    answers = await asyncio.gather(*(command(daemon, "reload") for _ in range(3)))
    assert [answer.returncode for answer in answers] == [0, 0, 0]
    assert daemon.samples("ustreamer_reloads_total") == {("ok",): 3, ("refused",): 0}


async def test_what_is_in_use_is_not_what_the_file_says_by_now(daemon: Process) -> None:
    before = await command(daemon, "config")
    daemon.file.write_text(daemon.file.read_text().replace("routes:\n", SECOND_ROUTE))
    used, file = await command(daemon, "config", "--running"), await command(daemon, "config")
    assert (used.returncode, used.stdout) == (0, before.stdout)
    assert [route["name"] for route in yaml.safe_load(file.stdout)["routes"]] == ["down", "vehicle-cloud"]
    assert hash_of(used.stdout) != hash_of(file.stdout)


@pytest.mark.parametrize("argv", [("reload",), ("config", "--running")], ids=lambda argv: argv[0])
async def test_without_a_daemon_the_command_says_so(tmp_path: Path, argv: tuple[str, ...]) -> None:
    process = Process(tmp_path)
    process.systemd.close()
    answer = await command(process, *argv)
    assert (answer.returncode, answer.stdout) == (1, "")
    assert f"127.0.0.1:{process.port} (metrics.listen): no streamer answers there" in answer.stderr
