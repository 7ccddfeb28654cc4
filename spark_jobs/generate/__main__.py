"""``python -m spark_jobs.generate``: traces for demonstrations and for measurements of scale."""

import argparse
import datetime as dt
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from spark_jobs.generate import Faults, Plan, Surge, generate

_NAMES = ("gateway.cloud", "gateway.edge", "gateway.veh1")


def main(argv: Sequence[str] | None = None) -> int:
    """Generate. Returns the exit code."""
    parser = argparse.ArgumentParser("python -m spark_jobs.generate", description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="folder for the traces")
    parser.add_argument("--from", type=dt.date.fromisoformat, dest="first", metavar="D", help="first date: 2026-11-21")
    parser.add_argument("--days", type=int, default=1)
    parser.add_argument("--records", type=int, default=100_000, help="about how many records, over these days")
    parser.add_argument("--streamers", type=int, default=3, choices=(2, 3), help="of the chain (default: 3)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--history-days", type=int, default=0, help="days without faults before these")
    parser.add_argument("--history-share", type=float, default=1.0, help="volume of such a day, as a share of the others'")
    given = parser.parse_args(argv)
    if given.first is None or given.days < 1:
        parser.error("needs --from and at least one day")
    begun = time.perf_counter()
    truth = generate(plan_of(given), given.output)
    took_s = time.perf_counter() - begun
    sys.stdout.write(f"{truth['records']} records in {took_s:.1f} s ({truth['records'] / took_s:.0f}/s): {given.output}\n")
    for finding, rows in sorted(truth["findings"].items()):
        sys.stdout.write(f"  {finding}: {len(rows)}\n")
    return 0


def plan_of(given: argparse.Namespace) -> Plan:
    """The plan of the command line: every kind of fault in its days, none in the history."""
    history: int = given.history_days
    per_day = given.records // given.days
    names = _NAMES[: given.streamers]
    last = history + given.days - 1
    many = max(3, given.records // 100_000)
    faults = Faults(
        lost=many,
        duplicate=5 * many,
        delivered_twice=many,
        expired=10 * many,
        dead_lettered=10 * many,
        rejected=10 * many,
        untraced=many,
        over_midnight=many if given.days > 1 else 0,
        skew_ms={names[-1]: 1_500},
        outages=((names[1], last, 3),),
        restarts=((names[0], last, 15 * 60 + 20),),
        surges=(Surge(last, 14, "campaigns"), Surge(last, 10, "to-vehicle", 1.0, 0.2)),
        not_before=history,
    )
    volumes = (int(per_day * given.history_share),) * history + (per_day,) * given.days
    return Plan(given.first - dt.timedelta(days=history), volumes, names, given.seed, faults)


if __name__ == "__main__":
    sys.exit(main())
