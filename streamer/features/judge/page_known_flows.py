"""The flows that the running daemon knows, as `Flow` describes them, to judge a change of configuration.

These are the flows that the endpoints remember (two generations of 4096 each), and those with waiting messages.
"""

from typing import Any

from aiohttp import web

from streamer.delivery.inbound.resolve import Resolved
from streamer.delivery.lanes.lane import Lane
from streamer.delivery.router import Router
from streamer.features.api.answers import API, RequestQuery, in_turns
from streamer.features.api.paging import EntryPage, Key, cursors
from streamer.features.api.request_queue import one_at_a_time
from streamer.features.api.status import lanes_of
from streamer.features.flow import Flow
from streamer.features.record import RunningStreamer
from streamer.journal.moments import as_moment
from streamer.uprotocol.message import Attributes, UMessageType, UPriority, authority_only
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.well_known import LOCAL_ENDPOINT

_FLOWS_PER_ITERATION = 500
_SHORTEST_S = 60.0
_DAY_S = 86_400


async def known_flows(router: Router, now_s: float) -> list[Flow]:
    """Return the flows that a router knows, each once; ``now_s`` is monotonic.

    Messages per day are those since the decision on the flow, which a change of routes, permissions or subscriptions renews,
    as if they went on like that; a flow with no decision yet has 0. The event loop goes on meanwhile.
    """
    found = _Found(now_s)
    for name, ingress in list(router.ingresses.items()):
        if name != LOCAL_ENDPOINT:
            async for attributes in in_turns(ingress.flows.known(), _FLOWS_PER_ITERATION):
                found.add(name, attributes)
    for queue in router.queues():
        if queue.source not in ("", LOCAL_ENDPOINT):
            async for lane in lanes_of(queue):
                if lane.waiting_messages:
                    found.add_lane(lane)
    return found.flows()


class _Found:
    """Flows, each once."""

    def __init__(self, now_s: float) -> None:
        self._now_s = now_s
        self._flows: dict[Flow, tuple[frozenset[str], float]] = {}
        self._ends: set[tuple[UUri, UUri | None]] = set()

    def add(self, ingress: str, attributes: Attributes) -> None:
        """Add a flow that an endpoint remembers. Invalid attributes are refused whatever the configuration says."""
        if attributes.shared_problems:
            return
        flow = Flow(
            attributes.type,
            attributes.source,
            attributes.sink,
            ingress,
            attributes.provenance.identity or "",
            attributes.priority or UPriority.CS1,
            attributes.permission_level,
            bool(attributes.ttl),
        )
        resolved: Resolved | None = attributes.resolved
        went_to: frozenset[str] = frozenset()
        per_day = 0.0
        if resolved is not None:
            went_to = frozenset(leg.queue.target for leg in resolved.legs)
            per_day = resolved.messages / max(self._now_s - resolved.since_s, _SHORTEST_S) * _DAY_S
        before, so_far = self._flows.get(flow, (frozenset(), 0.0))
        self._flows[flow] = before | went_to, so_far + per_day
        self._ends.add((flow.source, flow.sink))

    def add_lane(self, lane: Lane) -> None:
        """Add a flow with waiting messages, unless it is one that an endpoint remembers. Its sender is not known."""
        source, sink = lane.key
        if sink is not None and authority_only(sink) and source.is_topic:
            sink = None
        if (source, sink) in self._ends or (source, lane.key[1]) in self._ends:
            return
        priority = UPriority(max(lane.highest_class, 0) + 1)
        flow = Flow(_kind(source, sink), source, sink, lane.queue.source, None, priority)
        before, per_day = self._flows.get(flow, (frozenset(), 0.0))
        self._flows[flow] = before | {lane.queue.target}, per_day

    def flows(self) -> list[Flow]:
        return [
            flow._replace(went_to=tuple(sorted(went_to)), messages_per_day=round(per_day, 3))
            for flow, (went_to, per_day) in self._flows.items()
        ]


def _kind(source: UUri, sink: UUri | None) -> UMessageType:
    """Return the type of messages with these addresses (`uattributes.adoc`)."""
    if sink is None:
        return UMessageType.PUBLISH
    if source.is_topic:
        return UMessageType.NOTIFICATION
    return UMessageType.RESPONSE if sink.resource == 0 else UMessageType.REQUEST


def key_of(flow: Flow) -> Key:
    """Return a name that tells a flow from all others."""
    numbers = "/".join(str(part) for part in (flow.priority, flow.permission_level, flow.has_ttl))
    identity = "?" if flow.identity is None else f"={flow.identity}"
    return (flow.ingress, flow.kind.name, flow.source, flow.sink or (), identity, numbers)


class KnownFlowPages:
    """The page with the flows that a `RunningStreamer` knows."""

    def __init__(self, running: RunningStreamer) -> None:
        self._running = running

    def routes(self) -> list[web.RouteDef]:
        """Return the HTTP routes of these pages."""
        return [web.get(f"{API}/known-flows", one_at_a_time(self._list))]

    async def _list(self, request: web.Request) -> web.Response:
        query = RequestQuery(request, ("limit", "after"))
        page = EntryPage[Flow](query.limit(), query.read("after", cursors(str, str, UUri, UUri, str, str)))
        router = self._running.router
        for flow in await known_flows(router, router.clock.monotonic_s()):
            page.offer(key_of(flow), flow)
        answer: dict[str, Any] = {
            "flows": [flow.as_json() for flow in page.entries()],
            "next": page.next,
            "total": page.total,
        }
        forgotten = sum(ingress.flows.forgotten for name, ingress in router.ingresses.items() if name != LOCAL_ENDPOINT)
        return web.json_response(answer | {"since": as_moment(self._running.started_ms), "forgotten": forgotten})
