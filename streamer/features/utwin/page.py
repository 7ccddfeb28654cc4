"""The page `GET /api/v1/last-values`: what uTwin knows, with the beginning of each payload.

As with the tap, only programs on this machine may read it, with the token or a certificate, and the audit log has each
answer with its filters.
"""

from typing import Any

from aiohttp import web

from streamer.features.api.access import caller_of, for_this_machine, shows_payloads
from streamer.features.api.answers import API, RequestQuery, in_turns, one_of, pattern
from streamer.features.api.paging import EntryPage, cursors
from streamer.features.api.request_queue import one_at_a_time
from streamer.features.api.running import RunningStreamer
from streamer.features.tap.page import PAYLOADS, payload_fields
from streamer.features.tap.tap import PAYLOAD_BYTES
from streamer.features.utwin.last_values import LastValue
from streamer.journal.moments import as_moment
from streamer.logs.audit import audit
from streamer.uprotocol.uri import UUri
from streamer.uprotocol.uuid import format_id

_ENTRIES_PER_ITERATION = 1000


class LastValuePages:
    """The last value of each topic that a `RunningStreamer` knows."""

    def __init__(self, running: RunningStreamer) -> None:
        self._running = running

    def routes(self) -> list[web.RouteDef]:
        """Return the HTTP routes of these pages."""
        return [web.get(f"{API}/last-values", shows_payloads(for_this_machine(one_at_a_time(self._list))))]

    async def _list(self, request: web.Request) -> web.Response:
        query = RequestQuery(request, ("topic", "payload", "limit", "after"))
        topics, form = query.read("topic", pattern), query.read("payload", one_of(PAYLOADS)) or "length"
        page = EntryPage[LastValue](query.limit(), query.read("after", cursors(UUri)))
        twin = self._running.service_host.utwin
        async for topic, value in in_turns(() if twin is None else twin.fresh(), _ENTRIES_PER_ITERATION):
            if topics is None or topics.matches(topic):
                page.offer((topic,), value)
        shown = page.entries()
        filters = f"topic={topics or 'any'} payload={form}"
        audit("last_values_shown", **caller_of(request)._asdict(), filters=filters, topics=len(shown))
        now_ms = self._running.router.clock.wall_ms()
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
