"""Measures what the tests cost: a run ends with the seconds of CPU of each layer, and of each file that is over its budget.

It only prints: whether a test passes does not depend on the machine. Tests that are marked `long` have no budget, nor have
property tests that draw more examples than with the profile `quick`. The CPU of a program that a test has started counts
where its file ends.
"""

import resource
import time
from collections import defaultdict
from collections.abc import Container, Generator
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
from hypothesis import settings

from tests.examples import QUICK

TESTS = Path(__file__).parent


class Budget(NamedTuple):
    """Seconds of CPU for all tests of a layer, and for those of one of its files."""

    layer_s: float
    file_s: float


BUDGETS = {
    "documents": Budget(10, 3),
    "unit": Budget(90, 2),
    "flow": Budget(30, 2),
    "e2e": Budget(30, 10),
    "spark": Budget(75, 30),
}
"""By folder below tests. What lies in no folder looks at the documents and at the structure of the whole."""


class Meter:
    """Measures this process and its children. What a file has used goes along with the report of its last test."""

    def __init__(self) -> None:
        self._file_began_s = self._test_began_s = self._running_s = self._long_s = 0.0
        self._file_ends = False

    def pytest_collection_finish(self) -> None:
        self._file_began_s = _used_s()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
        self._test_began_s = _used_s()
        self._file_ends = nextitem is None or nextitem.path != item.path
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.when == "teardown":
            used_s = _used_s()
            if not has_budget(item.keywords):
                self._long_s += used_s - self._test_began_s
            if self._file_ends:
                running_s = _running_s()
                vars(report)["cpu_s"] = used_s + running_s - self._file_began_s - self._running_s - self._long_s
                self._file_began_s, self._running_s, self._long_s = used_s, running_s, 0.0
        return report


class Account:
    """Adds up what all files have used, and prints it."""

    def __init__(self) -> None:
        self._files: dict[str, float] = defaultdict(float)
        self._budgeted: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = report.nodeid.partition("::")[0]
        if has_budget(report.keywords):
            self._budgeted.add(file)
        self._files[file] += getattr(report, "cpu_s", 0.0)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        layers: dict[str, list[str]] = defaultdict(list)
        for file in sorted(self._budgeted):
            layers[layer_of(file)].append(file)
        if not layers:
            return
        terminalreporter.section("seconds of CPU, and the budget")
        for layer, budget in BUDGETS.items():
            if files := layers[layer]:
                used_s = sum(self._files[file] for file in files)
                terminalreporter.line(_line(layer, used_s, budget.layer_s))
                for file in files:
                    if self._files[file] > budget.file_s:
                        terminalreporter.line(f"  {_line(file, self._files[file], budget.file_s)}")


def has_budget(keywords: Container[str]) -> bool:
    """Whether a test counts, given its keywords: not if it is long, or draws more examples than usual."""
    draws_more = "hypothesis" in keywords and settings().max_examples > QUICK
    return "long" not in keywords and not draws_more


def layer_of(file: str) -> str:
    """The layer of a test file, given by its path from the folder above `tests`."""
    parts = Path(file).parts[1:-1]
    return parts[0] if parts else "documents"


def _line(name: str, used_s: float, budget_s: float) -> str:
    return f"{used_s:6.1f} of {budget_s:g}  {name}{'  OVER' if used_s > budget_s else ''}"


def _used_s() -> float:
    """The CPU of this process, and of its children that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


def _running_s() -> float:
    """The CPU of the children that still run, and of theirs that have ended."""
    total_s = 0.0
    for child in psutil.Process().children():
        try:
            times = child.cpu_times()
        except psutil.Error:  # it has just ended
            continue
        total_s += times.user + times.system + times.children_user + times.children_system
    return total_s
