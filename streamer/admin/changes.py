"""What another configuration would change for the flows that a running streamer knows. Loaded when it is asked for."""

import asyncio
from typing import Any

from streamer.admin.known_flows import known_flows
from streamer.admin.running import RunningStreamer
from streamer.config.changed import changed_settings
from streamer.config.costs import costs
from streamer.config.models import Config
from streamer.config.reload import beyond_reload, rebuilt_endpoints
from streamer.config.shown import fingerprint
from streamer.routing.diff import Comparison, Side
from streamer.routing.diff_text import consequences_json, losses
from streamer.routing.judge import Known
from streamer.routing.table import RoutingTable
from streamer.services.host import entities

_FLOWS_PER_ITERATION = 50


async def compared(running: RunningStreamer, config: Config) -> Comparison:
    """Compare a configuration with the one in use, for all flows that are known. The event loop goes on meanwhile."""
    router = running.router
    known = Known(router.table, router.interest, router.pause_rules)
    table = RoutingTable.from_config(config, config.addressed, entities(config), config.catalogue.topics)
    comparison = Comparison(Side(running.config, known), Side(config, known._replace(table=table)))
    for number, flow in enumerate(await known_flows(router, router.clock.monotonic_s()), 1):
        comparison.add(flow)
        if not number % _FLOWS_PER_ITERATION:
            await asyncio.sleep(0)
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
        "rebuilt": [name for name in rebuilt_endpoints(running.config, config) if name in running.config.endpoints],
        "costs": [cost.text for cost in costs(running.config, config)],
    }
