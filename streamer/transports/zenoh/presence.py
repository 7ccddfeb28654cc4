"""Whether anybody listens to a key: what Zenoh says about each key, and what that means for a flow. Pure, time is passed in.

How `Publisher.matching_status` behaves (observed with eclipse-zenoh 1.10.2; peers, and clients of a router):

- It follows the subscribers of *other* sessions, wildcards included (``up/**``), within a millisecond after they are
  declared, undeclared or killed. With ``Locality.REMOTE`` our own subscribers do not count. A new matching listener is
  called at once if there is a match, and not at all while there is none.
- A node's subscriptions are known a few milliseconds after the node (for a client: after one answer of its router). Hence
  the *grace*: for so long after it was declared, or after a node came, a key without a match is `UNKNOWN`.
- A stalled receiver keeps its match until its lease is over. If it makes Zenoh close the link before that (see
  `nodes`), the match ends with the transport, or up to 12.5 s after the link.
- A link that was reset can be back within 10 ms, before Zenoh says that a match has ended. What was put in between is
  lost, what is put after that arrives. Hence the *recheck*: when a node is lost, every key is `UNKNOWN` for a moment. If a
  node has come by then, the key is `ABSENT` once, so that everything unconfirmed is redelivered when the node's
  subscriptions are known.
- If one of two receivers of a key is lost, the key stays matched. Only the link tells (see `nodes`), and nothing does if the
  lost receiver is behind a router.
"""

from collections.abc import Callable

from streamer.transports.base import Presence

GRACE_S = 0.5
RECHECK_S = 0.1

OnPresence = Callable[[Presence], None]


class WatchedKey:
    """What is known about one key, and who is told when it changes. ``matched`` is Zenoh's word, None until there is one."""

    __slots__ = ("grace_until_s", "is_rechecked", "matched", "presence", "watchers")

    def __init__(self, presence: Presence) -> None:
        self.matched: bool | None = None
        self.grace_until_s: float | None = None
        self.is_rechecked = False
        self.presence = presence
        self.watchers: list[OnPresence] = []


class WatchedKeys:
    """All watched keys. Their watchers are told every change."""

    def __init__(self) -> None:
        self.keys: dict[str, WatchedKey] = {}
        self._alone = True
        self._in_grace: set[str] = set()

    def add(self, name: str, on_presence: OnPresence) -> tuple[WatchedKey, bool]:
        """Add a watcher of a key; whether it is the key's first."""
        key = self.keys.get(name)
        if is_new := key is None:
            key = self.keys[name] = WatchedKey(Presence.ABSENT if self._alone else Presence.UNKNOWN)
        assert key is not None
        key.watchers.append(on_presence)
        return key, is_new

    def remove(self, name: str, on_presence: OnPresence) -> bool:
        """Remove a watcher; whether it was the key's last, and the key is forgotten."""
        key = self.keys.get(name)
        if key is None or on_presence not in key.watchers:
            return False
        key.watchers.remove(on_presence)
        if key.watchers:
            return False
        del self.keys[name]
        self._in_grace.discard(name)
        return True

    def matched(self, name: str, is_matched: bool, now_s: float) -> None:
        """Zenoh has said whether other nodes subscribe to a key."""
        key = self.keys.get(name)
        if key is None:
            return
        if is_matched or key.matched:  # a match that ends has no grace: what was sent has to be redelivered
            self._in_grace.discard(name)
            key.grace_until_s = None
        elif key.matched is None:
            self._give_grace(name, key, now_s)
        key.matched = is_matched
        self._update(key)

    def nodes(self, are_there: bool) -> None:
        """Whether there is any other node."""
        if self._alone is are_there:
            self._alone = not are_there
            for key in list(self.keys.values()):
                self._update(key)

    def node_lost(self) -> None:
        """A node was lost: recheck the keys that somebody listened to. Call `end_recheck` after `RECHECK_S`."""
        for key in list(self.keys.values()):
            if key.presence is Presence.PRESENT:
                key.is_rechecked = True
                self._update(key)

    def end_recheck(self, has_come: bool, now_s: float) -> None:
        """``has_come``: a node has come since the loss, perhaps the same one."""
        for name, key in list(self.keys.items()):
            if not key.is_rechecked:
                continue
            key.is_rechecked = False
            if has_come:
                self._set(key, Presence.ABSENT)
                self._give_grace(name, key, now_s)
            self._update(key)

    def node_came(self, now_s: float) -> None:
        """A node came. Its subscriptions are not known yet."""
        for name, key in list(self.keys.items()):
            if key.matched is False:
                self._give_grace(name, key, now_s)
                self._update(key)

    def next_s(self) -> float | None:
        """When the next grace ends."""
        return min((self.keys[name].grace_until_s or 0.0 for name in self._in_grace), default=None)

    def tick(self, now_s: float) -> None:
        """End every grace that is over."""
        ended = [name for name in self._in_grace if (self.keys[name].grace_until_s or 0.0) <= now_s]
        self._in_grace.difference_update(ended)
        for name in ended:
            if (key := self.keys.get(name)) is not None:
                key.grace_until_s = None
                self._update(key)

    def _give_grace(self, name: str, key: WatchedKey, now_s: float) -> None:
        key.grace_until_s = now_s + GRACE_S
        self._in_grace.add(name)

    def _update(self, key: WatchedKey) -> None:
        if self._alone:
            presence = Presence.ABSENT
        elif key.is_rechecked or key.matched is None or key.grace_until_s is not None:
            presence = Presence.UNKNOWN
        else:
            presence = Presence.PRESENT if key.matched else Presence.ABSENT
        self._set(key, presence)

    def _set(self, key: WatchedKey, presence: Presence) -> None:
        if presence is not key.presence:
            key.presence = presence
            for tell in tuple(key.watchers):
                tell(presence)
