"""Copies that another streamer has forwarded to the wrong endpoint: they wait for their originals."""

from collections.abc import Callable
from dataclasses import dataclass

from streamer.delivery.seen import SeenIds, key_of
from streamer.routing.outcome import Failure
from streamer.transports.base import Received

# How long after its copy the original may arrive. Two streamers side by side are milliseconds apart.
GRACE_S = 1.0
_MAX_MISROUTED = 10_000
_MAX_MISROUTED_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Misrouted:
    """``failure`` is the outcome of the message if its original has not arrived by ``until_s`` (monotonic)."""

    received: Received
    failure: Failure
    until_s: float


class MisroutedCopies:
    """Messages that arrived where their source does not live, and may be copies that another streamer has forwarded.

    If the original arrives where its source lives, before the copy or within `GRACE_S` after it, the message is a duplicate;
    else it fails. The sources are acknowledged at once, because the original is delivered on its own way. Beyond the bounds,
    the oldest message is judged early.
    """

    def __init__(
        self, seen: SeenIds, duplicate: Callable[[Received], None], fail_unrouted: Callable[[Received, Failure], None]
    ) -> None:
        self._seen = seen
        self._duplicate = duplicate
        self._fail_unrouted = fail_unrouted
        self._waiting: dict[bytes, _Misrouted] = {}  # in the order in which their grace ends
        self.bytes = 0
        seen.before_forgetting.append(self.settle_copies)

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self, received: Received, failure: Failure, now_s: float) -> None:
        """Set a message aside, or settle it as a duplicate if its original has arrived already."""
        key = key_of(received.message)
        if key in self._waiting or self._seen.has_arrived_at_home(received.message):
            self._duplicate(received)
            return
        received.take_custody()
        self._waiting[key] = _Misrouted(received, failure, now_s + GRACE_S)
        self.bytes += received.message.size
        while len(self._waiting) > _MAX_MISROUTED or self.bytes > _MAX_MISROUTED_BYTES:
            self._judge(next(iter(self._waiting)))

    def end(self) -> None:
        """Detach from the remembered ids, because the endpoint is removed. No message waits."""
        self._seen.before_forgetting.remove(self.settle_copies)

    def expire(self, now_s: float) -> None:
        """Judge the messages whose `GRACE_S` is over."""
        while self._waiting:
            key, copy = next(iter(self._waiting.items()))
            if copy.until_s > now_s:
                break
            self._judge(key)

    def settle_copies(self) -> None:
        """Settle the messages whose originals have arrived; called before ids are forgotten."""
        for key in [key for key, copy in self._waiting.items() if self._seen.has_arrived_at_home(copy.received.message)]:
            self._judge(key)

    def give_up(self) -> None:
        """Settle all messages as duplicates, because no originals will arrive any more."""
        while self._waiting:
            self._duplicate(self._pop(next(iter(self._waiting))).received)

    def _judge(self, key: bytes) -> None:
        copy = self._pop(key)
        if self._seen.has_arrived_at_home(copy.received.message):
            self._duplicate(copy.received)
        else:
            self._fail_unrouted(copy.received, copy.failure)

    def _pop(self, key: bytes) -> _Misrouted:
        copy = self._waiting.pop(key)
        self.bytes -= copy.received.message.size
        return copy
