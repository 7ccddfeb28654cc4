"""The streamer between its two networks, beside a raw loop that routes nothing and a bridge as people write it.

Each round measures all subjects in turn, so that a slow minute of the machine hits every one of them; only subjects of the
same round are compared. A subject has some traffic first, then a phase at each rate, then one at full load.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tests.bench.figures import MEDIAN, Goal, differences, in_calmest, quotients, spread, text
from tests.bench.forms import NAMES, say, streamers
from tests.bench.run import DIRECTIONS, Crossing, Figures

FULL = 0.0
RATES = (500.0, 1000.0, FULL)
_RATES = {"across": (500.0, FULL)}
_PATIENT = {"bridge"}  # gets a fifth of the messages at full load, or it would take minutes
_CPU_FULL = {"compiled": 1.4, "traced": 1.9}
_CPU_500 = 1.4
_THROUGHPUT = {"compiled": 0.85}
_ADDED_P99_MS = 0.4


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured."""

    rounds: int = 3
    count: int = 200_000
    """Messages at full load."""
    seconds: float = 4.0
    """At each rate."""
    size: int = 256


@dataclass(slots=True)
class Runs:
    """The figures of a direction: by subject and rate, one for each round."""

    direction: str
    figures: dict[tuple[str, float], list[Figures]] = field(default_factory=dict)

    def measure(self, subjects: Sequence[str], plan: Plan) -> None:
        """One round."""
        for subject in subjects:
            say(f"{DIRECTIONS[self.direction]}: {NAMES[subject]}")
            with Crossing(subject, self.direction, ("--size", str(plan.size))) as crossing:
                crossing.warm_up()
                for rate in _RATES.get(self.direction, RATES):
                    full = plan.count // 5 if subject in _PATIENT else plan.count
                    count = int(rate * plan.seconds) or full
                    self.figures.setdefault((subject, rate), []).append(crossing.phase(count, rate))

    def values(self, subject: str, rate: float, name: str) -> list[float]:
        """One value of each round."""
        return [getattr(each, name) for each in self.figures[subject, rate]]

    def against(self, subject: str, rate: float, name: str) -> list[float]:
        """The same, times that of the `base` in the same round."""
        return quotients(self.values(subject, rate, name), self.values(self.base, rate, name))

    @property
    def base(self) -> str:
        """Who the others are compared with."""
        return "mosquitto" if self.direction == "across" else "raw"

    def goals(self) -> Iterator[Goal]:
        """The lines of the targets."""
        forms = [form for form in ("compiled", "traced") if (form, FULL) in self.figures]
        where = DIRECTIONS[self.direction]
        for form in forms:
            at_full = self.against(form, FULL, "cpu_us")
            yield Goal(f"{where}: CPU per message at full load, {NAMES[form]}", at_full, target=_CPU_FULL[form])
        for form in forms:
            speed = self.against(form, FULL, "rate")
            yield Goal(f"{where}: throughput, {NAMES[form]}", speed, target=_THROUGHPUT.get(form), is_least=True)
        for form in forms:
            at_500 = self.against(form, 500, "cpu_us")
            yield Goal(f"{where}: CPU per message at 500/s, {NAMES[form]}", at_500, target=_CPU_500)
        for form in forms:
            for rate in RATES[:2]:
                raw_ms = self.values("raw", rate, "p99_ms")
                added_ms = differences(self.values(form, rate, "p99_ms"), raw_ms)
                calm = f"; {text(in_calmest(added_ms, raw_ms))} in the calmest round"
                yield Goal(f"{where}: added p99 at {rate:.0f}/s, {NAMES[form]}", added_ms, "ms", _ADDED_P99_MS, remark=calm)

    def rows(self) -> Iterator[list[str]]:
        """The lines of the table of all subjects."""
        for (subject, rate), runs in sorted(self.figures.items(), key=lambda each: RATES.index(each[0][1])):
            cpu = spread(self.values(subject, rate, "cpu_us"))
            ratio, speed = (
                "" if subject == self.base else spread(self.against(subject, rate, name)) for name in ("cpu_us", "rate")
            )
            yield [
                DIRECTIONS[self.direction],
                f"{rate:.0f}/s" if rate else "full",
                NAMES[subject],
                text(MEDIAN(self.values(subject, rate, "rate"))),
                cpu,
                ratio,
                speed if rate == FULL else "",
                text(MEDIAN(self.values(subject, rate, "p50_ms"))),
                spread(self.values(subject, rate, "p99_ms")),
                f"{min(each.arrived for each in runs) * 100:.0f} %",
            ]


HEADER = ["direction", "load", "subject", "messages/s", "CPU µs/msg", "CPU ×", "throughput ×", "p50 ms", "p99 ms", "arrived"]


def measured(directions: Iterable[str], plan: Plan) -> list[Runs]:
    """Both directions, and between two MQTT networks: there, mosquitto's own bridge is the peer."""
    runs = [Runs(direction) for direction in directions]
    for _ in range(plan.rounds):
        for each in runs:
            each.measure([each.base, *streamers(), *([] if each.direction == "across" else ["bridge"])], plan)
    return runs
