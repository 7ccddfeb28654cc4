"""Who listens to which key: what Zenoh says of each key, and what it means for a flow. Pure, time is passed in.

What `Publisher.matching_status` was seen to do (eclipse-zenoh 1.10.2; peers, and clients of a router):

- It follows the subscribers of *other* sessions, wildcards included (``up/**``), within a millisecond of their being
  declared, undeclared or killed; with ``Locality.REMOTE`` our own subscribers do not count. A new listener is told of a
  match at once, and of nothing while there is none.
- What a node listens to is known a few milliseconds after the node is (a client: one answer of its router). Hence the
  *grace*: a key without a match is `UNKNOWN` for so long after it was declared, or after a node came.
- A stalled receiver keeps its match until its lease is over. If it makes Zenoh close the link before that (see
  `nodes`), the match goes with the transport or up to 12.5 s after its link.
- A link that is reset can be back within 10 ms, before anything was said of a match that ended. What was put between is
  lost, what is put then arrives. Hence the *question*: when a node was lost every key is `UNKNOWN` for a moment. If a node
  has come by then, all that is unconfirmed is doubted (`ABSENT`), and goes again once what it listens to is known.
- With two receivers of a key, one of which is lost, the key stays matched: only the link tells (see `nodes`), and
  nothing at all if the lost one is behind a router.
"""

from collections.abc import Callable

from streamer.transports.base import Presence

GRACE_S = 0.5
QUESTION_S = 0.1

OnPresence = Callable[[Presence], None]


class Key:
    """What is known of one key, and who wants to hear of it."""

    __slots__ = ("grace_until_s", "is_questioned", "matched", "reach", "watchers")

    def __init__(self, reach: Presence) -> None:
        self.matched: bool | None = None
        self.grace_until_s: float | None = None
        self.is_questioned = False
        self.reach = reach
        self.watchers: list[OnPresence] = []


class Presences:
    """All watched keys. What changes is told to the watchers."""

    def __init__(self) -> None:
        self.keys: dict[str, Key] = {}
        self._alone = True
        self._in_grace: set[str] = set()

    def add(self, name: str, on_presence: OnPresence) -> tuple[Key, bool]:
        """One more watcher of a key; whether it is the first."""
        key = self.keys.get(name)
        if is_new := key is None:
            key = self.keys[name] = Key(Presence.ABSENT if self._alone else Presence.UNKNOWN)
        assert key is not None
        key.watchers.append(on_presence)
        return key, is_new

    def remove(self, name: str, on_presence: OnPresence) -> bool:
        """One watcher less; whether nobody watches the key any more, and it is forgotten."""
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
        """Zenoh says whether a key has subscribers elsewhere."""
        key = self.keys.get(name)
        if key is None:
            return
        if is_matched or key.matched:  # a match that ends has no grace: what was sent is to be taken back
            self._in_grace.discard(name)
            key.grace_until_s = None
        elif key.matched is None:
            self._give_grace(name, key, now_s)
        key.matched = is_matched
        self._judge(key)

    def nodes(self, are_there: bool) -> None:
        """Whether there is any other node."""
        if self._alone is are_there:
            self._alone = not are_there
            for key in list(self.keys.values()):
                self._judge(key)

    def node_lost(self) -> None:
        """A node was lost: whom do those reach who reached somebody? `answer` follows `QUESTION_S` later."""
        for key in list(self.keys.values()):
            if key.reach is Presence.PRESENT:
                key.is_questioned = True
                self._judge(key)

    def answer(self, has_come: bool, now_s: float) -> None:
        """The end of a question; ``has_come``: a node has come since, perhaps the one that was lost."""
        for name, key in list(self.keys.items()):
            if not key.is_questioned:
                continue
            key.is_questioned = False
            if has_come:
                self._tell(key, Presence.ABSENT)
                self._give_grace(name, key, now_s)
            self._judge(key)

    def node_came(self, now_s: float) -> None:
        """A node came; what it listens to is not known yet."""
        for name, key in list(self.keys.items()):
            if key.matched is False:
                self._give_grace(name, key, now_s)
                self._judge(key)

    def next_s(self) -> float | None:
        """When the next grace ends."""
        return min((self.keys[name].grace_until_s or 0.0 for name in self._in_grace), default=None)

    def tick(self, now_s: float) -> None:
        """End every grace whose time has come."""
        ended = [name for name in self._in_grace if (self.keys[name].grace_until_s or 0.0) <= now_s]
        self._in_grace.difference_update(ended)
        for name in ended:
            if (key := self.keys.get(name)) is not None:
                key.grace_until_s = None
                self._judge(key)

    def _give_grace(self, name: str, key: Key, now_s: float) -> None:
        key.grace_until_s = now_s + GRACE_S
        self._in_grace.add(name)

    def _judge(self, key: Key) -> None:
        if self._alone:
            reach = Presence.ABSENT
        elif key.is_questioned or key.matched is None or key.grace_until_s is not None:
            reach = Presence.UNKNOWN
        else:
            reach = Presence.PRESENT if key.matched else Presence.ABSENT
        self._tell(key, reach)

    def _tell(self, key: Key, reach: Presence) -> None:
        if reach is not key.reach:
            key.reach = reach
            for tell in tuple(key.watchers):
                tell(reach)
