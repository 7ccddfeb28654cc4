"""The wait before a failed call of another service is repeated. Pure."""

from streamer.backoff import Backoff, wait_s

BACKOFF = Backoff(initial_ms=1_000, factor=2.0, max_ms=60_000, jitter=0.0)


def wait_ms(failures: int) -> int:
    """Return the wait (ms) after this number of failures in a row, at least 1."""
    return round(wait_s(BACKOFF, failures, 0.5) * 1000)
