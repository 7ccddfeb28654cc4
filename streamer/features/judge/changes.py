"""Compares another configuration with the running one, for all known flows. Loaded at the first request."""

from typing import Any

from streamer.config.models import Config
from streamer.config.reload import beyond_reload, reconnected_endpoints
from streamer.config.shown import fingerprint
from streamer.features.api.answers import in_turns
from streamer.features.host.host import table_of
from streamer.features.judge.changed import changed_settings
from streamer.features.judge.diff import Comparison, Side
from streamer.features.judge.diff_text import consequences_json, losses
from streamer.features.judge.judge import Known
from streamer.features.judge.page_known_flows import known_flows
from streamer.features.record import RunningStreamer

_FLOWS_PER_ITERATION = 50


async def compared(running: RunningStreamer, config: Config) -> Comparison:
    """Compare a configuration with the one in use, for all flows that are known. The event loop goes on meanwhile."""
    router = running.router
    known = Known(router.table, router.interest, router.pause_rules)
    after = known._replace(table=table_of(config, running.features))
    comparison = Comparison(Side(running.config, known), Side(config, after))
    async for flow in in_turns(await known_flows(router, router.clock.monotonic_s()), _FLOWS_PER_ITERATION):
        comparison.add(flow)
    return comparison


async def refusals(running: RunningStreamer, config: Config) -> list[str]:
    """Return a line for each loss: known flows that a configuration would deny, or send nowhere any more."""
    return list(losses(await compared(running, config)))


async def preview(running: RunningStreamer, config: Config) -> dict[str, Any]:
    """Return all that a configuration would change, in types of JSON."""
    comparison = await compared(running, config)
    return {
        "fingerprint": fingerprint(config),
        **consequences_json(comparison),
        "settings": [setting._asdict() for setting in changed_settings(running.config, config)],
        "restart": beyond_reload(running.config, config),
        "rebuilt": reconnected_endpoints(running.config, config),
    }
