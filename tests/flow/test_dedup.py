"""Bounds of what is remembered: ids take little memory, however many come, and are forgotten in time."""

import tracemalloc

from streamer.delivery.dedup import SeenIds
from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.uuid import new_id
from tests.flow.stage import CLIMATE, CLOUD_APP, ORDERS, START_MS, VEHICLE_APP, Stage, configuration


async def test_ids_are_bounded_in_number_and_memory_however_many_come() -> None:
    ids = 2000
    async with Stage(configuration(remember={"ids": ids, "seconds": 600}), is_traced=False) as stage:  # no buffer of traces
        sent = stage.transports["cloud"].sent
        base = stage.speed()

        def flood(batches: int) -> None:
            for _ in range(batches):
                batch = [base._replace(id=new_id(stage.clock.ms)) for _ in range(100)]
                stage.transports["vehicle"].inject(*(MemoryReceived(message) for message in batch))
                assert len(stage.router.seen) <= ids + len(batch)
                stage.router.custody.flush()
                sent.clear()

        flood(100)
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            flood(500)
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        # Everything that is remembered now is younger than `before`: this is all that 60 000 messages have left.
        assert after - before < 200 * ids
        assert stage.outcomes("vehicle-cloud") == {"delivered": 60_000}


def test_remembered_id_takes_about_a_hundred_bytes() -> None:
    tracemalloc.start()
    try:
        ids = SeenIds(200_000, 600, 0.0)
        for _ in range(2000):
            ids.turn(0.0)
            for _ in range(100):
                ids.young[new_id(START_MS)] = None
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used / len(ids) < 130


async def test_ids_are_forgotten_in_silence_too() -> None:
    async with Stage(configuration(remember={"ids": 1000, "seconds": 60})) as stage:
        stage.arrive("vehicle", stage.notify(sink=CLOUD_APP))
        stage.arrive("cloud", stage.ask(method=CLIMATE), stage.notify(sink=VEHICLE_APP, source=ORDERS))
        assert len(stage.router.seen) == 3
        stage.pass_time(30_000)
        assert len(stage.router.seen) == 3
        stage.pass_time(30_000)
        assert len(stage.router.seen) == 0
