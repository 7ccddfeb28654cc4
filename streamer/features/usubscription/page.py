"""The page for subscriptions: of the streamer's own uSubscription service, or the known ones of a followed service."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from aiohttp import web
from prometheus_client.core import GaugeMetricFamily, Metric

from streamer.features.api.answers import API, RequestQuery, in_turns, pattern
from streamer.features.api.paging import EntryPage, cursors
from streamer.features.api.request_queue import one_at_a_time
from streamer.features.usubscription.entries import ListedSubscription
from streamer.features.usubscription.follow import Follower
from streamer.features.usubscription.service import USubscription
from streamer.journal.moments import as_moment
from streamer.uprotocol.uri import UUri

_ENTRIES_PER_ITERATION = 1000
"""The most subscriptions that are read in one iteration of the event loop."""


def families(gauges: Mapping[str, int]) -> Iterable[Metric]:
    """Yield the number of entries by kind. ``gauges``: empty without a service."""
    entries = GaugeMetricFamily("ustreamer_usubscription_entries", "What uSubscription keeps.", labels=("kind",))
    for kind, number in gauges.items():
        entries.add_metric((kind,), number)
    yield entries


class SubscriptionPages:
    """The subscriptions that the streamer knows."""

    def __init__(self, service: Callable[[], USubscription | Follower | None]) -> None:
        """``service`` returns the service in use; None: there is none."""
        self._service = service

    def routes(self) -> list[web.RouteDef]:
        """Return the HTTP routes of these pages."""
        return [web.get(f"{API}/subscriptions", one_at_a_time(self._list))]

    async def _list(self, request: web.Request) -> web.Response:
        query = RequestQuery(request, ("topic", "subscriber", "limit", "after"))
        topic, subscriber = query.read("topic", pattern), query.read("subscriber", pattern)
        page = EntryPage[ListedSubscription](query.limit(), query.read("after", cursors(UUri, UUri)))
        service = self._service()
        if service is not None:
            async for entry in in_turns(service.listed(), _ENTRIES_PER_ITERATION):
                if (topic is None or topic.matches(entry.topic)) and (
                    subscriber is None or subscriber.matches(entry.subscriber)
                ):
                    page.offer((entry.topic, entry.subscriber), entry)
        return web.json_response(
            {
                "subscriptions": [_as_json(entry) for entry in page.entries()],
                "next": page.next,
                "total": page.total,
                "observers": 0 if service is None else service.gauges().get("observers", 0),
                "service": _where(service),
            }
        )


def _where(service: USubscription | Follower | None) -> str:
    """Return where the uSubscription service is."""
    if service is None:
        return "none"
    return "here" if isinstance(service, USubscription) else "external"


def _as_json(entry: ListedSubscription) -> dict[str, Any]:
    return {
        "topic": str(entry.topic),
        "subscriber": str(entry.subscriber),
        "state": entry.state.name.lower(),
        "expires": None if entry.expire_ms is None else as_moment(entry.expire_ms),
        "sample_period_ms": entry.period_ms,
        "version": entry.version,
    }
