"""Whether anybody listens to a flow: what Zenoh says about its key, and what that means. Pure, time is passed in.

How `Publisher.matching_status` behaves (observed with eclipse-zenoh 1.10.2; peers, and clients of a router):

- It follows the subscribers of *other* sessions, wildcards included (``up/**``), within a millisecond after they are
  declared, undeclared or killed. With ``Locality.REMOTE`` our own subscribers do not count. A new matching listener is
  called at once if there is a match, and not at all while there is none.
- It does not tell who matches: a recorder on ``up/**`` counts like the receiver. The admin space of our own session would
  tell, but asking it while other nodes declare something can block the whole session for ever.
- A key with wildcards (all sources of a sink) matches whoever has subscribed to any part of it. Therefore each flow is
  known by the very key that its messages are put on.
- A node's subscriptions are known a few milliseconds after the node (for a client: after one answer of its router). Hence
  the *grace*: for so long after it was declared, or after a node came, a key without a match is `UNKNOWN`. Its end is no
  answer: a busy machine can have kept us from hearing one. So Zenoh is asked once more (`take_ended_graces`,
  `poll_answered`).
- If a node is lost in a key's first grace, it may have taken the answer with it. The key is `INTERRUPTED` then, too.
- A stalled receiver keeps its match until its lease is over. If it makes Zenoh close the link before that (see
  `nodes`), the match ends with the transport, or up to 12.5 s after the link.
- A link that was reset can be back within 10 ms, before Zenoh says that a match has ended. What was put in between is
  lost, what is put after that arrives. Hence the *recheck*: when a node is lost, every key is `UNKNOWN` for a moment. If a
  node has come by then, the key is `INTERRUPTED` once, so that everything unconfirmed is redelivered when the node's
  subscriptions are known.
- If one of two receivers of a key is lost, the key stays matched. Only the link tells (see `nodes`), and nothing does if the
  lost receiver is behind a router.
"""

from collections.abc import Callable

from streamer.transports.base import Presence

GRACE_S = 0.5
RECHECK_S = 0.1

OnPresence = Callable[[Presence], None]


class FlowPresence:
    """What is known about one flow, and who is told when it changes. ``matched``: Zenoh's word, None until there is one.

    ``is_known``: whether anybody listens was known at some time.
    """

    __slots__ = ("grace_until_s", "is_known", "is_rechecked", "matched", "presence", "watchers")

    def __init__(self, presence: Presence) -> None:
        self.matched: bool | None = None
        self.grace_until_s: float | None = None
        self.is_known = self.is_rechecked = False
        self.presence = presence
        self.watchers: list[OnPresence] = []


class Flows:
    """All flows, by the key that their messages are put on. The watchers of a flow are told every change."""

    def __init__(self) -> None:
        self.by_key: dict[str, FlowPresence] = {}
        self._alone = True
        self._in_grace: set[str] = set()

    def add(self, key: str, on_presence: OnPresence) -> tuple[FlowPresence, bool]:
        """Add a watcher of a flow; whether it is the flow's first."""
        flow = self.by_key.get(key)
        if is_new := flow is None:
            flow = self.by_key[key] = FlowPresence(Presence.ABSENT if self._alone else Presence.UNKNOWN)
        assert flow is not None
        flow.watchers.append(on_presence)
        return flow, is_new

    def remove(self, key: str, on_presence: OnPresence) -> bool:
        """Remove a watcher; whether it was the flow's last, and the flow is forgotten."""
        flow = self.by_key.get(key)
        if flow is None or on_presence not in flow.watchers:
            return False
        flow.watchers.remove(on_presence)
        if flow.watchers:
            return False
        del self.by_key[key]
        self._in_grace.discard(key)
        return True

    def matched(self, key: str, is_matched: bool, now_s: float) -> None:
        """Zenoh has said whether other nodes subscribe to a flow."""
        flow = self.by_key.get(key)
        if flow is None:
            return
        if is_matched or flow.matched:  # a match that ends has no grace: what was sent has to be redelivered
            self._in_grace.discard(key)
            flow.grace_until_s = None
        elif flow.matched is None:
            self._give_grace(key, flow, now_s)
        flow.matched = is_matched
        self._update(flow)

    def invalidate(self, key: str) -> None:
        """What Zenoh has said about a flow may no longer hold, and it will not say so by itself."""
        flow = self.by_key.get(key)
        if flow is not None:
            self._in_grace.discard(key)
            flow.matched = flow.grace_until_s = None
            self._update(flow)

    def set_nodes_present(self, are_there: bool) -> None:
        """Whether there is any other node."""
        if self._alone is are_there:
            self._alone = not are_there
            for flow in list(self.by_key.values()):
                self._update(flow)

    def node_lost(self) -> None:
        """A node was lost: recheck the flows that somebody listened to. Call `end_recheck` after `RECHECK_S`."""
        for flow in list(self.by_key.values()):
            if flow.presence is Presence.PRESENT:
                flow.is_rechecked = True
                self._update(flow)
            elif flow.presence is Presence.UNKNOWN and not flow.is_known:
                self._set(flow, Presence.INTERRUPTED)
                self._update(flow)

    def end_recheck(self, has_come: bool, now_s: float) -> None:
        """``has_come``: a node has come since the loss, perhaps the same one."""
        for key, flow in list(self.by_key.items()):
            if not flow.is_rechecked:
                continue
            flow.is_rechecked = False
            if has_come:
                self._set(flow, Presence.INTERRUPTED)
                self._give_grace(key, flow, now_s)
            self._update(flow)

    def node_came(self, now_s: float) -> None:
        """A node came. Its subscriptions are not known yet."""
        for key, flow in list(self.by_key.items()):
            if flow.matched is False:
                self._give_grace(key, flow, now_s)
                self._update(flow)

    def next_s(self) -> float | None:
        """When the next grace ends."""
        return min((self.by_key[key].grace_until_s or 0.0 for key in self._in_grace), default=None)

    def take_ended_graces(self, now_s: float) -> list[str]:
        """The keys whose grace has just ended. Call `poll_answered` with what Zenoh says about each now."""
        ended = [key for key in self._in_grace if (self.by_key[key].grace_until_s or 0.0) <= now_s]
        self._in_grace.difference_update(ended)
        return ended

    def poll_answered(self, key: str, is_matched: bool) -> None:
        """Zenoh was asked about a key after its grace. Void if it has had another grace, or a match, since."""
        flow = self.by_key.get(key)
        if flow is not None and flow.grace_until_s is not None and key not in self._in_grace:
            flow.matched = is_matched
            flow.grace_until_s = None
            self._update(flow)

    def _give_grace(self, key: str, flow: FlowPresence, now_s: float) -> None:
        flow.grace_until_s = now_s + GRACE_S
        self._in_grace.add(key)

    def _update(self, flow: FlowPresence) -> None:
        if self._alone:
            presence = Presence.ABSENT
        elif flow.is_rechecked or flow.matched is None or flow.grace_until_s is not None:
            presence = Presence.UNKNOWN
        else:
            presence = Presence.PRESENT if flow.matched else Presence.ABSENT
            flow.is_known = True
        self._set(flow, presence)

    def _set(self, flow: FlowPresence, presence: Presence) -> None:
        if presence is not flow.presence:
            flow.presence = presence
            for tell in tuple(flow.watchers):
                tell(presence)
