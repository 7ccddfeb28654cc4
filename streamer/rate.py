"""Token buckets: how many events per second are allowed, with what burst. Pure: time on the monotonic clock is passed in."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar

# Ten times a tenth has to count as a token.
_ROUNDING = 1e-6


class TokenBucket:
    """A bucket that gains ``per_s`` tokens per second, up to ``burst``. It is full at first.

    An amount above the burst is allowed once the bucket is full, and leaves a debt.
    """

    __slots__ = ("_burst", "_per_s", "_since_s", "_tokens")

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._tokens = burst
        self._since_s: float | None = None

    def left(self, now_s: float) -> float:
        """Return the number of tokens now; negative while there is a debt."""
        if self._since_s is None:
            self._since_s = now_s
        elif now_s > self._since_s:
            self._tokens = min(self._burst, self._tokens + (now_s - self._since_s) * self._per_s)
            self._since_s = now_s
        return self._tokens

    def spend(self, amount: float) -> None:
        """Take tokens without a check: call `left` first."""
        self._tokens -= amount

    def take(self, now_s: float, amount: float = 1) -> bool:
        """Take tokens if there are enough. Return whether there were."""
        if self.ready_in(now_s, amount):
            return False
        self._tokens -= amount
        return True

    def ready_in(self, now_s: float, amount: float = 1) -> float:
        """Return the seconds until `take` will succeed; 0 if it would now."""
        missing = min(amount, self._burst) - self.left(now_s)
        return missing / self._per_s if missing > _ROUNDING else 0.0

    def is_full(self, now_s: float) -> bool:
        """Return whether the bucket is full."""
        return self.left(now_s) >= self._burst - _ROUNDING


class Pace:
    """A limit in messages and in bytes per second (None: no limit), with a burst of ``burst_s`` seconds.

    A message is allowed while both buckets have tokens. If it takes more than there are, later messages wait longer.
    """

    __slots__ = ("_bytes", "_messages")

    def __init__(self, messages: float | None, size: float | None, burst_s: float) -> None:
        self._messages = None if messages is None else TokenBucket(messages, max(1.0, messages * burst_s))
        self._bytes = None if size is None else TokenBucket(size, max(1.0, size * burst_s))

    def ready_in(self, now_s: float) -> float:
        """Return the seconds until a message is allowed; 0 if one is allowed now."""
        wait_s = 0.0 if self._messages is None else self._messages.ready_in(now_s, 1)
        return wait_s if self._bytes is None else max(wait_s, self._bytes.ready_in(now_s, 1))

    def spend(self, messages: int, size: int) -> None:
        """Count messages that were sent, with their size in bytes."""
        if self._messages is not None:
            self._messages.spend(messages)
        if self._bytes is not None:
            self._bytes.spend(size)

    def is_full(self, now_s: float) -> bool:
        """Return whether both buckets are full."""
        return all(bucket is None or bucket.is_full(now_s) for bucket in (self._messages, self._bytes))


class _Fills(Protocol):
    def is_full(self, now_s: float) -> bool: ...


B = TypeVar("B", bound=_Fills)


class ByKey(Generic[B]):
    """A bucket or pace for each key. Beyond ``most`` keys in use at a time, further keys share one.

    So a sender that invents keys gets ``most`` + 1 buckets at most, and evicts no bucket that is in use.
    """

    def __init__(self, make: Callable[[], B], most: int) -> None:
        self._make = make
        self._most = most
        self._by_key: OrderedDict[Hashable, B] = OrderedDict()  # the most recently used at the end
        self._shared = make()

    def __len__(self) -> int:
        return len(self._by_key)

    def of(self, key: Hashable, now_s: float) -> B:
        """Return the bucket of a key. The caller must not store it, because a full bucket may be forgotten."""
        by_key = self._by_key
        found = by_key.get(key)
        if found is not None:
            by_key.move_to_end(key)
            return found
        if len(by_key) >= self._most:
            oldest, unused = next(iter(by_key.items()))
            if not unused.is_full(now_s):
                return self._shared
            del by_key[oldest]
        found = by_key[key] = self._make()
        return found
