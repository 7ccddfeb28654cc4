"""What holds for every test: which ones are `long`, and how many examples property tests draw (`tests.examples`)."""

import gc
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from streamer.config.models import RetryConfig
from streamer.config.types import RateConfig
from streamer.logs.output import LineHandler, audit_log
from tests.budgets import Account, Meter
from tests.examples import QUICK
from tests.programs import PROGRAMS, require

gc.set_threshold(5000, 200, 100)  # as `streamer run` does
RetryConfig.jitter = 0.0  # chance, which no test waits for
RateConfig.burst_s = 1.0  # as many messages at once as in a second

_COMMON: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
if os.environ.get("CI"):
    _COMMON |= {"derandomize": True, "database": None}  # the same examples every time

settings.register_profile("quick", max_examples=QUICK, **_COMMON)
settings.register_profile("full", max_examples=100, **_COMMON)
settings.register_profile("thorough", max_examples=2000, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

BRIEF = ("test_crossing.py", "test_mqtt5_transport.py", "test_stop.py", "test_zenoh_transport.py")
"""All of tests/e2e and tests/fault is long, but for these: the crossings, the transports and the stop on real brokers."""


FEATURES = {path.parent.name for path in Path(__file__).parents[1].glob("streamer/features/*/feature.py")}


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Account())
    config.pluginmanager.register(Meter())


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what needs a feature that was taken out, and mark what is long.

    What waits longest begins first: the workers that finish early find something short to do.
    """
    items[:] = [item for item in items if all(FEATURES.issuperset(mark.args) for mark in item.iter_markers("needs"))]
    order = ("fault", "e2e")
    for item in items:
        if item.path.parent.name in order and item.path.name not in BRIEF:
            item.add_marker("long")
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
