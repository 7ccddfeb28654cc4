"""A daemon whose configuration is put on probation. No tests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from streamer.daemon import Daemon
from streamer.features.every import load_in_use
from streamer.features.probation.feature import ProbationFeature
from tests.hosted import one_of
from tests.unit.features.api.daemon import DaemonHarness
from tests.waiting import until


def kept_file(folder: Path) -> Path:
    return folder / "journal-probation.json"


@asynccontextmanager
async def started_again(served: DaemonHarness) -> AsyncIterator[None]:
    """Start the daemon anew, with what stands on disk."""
    served.daemon = daemon = Daemon(load_in_use(served.file, at_start=True), served.file)
    task = asyncio.create_task(daemon.run())
    await until(lambda: task.done() or daemon.has_started)
    try:
        yield
    finally:
        daemon.stop()
        await task


def feature(served: DaemonHarness) -> ProbationFeature:
    return one_of(served.daemon.features, ProbationFeature)


def change(served: DaemonHarness, window: int = 7) -> None:
    """Write a file with another value, which a reload can use."""
    served.raw["queue_policy"] = {"window": window}
    served.write()


def window(served: DaemonHarness) -> int:
    return served.daemon.config.queue_policy.window


async def begin(served: DaemonHarness, for_s: float = 600) -> None:
    answer = await served.ask("/api/v1/probation", {"for_s": for_s})
    assert (answer.status, answer.json["state"]) == (200, "on_probation"), answer.text


async def state(served: DaemonHarness) -> tuple[str, str]:
    found = (await served.ask("/api/v1/probation")).json
    return found["state"], found["why"]


async def notes(served: DaemonHarness) -> list[str]:
    found: list[str] = (await served.ask("/readyz")).json["notes"]
    return found


async def gone_back(served: DaemonHarness) -> str:
    """Wait until the configuration before is in use again; return why."""
    found = feature(served)
    await until(lambda: found.kept is not None and found.kept.why and not found._judge)
    assert window(served) == 1000
    kind, why = await state(served)
    assert kind == "gone_back"
    (note,) = await notes(served)
    assert note.startswith("the configuration file was refused at ")
    assert note.endswith(why)
    return why


async def reload(served: DaemonHarness) -> list[str]:
    return await served.daemon.reload("test", "here")
