"""What a pair costs: the active streamer's processor time for each message, with a standby beside it and without a pair.

    python -m tests.bench.pair [--rounds 3] [--seconds 8] [--rates 500 1000 0]

Both take turns, and only those of the same round are compared. The standby's own time is printed, too. Rate 0: full load.
"""

import argparse
import json
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.bench.forms import Child, say, streamers
from tests.bench.run import DIRECTIONS, Crossing, Figures, Streamer, configuration
from tests.ports import free_port

FULL = 60_000
_PATIENCE_S = 60.0


class Standby(Child):
    """The other one of the pair of a crossing's streamer, once it has a whole copy."""

    def __init__(self, form: str, directory: str, crossing: Crossing, pair: dict[str, Any]) -> None:
        place = {**crossing.place, "admin": free_port()}
        path = Path(directory) / "streamer.yaml"
        path.write_text(json.dumps(configuration(directory, place, is_traced=False, pair=pair)))
        super().__init__("streamer", "run", "--config", str(path), form=form)
        deadline_s = time.monotonic() + _PATIENCE_S
        assert isinstance(crossing.subject, Streamer)
        while b"ustreamer_pair_protected 1.0" not in crossing.subject.read("metrics"):
            if time.monotonic() > deadline_s:
                self.end()
                raise RuntimeError("the standby has no whole copy")
            time.sleep(0.05)


def measured(
    form: str, direction: str, has_pair: bool, rates: list[float], seconds: float
) -> dict[float, tuple[Figures, float]]:
    """One run: for each rate the figures of the active one, and the standby's processor time in µs a message."""
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-pair-"))
        key = Path(directory) / "key"
        key.write_text("k" * 40)
        key.chmod(0o600)
        port = free_port()
        pair: dict[str, Any] = {"key_file": str(key), "wait_s": 1}
        changes: dict[str, Any] = {"pair": {**pair, "listen": f"127.0.0.1:{port}"}} if has_pair else {}
        crossing = stack.enter_context(Crossing(form, direction, is_traced=False, **changes))
        other = None
        if has_pair:
            other = Standby(form, directory, crossing, {**pair, "connect": f"127.0.0.1:{port}"})
            stack.callback(other.end)
        crossing.warm_up()
        found = {}
        for rate in rates:
            count = int(rate * seconds) or FULL
            before_s = other.cpu_s() if other is not None else 0.0
            figures = crossing.phase(count, rate)
            spent_s = (other.cpu_s() if other is not None else 0.0) - before_s
            found[rate] = figures, spent_s / count * 1e6
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rates", type=float, nargs="*", default=[500.0, 1000.0, 0.0])
    a = parser.parse_args()
    form = streamers()[-1]
    for number in range(a.rounds):
        for direction in ("up", "down"):
            say(f"round {number + 1}: {DIRECTIONS[direction]}")
            alone = measured(form, direction, False, a.rates, a.seconds)
            paired = measured(form, direction, True, a.rates, a.seconds)
            for rate in a.rates:
                (one, _), (two, other_us) = alone[rate], paired[rate]
                print(
                    f"{DIRECTIONS[direction]} {f'{rate:g}/s' if rate else 'full load'}: alone {one.cpu_us:.1f} us,"
                    f" of a pair {two.cpu_us:.1f} us ({two.cpu_us / one.cpu_us:.2f}), standby {other_us:.1f} us,"
                    f" p50 {one.p50_ms:.2f} and {two.p50_ms:.2f} ms, {one.rate:.0f} and {two.rate:.0f}/s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
