"""A configuration to be probed, and what its probes answer. No tests."""

import asyncio
from collections.abc import Iterable
from typing import Any

from streamer.config.models import Config
from streamer.features.check import machine, probe
from streamer.transports.probe import Answer, Probe


def raw(**sections: Any) -> dict[str, Any]:
    endpoints = {"vehicle": {"transport": "memory", "authorities": ["veh1"], "options": {"bus": "v"}}}
    return {"authority": "gw", "endpoints": endpoints, "routes": [], "metrics": None, **sections}


def answers(probes: Iterable[Probe]) -> dict[str, Answer]:
    listed = list(probes)
    return dict(zip((each.key for each in listed), asyncio.run(probe.run_all(listed)), strict=True))


def of_stores(used: Any = frozenset(), **sections: Any) -> dict[str, Answer]:
    return answers(machine.stores(Config.model_validate(raw(**sections)), used))
