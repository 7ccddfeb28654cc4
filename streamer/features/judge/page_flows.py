"""The page for flows: the lanes that match a filter, in the order of their names, one page at a time.

There may be a hundred thousand lanes. All are counted for the total, but only some in each iteration of the event loop, and
memory holds no more than one answer has.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from aiohttp import web

from streamer.delivery.lanes.lane import QUEUED, RATE, WINDOW, Hold, Lane
from streamer.delivery.lanes.queue import RouteQueue
from streamer.features.api.answers import API, RequestQuery, one_of, pattern
from streamer.features.api.paging import EntryPage, cursors
from streamer.features.api.request_queue import one_at_a_time
from streamer.features.api.status import lanes_of
from streamer.features.record import RunningStreamer
from streamer.uprotocol.uri import UUri

STATES: dict[str, Callable[[Lane], bool]] = {
    "waiting": lambda lane: lane.waiting_messages > 0,
    "held": lambda lane: lane.waiting_messages > 0 and bool(lane.waits_for()),
    "paused": lambda lane: bool(lane.hold & Hold.PAUSED),
    "absent": lambda lane: bool(lane.hold & Hold.ABSENT) and lane.waiting_messages > 0,
    "backoff": lambda lane: bool(lane.hold & Hold.BACKOFF),
    "unconfirmed": lambda lane: bool(lane.hold & Hold.UNCONFIRMED),
    "rate": lambda lane: RATE in lane.waits_for(),
    "window": lambda lane: WINDOW in lane.waits_for(),
    "all": lambda lane: True,
}


class FlowFilter(NamedTuple):
    """A selection of flows; None means any."""

    is_wanted: Callable[[Lane], bool]
    route: str | None
    endpoint: str | None
    source: UUri | None
    sink: UUri | None

    def has(self, queue: RouteQueue) -> bool:
        """Whether flows of this route may be selected."""
        return self.route in (None, queue.name) and self.endpoint in (None, queue.source, queue.target)

    def matches(self, lane: Lane) -> bool:
        """Whether a flow is selected."""
        source, sink = lane.key
        if not self.is_wanted(lane) or (self.source is not None and not self.source.matches(source)):
            return False
        return self.sink is None or (sink is not None and self.sink.matches(sink))


class FlowPages:
    """The flows of a `RunningStreamer`."""

    def __init__(self, running: RunningStreamer) -> None:
        self._running = running

    def routes(self) -> list[web.RouteDef]:
        """Return the HTTP routes of these pages."""
        return [web.get(f"{API}/flows", one_at_a_time(self._list))]

    async def _list(self, request: web.Request) -> web.Response:
        query = RequestQuery(request, ("route", "endpoint", "source", "sink", "state", "limit", "after"))
        state = query.read("state", one_of(STATES)) or "waiting"
        selected = FlowFilter(
            STATES[state],
            query.text("route"),
            query.text("endpoint"),
            query.read("source", pattern),
            query.read("sink", pattern),
        )
        page = EntryPage[Lane](query.limit(), query.read("after", cursors(str, str, str, UUri, UUri)))
        for queue in self._running.router.queues():
            if selected.has(queue):
                async for lane in lanes_of(queue):
                    if selected.matches(lane):
                        page.offer((queue.name, queue.source, queue.target, lane.key[0], lane.key[1] or ()), lane)
        now_s = self._running.router.clock.monotonic_s()
        states = {account.name: account.link.state.value for account in self._running.router.endpoint_accounts()}
        flows = [_flow(lane, now_s, states) for lane in page.entries()]
        return web.json_response({"flows": flows, "next": page.next, "total": page.total})


def _flow(lane: Lane, now_s: float, states: Mapping[str, str]) -> dict[str, Any]:
    source, sink = lane.key
    head = next((item for item in lane.items if item.state is QUEUED), None)
    return {
        "route": lane.queue.name,
        "endpoint": lane.queue.target,
        "endpoint_state": states.get(lane.queue.target, "removed"),
        "source": str(source),
        "sink": None if sink is None else str(sink),
        "waiting": lane.waiting_messages,
        "bytes": lane.bytes,
        "unconfirmed": lane.unconfirmed,
        "in_flight": lane.in_flight,
        "held": lane.waits_for(),
        "oldest_age_s": 0.0 if head is None else round(max(0.0, now_s - head.entered_s), 3),
        "priority": f"CS{lane.highest_class}" if lane.highest_class >= 0 else None,
    }
