"""The commands `handover` and `support-bundle`, against two daemons that run, and against answers that are played."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamer.main import main
from streamer.tools.running import DaemonRefusedError, NobodyThereError
from tests.unit.features.api.daemon import running
from tests.unit.features.pair.daemons import KEY, pair, view_of
from tests.unit.tools.commands import status_of, unpacked


async def run(file: Path, *words: str) -> int:
    """The command in a thread: the daemons are in this one."""
    return await asyncio.to_thread(main, ["handover", "--config", str(file), *words])


async def test_it_waits_until_the_one_that_was_active_could_take_over_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with pair(tmp_path) as two:
        for words in ([], ["--json"]):
            active = two.active
            starting = asyncio.create_task(two.start_anew(two.harnesses.index(active)))
            assert await run(active.file, "--wait", *words) == 0
            await starting
            out = capsys.readouterr().out
            if words:
                assert json.loads(out) == {"epoch": 3, "ready": True}
            else:
                assert out == "handed over: the other one is active (epoch 2), this one is on standby and could take over\n"
            assert two.standby is active
            assert view_of(active).problem == ""
            await two.until_ready()  # the other one knows that a moment later


async def test_without_wait_it_returns_when_it_has_begun(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with pair(tmp_path) as two:
        active = two.active
        assert await run(two.standby.file) == 1
        assert capsys.readouterr().err == "not handed over: this one is on standby\n"
        assert await run(active.file) == 0
        assert capsys.readouterr().out.startswith("hands over: it drains, then the other one is active")
        await two.start_anew(two.harnesses.index(active))


async def test_one_that_works_alone_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with running(tmp_path) as served:
        assert await run(served.file, "--wait") == 1
    assert capsys.readouterr().err == "this streamer works alone: its configuration has no section pair\n"


def told(role: str, problem: str = "", since: str = "2026-01-01T00:00:00Z", **more: Any) -> dict[str, Any]:
    return {"role": role, "since": since, "why": "nothing answers", "epoch": 1, "problem": problem, **more}


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is answered, in turn, the last one for ever; each answer takes a second."""
    found: list[Any] = []
    now_s = [0.0]

    def ask(daemon: Any, page: str, read: Callable[[Any], Any], asked: Any = None) -> Any:
        answer = found[0] if len(found) == 1 else found.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return read(answer)

    def sleep(seconds: float) -> None:
        now_s[0] += 1

    monkeypatch.setattr("streamer.features.pair.command.ask", ask)
    monkeypatch.setattr("streamer.features.pair.command.time.sleep", sleep)
    monkeypatch.setattr("streamer.features.pair.command.time.monotonic", lambda: now_s[0])
    return found


AWAY = NobodyThereError("no streamer answers there")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            [told("active"), told("active"), AWAY, told("active", since="later")],
            "it is active again since later: nothing answers",
        ),
        ([told("active"), told("active", epoch=7)], "it is active again since 2026-01-01T00:00:00Z: nothing answers"),
        (
            [told("active"), AWAY, told("standby", "the copy is not complete yet")],
            "it could not take over again within 30s: the copy is not complete yet",
        ),
        ([told("active"), told("active")], "it could not take over again within 30s: it still drains"),
        ([told("active"), AWAY], "it could not take over again within 30s: no streamer answers there"),
        ([told("active"), DaemonRefusedError("there is no pair", None, 404)], "there is no pair"),
    ],
)
def test_what_can_go_wrong_is_said(
    answers: list[Any], given: list[Any], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answers += given
    assert main(["handover", "--url", "http://127.0.0.1:1", "--wait", "30s"]) == 1
    assert capsys.readouterr() == ("", f"{expected}\n")


def test_it_waits_through_everything_that_is_on_the_way(answers: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    early = told("standby", epoch=9)  # it says so once, and then something is in the way
    on_the_way = [told("active"), AWAY, told("standby", "not open yet"), early, told("standby", "not complete"), AWAY]
    answers += [told("active"), *on_the_way, told("standby", epoch=2)]
    assert main(["handover", "--url", "http://127.0.0.1:1", "--wait"]) == 0
    assert "(epoch 2)" in capsys.readouterr().out


def test_a_time_that_is_none_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("handover", "--wait", "soon") == 2
    assert "soon" in capsys.readouterr().err


async def test_of_one_of_a_pair_it_has_how_that_one_sees_the_pair(tmp_path: Path) -> None:
    async with pair(tmp_path) as two:
        for harness, role in ((two.active, "active"), (two.standby, "standby")):
            output = tmp_path / f"{role}.tar.gz"
            words = ("--config", str(harness.file), "--output", str(output))
            assert await asyncio.to_thread(status_of, "support-bundle", *words) == 0
            files = unpacked(output)
            assert json.loads(files["pair.json"])["role"] == role
            assert f"key_file: {tmp_path}/key" in files["config.yaml"]
            assert KEY not in "".join(files.values())
