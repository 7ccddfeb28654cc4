"""The page `GET /api/v1/live-audit`, and the metrics: what was compared, what is open, and what was found."""

from collections.abc import Iterable

from aiohttp import web
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from streamer.features.api.answers import API
from streamer.features.live_audit.service import LiveAudit


def families(service: LiveAudit) -> Iterable[Metric]:
    """Yield the metrics of the live audit."""
    name, comparison = "ustreamer_live_audit", service.comparison
    yield CounterMetricFamily(f"{name}_others", "Messages that the live audit had no room to count.", service.counter.others)
    if comparison is not None:
        text = "Messages that were compared with those of another streamer, by verdict; of unequal minutes, the difference."
        messages = CounterMetricFamily(f"{name}_messages", text, labels=["verdict"])
        for verdict, number in comparison.counts.items():
            messages.add_metric([verdict], number)
        yield messages
        yield GaugeMetricFamily(f"{name}_open_minutes", "Minutes of classes that are not equal.", len(comparison.entries))
        yield GaugeMetricFamily(f"{name}_streamers", "Streamers that send rows.", len(comparison.streamers))
        yield CounterMetricFamily(f"{name}_lost_rows", "Messages with rows that did not arrive.", comparison.lost_rows)


def routes(service: LiveAudit | None) -> list[web.RouteDef]:
    """Return the route of the page: the latest findings, and the messages by verdict. None: there is no live audit."""

    async def show(request: web.Request) -> web.Response:
        answer = {"compares": False, "streamers": 0, "open_minutes": 0, "messages": {}, "findings": []}
        if service is not None and (comparison := service.comparison) is not None:
            answer |= {"compares": True, "streamers": len(comparison.streamers), "open_minutes": len(comparison.entries)}
            found = [each.shown() for each in reversed(service.findings)]
            answer |= {"messages": comparison.counts, "findings": found}
        return web.json_response(answer)

    return [web.get(f"{API}/live-audit", show)]
