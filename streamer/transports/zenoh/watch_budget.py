"""Limits how many flows are watched, and how fast watches are made: in total, and per source authority. Pure.

A sender may invent authorities. With many of them it still gets no more than the total.
"""

from collections import Counter

from streamer.rate import ByKey, TokenBucket

MAX_WATCHES = 256
MAX_WATCHES_PER_AUTHORITY = MAX_WATCHES // 2
"""So that half of the watches are left for other authorities."""

BURST = 64
BURST_PER_AUTHORITY = 32
_PER_S = 16.0
_PER_S_PER_AUTHORITY = 8.0
_AUTHORITIES = 256


class WatchBudget:
    """Counts the watched flows, by source authority."""

    def __init__(self) -> None:
        self._authorities: dict[str, str] = {}
        self._counts: Counter[str] = Counter()
        self._bucket = TokenBucket(_PER_S, BURST)
        self._buckets = ByKey(lambda: TokenBucket(_PER_S_PER_AUTHORITY, BURST_PER_AUTHORITY), _AUTHORITIES)

    def make(self, flow: str, now_s: float) -> bool:
        """Count one more watch of a flow, identified by its key. Return False if it is not allowed now."""
        authority = flow.split("/", 2)[1]
        if len(self._authorities) >= MAX_WATCHES or self._counts[authority] >= MAX_WATCHES_PER_AUTHORITY:
            return False
        if self._bucket.left(now_s) < 1 or not self._buckets.of(authority, now_s).take(now_s):
            return False
        self._bucket.spend(1)
        self._authorities[flow] = authority
        self._counts[authority] += 1
        return True

    def forget(self, flow: str) -> bool:
        """Remove a flow. Return whether it was watched."""
        authority = self._authorities.pop(flow, None)
        if authority is None:
            return False
        self._counts[authority] -= 1
        if not self._counts[authority]:
            del self._counts[authority]
        return True
