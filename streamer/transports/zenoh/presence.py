"""Whether anybody listens to a flow: what Zenoh says about the keys that are watched, and what that means. Pure.

A *watch* serves the flows of one sink, or one topic. Watches are few, so that flows can be many: the *overview* serves all
flows to sinks that have no watch of their own, and a topic that has none counts as listened to. Time is passed in.

How Zenoh behaves (observed with eclipse-zenoh 1.10.2; peers, and clients of a router):

- `Publisher.matching_status` follows the subscribers of *other* sessions, wildcards included (``up/**``), within a
  millisecond after they are declared, undeclared or killed. With ``Locality.REMOTE`` our own subscribers do not count. A new
  matching listener is called at once if there is a match, and not at all while there is none.
- It does not tell who matches: a recorder on ``up/**`` counts like the receiver. The admin space of our own session would
  tell, but asking it while other nodes declare something can block the whole session for ever.
- A node's subscriptions are known a few milliseconds after the node (for a client: after one answer of its router). Hence
  the *grace*: for so long after it was declared, or after a node came, a watch without a match is `UNKNOWN`.
- A stalled receiver keeps its match until its lease is over. If it makes Zenoh close the link before that (see
  `nodes`), the match ends with the transport, or up to 12.5 s after the link.
- A link that was reset can be back within 10 ms, before Zenoh says that a match has ended. What was put in between is
  lost, what is put after that arrives. Hence the *recheck*: when a node is lost, every watch is `UNKNOWN` for a moment. If a
  node has come by then, its flows are `ABSENT` once, so that everything unconfirmed is redelivered when the node's
  subscriptions are known.
- If one of two receivers of a key is lost, the key stays matched. Only the link tells (see `nodes`), and nothing does if the
  lost receiver is behind a router.
"""

from collections.abc import Callable

from streamer.transports.base import Presence

GRACE_S = 0.5
RECHECK_S = 0.1
OVERVIEW = "up/**"

_NO_SINK = "/{}/{}/{}/{}/{}"

OnPresence = Callable[[Presence], None]


def is_topic(flow: str) -> bool:
    """Whether a flow's key is that of Publishes."""
    return flow.endswith(_NO_SINK)


def watch_for(flow: str) -> str:
    """The key of a watch that serves a flow: that of its topic, or of its sink and any source."""
    return flow if is_topic(flow) else "/".join(["up", *"*****", *flow.split("/")[6:]])


class WatchedFlow:
    """What is known about one flow, and who is told when it changes. Without a ``watch`` it counts as listened to."""

    __slots__ = ("key", "presence", "watch", "watchers")

    def __init__(self, key: str) -> None:
        self.key = key
        self.presence = Presence.PRESENT
        self.watch: Watch | None = None
        self.watchers: list[OnPresence] = []


class Watch:
    """A watched key and its flows.

    ``matched`` is Zenoh's word, None until there is one.
    """

    __slots__ = ("flows", "grace_until_s", "is_rechecked", "key", "matched")

    def __init__(self, key: str) -> None:
        self.key = key
        self.flows: dict[str, WatchedFlow] = {}
        self.matched: bool | None = None
        self.grace_until_s: float | None = None
        self.is_rechecked = False


class Watches:
    """All flows and their watches. The watchers of a flow are told every change."""

    def __init__(self) -> None:
        self.flows: dict[str, WatchedFlow] = {}
        self.watches: dict[str, Watch] = {}
        self._alone = True
        self._in_grace: set[str] = set()

    def add(self, key: str, watch: str | None, on_presence: OnPresence) -> WatchedFlow:
        """Add a watcher of a flow. A new flow is served by ``watch``, which may be new as well."""
        flow = self.flows.get(key)
        if flow is None:
            flow = self.flows[key] = WatchedFlow(key)
            self._serve(flow, watch)
        flow.watchers.append(on_presence)
        return flow

    def remove(self, key: str, on_presence: OnPresence) -> str | None:
        """Remove a watcher. A flow without any is forgotten, and so is a watch, whose key is returned."""
        flow = self.flows.get(key)
        if flow is None or on_presence not in flow.watchers:
            return None
        flow.watchers.remove(on_presence)
        if flow.watchers:
            return None
        del self.flows[key]
        return self._release(flow)

    def move(self, key: str, watch: str) -> str | None:
        """From now on another watch serves a flow. Returns the key of a watch that is forgotten."""
        flow = self.flows[key]
        forgotten = self._release(flow)
        self._serve(flow, watch)
        return forgotten

    def matched(self, key: str, is_matched: bool, now_s: float) -> None:
        """Zenoh has said whether other nodes subscribe to a watched key."""
        watch = self.watches.get(key)
        if watch is None:
            return
        if is_matched or watch.matched:  # a match that ends has no grace: what was sent has to be redelivered
            self._in_grace.discard(key)
            watch.grace_until_s = None
        elif watch.matched is None:
            self._give_grace(watch, now_s)
        watch.matched = is_matched
        self._update(watch)

    def nodes(self, are_there: bool) -> None:
        """Whether there is any other node."""
        if self._alone is are_there:
            self._alone = not are_there
            self._update_all()

    def node_lost(self) -> None:
        """A node was lost: recheck the flows that somebody listened to. Call `end_recheck` after `RECHECK_S`."""
        for watch in list(self.watches.values()):
            if any(flow.presence is Presence.PRESENT for flow in watch.flows.values()):
                watch.is_rechecked = True
                self._update(watch)

    def end_recheck(self, has_come: bool, now_s: float) -> None:
        """``has_come``: a node has come since the loss, perhaps the same one."""
        for watch in list(self.watches.values()):
            if not watch.is_rechecked:
                continue
            watch.is_rechecked = False
            if has_come:
                for flow in list(watch.flows.values()):
                    _set(flow, Presence.ABSENT)
                self._give_grace(watch, now_s)
            self._update(watch)

    def node_came(self, now_s: float) -> None:
        """A node came. Its subscriptions are not known yet."""
        for watch in list(self.watches.values()):
            if watch.matched is False:
                self._give_grace(watch, now_s)
                self._update(watch)

    def next_s(self) -> float | None:
        """When the next grace ends."""
        return min((self.watches[key].grace_until_s or 0.0 for key in self._in_grace), default=None)

    def tick(self, now_s: float) -> None:
        """End every grace that is over."""
        ended = [key for key in self._in_grace if (self.watches[key].grace_until_s or 0.0) <= now_s]
        self._in_grace.difference_update(ended)
        for key in ended:
            if (watch := self.watches.get(key)) is not None:
                watch.grace_until_s = None
                self._update(watch)

    def _serve(self, flow: WatchedFlow, key: str | None) -> None:
        if key is None:
            return
        watch = self.watches.get(key)
        if watch is None:
            watch = self.watches[key] = Watch(key)
        flow.watch = watch
        watch.flows[flow.key] = flow
        self._update_flow(flow)

    def _release(self, flow: WatchedFlow) -> str | None:
        watch, flow.watch = flow.watch, None
        if watch is None:
            return None
        del watch.flows[flow.key]
        if watch.flows:
            return None
        del self.watches[watch.key]
        self._in_grace.discard(watch.key)
        return watch.key

    def _give_grace(self, watch: Watch, now_s: float) -> None:
        watch.grace_until_s = now_s + GRACE_S
        self._in_grace.add(watch.key)

    def _update_all(self) -> None:
        for watch in list(self.watches.values()):
            self._update(watch)

    def _update(self, watch: Watch) -> None:
        for flow in list(watch.flows.values()):
            self._update_flow(flow)

    def _update_flow(self, flow: WatchedFlow) -> None:
        _set(flow, self._presence(flow))

    def _presence(self, flow: WatchedFlow) -> Presence:
        watch = flow.watch
        if watch is None:
            return Presence.PRESENT
        if self._alone:
            return Presence.ABSENT
        if watch.is_rechecked or watch.matched is None or watch.grace_until_s is not None:
            return Presence.UNKNOWN
        return Presence.PRESENT if watch.matched else Presence.ABSENT


def _set(flow: WatchedFlow, presence: Presence) -> None:
    if presence is not flow.presence:
        flow.presence = presence
        for tell in tuple(flow.watchers):
            tell(presence)
