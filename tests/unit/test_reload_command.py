"""``streamer reload`` and ``config --running`` against a daemon of its own, as an operator and systemd use them."""

import asyncio
import json
import re
import signal
import subprocess
from collections.abc import AsyncIterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
import yaml

from streamer.tools.running import user
from tests import preloaded
from tests.unit.memory_daemon import SECOND_ROUTE, Process, running

pytestmark = pytest.mark.long


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Process]:
    async with running(Process(tmp_path)) as process:
        await process.ready()
        yield process


async def command(daemon: Process, *argv: str) -> "subprocess.CompletedProcess[str]":
    """A command of the command line, with the daemon's file."""
    return await preloaded.command(argv[0], "--config", daemon.file, *argv[1:])


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
    assert [(line["who"], line["where"]) for line in daemon.events("reloaded")] == [(user(), "command line")]


async def test_every_reason_is_printed_if_only_the_daemon_can_know_it(daemon: Process) -> None:
    text = daemon.file.read_text()
    daemon.file.write_text(text.replace("gateway.veh1", "gateway.veh2") + "usubscription: null\n")
    answer = await command(daemon, "reload")
    assert (answer.returncode, answer.stdout) == (78, "")
    assert answer.stderr.splitlines() == [
        "authority: changed from gateway.veh1 to gateway.veh2; restart to use it",
        "usubscription: changed; restart to use it",
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


# endpoints, and everything else that needs no restart

PHONE = "endpoints:\n  phone: {transport: memory, authorities: [phone1], options: {bus: phone}}\n"
TO_PHONE = "routes:\n  - {from: cloud, to: phone}\n"


def endpoints(daemon: Process) -> dict[tuple[str, ...], float]:
    return {labels: up for labels, up in daemon.samples("ustreamer_endpoint_up").items() if labels[0] != "core"}


async def test_an_endpoint_comes_and_goes_with_the_file(daemon: Process) -> None:
    good = daemon.file.read_text()
    two = {("cloud", "memory"): 1, ("vehicle", "memory"): 1}
    daemon.file.write_text(good.replace("endpoints:\n", PHONE).replace("routes:\n", TO_PHONE))
    assert await asyncio.to_thread(daemon.reload) == 200
    assert await asyncio.to_thread(endpoints, daemon) == two | {("phone", "memory"): 1}
    assert "cloud-phone" in await asyncio.to_thread(daemon.routes)
    assert '"ready": true' in await asyncio.to_thread(daemon.get, "/readyz")
    daemon.file.write_text(good)
    assert await asyncio.to_thread(daemon.reload) == 200
    assert await asyncio.to_thread(endpoints, daemon) == two
    await daemon.until(lambda: "cloud-phone" not in daemon.routes())
    daemon.file.write_text(good.replace("bus: cloud", "bus: other"))
    assert await asyncio.to_thread(daemon.reload) == 200
    assert await asyncio.to_thread(endpoints, daemon) == two
    said = [(line["event"], line["endpoint"]) for line in daemon.lines() if str(line["event"]).startswith("endpoint_")]
    changes = [each for each in said if each[0] not in ("endpoint_state", "endpoint_drain_began")]
    assert changes == [("endpoint_added", "phone"), ("endpoint_removed", "phone"), ("endpoint_changed", "cloud")]
    assert len(daemon.events("reloaded")) == 3


async def test_a_file_that_a_new_endpoint_names_and_that_cannot_be_read_is_a_reason(daemon: Process, tmp_path: Path) -> None:
    options = f"{{broker: 'mqtt://127.0.0.1:1', username: u, password_file: {tmp_path / 'missing'}}}"
    new = f"endpoints:\n  fleet: {{transport: mqtt5, authorities: [fleet], options: {options}}}\n"
    daemon.file.write_text(daemon.file.read_text().replace("endpoints:\n", new))
    answer = await command(daemon, "reload")
    assert answer.returncode == 78
    assert answer.stderr.splitlines() == [
        f"endpoints.fleet.options.password_file: {tmp_path / 'missing'}: No such file or directory",
        "refused: nothing has changed",
    ]
    assert ("fleet", "mqtt5") not in await asyncio.to_thread(endpoints, daemon)


async def test_most_sections_need_no_restart(daemon: Process) -> None:
    sections: dict[str, dict[str, Any]] = {
        "remember": {"ids": 5},
        "control": {"http": "any"},
        "usubscription": {"max_subscriptions": 9, "local": ["veh1"]},
        "queue_policy": {"window": 5},
    }
    text = daemon.file.read_text()
    sections["control"]["http_token_file"] = yaml.safe_load(text)["control"]["http_token_file"]
    daemon.file.write_text(text[: text.index("control:")] + yaml.safe_dump(sections))
    assert await asyncio.to_thread(daemon.reload) == 200
    shown = json.loads(await asyncio.to_thread(daemon.get, "/api/v1/config"))["config"]
    assert {name: {key: shown[name][key] for key in wanted} for name, wanted in sections.items()} == sections


async def test_names_by_which_the_port_may_be_called_change_at_once(daemon: Process) -> None:
    def ask() -> int:
        connection = HTTPConnection("127.0.0.1", daemon.port, timeout=10)
        connection.request("GET", "/healthz", headers={"Host": "gateway.example"})
        return connection.getresponse().status

    assert await asyncio.to_thread(ask) == 403
    text = daemon.file.read_text()
    daemon.file.write_text(text.replace("metrics: {", "metrics: {hosts: [gateway.example], "))
    assert await asyncio.to_thread(daemon.reload) == 200
    assert await asyncio.to_thread(ask) == 200
