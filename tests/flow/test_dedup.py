"""Bounds of what is remembered: ids take little memory, however many come, and are forgotten in time."""

import tracemalloc
from dataclasses import replace

from streamer.config.models import RememberConfig
from streamer.delivery.lifecycle.reload import Reload
from streamer.delivery.seen import SeenIds
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.uuid import new_id
from tests.clock import START_MS
from tests.flow.harness import CLIMATE, CLOUD_APP, ORDERS, VEHICLE_APP, RouterHarness, configuration


async def test_ids_are_bounded_in_number_and_memory_however_many_come() -> None:
    ids = 500
    unobserved = RouterHarness(
        configuration(remember={"ids": ids, "seconds": 600}), is_observed=False
    )  # no buffer of traces
    async with unobserved as harness:
        sent = harness.transports["cloud"].sent
        base = harness.speed()

        def flood(batches: int) -> None:
            for _ in range(batches):
                batch = [replace(base, id=new_id(harness.clock.ms)) for _ in range(100)]
                harness.transports["vehicle"].inject(*(MemoryReceived(message) for message in batch))
                assert len(harness.router.seen) <= ids + len(batch)
                harness.router.custody.flush()
                sent.clear()

        flood(25)
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            flood(125)
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        # Everything that is remembered now is younger than `before`: this is all that 15 000 messages have left.
        assert after - before < 200 * ids
        assert harness.outcomes("vehicle-cloud") == {"delivered": 15_000}


def test_remembered_id_takes_about_a_hundred_bytes() -> None:
    tracemalloc.start()
    try:
        ids = SeenIds(50_000, 600, 0.0)
        for _ in range(500):
            ids.rotate(0.0)
            for _ in range(100):
                ids.young[new_id(START_MS)] = None
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used / len(ids) < 130


async def test_ids_are_forgotten_in_silence_too() -> None:
    async with RouterHarness(configuration(remember={"ids": 1000})) as harness:
        harness.arrive("vehicle", harness.notify(sink=CLOUD_APP))
        harness.arrive("cloud", harness.ask(method=CLIMATE), harness.notify(sink=VEHICLE_APP, source=ORDERS))
        assert len(harness.router.seen) == 3
        for _ in range(2):
            assert len(harness.router.seen) == 3
            harness.pass_time(RememberConfig.seconds * 1000 // 2)
        assert len(harness.router.seen) == 0


async def test_a_reload_takes_other_bounds_for_what_is_remembered() -> None:
    async with RouterHarness() as harness:
        first = harness.notify(sink=CLOUD_APP)
        harness.arrive("vehicle", first, *(harness.notify(sink=CLOUD_APP) for _ in range(100)))
        await Reload(harness.router, configuration(remember={"ids": 10})).run()
        for _ in range(2):  # each generation makes room for the next
            harness.arrive("vehicle", *(harness.notify(sink=CLOUD_APP) for _ in range(10)))
            harness.pass_time(50)
        assert harness.router.account().remembered_ids < 30
        harness.arrive("vehicle", first)
        assert harness.sent("cloud").count(first) == 2  # it is not known any more
