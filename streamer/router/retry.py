"""How long to wait before a refused message is sent again. Pure: chance is passed in."""

from streamer.config import Retry


def wait_s(retry: Retry, attempts: int, chance: float) -> float:
    """Seconds to wait after the ``attempts``-th refusal; ``chance`` in [0, 1) spreads it by ± ``jitter``."""
    grown = retry.initial_ms * retry.factor ** min(attempts - 1, 64)
    spread = 1 + retry.jitter * (2 * chance - 1)
    return min(grown, retry.max_ms) * spread / 1000


def is_exhausted(retry: Retry, attempts: int) -> bool:
    """Whether ``attempts`` refusals are all that a message gets."""
    return attempts >= retry.attempts
