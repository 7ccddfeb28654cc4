"""Pausing flows of a router, and what of them waits. No tests."""

from streamer.delivery.router import Router
from streamer.routing.pause_rules import PauseRule
from streamer.uprotocol.uri import UUri

UP = "vehicle-cloud"
DOORS = UUri("veh1", 0xA8000, 2, 0x8A51)
EVERYTHING = PauseRule.parse("//*/FFFFFFFF/FF/FFFF")


def pause(router: Router, source: UUri | PauseRule, sink: UUri | None = None) -> None:
    router.pause_rules.add(source if isinstance(source, PauseRule) else PauseRule(source, sink))
    router.apply_pause_rules()


def resume(router: Router, source: UUri | PauseRule, sink: UUri | None = None) -> None:
    assert router.pause_rules.remove(source if isinstance(source, PauseRule) else PauseRule(source, sink))
    router.apply_pause_rules()


def waiting(router: Router) -> int:
    return sum(number for _, number in router.paused_flows())
