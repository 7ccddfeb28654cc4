"""``make bench-driver``: what a night's Python takes beside the number of gateways, without Spark and without a record.

For each number, what comes to the driver is made up: who saw messages of whom, the records of one message for each signature
(three a flow, two flows a gateway), and the files of four dates. Prints the CPU time and memory of what is done with them.
"""

import argparse
import datetime as dt
import gc
import multiprocessing
import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import pyarrow as pa

from spark_jobs import clocks, kinds, manifests, quarantine
from spark_jobs.arrow import tuples
from spark_jobs.clocks import Sightings, number_of
from spark_jobs.records import File, Listing
from spark_jobs.wide import Shown
from tests.bench.figures import plain

DAY = dt.date(2026, 11, 20)
DATES = [DAY + dt.timedelta(days=away) for away in (-2, -1, 0, 1)]
_MIB = 2**20
_AT_US = number_of(DAY) * 86_400_000_000


def _table(rows: Iterator[tuple[Any, ...]], names: Sequence[str]) -> pa.Table:
    """As Spark hands them over."""
    return pa.table(dict(zip(names, map(pa.array, zip(*rows, strict=True)), strict=True)))


def _ways(gateways: int) -> Iterator[tuple[int, str, str, tuple[str, str]]]:
    for number in range(gateways):
        ends, path = (f"v{number:06}", "cloud"), (f"gateway.v{number:06}", "gateway.cloud")
        yield 2 * number, *ends, path
        yield 2 * number + 1, *ends[::-1], (path[1], path[0])


def _seen(gateways: int) -> Iterator[tuple[Any, ...]]:
    for _, source, sink, path in _ways(gateways):
        for hop, name in enumerate(path):
            about = (DAY, name, source, sink, False, "zenoh", "mqtt5", number_of(DAY) * 24, 500)
            yield (*about, 1_000 + 2_500 * hop, _AT_US, _AT_US + 86_000_000_000, 3_000)


def _examples(gateways: int) -> Iterator[tuple[Any, ...]]:
    """Of each flow thousands of messages that arrived, some that were lost, and some that expired."""
    chance = random.Random(1)
    for flow, source, sink, path in _ways(gateways):
        for key, (hops, outcome, most) in enumerate(((2, "delivered", 50_000), (1, "delivered", 20), (1, "expired", 3))):
            messages = chance.randint(1, most)
            for hop in range(hops):
                about = (DAY, flow, 3 * flow + key, 3 * flow + key, messages, path[hop], "up", "uplink", None, outcome, "OK")
                yield (*about, "zenoh", "mqtt5", source, sink, "request", 1, _AT_US + 2_000 * hop)


def _files(gateways: int) -> dict[dt.date, Listing]:
    return {
        date: Listing(
            (f"hour={hour}/streamer=gateway.v{number:06}/part-{number:08x}-{hour:04x}.parquet", File(90_000 + number, hour))
            for number in range(gateways)
            for hour in range(0, 24, 5)
        )
        for date in DATES
    }


def night(gateways: int) -> list[str]:
    """What each part takes for so many gateways, for people. In a process of its own."""
    found, me = [f"{gateways:,}"], psutil.Process()
    seen = _table(_seen(gateways), Sightings._fields)
    examples = _table(_examples(gateways), Shown._fields[:-2])
    gc.collect()
    began_bytes, began_s = me.memory_info().rss, time.process_time()

    def part(work: Callable[[], Any]) -> Any:
        before_s = time.process_time()
        made = work()
        found.append(f"{time.process_time() - before_s:.1f} s")
        return made

    sightings = part(lambda: list(map(Sightings._make, tuples(seen))))
    clock = part(lambda: clocks.estimate(sightings))
    verdicts = part(lambda: list(kinds.judged((Shown(*row) for row in tuples(examples)), {DAY: clock})))
    files = part(lambda: _files(gateways))

    def kept() -> int:
        manifest = manifests.Manifest(files, done=True, trends=True)
        with TemporaryDirectory() as folder:
            own = manifests.Manifests(_Here(), folder)  # type: ignore[arg-type]
            own.put(DAY, manifest)
            assert (again := own.get(DAY)) == manifest
            assert not manifests.grown(again, quarantine.accepted(files, {}), DATES)
            return Path(folder, "_runs", f"date={DAY}.json").stat().st_size

    size_bytes = part(kept)
    assert len(verdicts) == 6 * gateways
    assert len(clock) == gateways + 1
    total_s, bytes_ = time.process_time() - began_s, me.memory_info().rss - began_bytes
    return [*found, f"{total_s:.0f} s", f"{bytes_ / _MIB:,.0f} MiB", f"{size_bytes / _MIB:.1f} MiB"]


class _Here:
    """The part of `Storage` that manifests need, for this machine."""

    def read_text(self, path: str) -> str:
        return Path(path).read_text()

    def write_text(self, path: str, text: str) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text)


HEAD = ("gateways", "sightings", "clocks", "verdicts", "listing", "manifest", "CPU", "memory", "manifest's size")


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gateways", type=int, nargs="+", default=[1_000, 5_000, 20_000, 100_000])
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        print("\n".join(plain(HEAD, pool.map(night, parser.parse_args(argv).gateways, chunksize=1))))


if __name__ == "__main__":
    main()
