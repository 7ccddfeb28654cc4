"""Lanes that a rule and a budget pause."""

from streamer.uprotocol.message import UPriority
from streamer.uprotocol.uri import UUri
from tests.flow.harness import SPEED, RouterHarness
from tests.flow.pausing import pause, resume, waiting


async def test_a_rule_and_a_class_pause_a_lane_each_for_itself() -> None:
    async with RouterHarness() as harness:
        egress = harness.router.egresses["cloud"]
        harness.arrive("vehicle", first := harness.speed())
        pause(harness.router, SPEED)
        egress.pause_below(UPriority.CS6)
        harness.arrive("vehicle", harness.speed(), harness.speed(source=UUri.parse("//veh1/9/1/9000")))
        resume(harness.router, SPEED)
        assert (harness.sent("cloud"), waiting(harness.router)) == ([first], 2)
        pause(harness.router, SPEED)
        egress.pause_below(0)
        assert waiting(harness.router) == 1
