"""Hypothesis profiles: `ci` draws the same examples every time, `thorough` looks further (HYPOTHESIS_PROFILE)."""

import gc
import logging
import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from streamer.logs.output import LineHandler, audit_log
from tests.programs import PROGRAMS, require

gc.set_threshold(5000, 200, 100)  # as `streamer run` does

_COMMON: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}

settings.register_profile("dev", max_examples=100, **_COMMON)
settings.register_profile("ci", max_examples=100, derandomize=True, database=None, **_COMMON)
settings.register_profile("thorough", max_examples=2000, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What waits longest begins first: the workers that finish early find something short to do."""
    order = ("fault", "e2e")
    items.sort(key=lambda item: order.index(item.path.parent.name) if item.path.parent.name in order else len(order))


def pytest_collection_finish() -> None:
    """What was collected stays: the collector of garbage need not look at thousands of tests again and again."""
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs a program that is missing, before any fixture begins."""
    for program in PROGRAMS:
        if item.get_closest_marker(program) is not None:
            require(program)


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """A command or a daemon that ran inside the test has set up logging, for an output that ends with the test."""
    yield
    root = logging.getLogger()
    root.handlers[:] = [handler for handler in root.handlers if not isinstance(handler, LineHandler)]
    root.setLevel(logging.WARNING)
    audit_log(None)
