"""Token buckets: how much may happen per second, with what burst. Pure: time on the monotonic clock is passed in."""

from collections import OrderedDict
from collections.abc import Hashable


class TokenBucket:
    """``per_s`` tokens come per second, up to ``burst`` of them are kept; it is full at first.

    What is larger than the burst passes once the bucket is full, and leaves a debt: else it would never pass.
    """

    __slots__ = ("_burst", "_per_s", "_since_s", "_tokens")

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._tokens = burst
        self._since_s = float("-inf")

    def left(self, now_s: float) -> float:
        """The tokens that are there now; negative while a debt is left."""
        if now_s > self._since_s:
            self._tokens = min(self._burst, self._tokens + (now_s - self._since_s) * self._per_s)
            self._since_s = now_s
        return self._tokens

    def spend(self, amount: float) -> None:
        """Take tokens, whether they are there or not: ask `left` first."""
        self._tokens -= amount

    def take(self, now_s: float, amount: float = 1) -> bool:
        """Take so many tokens if they are there; whether they were."""
        if self.left(now_s) < min(amount, self._burst):
            return False
        self._tokens -= amount
        return True

    def ready_in(self, now_s: float, amount: float = 1) -> float:
        """The seconds until `take` will succeed; 0 if it would now."""
        missing = min(amount, self._burst) - self.left(now_s)
        return max(0.0, missing / self._per_s)

    def is_full(self, now_s: float) -> bool:
        """Whether it is as if nobody had ever taken anything."""
        return self.left(now_s) >= self._burst


class Buckets:
    """A bucket for each key. Beyond ``most`` keys in use at a time, further ones share one bucket.

    So that whoever invents keys cannot have more than ``most`` + 1 buckets, nor push the others out.
    """

    def __init__(self, per_s: float, burst: float, most: int) -> None:
        self._per_s = per_s
        self._burst = burst
        self._most = most
        self._buckets: OrderedDict[Hashable, TokenBucket] = OrderedDict()  # the one that was used last at the end
        self._shared = TokenBucket(per_s, burst)

    def __len__(self) -> int:
        return len(self._buckets)

    def of(self, key: Hashable, now_s: float) -> TokenBucket:
        """The bucket of a key. Do not keep it: a full one may be forgotten."""
        buckets = self._buckets
        bucket = buckets.get(key)
        if bucket is not None:
            buckets.move_to_end(key)
            return bucket
        if len(buckets) >= self._most:
            oldest, unused = next(iter(buckets.items()))
            if not unused.is_full(now_s):
                return self._shared
            del buckets[oldest]
        bucket = buckets[key] = TokenBucket(self._per_s, self._burst)
        return bucket
