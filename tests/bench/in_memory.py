"""Messages through a router on memory transports: what one costs the processor. No benchmark of its own."""

import gc
import time
from collections.abc import Callable, Sequence

from streamer.transports.memory import MemoryReceived
from streamer.uprotocol.message import UMessage
from streamer.uprotocol.uuid import new_id
from tests.flow.harness import RouterHarness

BATCH = 64


def arrivals(harness: RouterHarness, likes: Sequence[UMessage], count: int) -> list[MemoryReceived]:
    """New messages that are like these in turn."""
    made = (likes[number % len(likes)] for number in range(count))
    return [MemoryReceived(UMessage(new_id(harness.clock.ms), like.attributes, like.payload)) for like in made]


def inject(harness: RouterHarness, made: Sequence[MemoryReceived], endpoint: str = "vehicle", batch: int = BATCH) -> None:
    for start in range(0, len(made), batch):
        harness.transports[endpoint].inject(*made[start : start + batch])


def spent_us(what: Callable[[], None], messages: int) -> float:
    """The processor time of one message."""
    gc.collect()
    gc.disable()
    began_s = time.process_time()
    what()
    spent_s = time.process_time() - began_s
    gc.enable()
    return spent_s / messages * 1e6
