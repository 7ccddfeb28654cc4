"""uTwin in a daemon: the metrics of what it keeps, and a reload."""

import asyncio
from pathlib import Path

from streamer.features.utwin.feature import UtwinFeature
from streamer.uprotocol.message import publish
from tests.flow.harness import SPEED
from tests.hosted import one_of
from tests.unit.features.api.daemon import DaemonHarness, running
from tests.unit.features.utwin.found import last_values_of
from tests.waiting import until


async def metrics(served: DaemonHarness) -> dict[str, float]:
    lines = (line.rpartition(" ") for line in (await served.ask("/metrics")).text.splitlines())
    return {
        name.removeprefix("ustreamer_utwin_"): float(value)
        for name, _, value in lines
        if name.startswith("ustreamer_utwin_")
    }


def arrive(served: DaemonHarness, *payloads: bytes) -> None:
    """Each payload has a topic of its own."""
    now_ms = served.daemon.router.clock.wall_ms()
    for number, payload in enumerate(payloads):
        served.arrive("vehicle", publish(now_ms, SPEED._replace(resource=0x8001 + number), payload))


async def test_what_is_kept_is_counted_and_what_was_forgotten(tmp_path: Path) -> None:
    async with running(tmp_path, utwin={"max_topics": 3, "max_bytes": "64KiB"}) as served:
        assert await metrics(served) == {"topics": 0, "bytes": 0, "forgotten_messages_total": 0}
        arrive(served, *[b"x"] * 5)
        values = last_values_of(served.daemon.features)
        size = sum(value.message.size for _, value in values.listed())
        assert await metrics(served) == {"topics": 3, "bytes": size, "forgotten_messages_total": 2}


async def test_a_message_that_is_too_large_is_counted_and_so_is_what_a_smaller_bound_displaces(tmp_path: Path) -> None:
    async with running(tmp_path, utwin={"max_bytes": "64KiB"}) as served:
        arrive(served, b"x", b"x", b"x")
        arrive(served, bytes(65 * 1024))
        kept = await metrics(served)
        assert (kept["topics"], kept["forgotten_messages_total"]) == (2, 1)
        served.raw["utwin"]["max_topics"] = 1
        served.write()
        assert (await served.ask("/api/v1/reload", {})).status == 200
        kept = await metrics(served)
        assert (kept["topics"], kept["forgotten_messages_total"]) == (1, 2)


async def test_a_newer_message_forgets_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, utwin={"max_topics": 1}) as served:
        for _ in range(3):
            arrive(served, b"x")
        assert (await metrics(served))["forgotten_messages_total"] == 0


async def test_without_utwin_there_are_none(tmp_path: Path) -> None:
    async with running(tmp_path) as served:
        assert await metrics(served) == {}


async def test_a_reload_switches_initial_values_on_before_it_waits_for_an_endpoint_that_is_left(tmp_path: Path) -> None:
    async with running(tmp_path, utwin={}, shutdown={"drain_s": 60}) as served:
        cloud = served.transport("cloud")
        cloud.is_withholding = True
        arrive(served, b"unconfirmed")
        del served.raw["endpoints"]["cloud"]
        served.raw |= {"routes": [], "usubscription": {"initial": True}}
        served.write()
        reloading = asyncio.create_task(served.daemon.reload("test", "here"))
        initial = one_of(served.daemon.features, UtwinFeature).initial_values
        await until(lambda: initial._topics, "initial values")
        assert not reloading.done()
        cloud.release_withheld()
        assert await reloading == []
