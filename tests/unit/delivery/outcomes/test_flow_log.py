"""Log lines about flows: limits for each event and endpoint, and a line for each route of a flow."""

import logging

import pytest

from streamer.config.models import LogConfig
from streamer.delivery.outcomes.flow_log import DEAD_LETTERED, FLOWS, GIVEN_UP, LINES, REFUSED, FlowLog
from streamer.routing.outcome import Failure, Outcome
from streamer.uprotocol.message import UMessage, notification
from streamer.uprotocol.status import UCode
from streamer.uprotocol.uri import UUri
from tests.clock import FakeClock

FAILURE = Failure(Outcome.DEAD_LETTERED, UCode.UNAVAILABLE, "nobody is there")
SINK = UUri("cloud", 0xC0, 1, 0)


class Flows:
    """A log, and the lines that it has written: event, route, ingress, egress, and how many were left out before it."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "ustreamer.flows")
        self._caplog = caplog
        self.clock = FakeClock()
        self.log = FlowLog(self.clock)
        self.log.use(LogConfig(repeat_s=10))

    def message(self, flow: int = 0) -> UMessage:
        return notification(self.clock.ms, UUri("veh1", 1 + flow, 1, 0x8001), SINK)

    def lines(self) -> list[tuple[str, str, str, str, int]]:
        found = []
        for record in self._caplog.records:
            args = record.args
            assert isinstance(args, tuple)
            *_, route, ingress, egress, _ = (str(value) for value in args)
            found.append((str(record.msg).split(" ")[0], route, ingress, egress, record.__dict__["left_out"]))
        self._caplog.clear()
        return found


@pytest.fixture
def flows(caplog: pytest.LogCaptureFixture) -> Flows:
    return Flows(caplog)


@pytest.mark.parametrize("event", [REFUSED, DEAD_LETTERED, GIVEN_UP])
def test_an_endpoint_that_has_used_up_its_lines_takes_none_from_another(event: str, flows: Flows) -> None:
    """Refusals are limited by ingress, failures on a route by egress."""
    busy, calm = (("r", "from", "busy"), ("r", "from", "calm"))
    if event == REFUSED:
        busy, calm = (("r", "busy", "to"), ("r", "calm", "to"))
    for flow in range(LINES + 1):
        flows.log.failed(flows.message(flow), FAILURE, busy, 1, event)
    assert flows.lines() == [(event, *busy, 0)] * LINES
    flows.log.failed(flows.message(), FAILURE, calm, 1, event)
    assert flows.lines() == [(event, *calm, 0)]


@pytest.mark.parametrize("event", [REFUSED, DEAD_LETTERED])
def test_the_other_side_of_a_route_has_no_limit_of_its_own(event: str, flows: Flows) -> None:
    """A sender that invents flows could invent their sinks as well."""
    for flow in range(LINES + 1):
        names = ("r", "here", f"to {flow}") if event == REFUSED else ("r", f"from {flow}", "here")
        flows.log.failed(flows.message(flow), FAILURE, names, 1, event)
    assert len(flows.lines()) == LINES


def test_each_event_has_lines_of_its_own(flows: Flows) -> None:
    for flow in range(LINES + 1):
        flows.log.failed(flows.message(flow), FAILURE, ("r", "both", "both"), 0, REFUSED)
    flows.lines()
    flows.log.failed(flows.message(), FAILURE, ("r", "both", "both"), 1, DEAD_LETTERED)
    assert flows.lines() == [(DEAD_LETTERED, "r", "both", "both", 0)]


@pytest.mark.parametrize("other", ["route", "code", "source"])
def test_a_flow_has_a_line_for_each_route_and_reason(other: str, flows: Flows) -> None:
    names, failure, message = ("up", "vehicle", "cloud"), FAILURE, flows.message()
    for _ in range(2):
        flows.log.failed(message, failure, names, 1, DEAD_LETTERED)
    if other == "route":
        names = ("second", "vehicle", "cloud")
    elif other == "code":
        failure = Failure(Outcome.DEAD_LETTERED, UCode.NOT_FOUND, "no such topic")
    else:
        message = flows.message(1)
    for _ in range(3):
        flows.log.failed(message, failure, names, 1, DEAD_LETTERED)
    assert flows.lines() == [(DEAD_LETTERED, "up", "vehicle", "cloud", 0), (DEAD_LETTERED, *names, 0)]
    flows.clock.advance(10_001)
    flows.log.tick()
    assert flows.lines() == [(DEAD_LETTERED, "up", "vehicle", "cloud", 0), (DEAD_LETTERED, *names, 1)]


def test_flows_beyond_the_bound_are_counted_together(flows: Flows, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        for flow in range(LINES + FLOWS + 3):
            flows.log.failed(flows.message(flow), FAILURE, ("r", "a", "b"), 1, DEAD_LETTERED)
    caplog.clear()
    flows.log.tick(is_end=True)
    counts = [record for record in caplog.records if str(record.msg).startswith("flows_left_out")]
    assert len(caplog.records) == FLOWS + len(counts)
    (beyond,) = counts
    assert isinstance(beyond.args, tuple)
    told = sum(1 + record.__dict__["left_out"] for record in caplog.records if record is not beyond)
    assert (beyond.args[:2], LINES + told + int(str(beyond.args[2]))) == ((DEAD_LETTERED, "b"), 2 * (LINES + FLOWS + 3))
