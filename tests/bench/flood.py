"""How long CS6 takes that comes behind a flood of CS0 from the same authority.

The flood goes as fast as it arrives, from a process of its own: so much of it is on its way at a time. Whatever of it waits
before or behind the streamer, in brokers and sockets, cannot be overtaken there. Therefore the streamer's own part is taken
from its traces.
"""

import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import pyarrow.compute as pc

from streamer.features.traces.reader import SpoolReader
from tests.bench.figures import percentile
from tests.bench.forms import NAMES, say
from tests.bench.run import DIRECTIONS, Crossing

RATE = 100.0
"""Messages of CS6 per second."""
_ON_THE_WAY = 2000
_URGENT = ("--mark", "u", "--priority", "7", "--flows", "1")
_FLOOD = ("--mark", "f", "--priority", "1", "--first", "1000", "--outstanding", str(_ON_THE_WAY))
_SENDS = {"up": "zenoh-send", "down": "mqtt-send"}
_ENDLESS = 10**9
_QUIET_S = 3.0  # after which nothing more is recorded
_RECORDED_S = 30.0  # what Zenoh carries has a record when it counts as delivered: after 12.5 s


class Delay(NamedTuple):
    """The 99th percentile of CS6, in milliseconds."""

    whole_ms: float
    """From the sender's call to the receiver's."""
    waited_ms: float
    """From the streamer's reception to its sending."""


def behind_flood(form: str, direction: str, seconds: float) -> Delay:
    """Measure for so many seconds."""
    say(f"{DIRECTIONS[direction]}: CS6 behind CS0, {NAMES[form]}")
    with tempfile.TemporaryDirectory() as directory:
        progress = Path(directory) / "progress"
        progress.write_bytes(bytes(8))
        load = (*_URGENT, "--progress", str(progress))
        flood = (_SENDS[direction], *_FLOOD, "--progress", str(progress))
        with Crossing(form, direction, load, {"flood": flood}) as crossing:
            crossing.warm_up()
            crossing.loads["flood"].tell(count=_ENDLESS, rate=0)
            crossing.phase(int(RATE), RATE)  # until the flood has filled what there is to be filled
            count = int(RATE * seconds)
            whole_ms = crossing.phase(count, RATE).p99_ms
            crossing.loads["flood"].end()
            waits_us = _waits_us(Path(crossing.directory) / "traces", count)
            if len(waits_us) < count:
                raise RuntimeError(f"{len(waits_us)} of {count} messages of CS6 are in the traces")
    return Delay(whole_ms, percentile(waits_us[-count:], 99) / 1000)


def _waits_us(folder: Path, count: int) -> list[float]:
    """How long each message of CS6 has waited until it was sent, as soon as there are so many records and no more come."""
    traces = SpoolReader(folder, say)
    found: list[float] = []
    quiet_s = 0.0
    deadline = time.monotonic() + _RECORDED_S
    while (len(found) < count or quiet_s < _QUIET_S) and time.monotonic() < deadline:
        time.sleep(1)
        before = len(found)
        for batch in traces.batches():
            found += batch.filter(pc.equal(batch["priority"], "CS6"))["queue_wait_us"].to_pylist()
        quiet_s = quiet_s + 1 if len(found) == before else 0.0
    traces.close()
    return found
