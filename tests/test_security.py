"""docs/security.md names a test for every promise, and those tests exist."""

import re
from pathlib import Path

from tests.requirements import exists

PAGE = Path(__file__).parents[1] / "docs/security.md"

_ROW = re.compile(r"^\| (?!promise \||-)(?P<promise>.+?) \| (?P<tests>.+) \|$", re.MULTILINE)
_TEST = re.compile(r"`(tests/[^`]+)`")


def promises() -> dict[str, list[str]]:
    """Every row below "What is promised", with the tests that it names."""
    part = PAGE.read_text().partition("\n## What is promised\n")[2].partition("\n## ")[0]
    return {row["promise"]: _TEST.findall(row["tests"]) for row in _ROW.finditer(part)}


def test_every_promise_names_tests_that_exist() -> None:
    wrong = {
        promise: [test for test in tests if not exists(test)] or tests
        for promise, tests in promises().items()
        if not tests or not all(map(exists, tests))
    }
    assert wrong == {}
