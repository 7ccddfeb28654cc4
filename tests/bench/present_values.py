"""``python -m tests.bench.present_values``: what uTwin, and policies for topics, add to a message at full load.

CPU time of the streamer's process per message, in turn without and with each key; everything else is on.
"""

import argparse
from collections.abc import Mapping
from typing import Any

from tests.bench.figures import quotients, spread
from tests.bench.forms import NAMES, say, streamers
from tests.bench.run import DIRECTIONS, measure

EVERY_TOPIC = {"topic": "//*/FFFFFFFF/FF/FFFF", "order": "newest"}
KEYS: dict[str, Mapping[str, Any]] = {
    "without": {},
    "utwin": {"utwin": {}},
    "topics": {"queue_policy": {"topics": [EVERY_TOPIC]}},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=100_000, help="messages of each run")
    parser.add_argument("--size", type=int, default=256, help="payload bytes")
    parser.add_argument("--form", nargs="+", default=streamers(), choices=streamers())
    a = parser.parse_args()
    print(f"{a.rounds} rounds of {a.count} messages of {a.size} bytes, in turn")
    for direction in ("down", "up"):
        for form in a.form:
            cpu_us: dict[str, list[float]] = {key: [] for key in KEYS}
            for number in range(a.rounds):
                for key in sorted(KEYS, reverse=bool(number % 2)):
                    say(f"{DIRECTIONS[direction]}: {NAMES[form]}, {key}")
                    cpu_us[key].append(measure(form, direction, a.count, 0, a.size, has_journal=True, **KEYS[key]).cpu_us)
            for key, values in cpu_us.items():
                ratio = quotients(values, cpu_us["without"])
                text = f"{spread(values)} µs, {spread(ratio)} ×, of the best {min(values) / min(cpu_us['without']):.3f} ×"
                print(f"{DIRECTIONS[direction]}, {NAMES[form]}, {key}: {text}", flush=True)


if __name__ == "__main__":
    main()
