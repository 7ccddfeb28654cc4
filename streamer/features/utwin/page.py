"""The page `GET /api/v1/last-values`: what uTwin knows, with the beginning of each payload.

As with the tap, only programs on this machine may read it, with the token or a certificate, and the audit log has each
answer with its filters.
"""

from collections.abc import Callable, Iterable
from typing import Any

from aiohttp import web
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from streamer.clock import Clock
from streamer.features.api.access import caller_of, for_this_machine, shows_payloads
from streamer.features.api.answers import API, RequestQuery, in_turns, one_of, pattern
from streamer.features.api.paging import EntryPage, cursors
from streamer.features.api.payloads import PAYLOAD_BYTES, PAYLOADS, payload_fields
from streamer.features.api.request_queue import one_at_a_time
from streamer.features.utwin.last_values import LastValue, LastValues
from streamer.features.utwin.service import UTwin
from streamer.journal.moments import as_moment
from streamer.logs.audit import audit
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.uuid import format_id

_ENTRIES_PER_ITERATION = 1000


def families(values: LastValues) -> Iterable[Metric]:
    """Yield the metrics about the last values."""
    yield GaugeMetricFamily("ustreamer_utwin_topics", "Topics whose last message uTwin keeps.", len(values))
    yield GaugeMetricFamily("ustreamer_utwin_bytes", "Bytes of these messages.", values.bytes)
    yield CounterMetricFamily(
        "ustreamer_utwin_forgotten_messages", "Last messages for which uTwin had no room any more.", values.forgotten
    )


class LastValuePages:
    """The last value of each topic that core.utwin knows."""

    def __init__(self, service: Callable[[], UTwin | None], clock: Clock) -> None:
        """``service`` returns the service in use; None: there is none."""
        self._service = service
        self._clock = clock

    def routes(self) -> list[web.RouteDef]:
        """Return the HTTP routes of these pages."""
        return [web.get(f"{API}/last-values", shows_payloads(for_this_machine(one_at_a_time(self._list))))]

    async def _list(self, request: web.Request) -> web.Response:
        query = RequestQuery(request, ("topic", "payload", "limit", "after"))
        topics, form = query.read("topic", pattern), query.read("payload", one_of(PAYLOADS)) or "length"
        page = EntryPage[LastValue](query.limit(), query.read("after", cursors(UUri)))
        twin = self._service()
        async for topic, value in in_turns(() if twin is None else twin.fresh(), _ENTRIES_PER_ITERATION):
            if topics is None or topics.matches(topic):
                page.offer((topic,), value)
        shown = page.entries()
        filters = f"topic={topics or 'any'} payload={form}"
        audit("last_values_shown", **caller_of(request)._asdict(), filters=filters, topics=len(shown))
        now_ms = self._clock.wall_ms()
        return web.json_response(
            {
                "values": [_as_json(value, form, now_ms) for value in shown],
                "next": page.next,
                "total": page.total,
                "is_on": twin is not None,
            }
        )


def _as_json(value: LastValue, form: str, now_ms: int) -> dict[str, Any]:
    message = value.message
    attributes, payload = message.attributes, message.payload or b""
    has_payload = form not in ("none", "length")
    return {
        "topic": str(attributes.source),
        "id": format_id(message.id),
        "at": as_moment(value.at_ms),
        "age_s": (now_ms - value.at_ms) / 1000,
        "ttl_ms": attributes.ttl,
        **payload_fields(form, attributes, len(payload), payload[:PAYLOAD_BYTES] if has_payload else None),
    }
