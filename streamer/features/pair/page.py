"""The HTTP pages of a pair: `pair` shows the pair as this streamer sees it, `pair/handover` hands over to the peer."""

import asyncio
from collections.abc import Iterable
from typing import Any

from aiohttp import web
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from streamer.delivery.router import Router
from streamer.features.api.access import caller_of, refused, works_on_standby
from streamer.features.api.answers import API, body_of
from streamer.features.api.request_queue import is_gone
from streamer.features.pair.paired import Paired
from streamer.features.pair.view import DIFFERENCES, PairView
from streamer.journal.moments import as_moment
from streamer.logs.audit import DENIED, audit

_PATIENCE_S = (
    8.0  # on a busy machine, heartbeats are late; and programs need seconds to connect to a standby that was restarted
)
_AGAIN_S = 0.1
_ALONE = "this streamer works alone: its configuration has no section pair"


def families(pair: Paired) -> Iterable[Metric]:
    """Yield what is known of the pair: the families that there are only with a section `pair`."""
    view = pair.view
    for name, text, value in (
        ("active", "1 if this streamer of the pair is active, 0 if it is on standby.", view.is_active),
        ("epoch", "How often the roles of the pair have been taken, as far as it is known.", view.epoch),
        ("link_up", "1 while there is a link to the other streamer of the pair.", view.is_linked),
        ("protected", "1 while the standby has a copy of everything that waits.", view.is_protected),
        ("differs", "1 if the other one has another configuration, so that it does not take over.", not view.is_alike),
        ("waiting_bytes", "Bytes that are on their way to the other one.", view.waiting_bytes),
        (
            "lacks",
            "Nodes and brokers that the active one is connected to, and the standby is not or could not be.",
            view.lacks,
        ),
        ("overheard_messages", "Messages that the standby has heard, and the active one has not settled.", view.overheard),
    ):
        yield GaugeMetricFamily(f"ustreamer_pair_{name}", text, float(value))
    text = "1 while the two differ in what a take-over would show, beyond the configurations."
    differences = GaugeMetricFamily("ustreamer_pair_difference", text, labels=("what",))
    for what in DIFFERENCES:
        differences.add_metric((what,), float(what in view.differences))
    yield differences
    yield CounterMetricFamily("ustreamer_pair_takeovers", "How often this streamer has become active.", view.takeovers)
    refused = CounterMetricFamily(
        "ustreamer_pair_refused", "What did not come from the other one, or was old.", labels=("what",)
    )
    for what, number in view.refused.items():
        refused.add_metric((what,), number)
    yield refused


class PairPages:
    """The pages of one streamer. ``pair`` None: it works alone."""

    def __init__(self, pair: Paired | None, router: Router) -> None:
        self._paired = pair
        self._router = router

    def routes(self) -> list[web.RouteDef]:
        """Return the HTTP routes of these pages."""
        return [web.get(f"{API}/pair", self._show), web.post(f"{API}/pair/handover", self._hand_over)]

    async def _show(self, request: web.Request) -> web.Response:
        return web.json_response(as_json(self._pair().view))

    @works_on_standby  # it has an answer of its own
    async def _hand_over(self, request: web.Request) -> web.Response:
        body = await body_of(request, ("anyway",))
        anyway = body.get("anyway", False)
        if not isinstance(anyway, bool):
            raise refused("anyway: expected true or false", web.HTTPBadRequest)
        pair, caller = self._pair(), caller_of(request)
        before = pair.view
        if why := await self._handed_over(pair, request, anyway):
            audit(DENIED, **caller._asdict(), reason=why, path=request.path)
            raise refused(f"not handed over: {why}", web.HTTPConflict)
        audit("handover", **caller._asdict(), epoch=before.epoch)
        return web.json_response(as_json(before), status=202)

    async def _handed_over(self, pair: Paired, request: web.Request, anyway: bool) -> str:
        """Hand over; return why the peer cannot take over. An absence that may be a late heartbeat is waited out."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + _PATIENCE_S
        while True:
            if self._router.is_draining:
                return "it is ending already"
            why = pair.hand_over(anyway)
            if not why or not pair.view.is_active or loop.time() > until_s:
                return why
            await asyncio.sleep(_AGAIN_S)
            if is_gone(request):
                return "the client is gone"

    def _pair(self) -> Paired:
        if self._paired is None:
            raise refused(_ALONE, web.HTTPNotFound)
        return self._paired


def as_json(view: PairView) -> dict[str, Any]:
    """Return a view of the pair in JSON's types."""
    return {
        "role": "active" if view.is_active else "standby",
        "why": view.why,
        "since": as_moment(view.since_ms),
        "epoch": view.epoch,
        "takeovers": view.takeovers,
        "link": {"up": view.is_linked, "problem": view.link_problem},
        "other_version": view.other_version or None,
        "alike": view.is_alike,
        "protected": view.is_protected,
        "problem": view.problem,
        "waiting_bytes": view.waiting_bytes,
        "overheard": view.overheard,
        "refused": dict(view.refused),
        "differences": view.notes,
    }
