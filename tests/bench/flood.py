"""How long CS6 takes that comes behind a flood of CS0 from the same authority.

The flood goes as fast as it is taken, from a process of its own. What MQTT has not delivered yet waits in the broker, which
knows no priorities: there, only so much of the flood may be on its way at a time.
"""

import tempfile
from pathlib import Path

from tests.bench.forms import NAMES, say
from tests.bench.run import DIRECTIONS, Crossing

RATE = 100.0
"""Messages of CS6 per second."""
_ON_THE_WAY = {"up": 0, "down": 2000}
_URGENT = ("--mark", "u", "--priority", "7", "--flows", "1")
_FLOOD = ("--mark", "f", "--priority", "1", "--first", "1000")
_SENDS = {"up": "zenoh-send", "down": "mqtt-send"}
_ENDLESS = 10**9


def p99_ms(form: str, direction: str, seconds: float) -> float:
    """Of the messages of CS6, for so many seconds."""
    say(f"{DIRECTIONS[direction]}: CS6 behind CS0, {NAMES[form]}")
    with tempfile.TemporaryDirectory() as directory:
        progress = Path(directory) / "progress"
        progress.write_bytes(bytes(8))
        load = (*_URGENT, "--progress", str(progress))
        flood = (_SENDS[direction], *_FLOOD, "--progress", str(progress), "--outstanding", str(_ON_THE_WAY[direction]))
        with Crossing(form, direction, load, {"flood": flood}) as crossing:
            crossing.warm_up()
            crossing.loads["flood"].tell(count=_ENDLESS, rate=0)
            crossing.phase(int(RATE), RATE)  # until the flood has filled what there is to be filled
            return crossing.phase(int(RATE * seconds), RATE).p99_ms
