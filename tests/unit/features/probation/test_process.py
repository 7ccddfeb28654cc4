"""The commands of the page, with a daemon of its own: confirmed, refused, killed; alone and as one of a pair."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from unittest.mock import ANY

import pytest

from tests import preloaded
from tests.pages import DOCS
from tests.unit.memory_daemon import SECOND_ROUTE, Process, running
from tests.unit.memory_pair import Two, two

pytestmark = pytest.mark.long

ENDED = "the daemon has ended before it was confirmed"


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Process]:
    process = Process(tmp_path)
    process.file.write_text(process.file.read_text() + f"journal: {{path: {tmp_path / 'journal.db'}}}\n")
    async with running(process):
        await process.ready()
        yield process


def of_the_page(command: str, daemon: Process) -> list[str]:
    """Return the words of a command of the page, with the file of a daemon."""
    (line,) = re.findall(rf"^    streamer ({command} .*)$", (DOCS / "features/probation.md").read_text(), re.MULTILINE)
    return [str(daemon.file) if word == "streamer.yaml" else word for word in line.split()]


def change(daemon: Process) -> None:
    daemon.file.write_text(daemon.file.read_text().replace("routes:\n", SECOND_ROUTE))


async def reload(daemon: Process, time: str) -> "asyncio.Task[tuple[int, str, str]]":
    """Begin a probation with the command of the page, which waits."""

    async def run() -> tuple[int, str, str]:
        words = of_the_page("reload", daemon)
        words[words.index("10m")] = time
        answer = await preloaded.command(*words, within_s=180)
        return answer.returncode, answer.stdout, answer.stderr

    change(daemon)
    task = asyncio.create_task(run())
    await daemon.until(lambda: task.done() or bool(daemon.events("probation_began")))
    await asyncio.to_thread(daemon.get, "/healthz")  # the answer to the command has left before this one
    return task


async def kill(daemon: Process) -> None:
    daemon.process.kill()
    await daemon.end()


async def test_the_command_waits_for_the_confirmation(daemon: Process) -> None:
    waiting = await reload(daemon, "10m")
    answer = await preloaded.command(*of_the_page("confirm", daemon))
    assert (answer.returncode, answer.stdout) == (0, "confirmed\n")
    status, out, err = await waiting
    assert (status, err) == (0, "")
    assert [line.partition(":")[0] for line in out.splitlines()] == ["on probation", "confirmed"]
    assert "down" in await asyncio.to_thread(daemon.routes)


async def test_the_command_says_why_it_was_refused(daemon: Process) -> None:
    status, _, err = await (await reload(daemon, "1s"))
    assert (status, err) == (1, "gone back: nobody has confirmed it in time\n")
    assert "down" not in await asyncio.to_thread(daemon.routes)
    assert [line["why"] for line in daemon.events("went_back")] == ["nobody has confirmed it in time"]


async def test_a_kill_in_the_middle_goes_back_and_the_command_has_waited_for_that(daemon: Process) -> None:
    waiting = await reload(daemon, "10m")
    await kill(daemon)
    await daemon.start()
    status, _, err = await waiting
    assert (status, err) == (1, f"gone back: {ENDED}\n")
    assert "down" not in await asyncio.to_thread(daemon.routes)
    assert ENDED in await asyncio.to_thread(daemon.get, "/readyz")


async def both_on_probation(pair: Two) -> "tuple[Process, Process, list[asyncio.Task[tuple[int, str, str]]]]":
    """Put the standby and then the active one on probation, until the pair is protected; return active and standby."""
    active, standby = pair.active(), pair.standby()
    waiting = [await reload(standby, "10m"), await reload(active, "10m")]
    await pair.until_ready()
    for each in pair.both:
        assert "on probation until" in await asyncio.to_thread(each.body, "/readyz")
        assert "down" in await asyncio.to_thread(each.get, "/api/v1/config")
    return active, standby, waiting


async def test_of_a_pair_one_that_dies_and_one_that_takes_over_both_go_back(tmp_path: Path) -> None:
    async with two(tmp_path) as pair:
        active, standby, waiting = await both_on_probation(pair)
        await kill(active)
        await standby.until(lambda: "it was on standby, and has taken over" in standby.body("/readyz"))
        await active.start()
        await pair.until_ready()
        assert [await each for each in waiting] == [
            (1, ANY, "gone back: it was on standby, and has taken over\n"),
            (1, ANY, f"gone back: {ENDED}\n"),
        ]
        for each in pair.both:
            assert '"down"' not in await asyncio.to_thread(each.get, "/api/v1/config")


async def test_of_a_pair_the_standby_follows_the_active_one_that_was_refused(tmp_path: Path) -> None:
    async with two(tmp_path) as pair:
        active, standby, waiting = await both_on_probation(pair)
        await standby.until(lambda: '"links": {"the pair": "up"}' in standby.get("/api/v1/probation"))  # it has looked
        active.file.write_text(active.file.read_text().replace(SECOND_ROUTE, "routes:\n"))
        assert await asyncio.to_thread(active.reload) == 200
        assert [(status, err) for status, _, err in [await each for each in waiting]] == [
            (1, "gone back: the pair was up and stays down\n"),
            (1, "gone back: the file before was read again\n"),
        ]
        await pair.until_ready()
        for each in pair.both:
            assert '"down"' not in await asyncio.to_thread(each.get, "/api/v1/config")
