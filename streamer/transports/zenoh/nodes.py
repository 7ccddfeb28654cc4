"""Tracks the other Zenoh nodes that are connected, and finds links that Zenoh closes silently.

How eclipse-zenoh 1.10.2 behaves when a receiver goes away (observed):

- If the receiver is killed or closed, the transport event (DELETE) comes at once; a farewell looks like a loss. If the
  receiver is silent for its whole lease, DELETE comes then, and its matches end.
- A put that is blocked for `wait_before_close` makes Zenoh close the link that blocks it. All messages that the receiver had
  not read are lost; that put and the next ones return without an error. There is *no event*: DELETE comes 2 to 12 s later,
  and matches end up to 12.5 s later, or when the receiver resumes. But the link disappears from ``session.info.links()`` at
  once, so the sender checks the links after each put that took that long (`find_broken`).
- A second DELETE of the same transport can come up to 2.5 s after the first one. Therefore a *survey* of the links follows
  every event, and its result counts.
- With several receivers of a key, puts wait for the slowest: a receiver that does not read delays the others by
  `wait_before_close`, once.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial

import zenoh

from streamer.transports.zenoh.control import ControlThread, tell_loop
from streamer.transports.zenoh.presence import GRACE_S

logger = logging.getLogger("ustreamer.zenoh")

_FIND_S = 0.25  # in every measurement the link was gone within 50 ms
_FIND_AGAIN_S = 0.005

NO_NODES = {"nodes": 0, "nodes_lost": 0}

Node = tuple[str, bool]
"""A node's Zenoh id, and whether the node is reached by multicast."""


class Nodes:
    """The nodes to which there is a link, without the streamer's own ones (`OwnNodes`): no message is for these.

    ``changed`` is called on the loop when a node is lost (False) or has come (True), with its id. ``settled`` is called when
    a node has been there for the grace: all its subscriptions are known. ``lost_now`` is called on another thread at every
    sign of a loss, since the node can be back before the loop handles the event. ``heard`` is called on the loop after every
    event with three arguments: whether the node is there, whether that was unknown before, and its id.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        control: ControlThread,
        session: zenoh.Session,
        name: str,
        is_own: Callable[[str], bool],
        changed: Callable[[bool, str], None],
        settled: Callable[[], None],
        lost_now: Callable[[], None],
        heard: Callable[[bool, bool, str], None],
    ) -> None:
        self.present: set[Node] = set()
        self._lost = 0
        self._loop = loop
        self._control = control
        self._session = session
        self._name = name
        self._is_own = is_own
        self._changed = changed
        self._settled = settled
        self._lost_now = lost_now
        self._heard = heard
        self._events: zenoh.TransportEventsListener[None] | None = None
        self._is_closed = False
        self._survey: asyncio.TimerHandle | None = None
        self._heard_events = 0
        self._settling: dict[Node, asyncio.TimerHandle] = {}

    def figures(self) -> dict[str, int]:
        """Return how many nodes are there, and how many have gone so far, in whatever way: a farewell looks like a loss."""
        return {"nodes": len(self.present), "nodes_lost": self._lost}

    def close(self) -> None:
        """Stop calling the callbacks."""
        self._is_closed = True
        for timer in self._settling.values():
            timer.cancel()
        self._settling.clear()
        if self._survey is not None:
            self._survey.cancel()

    # -- control thread

    def watch(self) -> None:
        """Watch every transport to another node, beginning with those that are open already."""

        def on_event(event: zenoh.TransportEvent) -> None:  # on a thread of its own
            is_there = event.kind == zenoh.SampleKind.PUT
            node = (str(event.transport.zid), event.transport.is_multicast)
            if self._is_own(node[0]):
                return
            if not is_there:
                self._lost_now()
            tell_loop(self._loop, self._on_event, is_there, node)

        self._events = self._session.info.declare_transport_events_listener(on_event, history=True)

    def _survey_blocking(self, events: int) -> None:
        if not self._is_closed and not self._session.is_closed():
            tell_loop(self._loop, self._surveyed, linked(self._session), events)

    # -- where puts are made

    def find_broken(self) -> bool:
        """Look for broken links after a slow put, for `_FIND_S` at most. Return whether a node is left."""
        if self._is_closed or self._session.is_closed():
            return False
        deadline_s = time.monotonic() + _FIND_S
        while True:
            present = tuple(self.present)
            there = linked(self._session)
            broken = [node for node in present if not node[1] and node[0] not in there]
            if broken:
                for node in broken:
                    tell_loop(self._loop, self._set, node, False)
                return len(broken) < len(present)
            if time.monotonic() >= deadline_s:
                return True
            time.sleep(_FIND_AGAIN_S)

    # -- loop

    def _on_event(self, is_there: bool, node: Node) -> None:
        self._heard_events += 1
        is_news = (node in self.present) is not is_there
        self._set(node, is_there)
        self._heard(is_there, is_news, node[0])
        if self._survey is None and not self._is_closed:
            self._survey = self._loop.call_later(GRACE_S, self._take_survey)

    def _take_survey(self) -> None:
        self._survey = None
        self._control.post(partial(self._survey_blocking, self._heard_events))

    def _surveyed(self, there: set[str], events: int) -> None:
        """Use the links that were found after ``events`` events. An event since then is newer, and has another survey."""
        if events != self._heard_events:
            return
        known = {zid for zid, is_multicast in self.present if not is_multicast}
        for zid in known - there:
            self._set((zid, False), False)
        for zid in there - known:
            if not self._is_own(zid):
                self._set((zid, False), True)

    def _set(self, node: Node, is_there: bool) -> None:
        if self._is_closed or (node in self.present) is is_there:
            return
        if is_there:
            self.present.add(node)
            self._settling[node] = self._loop.call_later(GRACE_S, self._settle, node)
        else:
            self.present.discard(node)
            self._lost += 1
            if (timer := self._settling.pop(node, None)) is not None:
                timer.cancel()
        text = "zenoh_node_found endpoint=%s zid=%s nodes=%d" if is_there else "zenoh_node_lost endpoint=%s zid=%s nodes=%d"
        subject = f"node {self._name} {node[0]}"
        logger.info(text, self._name, node[0], len(self.present), extra={"state": (subject, is_there)})
        self._changed(is_there, node[0])

    def _settle(self, node: Node) -> None:
        del self._settling[node]
        self._settled()


def linked(session: zenoh.Session) -> set[str]:
    """Return the ids of all nodes with a link. A transport that is about to close has no link. Takes 3 µs."""
    multicast = {str(transport.zid) for transport in session.info.transports() if transport.is_multicast}
    return {str(link.zid) for link in session.info.links()} - multicast
