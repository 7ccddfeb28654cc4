"""``make bench``: every target with its value of today, and what stands behind it.

Nothing here fails because of a figure. Ratios are to a raw loop of the same round, which is always interpreted; values are
medians of the rounds, with the range in brackets.
"""

import argparse
from collections.abc import Callable, Iterator

from tests.bench import flood, rest
from tests.bench.crossings import HEADER, Plan, Runs, measured
from tests.bench.figures import GOAL_HEADER, Goal, markdown, plain, spread
from tests.bench.forms import NAMES, Child, streamers
from tests.bench.growth import GROWTH_HEADER, GROWTHS, drawn
from tests.bench.run import DIRECTIONS


def said_by(module: str, form: str) -> dict[str, float]:
    """What a benchmark without processes of its own says, with the streamer in this form."""
    child = Child(f"tests.bench.{module}", "--json", form=form)
    try:
        return child.result()
    finally:
        child.end()


def flood_goals(plan: Plan) -> Iterator[Goal]:
    for direction in ("down", "up"):
        for form in streamers():
            delays = [flood.behind_flood(form, direction, plan.seconds) for _ in range(plan.rounds)]
            name = f"{DIRECTIONS[direction]}: CS6 p99 behind a flood of CS0, {NAMES[form]}"
            waited = f"; waiting in the streamer {spread([each.waited_ms for each in delays])}"
            yield Goal(name, [each.whole_ms for each in delays], "ms", 10, remark=waited)


def flow_goals(plan: Plan) -> Iterator[Goal]:
    for form in streamers():
        values = [said_by("flows", form)["many sources"] / 1000 for _ in range(plan.rounds)]
        yield Goal(f"first message of a source over Zenoh, {NAMES[form]}", values, "ms CPU", 0.1)


def copy_goals(plan: Plan) -> Iterator[Goal]:
    for form in streamers():
        values = [said_by("copies", form)["ratio"] for _ in range(plan.rounds)]
        yield Goal(f"Publish to 100 authorities, a copy against a message of its own, {NAMES[form]}", values, "×", 0.5)


def rest_goals(plan: Plan) -> Iterator[Goal]:
    for form in streamers():
        everything = [rest.at_rest(form, 2 * plan.seconds, is_traced=True) for _ in range(plan.rounds)]
        lean = [rest.at_rest(form, 1, is_traced=False) for _ in range(plan.rounds)]
        wakeups = f"; {max(each.wakeups_per_s for each in everything):.0f} wake-ups a second"
        yield Goal(f"memory at rest, without traces, {NAMES[form]}", [each.rss_mb for each in lean], "MB", 60)
        yield Goal(f"memory at rest, everything on, {NAMES[form]}", [each.rss_mb for each in everything], "MB")
        percent = [each.cpu_percent for each in everything]
        yield Goal(f"CPU at rest, everything on, {NAMES[form]}", percent, "%", 0.2, remark=wakeups)
        yield Goal(f"from start to ready, everything on, {NAMES[form]}", [each.ready_s for each in everything], "s")


PARTS: dict[str, Callable[[Plan], Iterator[Goal]]] = {
    "flood": flood_goals,
    "flows": flow_goals,
    "copies": copy_goals,
    "rest": rest_goals,
}
CROSSINGS = ("down", "up", "across")


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    default = Plan()
    parser.add_argument("--rounds", type=int, default=default.rounds)
    parser.add_argument("--count", type=int, default=default.count, help="messages of each phase at full load")
    parser.add_argument("--seconds", type=float, default=default.seconds, help="of each phase at a rate")
    parser.add_argument("--size", type=int, default=default.size, help="payload bytes")
    parser.add_argument(
        "--only", nargs="+", choices=(*CROSSINGS, *PARTS), help="these parts: a direction, or one of the other figures"
    )
    sizes = [each.name for each in GROWTHS]
    parser.add_argument("--growth", nargs="*", choices=sizes, help="draw how cost grows instead: with all of these, or some")
    parser.add_argument("--markdown", action="store_true", help="tables as the documents have them")
    a = parser.parse_args()
    chosen = a.only or (*CROSSINGS, *PARTS)
    plan = Plan(a.rounds, a.count, a.seconds, a.size)
    table = markdown if a.markdown else plain
    if "compiled" not in streamers():
        print(
            "The compiled form is not there (make bench builds it if there is a C compiler): only the pure one is measured."
        )
    if a.growth is not None:
        for rows in drawn(a.growth or sizes):
            print(*table(GROWTH_HEADER, rows), "", sep="\n", flush=True)
        return
    print(
        f"{plan.rounds} rounds, {plan.count} messages of {plan.size} bytes at full load, {plan.seconds:g} s at each rate\n"
    )
    runs: list[Runs] = measured([each for each in CROSSINGS if each in chosen], plan)
    if runs:
        print(*table(HEADER, [row for each in runs for row in each.rows()]), "", sep="\n", flush=True)
    goals = [goal for each in runs if each.direction != "across" for goal in each.goals()]
    for name, part in PARTS.items():
        if name in chosen:
            goals += part(plan)
    if goals:
        print(*table(GOAL_HEADER, [goal.cells() for goal in goals]), sep="\n")


if __name__ == "__main__":
    main()
