"""Limits how many flows are watched, and how fast watches are made: in total, and per source authority. Pure.

An authority is what a message claims: a sender that invents many of them still gets no more than the total.
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
    """The flows that are watched, by the authority that each comes from."""

    def __init__(self) -> None:
        self._authorities: dict[str, str] = {}
        self._counts: Counter[str] = Counter()
        self._bucket = TokenBucket(_PER_S, BURST)
        self._buckets = ByKey(lambda: TokenBucket(_PER_S_PER_AUTHORITY, BURST_PER_AUTHORITY), _AUTHORITIES)

    def make(self, flow: str, now_s: float) -> bool:
        """Account for one more watch, of a flow known by its key; False if it may not be made now."""
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
        """A flow is gone; whether it was watched."""
        authority = self._authorities.pop(flow, None)
        if authority is None:
            return False
        self._counts[authority] -= 1
        if not self._counts[authority]:
            del self._counts[authority]
        return True
