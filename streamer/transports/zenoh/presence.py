"""Derives from Zenoh's matching status whether anybody listens to a flow. Pure, time is passed in.

How `Publisher.matching_status` behaves (observed with eclipse-zenoh 1.10.2; peers, and clients of a router):

- It follows the subscribers of *other* sessions, wildcards included (``up/**``), within a millisecond after they are
  declared, undeclared or killed. With ``Locality.REMOTE`` our own subscribers do not count. A new matching listener is
  called at once if there is a match, and not at all while there is none.
- It does not say which node matches: a recorder on ``up/**`` counts like the receiver. The admin space of our own session
  would say so, but querying it while other nodes declare subscriptions can block the whole session for ever.
- A key with wildcards (all sources of a sink) matches every subscriber of any part of it. Therefore each flow is identified
  by the exact key on which its messages are put.
- A node's subscriptions are known a few milliseconds after the node (for a client: after one answer of its router). Hence
  the *grace*: for `GRACE_S` after it was declared, or after a node came, a key without a match is `UNKNOWN`. The end of the
  grace does not mean absence: a busy machine may have delayed a match. So Zenoh is polled once more (`take_ended_graces`,
  `poll_answered`).
- If a node is lost during a key's first grace, its match may be lost with it. The key is `INTERRUPTED` then, too.
- A receiver that does not read keeps its match until its lease is over. If it makes Zenoh close the link before that (see
  `nodes`), the match ends with the transport, or up to 12.5 s after the link.
- A link that was reset can be back within 10 ms, before Zenoh reports that a match has ended. Messages that were put in
  between are lost, later ones arrive. Hence the *recheck*: when a node is lost, every key is `UNKNOWN` for a moment. If the
  same node is back by then, the key is `INTERRUPTED` once, so that all unconfirmed messages are redelivered when the node's
  subscriptions are known. If it is gone, its matches end. Another node that has come meanwhile is no sign of a loss.
- Which streamer serves an authority is known from its token (`receipts`). While that streamer is away, the authority's keys
  are `ABSENT`, whoever matches.
- If one of two receivers of a key is lost, the key stays matched. Only the link shows the loss (see `nodes`), and nothing
  does if the lost receiver is behind a router.
"""

from collections.abc import Callable

from streamer.transports.base import Presence

GRACE_S = 0.5
RECHECK_S = 0.1

OnPresence = Callable[[Presence], None]


class FlowPresence:
    """The presence of one flow, and the watchers to notify of changes.

    ``sink`` is the authority that its messages are for. ``matched``: Zenoh's matching status, None if unknown. ``is_known``:
    whether the presence was ever known.
    """

    __slots__ = ("grace_until_s", "is_known", "is_rechecked", "matched", "presence", "sink", "watchers")

    def __init__(self, sink: str, presence: Presence) -> None:
        self.sink = sink
        self.matched: bool | None = None
        self.grace_until_s: float | None = None
        self.is_known = self.is_rechecked = False
        self.presence = presence
        self.watchers: list[OnPresence] = []


class WatchedFlows:
    """All watched flows, by the key on which their messages are put. Every change is reported to a flow's watchers."""

    def __init__(self) -> None:
        self.by_key: dict[str, FlowPresence] = {}
        self._alone = True
        self._away: frozenset[str] = frozenset()
        self._in_grace: set[str] = set()

    def add(self, key: str, on_presence: OnPresence) -> tuple[FlowPresence, bool]:
        """Add a watcher of a flow. Return the flow, and whether this is its first watcher."""
        flow = self.by_key.get(key)
        if is_new := flow is None:
            sink = key.split("/", 7)[6]
            is_absent = self._alone or sink in self._away
            flow = self.by_key[key] = FlowPresence(sink, Presence.ABSENT if is_absent else Presence.UNKNOWN)
        assert flow is not None
        flow.watchers.append(on_presence)
        return flow, is_new

    def remove(self, key: str, on_presence: OnPresence) -> bool:
        """Remove a watcher of a flow. Return whether it was the last one, so that the flow is forgotten."""
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
        """Record Zenoh's matching status of a flow: whether other nodes subscribe to its key."""
        flow = self.by_key.get(key)
        if flow is None:
            return
        if is_matched or flow.matched:  # a match that ends has no grace: unconfirmed messages have to be redelivered
            self._in_grace.discard(key)
            flow.grace_until_s = None
        elif flow.matched is None:
            self._give_grace(key, flow, now_s)
        flow.matched = is_matched
        self._update(flow)

    def invalidate(self, key: str) -> None:
        """Forget the matching status of a flow that is not watched. The caller polls it again."""
        flow = self.by_key.get(key)
        if flow is not None:
            self._in_grace.discard(key)
            flow.matched = flow.grace_until_s = None
            self._update(flow)

    def set_nodes_present(self, are_there: bool) -> None:
        """Set whether there is any other node."""
        if self._alone is are_there:
            self._alone = not are_there
            for flow in list(self.by_key.values()):
                self._update(flow)

    def set_away(self, authorities: frozenset[str]) -> None:
        """Set the authorities that nobody receives for, whoever has subscribed, because the streamer that did is away."""
        changed, self._away = self._away ^ authorities, authorities
        for flow in [flow for flow in self.by_key.values() if flow.sink in changed]:
            self._update(flow)

    def node_lost(self) -> None:
        """Begin to recheck the flows with a listener, because a node was lost. Call `end_recheck` after `RECHECK_S`."""
        for flow in list(self.by_key.values()):
            if flow.presence is Presence.PRESENT:
                flow.is_rechecked = True
                self._update(flow)
            elif flow.presence is Presence.UNKNOWN and not flow.is_known:
                self._set(flow, Presence.INTERRUPTED)
                self._update(flow)

    def end_recheck(self, is_back: bool, now_s: float) -> None:
        """End the recheck. ``is_back``: a node that was lost is there again, so its link was reset."""
        for key, flow in list(self.by_key.items()):
            if not flow.is_rechecked:
                continue
            flow.is_rechecked = False
            if is_back:
                self._set(flow, Presence.INTERRUPTED)
                self._give_grace(key, flow, now_s)
            self._update(flow)

    def node_came(self, now_s: float) -> None:
        """Give flows without a match a grace, because a node came whose subscriptions are not known yet."""
        for key, flow in list(self.by_key.items()):
            if flow.matched is False:
                self._give_grace(key, flow, now_s)
                self._update(flow)

    def next_s(self) -> float | None:
        """Return when the next grace ends, or None."""
        return min((self.by_key[key].grace_until_s or 0.0 for key in self._in_grace), default=None)

    def take_ended_graces(self, now_s: float) -> list[str]:
        """Return the keys whose grace has ended. The caller polls each, and calls `poll_answered`."""
        ended = [key for key in self._in_grace if (self.by_key[key].grace_until_s or 0.0) <= now_s]
        self._in_grace.difference_update(ended)
        return ended

    def poll_answered(self, key: str, is_matched: bool) -> None:
        """Record the matching status that was polled after a key's grace. Ignored after another grace, or a match."""
        flow = self.by_key.get(key)
        if flow is not None and flow.grace_until_s is not None and key not in self._in_grace:
            flow.matched = is_matched
            flow.grace_until_s = None
            self._update(flow)

    def _give_grace(self, key: str, flow: FlowPresence, now_s: float) -> None:
        flow.grace_until_s = now_s + GRACE_S
        self._in_grace.add(key)

    def _update(self, flow: FlowPresence) -> None:
        if self._alone or flow.sink in self._away:
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
            for watcher in tuple(flow.watchers):
                watcher(presence)
