"""The long form: ``make fault ARGS="--seeds 50 --only 1,5"``. One line per fault; exit status 1 if anything is not clean.

What a failing run leaves behind (the daemon's log and configuration, the ledger, the verdict) is kept in a directory that is
named; the others are removed.
"""

import argparse
import asyncio
import importlib
import shutil
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

from tests.fault.ledger import Verdict
from tests.fault.registry import FAULTS, Fault, Run

MODULES = (
    "faults_daemon",
    "faults_hostile",
    "faults_mqtt",
    "faults_pair",
    "faults_pair_brokers",
    "faults_pair_disks",
    "faults_pair_network",
    "faults_refusals",
    "faults_reload",
    "faults_services",
    "faults_stop",
    "faults_twice",
    "faults_zenoh",
)
"""Modules of this package that register faults."""

FIGURES = ("sent", "acknowledged", "arrived", "duplicates", "dead_lettered", "excused")
"""Of a fault that has a ledger; one that has none counts what it likes."""

RUN_LIMIT_S = 600.0

for _module in MODULES:
    importlib.import_module(f"tests.fault.{_module}")


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def run_once(fault: Fault, seed: int, is_long: bool) -> tuple[Verdict | None, str, Path]:
    """Verdict, what went wrong (empty if nothing), and the directory, which is gone if nothing did."""
    run = Run(fault.name, seed, is_long)
    verdict: Verdict | None = None
    try:
        async with asyncio.timeout(RUN_LIMIT_S):
            verdict = await fault.body(run)
        wrong = "" if verdict.is_clean else str(verdict)
    except Exception:  # noqa: BLE001  # a fault that cannot be carried out has failed
        wrong = traceback.format_exc()
    if wrong:
        (run.directory / "verdict.txt").write_text(wrong + "\n")
    else:
        shutil.rmtree(run.directory)
    return verdict, wrong, run.directory


async def run_fault(fault: Fault, seeds: range, is_long: bool) -> bool:
    """All seeds of one fault, and its line."""
    figures: Counter[str] = Counter()
    took_s: list[float] = []
    worked: list[float] = []
    failed: list[str] = []
    started_s = time.monotonic()
    done = 0
    for seed in list(seeds)[: fault.seeds]:
        verdict, wrong, directory = await run_once(fault, seed, is_long)
        done += 1
        if verdict is not None:
            figures.update(verdict.figures)
            took_s += verdict.took_s
            worked += verdict.worked
        if wrong:
            failed.append(f"    seed {seed}, kept in {directory}\n      " + wrong.strip().replace("\n", "\n      "))
    first = FIGURES if "sent" in figures else ()
    numbers = " ".join(f"{name}={figures[name]}" for name in (*first, *sorted(figures.keys() - set(first))))
    if worked:
        numbers += f" worked={min(worked):.0f}-{max(worked):.0f}%"
    if took_s:
        numbers += f" took={min(took_s):.1f}-{max(took_s):.1f}s"
    outcome = "clean" if not failed else f"FAILED {len(failed)}"
    took = f"{time.monotonic() - started_s:.1f} s"
    say(f"{fault.number:>2} {fault.name:<44} seeds={done:<3} {numbers} {outcome} {took}")
    for text in failed:
        say(text)
    return not failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=50, help="how many seeds (default: 50)")
    parser.add_argument("--first-seed", type=int, default=1, help="where they start (default: 1)")
    parser.add_argument("--only", help="numbers of faults, such as 1,5; or part of a name")
    parser.add_argument("--short", action="store_true", help="the short form of each fault, as in the tests")
    parser.add_argument("--list", action="store_true", help="say which faults there are")
    arguments = parser.parse_args()
    chosen = sorted(FAULTS, key=lambda each: each.number)
    if arguments.only:
        wanted = [part.strip() for part in arguments.only.split(",")]
        chosen = [
            each for each in chosen if str(each.number) in wanted or any(w in each.name for w in wanted if not w.isdigit())
        ]
    if arguments.list:
        say("\n".join(each.label for each in chosen))
        return 0
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    started_s = time.monotonic()
    clean = [asyncio.run(run_fault(each, seeds, not arguments.short)) for each in chosen]
    say(f"{sum(clean)} of {len(clean)} faults clean, {time.monotonic() - started_s:.0f} s")
    return 0 if all(clean) else 1


if __name__ == "__main__":
    sys.exit(main())
