"""What flows cost that have sent one message each into Zenoh and are silent since: CPU time and wake-ups of the streamer.

    python -m tests.bench.silent [--flows 0 1000] [--markdown]

Those of the first minute are still asked about; after it most are forgotten.
"""

import argparse
import time
from collections.abc import Iterator

from tests.bench.figures import markdown, plain, text
from tests.bench.forms import streamers
from tests.bench.rest import use
from tests.bench.run import Crossing, Streamer

_SETTLES_S = 5.0
_LOOK_S = 15.0
_FORGOTTEN_S = 90.0
_RATE = 200.0
HEADER = ["flows", "CPU %, at once", "wake-ups/s", f"CPU %, {_FORGOTTEN_S:.0f} s later", "wake-ups/s", "RSS MB"]


def after(form: str, flows: int) -> Iterator[str]:
    """The cells of one line."""
    yield str(flows)
    others = {"new flows": ("mqtt-send", "--first", "1000", "--flows", str(1 << 20)), "far receiver": ("zenoh-receive",)}
    with Crossing(form, "up", others=others, remember={"ids": 10_000}) as crossing:
        subject = crossing.subject
        assert isinstance(subject, Streamer)
        if flows:
            crossing.loads["far receiver"].tell(count=flows)
            crossing.loads["new flows"].tell(count=flows, rate=_RATE)
            crossing.loads["new flows"].line()
            arrived = crossing.loads["far receiver"].result()["arrived"]
            assert arrived == flows, f"{arrived} of {flows} arrived"
        for wait_s in (_SETTLES_S, _FORGOTTEN_S):
            time.sleep(wait_s)
            cpu_percent, wakeups_per_s = use(subject, _LOOK_S)
            yield text(cpu_percent)
            yield text(wakeups_per_s)
        yield text(subject.rss_mb())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flows", type=int, nargs="+", default=[0, 400, 1000, 3000])
    parser.add_argument("--form", choices=("compiled", "traced"), default=streamers()[0], help="traced: the pure form")
    parser.add_argument("--markdown", action="store_true", help="the table as the documents have it")
    a = parser.parse_args()
    lines = [list(after(a.form, flows)) for flows in a.flows]
    print(*(markdown if a.markdown else plain)(HEADER, lines), sep="\n")


if __name__ == "__main__":
    main()
