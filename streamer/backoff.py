"""Computes the wait between a failure and the next attempt: exponential, bounded, with jitter. Pure, chance is passed in."""

from typing import NamedTuple, Protocol

RECONNECT_STEPS = 4
"""The waits before reconnecting are 0.5, 1, 2 and 4 s, then always 10 s (uP-L1 `mqtt_5.adoc`)."""

_MAX_STEPS = 64  # the largest factor to this power does not overflow


class Growth(Protocol):
    """How waits grow. The configuration's sections for retry and reconnect have this form."""

    @property
    def initial_ms(self) -> int:
        """The first wait."""
        ...

    @property
    def factor(self) -> float:
        """By which each wait is longer than the one before."""
        ...

    @property
    def max_ms(self) -> int:
        """The longest wait."""
        ...

    @property
    def jitter(self) -> float:
        """Random part of each wait: 0.2 means from 20 % less to 20 % more."""
        ...


class Backoff(NamedTuple):
    """A `Growth` without configuration; the defaults are those of the specification for reconnecting."""

    initial_ms: int = 500
    factor: float = 2.0
    max_ms: int = 10_000
    jitter: float = 0.2


def wait_s(growth: Growth, failures: int, chance: float, steps: int | None = None) -> float:
    """Return the seconds to wait after ``failures`` failures in a row, from 1. ``chance``: a random number in [0, 1).

    After more than ``steps`` failures the wait is ``max_ms``.
    """
    grown = float(growth.max_ms)
    if steps is None or failures <= steps:
        grown = min(growth.initial_ms * growth.factor ** min(failures - 1, _MAX_STEPS), grown)
    return grown * (1 + growth.jitter * (2 * chance - 1)) / 1000
