"""A reload that denies nothing, and what a file would change, over the flows that a whole daemon knows."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from streamer.uprotocol.message import notification, publish
from tests.flow.harness import CLOUD_APP, SPEED
from tests.unit.features.api.daemon import DaemonHarness, running
from tests.unit.features.api.played import document_of, now_ms
from tests.unit.tools.commands import status_of

CAREFULLY = {"if_nothing_denied": True}
DENIED: dict[str, Any] = {
    "endpoints": {
        "vehicle": {"rules": [{"deny": {"types": ["publish"]}}, {"allow": {}}]},
        "cloud": {"rules": [{"allow": {}}]},
    }
}
HARMLESS: dict[str, Any] = {"endpoints": {"vehicle": {"rules": [{"allow": {}}]}, "cloud": {"rules": [{"allow": {}}]}}}


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[DaemonHarness]:
    async with running(tmp_path) as harness:
        harness.arrive(
            "vehicle", publish(now_ms(harness), SPEED, b"1"), notification(now_ms(harness), SPEED, CLOUD_APP, b"2")
        )
        yield harness


def change(served: DaemonHarness, **changes: Any) -> None:
    served.raw |= changes
    served.write()


def rules(served: DaemonHarness) -> Any:
    return served.daemon.config.permissions


async def test_a_reload_that_would_deny_a_known_flow_is_refused_with_a_list(served: DaemonHarness) -> None:
    change(served, permissions=DENIED)
    asked = await served.ask("/api/v1/reload", CAREFULLY)
    assert asked.status == 409
    (problem,) = asked.json["problems"]
    assert problem.startswith("1 flow")
    assert "would be denied: permissions.endpoints.vehicle.rules[0] denies it (PERMISSION_DENIED)" in problem
    assert problem.endswith(f", such as publish {SPEED} from vehicle, CS1")
    assert rules(served) is None
    (await document_of(served)).check("post", "/api/v1/reload", asked)
    assert (await served.ask("/api/v1/reload", {})).status == 200
    assert rules(served) is not None


async def test_a_flow_that_would_go_nowhere_any_more_is_a_loss_too(served: DaemonHarness) -> None:
    change(served, routes=[{"from": "vehicle", "to": "cloud"}, {"from": "cloud", "to": "vehicle"}])
    asked = await served.ask("/api/v1/reload", CAREFULLY)
    assert asked.status == 409
    assert "would no longer go anywhere" in asked.json["error"]


async def test_a_change_that_denies_no_known_flow_is_used(served: DaemonHarness) -> None:
    change(served, permissions=HARMLESS)
    asked = await served.ask("/api/v1/reload", CAREFULLY)
    assert (asked.status, rules(served) is not None) == (200, True)
    change(served, permissions=DENIED)
    assert (await served.ask("/api/v1/reload", {"if_nothing_denied": False})).status == 200


@pytest.mark.parametrize("wrong", ["yes", 1, None])
async def test_neither_true_nor_false_is_refused(served: DaemonHarness, wrong: object) -> None:
    asked = await served.ask("/api/v1/reload", {"if_nothing_denied": wrong})
    assert (asked.status, asked.json["error"]) == (400, "body: if_nothing_denied: expected true or false")


async def test_a_file_with_mistakes_is_422_in_any_case(served: DaemonHarness) -> None:
    change(served, routes=[{"from": "vehicle", "to": "clod"}])
    for page, body in (("reload", CAREFULLY), ("preview", {})):
        asked = await served.ask(f"/api/v1/{page}", body)
        assert (asked.status, "did you mean 'cloud'?" in asked.json["error"]) == (422, True)


async def test_the_preview_says_what_would_change_and_uses_nothing(served: DaemonHarness) -> None:
    document = await document_of(served)
    same = await served.ask("/api/v1/preview", {})
    assert same.status == 200
    document.check("post", "/api/v1/preview", same)
    assert (same.json["changes"], same.json["settings"], same.json["flows"]) == ([], [], 2)
    change(served, permissions=DENIED, shutdown={"drain_s": 1})
    changed = await served.ask("/api/v1/preview", {})
    document.check("post", "/api/v1/preview", changed)
    assert [each["kind"] for each in changed.json["changes"]] == ["denied"]
    assert "shutdown.drain_s: 1 instead of 0" in [each["text"] for each in changed.json["settings"]]
    assert rules(served) is None


def test_a_daemon_loads_nothing_of_it_until_somebody_asks() -> None:
    loaded = "import sys, streamer.daemon; print(*(name for name in sys.modules if name.startswith('streamer.')))"
    found = subprocess.run([sys.executable, "-c", loaded], check=True, capture_output=True, text=True).stdout.split()
    assert "streamer.daemon" in found
    unwanted = (
        "streamer.features.judge.diff",
        "streamer.features.judge.representative",
        "streamer.features.judge.changed",
        "streamer.features.judge.changes",
    )
    assert [name for name in found if name.startswith(unwanted)] == []


async def test_the_preview_needs_the_token(served: DaemonHarness) -> None:
    assert (await served.ask("/api/v1/preview", {}, headers={})).status == 401


async def test_the_command_refuses_with_1_and_a_list(served: DaemonHarness, capsys: pytest.CaptureFixture[str]) -> None:
    change(served, permissions=DENIED)
    words = ["reload", "--config", str(served.file), "--if-nothing-denied"]
    assert await asyncio.to_thread(status_of, *words) == 1
    complained = capsys.readouterr().err.splitlines()
    assert complained[0].startswith("1 flow")
    assert complained[1] == "refused: nothing has changed"
    assert await asyncio.to_thread(status_of, *words[:-1]) == 0
    assert await asyncio.to_thread(status_of, *words) == 0


async def test_two_files_are_compared_over_the_flows_of_the_running_daemon(
    served: DaemonHarness, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    old.write_text(served.file.read_text())
    change(served, permissions=DENIED)
    new.write_text(served.file.read_text())
    words = ["diff", str(old), str(new), "--running", "--fail-on", "denied"]
    assert await asyncio.to_thread(status_of, *words) == 1
    said = capsys.readouterr().out
    assert "over the 2 flows that the daemon at" in said
    assert "1 flow" in said
    assert f"publish {SPEED} from vehicle" in said
