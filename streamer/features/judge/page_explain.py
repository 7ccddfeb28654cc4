"""The page that explains what would happen to a message now, as `streamer explain` does, and why it takes no other route."""

from aiohttp import web

from streamer.delivery.inbound.source_clocks import about
from streamer.features.api.answers import API, RequestQuery, bad, one_of, pattern, whole
from streamer.features.api.readiness import link_of, why_not_up
from streamer.features.flow import TYPES, Flow
from streamer.features.judge.explain import explain
from streamer.features.judge.judge import Known, UnclearQuestionError
from streamer.features.record import RunningStreamer
from streamer.transports.base import LinkState

_MOST_LEVEL = 0xFFFF_FFFF


class ExplainPages:
    """Explains what a `RunningStreamer` would do with a message."""

    def __init__(self, running: RunningStreamer) -> None:
        self._running = running

    def routes(self) -> list[web.RouteDef]:
        """Return the HTTP routes of these pages."""
        return [web.get(f"{API}/explain", self._explain)]

    async def _explain(self, request: web.Request) -> web.Response:
        query = RequestQuery(request, ("type", "source", "sink", "from", "identity", "permission_level", "why_not"))
        kind = query.read("type", one_of(TYPES))
        source = query.read("source", pattern)
        if kind is None or source is None:
            raise bad("query: expected type and source")
        flow = Flow(
            TYPES[kind],
            source,
            query.read("sink", pattern),
            query.text("from") or "",
            query.text("identity"),
            permission_level=query.read("permission_level", lambda text: whole(text, 0, _MOST_LEVEL)),
        )
        router = self._running.router
        known = Known(router.table, router.interest, router.pause_rules)
        try:
            answer = explain(flow, known, query.text("why_not"))
        except UnclearQuestionError as exc:
            raise bad(f"query: {exc}") from exc
        ingress = router.transports[answer["from"]].link
        if ingress.state is not LinkState.UP:
            answer["why"].append(f"{answer['from']}, where it arrives, {why_not_up(ingress)}")
        for hop in answer["hops"]:
            hop["link"] = link_of(router.transports[hop["endpoint"]].link)
        clocks = [clock for endpoint, clock in router.source_clocks() if endpoint == answer["from"]]
        answer["why"] += about(source, clocks)
        return web.json_response(answer)
