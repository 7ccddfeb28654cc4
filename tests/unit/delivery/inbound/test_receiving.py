"""When receiving is paused: for a large backlog, and briefly while a destination is behind."""

import pytest

from streamer.delivery.inbound.backlog import Backlog
from streamer.delivery.inbound.receiving import MANY_WAITING_MESSAGES, PACE_S, SLOW_S
from streamer.delivery.lanes.lane import Hold
from streamer.delivery.outbound.in_flight import FEW_WAITING_MESSAGES
from streamer.transports.base import LinkState
from streamer.uprotocol.message import UMessage
from tests.unit.delivery.fake_transport import FakeTransport
from tests.unit.delivery.inbound.ingress_harness import EVERY_TOPIC, IngressHarness
from tests.unit.delivery.messages import message

IN_FLIGHT = 10
BATCH = 2 * MANY_WAITING_MESSAGES


class FloodHarness(IngressHarness):
    """Two destinations that are up, take `IN_FLIGHT` messages at a time, and confirm when the test says so."""

    def __init__(self, **keys: object) -> None:
        super().__init__(window=IN_FLIGHT, **keys)
        for transport in self.transports.values():
            transport.confirms_at_once = False
            transport.state = LinkState.UP
        # A new lane sends one message until that is confirmed.
        self.flood(1)
        for _ in range(IN_FLIGHT):
            self.confirm(1)
            self.flood(1)
        self.confirm(1)
        assert not self.cloud.messages
        self.pass_time(SLOW_S)  # `cloud` was a new destination

    def flood(self, number: int = BATCH, level: int = 1) -> list[UMessage]:
        """So many messages for `cloud`, in one batch."""
        sent = [message(0, level) for _ in range(number)]
        self.receive(*sent, is_kept_by_source=False)
        return sent

    def confirm(self, number: int, transport: FakeTransport | None = None) -> None:
        """The oldest messages in flight are confirmed, one after the other."""
        for _ in range(number):
            (transport or self.transports["cloud"]).answer(0)

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(int(seconds * 1000))


def test_a_source_waits_while_its_destination_is_behind_and_goes_on_when_few_messages_wait() -> None:
    harness = FloodHarness()
    harness.flood(MANY_WAITING_MESSAGES + IN_FLIGHT - 1)
    assert harness.source.log == []
    harness.flood()
    assert harness.source.log == ["pause"]
    waiting = MANY_WAITING_MESSAGES - 1 + BATCH
    harness.confirm(waiting - FEW_WAITING_MESSAGES - 1)
    assert harness.source.log == ["pause"]
    harness.confirm(1)
    assert harness.source.log == ["pause", "resume"]
    harness.flood()
    assert harness.source.log == ["pause", "resume", "pause"]


def test_a_source_waits_for_a_slow_destination_but_once_in_a_while() -> None:
    harness = FloodHarness()
    harness.flood()
    ((after_s, give_up),) = harness.timers
    assert after_s == PACE_S
    harness.pass_time(PACE_S)
    give_up()
    assert harness.source.log == ["pause", "resume"]
    harness.flood()
    harness.pass_time(SLOW_S - 0.001)
    harness.flood()
    assert harness.source.log == ["pause", "resume"]
    harness.pass_time(0.001)
    harness.flood()
    assert harness.source.log == ["pause", "resume", "pause"]


def test_the_end_of_a_wait_that_is_over_does_not_end_the_next_one() -> None:
    harness = FloodHarness()
    harness.flood()
    harness.confirm(BATCH - FEW_WAITING_MESSAGES)
    harness.flood()
    (_, first), (_, second) = harness.timers
    first()
    assert harness.source.log == ["pause", "resume", "pause"]
    second()
    assert harness.source.log == ["pause", "resume", "pause", "resume"]


def test_a_source_that_sends_to_several_destinations_does_not_wait_for_one() -> None:
    harness = FloodHarness()
    flows = [0] * BATCH + [1] + [0] * BATCH  # topic 1 goes to both
    harness.receive(*(message(flow) for flow in flows), is_kept_by_source=False)
    assert harness.source.log == []
    harness.pass_time(SLOW_S - 0.001)
    harness.flood()
    assert harness.source.log == []
    harness.pass_time(0.001)
    harness.flood()
    assert harness.source.log == ["pause"]


def test_a_source_does_not_wait_for_a_flow_that_is_slow_by_its_own_window() -> None:
    harness = FloodHarness(flow_window=1)
    harness.flood()
    assert harness.transports["cloud"].submitted
    assert harness.source.log == []


def test_a_source_does_not_wait_for_a_new_flow() -> None:
    harness = FloodHarness()
    harness.receive(*(message(2) for _ in range(BATCH)), is_kept_by_source=False)
    assert harness.source.log == []


@pytest.mark.parametrize("is_suspended", [False, True])
def test_a_source_does_not_wait_for_a_destination_that_cannot_go_on(is_suspended: bool) -> None:
    harness = FloodHarness()
    harness.flood(2 * IN_FLIGHT)
    if is_suspended:
        harness.egresses["cloud"].suspend()
    else:
        harness.transports["cloud"].state = LinkState.DOWN  # what is in flight stays there until it is back
    harness.flood()
    assert harness.source.log == []


def test_a_source_does_not_wait_for_what_is_held() -> None:
    harness = FloodHarness()
    harness.flood(IN_FLIGHT)
    (lane,) = harness.cloud.lanes.values()
    harness.egresses["cloud"].hold(lane, Hold.PAUSED)
    harness.flood()
    assert harness.source.log == []


def test_while_classes_differ_a_source_does_not_wait_since_the_higher_one_would_too() -> None:
    harness = FloodHarness()
    harness.flood()
    assert harness.source.log == ["pause"]
    harness.receive(message(2, level=6), is_kept_by_source=False)
    harness.confirm(1)
    assert harness.source.log == ["pause", "resume"]
    harness.flood()
    assert harness.source.log == ["pause", "resume"]
    harness.pass_time(1.1)
    harness.flood()
    assert harness.source.log == ["pause", "resume", "pause"]


def test_a_source_that_waits_for_its_destination_is_not_resumed_when_its_backlog_has_gone() -> None:
    harness, backlog = FloodHarness(), Backlog()
    harness.flood()
    for backlog.bytes in (1 << 24, 0):
        harness.receiving.backlog_changed(backlog)
    assert harness.source.log == ["pause", "pause"]
    harness.confirm(BATCH)
    assert harness.source.log == ["pause", "pause", "resume"]


def test_a_closed_source_is_not_resumed() -> None:
    harness = FloodHarness()
    harness.flood()
    harness.ingress.close()
    harness.confirm(BATCH)
    harness.timers[0][1]()
    assert harness.source.log == ["pause", "pause"]


def test_a_source_that_is_about_to_end_goes_on_and_is_not_paused() -> None:
    harness = FloodHarness()
    harness.flood()
    harness.ingress.take_rest(beyond_bounds=False)
    assert harness.source.log == ["pause", "resume"]
    harness.flood()
    assert harness.source.log == ["pause", "resume"]


def test_a_destination_that_was_waited_for_does_not_end_the_wait_for_another_one() -> None:
    harness = FloodHarness()
    harness.flood()
    harness.receiving._time_out(1)
    harness.pass_time(SLOW_S)
    harness.use({"phone": (EVERY_TOPIC,)})
    harness.transports["phone"].confirms_at_once = True
    harness.receive(*(message(3) for _ in range(BATCH)), is_kept_by_source=False)
    harness.transports["phone"].confirms_at_once = False
    harness.pass_time(SLOW_S)
    harness.receive(*(message(3) for _ in range(BATCH)), is_kept_by_source=False)
    assert harness.source.log == ["pause", "resume", "pause"]
    harness.confirm(BATCH)
    assert harness.source.log == ["pause", "resume", "pause"]


def test_a_source_that_waits_is_resumed_through_its_new_transport_only_if_that_was_paused() -> None:
    harness = FloodHarness()
    harness.flood()
    harness.ingress.close()
    harness.ingress.reopen(harness.source)
    harness.source.log.clear()
    harness.confirm(BATCH)
    assert harness.source.log == []
    harness.flood()
    harness.confirm(BATCH)
    assert harness.source.log == ["pause", "resume"]


def test_a_source_with_a_backlog_waits_until_both_are_gone() -> None:
    harness = FloodHarness()
    harness.flood()
    harness.receiving.is_paused_by_backlog = True
    harness.confirm(BATCH)
    assert harness.source.log == ["pause"]
    harness.receiving.backlog_changed(harness.ingress.backlog)
    assert harness.source.log == ["pause", "resume"]
