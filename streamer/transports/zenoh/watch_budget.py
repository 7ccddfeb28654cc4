"""How many watches there may be, and how fast they are made: in all, and because of one source authority. Pure.

An authority is what a message claims: whoever invents many of them gets what is left of the whole.
"""

from collections import Counter

from streamer.rate import ByKey, TokenBucket
from streamer.transports.zenoh.presence import is_topic

MAX_TOPICS = 512
MAX_SINKS = 128
SHARE = 2
"""One authority may have one part in so many of them."""

BURST = 64
BURST_PER_AUTHORITY = 32
_PER_S = 16.0
_PER_S_PER_AUTHORITY = 8.0
_AUTHORITIES = 256


class WatchBudget:
    """The watches that were made, by the authority that they were made for first."""

    def __init__(self) -> None:
        self._makers: dict[str, str] = {}
        self._counts: Counter[bool] = Counter()  # of topics, and of sinks
        self._counts_of: Counter[tuple[str, bool]] = Counter()
        self._bucket = TokenBucket(_PER_S, BURST)
        self._buckets = ByKey(lambda: TokenBucket(_PER_S_PER_AUTHORITY, BURST_PER_AUTHORITY), _AUTHORITIES)

    def make(self, watch: str, authority: str, now_s: float) -> bool:
        """Account for one more watch; False if it may not be made now."""
        kind = is_topic(watch)
        most = MAX_TOPICS if kind else MAX_SINKS
        if self._counts[kind] >= most or self._counts_of[authority, kind] >= most // SHARE:
            return False
        bucket = self._buckets.of(authority, now_s)
        if bucket.left(now_s) < 1 or not self._bucket.take(now_s):
            return False
        bucket.spend(1)
        self._makers[watch] = authority
        self._counts[kind] += 1
        self._counts_of[authority, kind] += 1
        return True

    def forget(self, watch: str) -> None:
        """A watch is gone."""
        authority = self._makers.pop(watch, None)
        if authority is not None:
            kind = is_topic(watch)
            self._counts[kind] -= 1
            self._counts_of[authority, kind] -= 1
            if not self._counts_of[authority, kind]:
                del self._counts_of[authority, kind]
