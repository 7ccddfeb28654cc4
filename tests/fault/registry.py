"""Which faults there are. A module registers its own by decorating them; `tests.fault.run` lists the modules.

    @fault(11, "two routers in a circle")
    async def loop(run: Run) -> Verdict: ...

A fault builds its harness, does its harm at moments that ``run.chance`` decides, and returns the ledger's verdict. An
exception is a failure too.
"""

import random
import re
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from tests.fault.ledger import Verdict

Case = TypeVar("Case")


@dataclass
class Run:
    """One go at a fault. The same seed makes the same decisions; how fast the machine is it does not decide."""

    name: str
    seed: int
    is_long: bool = False
    directory: Path = field(init=False)
    """For the daemon's configuration and log, and what else is to be seen if it fails."""
    chance: random.Random = field(init=False)

    def __post_init__(self) -> None:
        name = re.sub(r"\W+", "-", self.name)
        self.directory = Path(tempfile.mkdtemp(prefix=f"fault-{name}-{self.seed}-"))
        self.chance = random.Random(f"{self.name} {self.seed}")

    def between(self, least: float, most: float) -> float:
        return self.chance.uniform(least, most)

    def one_of(self, *cases: Case) -> Case:
        """Return the case that is this seed's turn: as many seeds as there are cases try each."""
        return cases[(self.seed - 1) % len(cases)]

    def lasts(self, short_s: float, long_s: float) -> float:
        """How long something takes, in the short or the long form."""
        return long_s if self.is_long else short_s


Body = Callable[[Run], Awaitable[Verdict]]


@dataclass(frozen=True)
class Fault:
    number: int
    name: str
    body: Body
    seeds: int
    """How many seeds the long form runs at most: some faults have little to leave to chance, or take long."""

    @property
    def label(self) -> str:
        return f"{self.number} {self.name}"


FAULTS: list[Fault] = []


def fault(number: int, name: str, seeds: int = 1_000_000) -> Callable[[Body], Body]:
    """Register a fault under a number; several may have the same."""

    def register(body: Body) -> Body:
        assert all(other.name != name for other in FAULTS), name
        FAULTS.append(Fault(number, name, body, seeds))
        return body

    return register


def named(name: str) -> Fault:
    return next(each for each in FAULTS if each.name == name)
