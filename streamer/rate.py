"""Token buckets: how many events are allowed per second, with what burst. Pure: monotonic time is passed in."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar

# So that ten times a tenth are a token.
_ROUNDING = 1e-6


class TokenBucket:
    """A bucket that gains ``per_s`` tokens per second, holds at most ``burst``, and is full at first.

    An amount larger than the burst may be taken once the bucket is full, and leaves a debt: otherwise it never could be.
    """

    __slots__ = ("_burst", "_per_s", "_since_s", "_tokens")

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._tokens = burst
        self._since_s: float | None = None

    def left(self, now_s: float) -> float:
        """Return the number of tokens; negative while a debt is left."""
        if self._since_s is None:
            self._since_s = now_s
        elif now_s > self._since_s:
            self._tokens = min(self._burst, self._tokens + (now_s - self._since_s) * self._per_s)
            self._since_s = now_s
        return self._tokens

    def spend(self, amount: float) -> None:
        """Take tokens, even if there are not enough: ask `left` or `ready_in` first."""
        self._tokens -= amount

    def take(self, now_s: float, amount: float = 1) -> bool:
        """Take tokens if there are enough; return whether there were."""
        if self.ready_in(now_s, amount):
            return False
        self._tokens -= amount
        return True

    def ready_in(self, now_s: float, amount: float = 1) -> float:
        """Return the seconds until `take` will succeed; 0 if it would now."""
        missing = min(amount, self._burst) - self.left(now_s)
        return missing / self._per_s if missing > _ROUNDING else 0.0

    def is_full(self, now_s: float) -> bool:
        """Whether the bucket is in its initial state again."""
        return self.left(now_s) >= self._burst - _ROUNDING


class Pace:
    """A rate in messages and in bytes per second (None: no limit), with a burst of ``burst_s`` seconds' worth.

    A message may pass while a token of each is left. If it is larger, it leaves a debt, for which later messages wait.
    """

    __slots__ = ("_bytes", "_messages")

    def __init__(self, messages: float | None, size: float | None, burst_s: float) -> None:
        self._messages = None if messages is None else TokenBucket(messages, max(1.0, messages * burst_s))
        self._bytes = None if size is None else TokenBucket(size, max(1.0, size * burst_s))

    def ready_in(self, now_s: float) -> float:
        """Return the seconds until a message may pass; 0 if one may now."""
        wait_s = 0.0 if self._messages is None else self._messages.ready_in(now_s, 1)
        return wait_s if self._bytes is None else max(wait_s, self._bytes.ready_in(now_s, 1))

    def spend(self, messages: int, size: int) -> None:
        """Count messages that have passed, and their bytes."""
        if self._messages is not None:
            self._messages.spend(messages)
        if self._bytes is not None:
            self._bytes.spend(size)

    def is_full(self, now_s: float) -> bool:
        """Whether both buckets are in their initial state again."""
        return all(bucket is None or bucket.is_full(now_s) for bucket in (self._messages, self._bytes))


class _Fills(Protocol):
    def is_full(self, now_s: float) -> bool: ...


B = TypeVar("B", bound=_Fills)


class ByKey(Generic[B]):
    """A bucket or pace for each key. Beyond ``most`` keys in use at a time, further keys have one together.

    So inventing keys yields at most ``most`` + 1 of them, and removes none of another key.
    """

    def __init__(self, make: Callable[[], B], most: int) -> None:
        self._make = make
        self._most = most
        self._by_key: OrderedDict[Hashable, B] = OrderedDict()  # the one used last is at the end
        self._shared = make()

    def __len__(self) -> int:
        return len(self._by_key)

    def of(self, key: Hashable, now_s: float) -> B:
        """Return the bucket of a key. Do not keep it: a full one may be replaced."""
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
