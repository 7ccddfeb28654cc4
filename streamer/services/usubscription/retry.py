"""How long to wait before a failed call of another service is repeated. Pure."""

from streamer.backoff import Backoff, wait_s

BACKOFF = Backoff(initial_ms=1_000, factor=2.0, max_ms=60_000, jitter=0.0)


def wait_ms(failures: int) -> int:
    """The wait after so many failures in a row, from 1."""
    return round(wait_s(BACKOFF, failures, 0.5) * 1000)
