"""Token buckets: how many events per second are allowed, with what burst. Pure: time on the monotonic clock is passed in."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar

# So that ten times a tenth are a token.
_ROUNDING = 1e-6


class TokenBucket:
    """``per_s`` tokens come per second, up to ``burst`` of them are kept; it is full at first.

    What is larger than the burst passes once the bucket is full, and leaves a debt: else it would never pass.
    """

    __slots__ = ("_burst", "_per_s", "_since_s", "_tokens")

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._tokens = burst
        self._since_s: float | None = None

    def left(self, now_s: float) -> float:
        """The tokens that are there now; negative while a debt is left."""
        if self._since_s is None:
            self._since_s = now_s
        elif now_s > self._since_s:
            self._tokens = min(self._burst, self._tokens + (now_s - self._since_s) * self._per_s)
            self._since_s = now_s
        return self._tokens

    def spend(self, amount: float) -> None:
        """Take tokens, whether they are there or not: ask `left` first."""
        self._tokens -= amount

    def take(self, now_s: float, amount: float = 1) -> bool:
        """Take so many tokens if they are there; whether they were."""
        if self.ready_in(now_s, amount):
            return False
        self._tokens -= amount
        return True

    def ready_in(self, now_s: float, amount: float = 1) -> float:
        """The seconds until `take` will succeed; 0 if it would now."""
        missing = min(amount, self._burst) - self.left(now_s)
        return missing / self._per_s if missing > _ROUNDING else 0.0

    def is_full(self, now_s: float) -> bool:
        """Whether it is as if nobody had ever taken anything."""
        return self.left(now_s) >= self._burst - _ROUNDING


class Pace:
    """How fast messages may go: so many and so many bytes per second (None: any number), with a burst of ``burst_s``.

    A message goes while there is something left of both; what it takes too much of is paid for by those after it.
    """

    __slots__ = ("_bytes", "_messages")

    def __init__(self, messages: float | None, size: float | None, burst_s: float) -> None:
        self._messages = None if messages is None else TokenBucket(messages, max(1.0, messages * burst_s))
        self._bytes = None if size is None else TokenBucket(size, max(1.0, size * burst_s))

    def ready_in(self, now_s: float) -> float:
        """The seconds until a message may go; 0 if one may now."""
        wait_s = 0.0 if self._messages is None else self._messages.ready_in(now_s, 1)
        return wait_s if self._bytes is None else max(wait_s, self._bytes.ready_in(now_s, 1))

    def spend(self, messages: int, size: int) -> None:
        """Messages have gone."""
        if self._messages is not None:
            self._messages.spend(messages)
        if self._bytes is not None:
            self._bytes.spend(size)

    def is_full(self, now_s: float) -> bool:
        """Whether it is as if nothing had ever gone."""
        return all(bucket is None or bucket.is_full(now_s) for bucket in (self._messages, self._bytes))


class _Fills(Protocol):
    def is_full(self, now_s: float) -> bool: ...


B = TypeVar("B", bound=_Fills)


class ByKey(Generic[B]):
    """A bucket or pace for each key. Beyond ``most`` keys in use at a time, further ones share one.

    So that whoever invents keys has no more than ``most`` + 1, and pushes nobody else's out.
    """

    def __init__(self, make: Callable[[], B], most: int) -> None:
        self._make = make
        self._most = most
        self._by_key: OrderedDict[Hashable, B] = OrderedDict()  # the one that was used last at the end
        self._shared = make()

    def __len__(self) -> int:
        return len(self._by_key)

    def of(self, key: Hashable, now_s: float) -> B:
        """The bucket of a key. Do not keep it: a full one may be forgotten."""
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
