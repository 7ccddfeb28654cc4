"""Finds duplicates by the ids of earlier messages.

A message that arrives twice (two paths, a redelivery, an echo) is forwarded once. Only a message that arrived through an
endpoint where its source lives makes later ones duplicates. Rejected messages are remembered under a separate key, so that
each is reported once and does not suppress a valid message with the same id.
"""

from collections.abc import Callable, Iterable
from typing import Final

from streamer.transports.base import Received
from streamer.uprotocol.message import Attributes, UMessage, UMessageType

# Between an id and a scope: no authority, and so no other key, contains it.
_SCOPE: Final = b"\0"
_PUBLISH: Final = UMessageType.PUBLISH  # an enumeration looks its members up slowly
_NOBODY: Final[frozenset[str]] = frozenset()


class SeenIds:
    """Ids of messages; for those without an outcome also the `Received`, together with which a second copy is acknowledged.

    A Publish that was copied to many authorities is remembered once for all of them, in ``young_copies``. Messages of a flow
    refer to the same set; a set of one message alone counts as many ids as it has authorities.

    Number and age are bounded by two generations, of which the older one is forgotten as a whole. So an id is remembered for
    at least half of the bound and at most all of it, give or take a batch.
    """

    def __init__(self, max_ids: int, max_seconds: float, now_s: float) -> None:
        self._half = self._limit = max(1, max_ids // 2)
        self._half_s = max_seconds / 2
        self._rotated_s = now_s
        self.young: dict[bytes, Received | None] = {}
        self.old: dict[bytes, Received | None] = {}
        self.young_copies: dict[bytes, frozenset[str]] = {}
        self.old_copies: dict[bytes, frozenset[str]] = {}
        self._own = 0  # authorities in young sets that only one message refers to
        self.before_forgetting: list[Callable[[], None]] = []

    def resize(self, max_ids: int, max_seconds: float) -> None:
        """Use other bounds from the next `rotate` on."""
        self._half = self._limit = max(1, max_ids // 2)
        self._half_s = max_seconds / 2

    def __len__(self) -> int:
        return len(self.young) + len(self.old)

    def __contains__(self, key: bytes) -> bool:
        return key in self.young or key in self.old

    def rotate(self, now_s: float) -> None:
        """Forget the older generation if the younger one is full or old enough; to be called once per batch.

        Messages without an outcome are not forgotten; the queues bound their number.
        """
        if len(self.young) + self._own >= self._limit or now_s - self._rotated_s >= self._half_s:
            for look in self.before_forgetting:
                look()
            on_their_way: dict[bytes, Received | None] = {
                key: received for key, received in self.old.items() if received is not None and received.holders > 0
            }
            self.old, self.young = self.young, on_their_way
            self.old_copies, self.young_copies = self.young_copies, {}
            self._own = 0
            self._rotated_s = now_s
            self._limit = len(self.young) + self._half  # else many without an outcome would cause a rotation at every call

    def remember_pending(self, key: bytes, received: Received) -> None:
        """Remember a message that has arrived and has no outcome yet."""
        self.young[key] = received
        received.key = key

    def remember(self, keys: Iterable[bytes]) -> None:
        """Remember messages that another streamer has dealt with."""
        for key in keys:
            if key not in self:
                self.young[key] = None

    def remember_copies(self, name: bytes, to: frozenset[str], is_shared: bool = True) -> None:
        """Remember that a Publish without a sink has a copy for each authority in ``to``. If one returns, it is a duplicate.

        ``name`` is the key of the Publish; ``is_shared``: other messages refer to the same set.
        """
        before = self.young_copies.get(name)
        if before is not None:
            if to <= before:
                return
            to, is_shared = before | to, False
        self.young_copies[name] = to
        if not is_shared:
            self._own += len(to)

    def is_copy(self, message: UMessage) -> bool:
        """Whether a message is a copy that `remember_copies` has recorded."""
        sink = message.attributes.sink
        if sink is None or not (self.young_copies or self.old_copies) or message.attributes.type is not _PUBLISH:
            return False
        name = _name_of(message)
        return sink.authority in self.young_copies.get(name, _NOBODY) or sink.authority in self.old_copies.get(name, _NOBODY)

    def keep_id_only(self, key: bytes) -> None:
        """Remember only the id of a message that has reached its outcome."""
        if key in self.young:
            self.young[key] = None
        elif key in self.old:
            self.old[key] = None

    def release(self, received: Received) -> None:
        """Release a received message for one holder. With the last holder, the message has reached its outcome."""
        if received.holders == 1 and received.key:
            self.keep_id_only(received.key)
        received.release()

    def remember_arrival(self, message: UMessage) -> None:
        """Remember that a message arrived through an endpoint where its source lives, although it is not queued (yet)."""
        self.young.setdefault(_name_of(message) + _SCOPE, None)

    def has_arrived_at_home(self, message: UMessage) -> bool:
        """Whether a message arrived through an endpoint where its source lives, whatever sink another streamer has set."""
        name = _name_of(message)
        return name in self or name + _SCOPE in self or key_of(message) in self


def key_of(message: UMessage) -> bytes:
    """Return the key under which a message is remembered: id and source, and the sink authority of a Publish.

    With the id alone, anybody could suppress a message whose id they know or guess. The copies of a Publish, one for each
    subscribed authority, have the same id.
    """
    return message.id + tail_of(message.attributes)


def tail_of(attributes: Attributes) -> bytes:
    """Return what follows the id in the keys of all messages with the same shared attributes."""
    if attributes.sink is not None and attributes.type is _PUBLISH:
        return attributes.origin + attributes.sink.authority.encode()
    return attributes.origin


def _name_of(message: UMessage) -> bytes:
    """Return the key of a message without the sink that another streamer may have set."""
    return message.id + message.attributes.origin


def scope(kind: str, name: str) -> bytes:
    """Return what is appended to a key that counts for one endpoint or route only."""
    return _SCOPE + f"{kind} {name}".encode()
